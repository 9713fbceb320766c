"""A parsed query, clause by clause, as plain data. Nothing is known yet about names and columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.flow.plan import How
from penstock.flow.reading import Token
from penstock.sql.text import Span, is_plain_name, name_of


@dataclass(frozen=True)
class SelectItem:
    """An item of the SELECT list. `is_star` is true for `*` and for `t.*`."""

    expression: Span
    alias: str | None = None

    @property
    def is_star(self) -> bool:
        return self.expression.keywords[-1] == "*" and len(self.expression) in (1, 3)

    @property
    def star_table(self) -> Token | None:
        """The name of the table in `t.*`."""
        return self.expression.tokens[0] if len(self.expression) == 3 else None

    @property
    def name(self) -> str | None:
        """The name of its column: the alias, or the last part of a plain name; None for other expressions."""
        if self.alias is not None or not is_plain_name(self.expression):
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

    @property
    def name(self) -> str | None:
        """The name by which columns refer to it."""
        if self.alias is not None or not isinstance(self.source, str) or self.arguments is not None:
            return self.alias
        return self.source


@dataclass(frozen=True)
class JoinClause:
    """`span` begins with the words of the join. `within` is a length of time, or "forever"."""

    span: Span
    how: How
    right: Relation
    within: str | None = None
    on: Span | None = None
    using: tuple[Span, ...] = ()


class Setting(NamedTuple):
    """The value of a clause, and the span of the clause."""

    value: str
    span: Span


@dataclass(frozen=True)
class TimeClauses:
    """EMIT, LATE, KEEP and WITHIN."""

    emit: Setting | None = None
    late: Setting | None = None
    keep: Setting | None = None
    within: Setting | None = None


@dataclass(frozen=True)
class Select:
    """One SELECT. `span` begins with that word; missing clauses are None or empty."""

    span: Span
    items: tuple[SelectItem, ...]
    source: Relation
    joins: tuple[JoinClause, ...] = ()
    distinct: bool = False
    distinct_on: tuple[Span, ...] = ()
    where: Span | None = None
    group_by: tuple[Span, ...] | None = None
    group_by_span: Span | None = None
    having: Span | None = None
    qualify: Span | None = None
    time_clauses: TimeClauses = field(default_factory=TimeClauses)


@dataclass(frozen=True)
class Query:
    """The parts of a UNION ALL, and the queries of WITH that they may use by name."""

    span: Span
    parts: tuple[Select | Query, ...]
    named: tuple[tuple[str, Query], ...] = ()
