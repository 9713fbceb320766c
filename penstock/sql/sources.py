"""What FROM reads: rows by name, table functions, subqueries, and the joins behind them."""

from __future__ import annotations

from collections.abc import Callable

from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.log.ddl import closest
from penstock.sql.clauses import Query, Relation, Select, is_plain
from penstock.sql.conditions import conjuncts
from penstock.sql.joins import Joined, joined
from penstock.sql.scope import Known, Ranked, Result, Rows, complete, named, scope_of
from penstock.sql.text import Span, name_of, parts
from penstock.sql.top import bound_in

_WINDOWS = frozenset({"tumble", "hop", "session", "cumulate", "window"})
_FUNCTIONS = ["changes", "latest"]

Translate = Callable[[Query, Known], Result]


def read_rows(select: Select, known: Known, translate: Translate, keep: str | None) -> tuple[Joined, list[Span]]:
    """The joined rows, and the conditions of WHERE that are still to be applied."""
    conditions = conjuncts(select.where) if select.where else []
    source = _result(select.source, known, translate)
    if isinstance(source, Ranked) and not select.joins:
        source, conditions = _bounded(source, conditions)
    elif select.where:
        conditions = [select.where]
    rows = complete(source)
    found = Joined(rows, scope_of(rows, _alias(select.source)))
    for clause in select.joins:
        right = complete(_result(clause.right, known, translate))
        found = joined(found, clause, right, _alias(clause.right), keep)
    return found, conditions


def _bounded(source: Ranked, conditions: list[Span]) -> tuple[Result, list[Span]]:
    """The rows up to the rank that a condition says, and the other conditions."""
    bound = bound_in(conditions, source.rank)
    if bound is None or bound.ranking is not None:
        return source, conditions
    return source.bounded(bound.count), [*bound.others]


def _alias(relation: Relation) -> str | None:
    if relation.alias is not None or not isinstance(relation.source, str) or relation.arguments is not None:
        return relation.alias
    return relation.source


def _result(relation: Relation, known: Known, translate: Translate) -> Result:
    if not isinstance(relation.source, str):
        return translate(relation.source, known)
    if relation.arguments is None:
        return named(relation.source, known, relation.span)
    return _called(relation, relation.arguments, known)


def _called(relation: Relation, arguments: Span, known: Known) -> Rows:
    function = str(relation.source).lower()
    if function in _WINDOWS:
        raise relation.span.refusal(
            "from",
            f"windows are made in GROUP BY; found {function}(...) in FROM",
            "GROUP BY window(time, '10 seconds'), session_window(...) or sliding_window(...)",
        )
    if function not in _FUNCTIONS:
        hint = closest(function, _FUNCTIONS) or "make several rows of one in Python, with .map(...)"
        raise relation.span.refusal(
            "from", f"in FROM there are changes(table) and latest(stream, key); found {function}(...)", hint
        )
    given = [part for part in parts(arguments) if part]
    if not given or not all(map(is_plain, given)):
        raise relation.span.refusal(
            "from", f"{function}(...) takes names; found '{arguments}'", "put a query into WITH"
        )
    name = str(given[0]).replace("`", "").replace(" ", "")
    rows = complete(named(name, known, given[0]))
    with relation.span.text.at(relation.span.at):
        return _changes(rows, given, relation) if function == "changes" else _latest(rows, given, relation)


def _changes(rows: Rows, given: list[Span], relation: Relation) -> Stream:
    if not isinstance(rows, Table) or len(given) > 1:
        raise relation.span.refusal("from", f"changes(table) takes one table; found '{given[-1]}'")
    return rows.changes()


def _latest(rows: Rows, given: list[Span], relation: Relation) -> Table:
    if not isinstance(rows, Stream):
        raise relation.span.refusal("from", f"latest(stream, key) takes a stream; '{given[0]}' is a table")
    if len(given) == 1:
        raise relation.span.refusal("from", "latest(stream, key) needs the columns of the key; found none")
    return rows.latest(*(name_of(one.tokens[-1]) for one in given[1:]))
