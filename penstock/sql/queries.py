"""Reads a query: WITH, SELECT and its clauses, UNION ALL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.errors import DeclarationError
from penstock.flow.reading import read
from penstock.sql.clauses import Item, Query, Select, Trailing
from penstock.sql.durations import read_duration
from penstock.sql.reader import Reader, stops_expression, stops_items
from penstock.sql.refused import CLAUSES, refuse_clause
from penstock.sql.relations import read_from
from penstock.sql.text import Span, is_name, left_open, name_of, outermost, parts

_ORDER = ("where", "group", "having", "qualify", "emit", "late", "keep", "within")
_SETS_HINT = "only UNION ALL unites queries; DISTINCT over a subquery with UNION ALL leaves out repeated rows"


def read_query(span: Span) -> Query:
    """All of the span as one query."""
    reader = Reader(span, "select")
    query = _query(reader)
    reader.end(hint="a query ends here; is a keyword or an operator missing?")
    return query


def _query(reader: Reader) -> Query:
    start = reader.here
    named = _named_queries(reader) if reader.accept("with") else ()
    parts = [_part(reader)]
    while reader.peek() in ("union", "intersect", "except", "minus"):
        _expect_union_all(reader)
        parts.append(_part(reader))
    refuse_clause(reader)
    return Query(start, tuple(parts), named)


def _named_queries(reader: Reader) -> tuple[tuple[str, Query], ...]:
    if reader.peek() == "recursive":
        raise reader.refusal("queries cannot use themselves; found WITH RECURSIVE")
    named: dict[str, Query] = {}
    while True:
        at = reader.here
        name = reader.name("the name of a query")
        if reader.peek() == "(":
            raise reader.refusal("columns are named inside of the query", f"WITH {name} AS (SELECT ... AS name)")
        reader.expect("as")
        if name in named:
            raise at.refusal("with", f"there are two queries of this name; found {name!r}")
        named[name] = read_query(reader.enclosed())
        if not reader.accept(","):
            return tuple(named.items())


def _part(reader: Reader) -> Select | Query:
    if reader.peek() == "(":
        return read_query(reader.enclosed())
    return _select(reader)


def _expect_union_all(reader: Reader) -> None:
    word = reader.peek().upper()
    if word == "UNION" and reader.follows("union", "all"):
        reader.take(2)
        return
    if word == "UNION":
        raise reader.refusal("UNION without ALL is not there", _SETS_HINT)
    instead = "LEFT SEMI JOIN" if word == "INTERSECT" else "LEFT ANTI JOIN"
    raise reader.refusal(f"{word} is not there", f"use {instead} ... ON a.x <=> b.x")


def _select(reader: Reader) -> Select:
    start = reader.here
    if reader.peek() in ("values", "table", "from"):
        raise reader.refusal(f"a query begins with SELECT; found {reader.peek().upper()}")
    reader.expect("select")
    distinct, distinct_on = _distinct(reader)
    listed = reader.until(stops_items)
    if not reader.accept("from"):
        raise _without_from(listed, reader)
    items = tuple(_item(part) for part in parts(listed))
    source, joins = read_from(reader, read_query)
    select = Select(start, items, source, joins, distinct, distinct_on)
    return _clauses(reader, select)


def _distinct(reader: Reader) -> tuple[bool, tuple[Span, ...]]:
    if not reader.accept("distinct"):
        reader.accept("all")
        return False, ()
    if not reader.accept("on"):
        return True, ()
    inside = reader.here
    columns = tuple(parts(reader.enclosed()))
    if not all(map(len, columns)):
        raise inside.refusal("distinct", "DISTINCT ON names the columns that rows must differ in", "DISTINCT ON (a, b)")
    return True, columns


# -- the list ---------------------------------------------------------------------------------------------------------


def _without_from(listed: Span, reader: Reader) -> DeclarationError:
    """Why there is no FROM behind the list: something before it is not complete, or it is not there."""
    opened = left_open(listed)
    if opened is not None:
        found = opened.keywords[0]
        missing = {"(": "a ')'", "[": "a ']'"}.get(found, "END")
        return opened.refusal("select", f"{missing} is missing for this {found.upper()!r}; found '{opened}'")
    at = next((number for number in outermost(listed.tokens) if listed.keywords[number] == "from"), None)
    if at is not None:
        return listed.cut(at).refusal("select", f"something is missing before FROM; found '{listed.cut(0, at)}'")
    return reader.refusal("FROM is missing: every query reads a topic, a table or a view")


def _item(span: Span) -> Item:
    if not span:
        raise span.refusal("select", "an item is missing between the commas")
    if (span.keywords[0] == "*" or span.keywords[1:3] == (".", "*")) and not Item(span).star:
        raise span.refusal("select", f"'*' stands alone; found '{span}'", "name the columns")
    if len(span) > 2 and span.keywords[-2] == "as":
        return Item(span.cut(0, -2), _alias(span))
    if len(span) > 1 and is_name(span.tokens[-1]) and not _readable(span) and _readable(span.cut(0, -1)):
        return Item(span.cut(0, -1), _alias(span))
    return Item(span)


def _alias(span: Span) -> str:
    if not is_name(span.tokens[-1]):
        raise span.cut(-1).refusal(
            "select",
            f"a name is expected behind AS; found {span.tokens[-1].raw}",
            "a name is written as it is, or in backquotes",
        )
    return name_of(span.tokens[-1])


def _readable(span: Span) -> bool:
    try:
        read(str(span))
    except DeclarationError:
        return False
    return True


# -- the clauses behind FROM ------------------------------------------------------------------------------------------


def _clauses(reader: Reader, select: Select) -> Select:
    read_already: list[str] = []
    while (word := reader.peek()) in _CLAUSES:
        if word in read_already:
            raise reader.refusal(f"{_shown(word)} is said twice")
        after = [before for before in read_already if _ORDER.index(before) > _ORDER.index(word)]
        if after and word in _ORDER[:4]:
            raise reader.refusal(f"{_shown(word)} stands before {_shown(after[0])}")
        read_already.append(word)
        select = _CLAUSES[word](reader, select)
    if reader.peek() in CLAUSES:
        refuse_clause(reader)
    return select


def _shown(word: str) -> str:
    return "GROUP BY" if word == "group" else word.upper()


def _where(reader: Reader, select: Select) -> Select:
    reader.take()
    return replace(select, where=reader.until(stops_expression))


def _group(reader: Reader, select: Select) -> Select:
    start = reader.here
    reader.take()
    reader.expect("by")
    for kind in ("rollup", "cube", "grouping", "all"):
        if reader.peek() == kind and (kind in ("grouping", "all") or reader.peek(1) == "("):
            shown = "GROUPING SETS" if kind == "grouping" else "GROUP BY ALL" if kind == "all" else kind.upper()
            hint = (
                "name the columns" if kind == "all" else "write a view for each grouping, or unite them with UNION ALL"
            )
            raise reader.refusal(f"{shown} is not there", hint)
    group = tuple(parts(reader.until(stops_expression)))
    return replace(select, group=group, group_at=start)


def _having(reader: Reader, select: Select) -> Select:
    reader.take()
    return replace(select, having=reader.until(stops_expression))


def _qualify(reader: Reader, select: Select) -> Select:
    reader.take()
    return replace(select, qualify=reader.until(stops_expression))


def _choice(reader: Reader, select: Select) -> Select:
    """EMIT FINAL or CHANGES, LATE CORRECT or DROP."""
    start, word = reader.here, reader.peek()
    choices = {"emit": ("final", "changes"), "late": ("correct", "drop")}[word]
    reader.take()
    if reader.peek() not in choices:
        raise reader.unexpected(f"{choices[0].upper()} or {choices[1].upper()} behind {word.upper()}")
    chosen = reader.take().keywords[0]
    return _trailing(select, word, chosen, start)


def _length(reader: Reader, select: Select) -> Select:
    """KEEP and WITHIN."""
    start, word = reader.here, reader.peek()
    reader.take()
    return _trailing(select, word, read_duration(reader), start)


def _trailing(select: Select, word: str, value: str, at: Span) -> Select:
    said = {"emit": select.trailing.emit, "late": select.trailing.late, "keep": select.trailing.keep}
    said["within"] = select.trailing.within
    return replace(select, trailing=Trailing(**{**said, word: (value, at)}))


_CLAUSES: dict[str, Callable[[Reader, Select], Select]] = {
    "where": _where,
    "group": _group,
    "having": _having,
    "qualify": _qualify,
    "emit": _choice,
    "late": _choice,
    "keep": _length,
    "within": _length,
}
