"""How far a file has been read: the last change of a transaction, by id and time, and how far each table is copied.

The change itself stays in the file until a later one is confirmed. So whoever has a position can see whether the file
still has the same history: a backup that was restored has none or another change with this id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from penstock.capture.sqlite.types import Value
from penstock.contracts import Position
from penstock.errors import DeclarationError

Key: TypeAlias = "tuple[Value, ...]"


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table whose copy has begun: in which layout it is read, and the key of the last row that is copied."""

    layout: int
    state: Literal["copying", "complete"] = "copying"
    after: Key | None = None
    rows: int = 0


@dataclass(slots=True)
class Place:
    """Moves while the file is read; `to_json` is the position that is given away."""

    database: str
    id: int
    at: int
    tables: dict[str, TablePlace] = field(default_factory=dict)

    @classmethod
    def parse(cls, position: Position) -> Place:
        """DeclarationError unless `to_json` could have made it."""
        try:
            return _parse(position)
        except (KeyError, TypeError, ValueError):
            raise DeclarationError(
                f"capture of SQLite: this is not a position of it: {position!r}",
                hint="the name of the capture was used for something else: use another name",
            ) from None

    def to_json(self) -> Position:
        tables = {
            name: {
                "layout": place.layout,
                "state": place.state,
                "after": None if place.after is None else [_to_json(value) for value in place.after],
                "rows": place.rows,
            }
            for name, place in self.tables.items()
        }
        return {"database": self.database, "id": self.id, "at": self.at, "tables": tables}

    def table_to_copy(self, tables: Sequence[str]) -> str | None:
        """The first table that is not copied completely, those in the middle of it first."""
        waiting = [name for name in tables if name not in self.tables]
        copying = [name for name in tables if name in self.tables and self.tables[name].state == "copying"]
        return next(iter([*copying, *waiting]), None)


def _parse(position: Position) -> Place:
    if not isinstance(position, Mapping) or set(position) != {"database", "id", "at", "tables"}:
        raise ValueError
    database, number, at, tables = (position[name] for name in ("database", "id", "at", "tables"))
    if not isinstance(database, str) or not isinstance(tables, Mapping):
        raise TypeError
    return Place(database, _int(number), _int(at), {name: _parse_table(place) for name, place in tables.items()})


def _parse_table(place: Position | None) -> TablePlace:
    if not isinstance(place, Mapping):
        raise TypeError
    after, state = place["after"], place["state"]
    if isinstance(after, str) or not (after is None or isinstance(after, Sequence)):
        raise TypeError
    if state not in ("copying", "complete"):
        raise ValueError
    known_state: Literal["copying", "complete"] = "complete" if state == "complete" else "copying"
    key = None if after is None else tuple(_from_json(value) for value in after)
    return TablePlace(_int(place["layout"]), known_state, key, _int(place["rows"]))


def _int(value: Position | None) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


def _to_json(value: Value) -> Position | None:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _from_json(value: Position | None) -> Value:
    if isinstance(value, Mapping):
        text = value["hex"]
        if not isinstance(text, str):
            raise TypeError
        return bytes.fromhex(text)
    if value is None or isinstance(value, (int, float, str)):
        return value
    raise TypeError
