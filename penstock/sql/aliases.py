"""Names of the SELECT list in HAVING and QUALIFY, where they come before columns."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.flow.expressions import aggregates_in
from penstock.flow.reading import Invocation, Token, read
from penstock.sql.scope import Scope
from penstock.sql.substitute import filled
from penstock.sql.text import Span, name_of, starts


def with_aliases(span: Span, what: str, scope: Scope, aliases: Mapping[str, str]) -> tuple[Span, dict[str, str]]:
    """The span with names of its own for those of the list, and what these stand for.

    Only the user's own words can be names of the list, before anything was put in their place. Inside of an aggregate
    they are columns of the rows.
    """
    if not aliases:
        return span, {}
    calls = outermost_aggregates(scope.read(span, what).text)
    places = starts(span.tokens)
    tokens = list(span.tokens)
    values: dict[str, str] = {}
    for number in scope.columns(span, what):
        name = name_of(span.tokens[number])
        counted = any(call.start <= places[number] < call.end for call in calls)
        if name in aliases and not counted and not scope.is_table(span, number):
            own = f"_alias_{len(values)}"
            tokens[number] = Token(own, span.tokens[number].start, span.tokens[number].end)
            values[own] = aliases[name]
    return Span(span.text, tuple(tokens), span.at), values


def with_values(span: Span, what: str, text: str, values: Mapping[str, str]) -> str:
    """The text with what its names stand for."""
    found = filled(text, values) if values else text
    if found is None:
        raise span.refusal(
            what,
            f"a column has the name of something else in '{span}'",
            "name the variable of a lambda otherwise than columns and the names of the list",
        )
    return found


def outermost_aggregates(text: str) -> list[Invocation]:
    """The calls of aggregates that stand in no other."""
    found: list[Invocation] = []
    for call in aggregates_in(read(text)):
        if not found or call.start >= found[-1].end:
            found.append(call)
    return found
