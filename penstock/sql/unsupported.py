"""What SQL has and Penstock does not support, with what to write instead."""

from __future__ import annotations

from penstock.errors import DeclarationError
from penstock.flow.functions import closest_function, kind_of
from penstock.flow.reading import Reading
from penstock.sql.reader import TokenReader
from penstock.sql.text import Span

_SORT = 'views have no order: sort when asking, penstock query "select ... order by ..."'
_TOP = "; the first rows are QUALIFY ROW_NUMBER() OVER (ORDER BY ...) <= n"
EXPLODE_HINT = "make several rows of one in Python: .map(lambda rows: rows.selectExpr('*', 'explode(items) as item'))"

UNSUPPORTED_CLAUSES: dict[str, tuple[str, str]] = {
    "order": ("ORDER BY", _SORT + _TOP),
    "limit": ("LIMIT", _SORT + _TOP),
    "offset": ("OFFSET", _SORT + _TOP),
    "fetch": ("FETCH", _SORT + _TOP),
    "sort": ("SORT BY", _SORT + _TOP),
    "cluster": ("CLUSTER BY", _SORT),
    "distribute": ("DISTRIBUTE BY", "rows go to tasks by the keys of each step: leave it out"),
    "window": ("WINDOW", "write the window where it is used: OVER (PARTITION BY ... ORDER BY ...)"),
    "lateral": ("LATERAL", EXPLODE_HINT),
    "pivot": ("PIVOT", "write an aggregate for each column: sum(x) FILTER (WHERE kind = 'a') AS a"),
    "unpivot": ("UNPIVOT", "write a SELECT for each column, and unite them with UNION ALL"),
    "tablesample": ("TABLESAMPLE", "choose rows by their values: WHERE pmod(hash(id), 100) < 10"),
    "for": ("FOR", "a table is looked up as of a time with JOIN t FOR SYSTEM_TIME AS OF s.time"),
}
"""Clauses by their first word: the name and the hint."""

_APPEND_HINT = "facts come by topics: penstock produce, or Topic.append in Python"
_STATEMENTS: dict[str, tuple[str, str]] = {
    "insert": ("INSERT", _APPEND_HINT),
    "update": ("UPDATE", _APPEND_HINT),
    "delete": ("DELETE", _APPEND_HINT),
    "merge": ("MERGE", "a view follows its topics by itself: CREATE VIEW"),
    "truncate": ("TRUNCATE", "remove rows with penstock erase or penstock expire"),
    "drop": ("DROP", "leave the declaration out: the next start drops the view"),
    "alter": ("ALTER", "change the declaration: the next start builds again what changed"),
    "refresh": ("REFRESH", "views follow by themselves"),
    "show": ("SHOW", "penstock views, or penstock explain"),
    "describe": ("DESCRIBE", "EXPLAIN name, or penstock explain"),
    "desc": ("DESC", "EXPLAIN name, or penstock explain"),
    "use": ("USE", "there is one log: penstock run --log PATH"),
    "values": ("VALUES", _APPEND_HINT),
    "table": ("TABLE", "SELECT * FROM name"),
    "from": ("FROM", "a query begins with SELECT"),
}


def statement_refusal(statement: Span) -> DeclarationError:
    """The error for a statement that is not supported, or not known at all."""
    word = statement.keywords[0]
    if word in _STATEMENTS:
        name, hint = _STATEMENTS[word]
        return statement.refusal("sql", f"{name} is not supported", hint)
    return statement.refusal(
        "sql",
        f"a statement begins with CREATE, SELECT, WITH, EXPLAIN or SET; found {statement.tokens[0].raw!r}",
    )


def refuse_clause(reader: TokenReader) -> None:
    """Refuse the next word if it begins a clause that is not supported."""
    if reader.peek() in UNSUPPORTED_CLAUSES:
        name, hint = UNSUPPORTED_CLAUSES[reader.peek()]
        raise reader.refusal(f"{name} is not supported", hint)


def refuse_subqueries(span: Span, what: str) -> None:
    """Refuse a query inside of an expression."""
    for number, word in enumerate(span.keywords):
        if word == "exists" and span.keywords[number + 1 : number + 3] == ("(", "select"):
            raise span.cut(number).refusal(
                what,
                "EXISTS (SELECT ...) is not supported",
                "use LEFT SEMI JOIN ... ON, or LEFT ANTI JOIN for NOT EXISTS",
            )
        if word == "select":
            if span.keywords[number - 2 : number] == ("in", "("):
                hint = "use LEFT SEMI JOIN ... ON, or LEFT ANTI JOIN for NOT IN"
                raise span.cut(number - 2).refusal(what, "IN (SELECT ...) is not supported", hint)
            hint = "put the query into FROM or WITH and join it; or LEFT SEMI JOIN, LEFT ANTI JOIN"
            raise span.cut(number).refusal(what, "a subquery inside of an expression is not supported", hint)


def refuse_calls(span: Span, what: str, reading: Reading) -> None:
    """Refuse functions that do not exist, that make several rows, or that use other rows, in the words of SQL."""
    for call in reading.calls:
        found = repr(reading.text[call.start : call.end])
        kind = kind_of(call.function)
        if call.over or kind == "window":
            raise span.refusal(
                what,
                f"of the functions over other rows there are ROW_NUMBER() and RANK(), with a bound; found {found}",
                "QUALIFY ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) <= n; or GROUP BY, and a join",
            )
        if kind is None and call.function != "sliding_window":
            hint = closest_function(call.function)
            raise span.refusal(what, f"Spark has no function '{call.function}'; found {found}", hint)
        if kind == "generator":
            raise span.refusal(
                what, f"a function that makes several rows is not supported; found {found}", EXPLODE_HINT
            )
        if kind == "time window" or call.function == "sliding_window":
            raise span.refusal(
                what,
                f"windows are made in GROUP BY; found {found}",
                "GROUP BY window(time, '10 seconds'), and window.start, window.end in the SELECT list",
            )
