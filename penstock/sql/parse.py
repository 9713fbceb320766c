"""Parses a query: WITH, SELECT, FROM and its joins, the clauses after them, UNION ALL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.errors import DeclarationError
from penstock.flow.joins import FOREVER
from penstock.flow.plan import How
from penstock.flow.reading import read
from penstock.sql.clauses import AsOfClause, JoinClause, Query, Relation, Select, SelectItem, Setting
from penstock.sql.reader import TokenReader, ends_condition, ends_expression, ends_select_list
from penstock.sql.text import Span, is_name, name_of, split_at_commas, top_level, unclosed_bracket
from penstock.sql.unsupported import EXPLODE_HINT, UNSUPPORTED_CLAUSES, refuse_clause

_SETS_HINT = "only UNION ALL unites queries; DISTINCT over a subquery with UNION ALL leaves out repeated rows"
_ON_HINT = "say which columns are equal: JOIN t ON a.id = b.id, or USING (id)"


def parse_query(span: Span) -> Query:
    """All of the span as one query."""
    reader = TokenReader(span, "select")
    query = _parse_union(reader)
    reader.expect_end(hint="a query ends here; is a keyword or an operator missing?")
    return query


def _parse_union(reader: TokenReader) -> Query:
    start = reader.rest
    named = _parse_with(reader) if reader.accept("with") else ()
    parts = [_parse_part(reader)]
    while reader.peek() in ("union", "intersect", "except", "minus"):
        _expect_union_all(reader)
        parts.append(_parse_part(reader))
    refuse_clause(reader)
    return Query(start, tuple(parts), named)


def _parse_with(reader: TokenReader) -> tuple[tuple[str, Query], ...]:
    if reader.peek() == "recursive":
        raise reader.refusal("queries cannot use themselves; found WITH RECURSIVE")
    named: dict[str, Query] = {}
    while True:
        start = reader.rest
        name = reader.name("the name of a query")
        if reader.peek() == "(":
            raise reader.refusal("columns are named inside of the query", f"WITH {name} AS (SELECT ... AS name)")
        reader.expect("as")
        if name in named:
            raise start.refusal("with", f"there are two queries of this name; found {name!r}")
        named[name] = parse_query(reader.in_parentheses())
        if not reader.accept(","):
            return tuple(named.items())


def _parse_part(reader: TokenReader) -> Select | Query:
    if reader.peek() == "(":
        return parse_query(reader.in_parentheses())
    return _parse_select(reader)


def _expect_union_all(reader: TokenReader) -> None:
    word = reader.peek().upper()
    if word == "UNION" and reader.follows("union", "all"):
        reader.take(2)
        return
    if word == "UNION":
        raise reader.refusal("UNION without ALL is not supported", _SETS_HINT)
    instead = "LEFT SEMI JOIN" if word == "INTERSECT" else "LEFT ANTI JOIN"
    raise reader.refusal(f"{word} is not supported", f"use {instead} ... ON a.x <=> b.x")


# -- the SELECT list --------------------------------------------------------------------------------------------------


def _parse_select(reader: TokenReader) -> Select:
    start = reader.rest
    if reader.peek() in ("values", "table", "from"):
        raise reader.refusal(f"a query begins with SELECT; found {reader.peek().upper()}")
    reader.expect("select")
    distinct, distinct_on = _parse_distinct(reader)
    select_list = reader.expression(ends_select_list)
    if not reader.accept("from"):
        raise _missing_from(select_list, reader)
    items = tuple(_parse_item(part) for part in split_at_commas(select_list))
    source, joins = _parse_from(reader)
    return _parse_clauses(reader, Select(start, items, source, joins, distinct, distinct_on))


def _parse_distinct(reader: TokenReader) -> tuple[bool, tuple[Span, ...]]:
    if not reader.accept("distinct"):
        reader.accept("all")
        return False, ()
    if not reader.accept("on"):
        return True, ()
    start = reader.rest
    columns = tuple(split_at_commas(reader.in_parentheses()))
    if not all(map(len, columns)):
        raise start.refusal("distinct", "DISTINCT ON names the columns that rows must differ in", "DISTINCT ON (a, b)")
    return True, columns


def _missing_from(select_list: Span, reader: TokenReader) -> DeclarationError:
    """Why there is no FROM after the list: something before it is incomplete, or it is missing."""
    unclosed = unclosed_bracket(select_list)
    if unclosed is not None:
        word = unclosed.keywords[0]
        missing = {"(": "a ')'", "[": "a ']'"}.get(word, "END")
        return unclosed.refusal("select", f"{missing} is missing for this {word.upper()!r}; found '{unclosed}'")
    keywords = select_list.keywords
    from_ = next((number for number in top_level(select_list.tokens) if keywords[number] == "from"), None)
    if from_ is not None:
        before = select_list.cut(0, from_)
        return select_list.cut(from_).refusal("select", f"something is missing before FROM; found '{before}'")
    return reader.refusal("FROM is missing: every query reads a topic, a table or a view")


def _parse_item(span: Span) -> SelectItem:
    if not span:
        raise span.refusal("select", "an item is missing between the commas")
    if (span.keywords[0] == "*" or span.keywords[1:3] == (".", "*")) and not SelectItem(span).is_star:
        raise span.refusal("select", f"'*' cannot be part of an expression; found '{span}'", "name the columns")
    if len(span) > 2 and span.keywords[-2] == "as":
        return SelectItem(span.cut(0, -2), _item_alias(span))
    if len(span) > 1 and is_name(span.tokens[-1]) and not _is_expression(span) and _is_expression(span.cut(0, -1)):
        return SelectItem(span.cut(0, -1), _item_alias(span))
    return SelectItem(span)


def _item_alias(span: Span) -> str:
    if not is_name(span.tokens[-1]):
        raise span.cut(-1).refusal(
            "select",
            f"a name is expected after AS; found {span.tokens[-1].raw}",
            "a name is written as it is, or in backquotes",
        )
    return name_of(span.tokens[-1])


def _is_expression(span: Span) -> bool:
    try:
        read(str(span))
    except DeclarationError:
        return False
    return True


# -- FROM and JOIN ----------------------------------------------------------------------------------------------------

_JOIN_KINDS: tuple[tuple[tuple[str, ...], How], ...] = (
    (("join",), "inner"),
    (("inner", "join"), "inner"),
    (("left", "join"), "left"),
    (("left", "outer", "join"), "left"),
    (("right", "join"), "right"),
    (("right", "outer", "join"), "right"),
    (("full", "join"), "full"),
    (("full", "outer", "join"), "full"),
    (("left", "semi", "join"), "semi"),
    (("semi", "join"), "semi"),
    (("left", "anti", "join"), "anti"),
    (("anti", "join"), "anti"),
)
_NOT_AN_ALIAS = frozenset(
    {*UNSUPPORTED_CLAUSES, "on", "using", "join", "inner", "left", "right", "full", "cross", "natural", "semi", "anti"}
    | {"where", "group", "having", "qualify", "emit", "late", "keep", "within", "union", "intersect", "except"}
    | {"minus", "asof"}
)


def _parse_from(reader: TokenReader) -> tuple[Relation, tuple[JoinClause, ...]]:
    """What FROM reads, and the joins after it; the word FROM has been read."""
    source = _parse_relation(reader)
    if source.as_of is not None:
        raise source.span.refusal("from", "FOR SYSTEM_TIME AS OF belongs to a table that is joined")
    joins: list[JoinClause] = []
    while (join := _parse_join(reader)) is not None:
        joins.append(join)
    return source, tuple(joins)


def _parse_relation(reader: TokenReader) -> Relation:
    start = reader.rest
    if reader.peek() in ("lateral", "values", "unnest", "explode"):
        raise reader.refusal(f"{reader.peek().upper()} is not supported", EXPLODE_HINT)
    if reader.peek() == "(":
        inside = reader.in_parentheses()
        if inside.keywords[:1] not in (("select",), ("with",), ("(",)):
            raise inside.refusal("from", "parentheses are for a query", "FROM a JOIN b ON ..., without parentheses")
        relation = Relation(start, parse_query(inside))
    else:
        name = reader.dotted_name("the name of a topic, a table or a view")
        relation = Relation(start, name, reader.in_parentheses() if reader.peek() == "(" else None)
    as_of = _parse_as_of(reader)
    return replace(relation, as_of=as_of, alias=_parse_relation_alias(reader))


def _parse_as_of(reader: TokenReader) -> AsOfClause | None:
    if not reader.accept("for"):
        return None
    if reader.peek() in ("version", "system_version", "timestamp"):
        raise reader.refusal(f"FOR {reader.peek().upper()} is not supported", "FOR SYSTEM_TIME AS OF s.time")
    reader.expect("system_time", "as", "of", hint="FOR SYSTEM_TIME AS OF s.time, or AS OF LATEST")
    if reader.peek() == "latest" and reader.peek(1) != ".":
        reader.take()
        return AsOfClause(None)
    return AsOfClause(reader.dotted("the column of the stream with the moment, or LATEST"))


def _parse_relation_alias(reader: TokenReader) -> str | None:
    has_as = reader.accept("as")
    token = reader.token()
    if not has_as and (token is None or not is_name(token) or reader.peek() in _NOT_AN_ALIAS):
        return None
    alias = reader.name("a name after AS")
    if reader.peek() == "(":
        raise reader.refusal("columns cannot be renamed after a table's name", "name them in a subquery: SELECT a AS b")
    return alias


def _parse_join(reader: TokenReader) -> JoinClause | None:
    start = reader.rest
    _refuse_unsupported_joins(reader)
    how = next((how for words, how in _JOIN_KINDS if reader.accept(*words)), None)
    if how is None:
        return None
    right = _parse_relation(reader)
    within = _parse_within(reader)
    if reader.accept("using"):
        using = tuple(split_at_commas(reader.in_parentheses()))
        if not all(len(column) == 1 and is_name(column.tokens[0]) for column in using):
            raise start.refusal("join", "USING has names of columns that both sides have", _ON_HINT)
        return JoinClause(start, how, right, within, using=using)
    if not reader.accept("on"):
        raise start.refusal("join", "a join needs ON or USING; found none", _ON_HINT)
    return JoinClause(start, how, right, within, on=reader.expression(ends_condition))


def _parse_within(reader: TokenReader) -> str | None:
    """WITHIN FOREVER, or WITHIN and a length of time, of two streams that are joined."""
    if not reader.accept("within"):
        return None
    return FOREVER if reader.accept(FOREVER) else reader.duration()


def _refuse_unsupported_joins(reader: TokenReader) -> None:
    word = reader.peek()
    if word == ",":
        raise reader.refusal("tables are not joined with a comma", _ON_HINT)
    if word in ("cross", "natural", "asof"):
        hint = "JOIN t FOR SYSTEM_TIME AS OF s.time ON ..." if word == "asof" else _ON_HINT
        raise reader.refusal(f"{word.upper()} JOIN is not supported", hint)
    if reader.follows("lateral", "view"):
        raise reader.refusal("LATERAL VIEW is not supported", EXPLODE_HINT)


# -- the clauses after FROM -------------------------------------------------------------------------------------------


def _parse_clauses(reader: TokenReader, select: Select) -> Select:
    words = list(_CLAUSE_PARSERS)
    done: list[str] = []
    while (word := reader.peek()) in _CLAUSE_PARSERS:
        if word in done:
            raise reader.refusal(f"{_clause_name(word)} is said twice")
        later = [clause for clause in done if words.index(clause) > words.index(word)]
        if later and word in ("where", "group", "having", "qualify"):
            raise reader.refusal(f"{_clause_name(word)} must come before {_clause_name(later[0])}")
        done.append(word)
        select = _CLAUSE_PARSERS[word](reader, select)
    refuse_clause(reader)
    return select


def _clause_name(word: str) -> str:
    return "GROUP BY" if word == "group" else word.upper()


def _parse_where(reader: TokenReader, select: Select) -> Select:
    reader.take()
    return replace(select, where=reader.expression(ends_expression))


def _parse_group_by(reader: TokenReader, select: Select) -> Select:
    start = reader.rest
    reader.take()
    reader.expect("by")
    for kind in ("rollup", "cube", "grouping", "all"):
        if reader.peek() == kind and (kind in ("grouping", "all") or reader.peek(1) == "("):
            name = "GROUPING SETS" if kind == "grouping" else "GROUP BY ALL" if kind == "all" else kind.upper()
            hint = (
                "name the columns" if kind == "all" else "write a view for each grouping, or unite them with UNION ALL"
            )
            raise reader.refusal(f"{name} is not supported", hint)
    keys = tuple(split_at_commas(reader.expression(ends_expression)))
    return replace(select, group_by=keys, group_by_span=start)


def _parse_having(reader: TokenReader, select: Select) -> Select:
    reader.take()
    return replace(select, having=reader.expression(ends_expression))


def _parse_qualify(reader: TokenReader, select: Select) -> Select:
    reader.take()
    return replace(select, qualify=reader.expression(ends_expression))


def _parse_choice(reader: TokenReader, select: Select) -> Select:
    """EMIT FINAL or CHANGES, LATE CORRECT or DROP."""
    start, word = reader.rest, reader.peek()
    choices = {"emit": ("final", "changes"), "late": ("correct", "drop")}[word]
    reader.take()
    if reader.peek() not in choices:
        raise reader.unexpected(f"{choices[0].upper()} or {choices[1].upper()} after {word.upper()}")
    return _with_time_clause(select, word, Setting(reader.take().keywords[0], start))


def _parse_duration(reader: TokenReader, select: Select) -> Select:
    """KEEP and WITHIN."""
    start, word = reader.rest, reader.peek()
    reader.take()
    return _with_time_clause(select, word, Setting(reader.duration(), start))


def _with_time_clause(select: Select, word: str, setting: Setting) -> Select:
    return replace(select, time_clauses=replace(select.time_clauses, **{word: setting}))


# In the order in which the first four must be written.
_CLAUSE_PARSERS: dict[str, Callable[[TokenReader, Select], Select]] = {
    "where": _parse_where,
    "group": _parse_group_by,
    "having": _parse_having,
    "qualify": _parse_qualify,
    "emit": _parse_choice,
    "late": _parse_choice,
    "keep": _parse_duration,
    "within": _parse_duration,
}
