"""What a query can read by name, and names for columns that the user does not see."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.log.ddl import closest
from penstock.sql.scope import Part, Scope
from penstock.sql.text import Span

Rows = Stream | Table


@dataclass(frozen=True)
class Ranked:
    """Rows with a rank that has no bound yet: the query around them must say up to which one they are kept."""

    rank: str
    span: Span
    bounded: Callable[[int], Rows]


Result = Stream | Table | Ranked
Known = Mapping[str, Result]


def named(name: str, known: Known, span: Span) -> Result:
    """The rows of this name."""
    if name not in known:
        there = ", ".join(known) or "none"
        raise span.refusal(
            "from", f"there is no topic, table or view '{name}'; there are {there}", closest(name, list(known))
        )
    return known[name]


def complete(result: Result) -> Rows:
    """Rows without a rank that still needs its bound."""
    if isinstance(result, Ranked):
        raise result.span.refusal(
            "select",
            f"a rank needs a bound, and '{result.rank}' has none",
            f"QUALIFY {result.rank} <= n here, or WHERE {result.rank} <= n in the query around it",
        )
    return result


def scope_of(rows: Rows, alias: str | None) -> Scope:
    """The scope of one table."""
    columns = rows.columns
    if columns is None:
        return Scope((Part(alias, None),), None)
    return Scope((Part(alias, {name: name for name in columns}),), tuple((name, name) for name in columns))


def fresh(base: str, taken: Collection[str]) -> str:
    """A name like this one that is not taken: columns that begin with '_' are Penstock's own, so these do not."""
    used = {name.lower() for name in taken}
    number = 1
    while f"{base}_{number}".lower() in used:
        number += 1
    return f"{base}_{number}"
