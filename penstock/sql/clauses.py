"""A query in its clauses, as plain data: what stands where, before anything is known of names and columns."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.flow.plan import How
from penstock.flow.reading import Token
from penstock.sql.text import Span, is_name, name_of


@dataclass(frozen=True)
class Item:
    """An item of the SELECT list. `star` is `*`, also with a table's name before it."""

    expression: Span
    alias: str | None = None

    @property
    def star(self) -> bool:
        return self.expression.keywords[-1] == "*" and len(self.expression) in (1, 3)

    @property
    def star_of(self) -> Token | None:
        return self.expression.tokens[0] if len(self.expression) == 3 else None

    @property
    def name(self) -> str | None:
        """The name of the column it gives: its alias, or the last part of a plain name; None for other expressions."""
        if self.alias is not None or not is_plain(self.expression):
            return self.alias
        return name_of(self.expression.tokens[-1])


@dataclass(frozen=True)
class AsOfClause:
    """FOR SYSTEM_TIME AS OF: the column with the moment, or None for LATEST."""

    column: Span | None


@dataclass(frozen=True)
class Relation:
    """What FROM and JOIN read: something with a name, a table function with its arguments, or a subquery."""

    span: Span
    source: str | Query
    arguments: Span | None = None
    alias: str | None = None
    as_of: AsOfClause | None = None


@dataclass(frozen=True)
class JoinClause:
    """`span` begins with the words of the join."""

    span: Span
    how: How
    right: Relation
    on: Span | None = None
    using: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Trailing:
    """EMIT, LATE, KEEP and WITHIN, each with the place it was said at."""

    emit: tuple[str, Span] | None = None
    late: tuple[str, Span] | None = None
    keep: tuple[str, Span] | None = None
    within: tuple[str, Span] | None = None


@dataclass(frozen=True)
class Select:
    """One SELECT. `span` begins with that word; clauses that are not there are None or empty."""

    span: Span
    items: tuple[Item, ...]
    source: Relation
    joins: tuple[JoinClause, ...] = ()
    distinct: bool = False
    distinct_on: tuple[Span, ...] = ()
    where: Span | None = None
    group: tuple[Span, ...] | None = None
    group_at: Span | None = None
    having: Span | None = None
    qualify: Span | None = None
    trailing: Trailing = field(default_factory=Trailing)


@dataclass(frozen=True)
class Query:
    """Queries that are united with UNION ALL, and the ones that they may use by name."""

    span: Span
    parts: tuple[Select | Query, ...]
    named: tuple[tuple[str, Query], ...] = ()


def is_plain(span: Span) -> bool:
    """Whether it is nothing but a name, with dots or without."""
    return len(span) % 2 == 1 and all(
        is_name(token) if number % 2 == 0 else token.raw == "." for number, token in enumerate(span.tokens)
    )
