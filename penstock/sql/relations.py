"""Reads FROM and its joins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.flow.plan import How
from penstock.sql.clauses import AsOfClause, JoinClause, Query, Relation
from penstock.sql.reader import Reader, stops_condition
from penstock.sql.refused import CLAUSES
from penstock.sql.text import Span, is_name, parts

_HOWS: tuple[tuple[tuple[str, ...], How], ...] = (
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
_ON_HINT = "say which columns are equal: JOIN t ON a.id = b.id, or USING (id)"
_NOT_AN_ALIAS = frozenset(
    {*CLAUSES, "on", "using", "join", "inner", "left", "right", "full", "cross", "natural", "semi", "anti", "where"}
    | {"group", "having", "qualify", "emit", "late", "keep", "within", "union", "intersect", "except", "minus", "asof"}
)

ReadQuery = Callable[[Span], Query]


def read_from(reader: Reader, read_query: ReadQuery) -> tuple[Relation, tuple[JoinClause, ...]]:
    """What stands behind the word FROM, and the joins behind it."""
    source = _relation(reader, read_query)
    if source.as_of is not None:
        raise source.span.refusal("from", "FOR SYSTEM_TIME AS OF stands behind a table that is joined")
    joins: list[JoinClause] = []
    while (join := _join(reader, read_query)) is not None:
        joins.append(join)
    return source, tuple(joins)


def _relation(reader: Reader, read_query: ReadQuery) -> Relation:
    start = reader.here
    if reader.peek() in ("lateral", "values", "unnest", "explode"):
        raise reader.refusal(f"{reader.peek().upper()} is not there", CLAUSES["lateral"][1])
    if reader.peek() == "(":
        inside = reader.enclosed()
        if inside.keywords[:1] not in (("select",), ("with",), ("(",)):
            raise inside.refusal("from", "in parentheses stands a query", "FROM a JOIN b ON ..., without parentheses")
        relation = Relation(start, read_query(inside))
    else:
        name = str(reader.dotted("the name of a topic, a table or a view")).replace("`", "").replace(" ", "")
        relation = Relation(start, name, reader.enclosed() if reader.peek() == "(" else None)
    as_of = _as_of(reader)
    return replace(relation, as_of=as_of, alias=_alias(reader))


def _as_of(reader: Reader) -> AsOfClause | None:
    if not reader.accept("for"):
        return None
    if reader.peek() in ("version", "system_version", "timestamp"):
        raise reader.refusal(f"FOR {reader.peek().upper()} is not there", "FOR SYSTEM_TIME AS OF s.time")
    reader.expect("system_time", "as", "of", hint="FOR SYSTEM_TIME AS OF s.time, or AS OF LATEST")
    if reader.peek() == "latest" and reader.peek(1) != ".":
        reader.take()
        return AsOfClause(None)
    return AsOfClause(reader.dotted("the column of the stream with the moment, or LATEST"))


def _alias(reader: Reader) -> str | None:
    said = reader.accept("as")
    token = reader.token()
    if not said and (token is None or not is_name(token) or reader.peek() in _NOT_AN_ALIAS):
        return None
    alias = reader.name("a name behind AS")
    if reader.peek() == "(":
        raise reader.refusal("columns are not named behind a table's name", "name them in a subquery: SELECT a AS b")
    return alias


def _join(reader: Reader, read_query: ReadQuery) -> JoinClause | None:
    start = reader.here
    _refuse_other_joins(reader)
    how = next((how for words, how in _HOWS if reader.accept(*words)), None)
    if how is None:
        return None
    right = _relation(reader, read_query)
    if reader.accept("using"):
        using = tuple(parts(reader.enclosed()))
        if not all(len(column) == 1 and is_name(column.tokens[0]) for column in using):
            raise start.refusal("join", "USING has names of columns that both sides have", _ON_HINT)
        return JoinClause(start, how, right, using=using)
    if not reader.accept("on"):
        raise start.refusal("join", "a join needs ON or USING; found none", _ON_HINT)
    return JoinClause(start, how, right, on=reader.until(stops_condition))


def _refuse_other_joins(reader: Reader) -> None:
    word = reader.peek()
    if word == ",":
        raise reader.refusal("tables are not joined with a comma", _ON_HINT)
    if word in ("cross", "natural", "asof"):
        hint = "JOIN t FOR SYSTEM_TIME AS OF s.time ON ..." if word == "asof" else _ON_HINT
        raise reader.refusal(f"{word.upper()} JOIN is not there", hint)
    if reader.follows("lateral", "view"):
        raise reader.refusal("LATERAL VIEW is not there", CLAUSES["lateral"][1])
