"""Names in place of parts of an expression, and parts in place of names.

Texts are changed where tokens stand. Whether the change is right is asked of the tree: with the parts in place of the
names it must be the tree that it was. So a word that is no column, or a part that is none for its neighbours, stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from penstock.flow.names import unquoted
from penstock.flow.reading import read, tokens_of
from penstock.sql.text import meaning


def cut_out(text: str, part: str, name: str) -> str:
    """The text with the name wherever it says the part."""
    words, number = meaning(tokens_of(part)), 0
    while number + len(words) <= len(tokens := tokens_of(text)):
        found = tokens[number : number + len(words)]
        if meaning(found) == words:
            new = replaced(text, [(found[0].start, found[-1].end, name)])
            text = new if _same(new, text, {name: part}) else text
        number += 1
    return text


def filled(text: str, values: Mapping[str, str]) -> str | None:
    """The text with what its names stand for; None if that would mean something else where it stands."""
    places = [(token.start, token.end, _wrapped(values[token.raw])) for token in tokens_of(text) if token.raw in values]
    new = replaced(text, places)
    return new if _same(text, new, values) else None


def replaced(text: str, places: Sequence[tuple[int, int, str]]) -> str:
    """The text with something else from one character to before another; a word stays apart from the next one."""
    pieces, at = "", 0
    for start, end, instead in places:
        pieces += text[at:start] + instead + (" " if text[end : end + 1].isalnum() else "")
        at = end
    return pieces + text[at:]


def _wrapped(value: str) -> str:
    """The value as a part that its neighbours leave as it is."""
    whole = any((call.start, call.end) == (0, len(value)) for call in read(value).calls)
    return value if whole or len(tokens_of(value)) == 1 else f"({value})"


def _same(one: str, other: str, values: Mapping[str, str]) -> bool:
    """Whether both say the same when names are what they stand for."""
    try:
        return _tree(one, values) == _tree(other, values)
    except (SqlglotError, RecursionError):
        return False


def _tree(text: str, values: Mapping[str, str]) -> exp.Expr:
    # The root is one more parenthesis, so that everything below it can be replaced.
    root = exp.Paren(this=_parsed(text))
    for column in list(root.find_all(exp.Column)):
        if column.parts[0].name in values:
            column.replace(_instead(column, values[column.parts[0].name]))
    for inner in list(root.find_all(exp.Paren)):
        if inner is not root:
            inner.replace(inner.this)
    for identifier in root.find_all(exp.Identifier):
        identifier.set("this", identifier.name.lower())
        identifier.set("quoted", False)
    return root


def _instead(column: exp.Column, value: str) -> exp.Expr:
    first, *fields = column.parts
    name = unquoted(value)
    if name is not None:
        first.set("this", name)
        return column.copy()
    return exp.Dot.build([_parsed(value), *fields]) if fields else _parsed(value)


def _parsed(text: str) -> exp.Expr:
    return sqlglot.parse_one(text, dialect="spark", into=exp.Condition)
