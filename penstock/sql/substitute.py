"""Substitution in expressions: names for parts, parts for names, and aliases of the SELECT list for what they mean.

Tokens say where to change the text. The tree says whether the change is right: with the parts in place of the names it
must be the same tree as before. So a word that is not a column stays, and so does a part that its neighbours would
split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from penstock.flow.expressions import outermost_aggregates
from penstock.flow.names import unquote
from penstock.flow.reading import Token, read, tokens_of
from penstock.sql.scope import Scope
from penstock.sql.text import Span, name_of, normalised, token_starts

# -- aliases ----------------------------------------------------------------------------------------------------------


def hide_aliases(span: Span, what: str, scope: Scope, aliases: Mapping[str, str]) -> tuple[Span, dict[str, str]]:
    """The span with hidden names for aliases, and the expressions that these stand for; for HAVING and QUALIFY.

    There an alias takes precedence over a column. Only the user's own words can be aliases, so they are replaced before
    anything else. Inside of an aggregate a name means a column of the rows.
    """
    if not aliases:
        return span, {}
    calls = outermost_aggregates(scope.read_expression(span, what))
    starts = token_starts(span.tokens)
    tokens = list(span.tokens)
    values: dict[str, str] = {}
    for number in scope.column_tokens(span, what):
        token = span.tokens[number]
        in_aggregate = any(call.start <= starts[number] < call.end for call in calls)
        if name_of(token) in aliases and not in_aggregate and not scope.is_qualifier(span, number):
            hidden = f"_alias_{len(values)}"
            tokens[number] = Token(hidden, token.start, token.end)
            values[hidden] = aliases[name_of(token)]
    return Span(span.text, tuple(tokens), span.start), values


def fill_in_values(span: Span, what: str, text: str, values: Mapping[str, str]) -> str:
    """The text with values in place of names; `span` is where it comes from."""
    filled = fill_in(text, values) if values else text
    if filled is None:
        raise span.refusal(
            what,
            f"a column has the name of something else in '{span}'",
            "give the variable of the lambda a name that no column and no other item of the list has",
        )
    return filled


# -- texts ------------------------------------------------------------------------------------------------------------


def replace_part(text: str, part: str, name: str) -> str:
    """The text with the name in place of the part, wherever it occurs as a whole."""
    words, number = normalised(tokens_of(part)), 0
    while number + len(words) <= len(tokens := tokens_of(text)):
        found = tokens[number : number + len(words)]
        if normalised(found) == words:
            new = replace_ranges(text, [(found[0].start, found[-1].end, name)])
            text = new if _mean_the_same(new, text, {name: part}) else text
        number += 1
    return text


def fill_in(text: str, values: Mapping[str, str]) -> str | None:
    """The text with values in place of names; None if a value would mean something else in that position."""
    ranges = [
        (token.start, token.end, _as_operand(values[token.raw])) for token in tokens_of(text) if token.raw in values
    ]
    new = replace_ranges(text, ranges)
    return new if _mean_the_same(text, new, values) else None


def replace_ranges(text: str, ranges: Sequence[tuple[int, int, str]]) -> str:
    """The text with a replacement for each range of characters; a word stays separate from the next one."""
    new, position = "", 0
    for start, end, replacement in ranges:
        new += text[position:start] + replacement + (" " if text[end : end + 1].isalnum() else "")
        position = end
    return new + text[position:]


def _as_operand(value: str) -> str:
    """The value as a part that its neighbours do not split."""
    is_call = any((call.start, call.end) == (0, len(value)) for call in read(value).calls)
    return value if is_call or len(tokens_of(value)) == 1 else f"({value})"


def _mean_the_same(text: str, new: str, values: Mapping[str, str]) -> bool:
    """Whether two texts mean the same with values in place of names."""
    try:
        return _filled_tree(text, values) == _filled_tree(new, values)
    except (SqlglotError, RecursionError):
        return False


def _filled_tree(text: str, values: Mapping[str, str]) -> exp.Expr:
    # The root is an additional parenthesis, so that everything below it can be replaced.
    root = exp.Paren(this=_parse(text))
    for column in list(root.find_all(exp.Column)):
        if column.parts[0].name in values:
            column.replace(_value_of(column, values[column.parts[0].name]))
    for inner in list(root.find_all(exp.Paren)):
        if inner is not root:
            inner.replace(inner.this)
    for identifier in root.find_all(exp.Identifier):
        identifier.set("this", identifier.name.lower())
        identifier.set("quoted", False)
    return root


def _value_of(column: exp.Column, value: str) -> exp.Expr:
    first, *fields = column.parts
    name = unquote(value)
    if name is not None:
        first.set("this", name)
        return column.copy()
    return exp.Dot.build([_parse(value), *fields]) if fields else _parse(value)


def _parse(text: str) -> exp.Expr:
    return sqlglot.parse_one(text, dialect="spark", into=exp.Condition)
