"""Positions of captures: the place in the binary log, and how far the copy of each table has come. Pure.

They are stored with every write, so their JSON is a format: what earlier versions stored must be readable forever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from penstock.contracts import Position
from penstock.errors import DeclarationError

CopyState: TypeAlias = "Literal['waiting', 'copying', 'complete']"
_STATES: tuple[CopyState, ...] = ("waiting", "copying", "complete")
_FILE = re.compile(r"(?P<stem>.+)\.(?P<number>\d+)")


@dataclass(frozen=True, slots=True)
class Place:
    """A byte in a file of the binary log."""

    file: str
    byte: int

    @property
    def number(self) -> int:
        """The number of the file."""
        match = _FILE.fullmatch(self.file)
        return int(match["number"]) if match else 0

    def is_before(self, place: Place) -> bool:
        return (self.number, self.byte) < (place.number, place.byte)

    def next_file(self) -> Place:
        stem, _, digits = self.file.rpartition(".")
        return Place(f"{stem}.{int(digits) + 1:0{len(digits)}}", 4)

    def __str__(self) -> str:
        return f"{self.file}:{self.byte}"


@dataclass(frozen=True, slots=True)
class TableState:
    """How far the copy of a table has come, and what its columns are at the place of the position.

    `after` is the key of the last row that was copied, as SQL literals. `columns` are Arrow types by name.
    """

    state: CopyState = "waiting"
    after: tuple[str, ...] = ()
    rows: int = 0
    estimated_rows: int | None = None
    key: tuple[str, ...] = ()
    columns: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class BinlogPosition:
    """The position of a capture. Without a place, the stream begins anew.

    `file_time` is when the server began the file: after RESET MASTER there is another file of the same name.
    """

    place: Place | None
    server_id: int
    file_time: int
    tables: Mapping[str, TableState]

    def with_table(self, name: str, state: TableState) -> BinlogPosition:
        return replace(self, tables={**self.tables, name: state})


def encode_position(position: BinlogPosition) -> Position:
    tables: dict[str, Position | None] = {name: _encode_table(table) for name, table in position.tables.items()}
    if position.place is None:
        return {"tables": tables}
    return {
        "file": position.place.file,
        "byte": position.place.byte,
        "file_time": position.file_time,
        "server_id": position.server_id,
        "tables": tables,
    }


def decode_position(position: Position) -> BinlogPosition:
    """The position that `encode_position` has made JSON of. DeclarationError if it is none."""
    try:
        return _decode(position)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DeclarationError(
            f"database: this is not a position in a binary log; found {position!r:.200}",
            hint="use another name for this capture: the name belongs to a capture of something else",
        ) from error


def _encode_table(table: TableState) -> Position:
    return {
        "state": table.state,
        "after": list(table.after),
        "rows": table.rows,
        "estimated_rows": table.estimated_rows,
        "key": list(table.key),
        "columns": None if table.columns is None else dict(table.columns),
    }


def _decode(position: object) -> BinlogPosition:
    found = _mapping(position)
    tables = {_text(name): _decode_table(_mapping(table)) for name, table in _mapping(found["tables"]).items()}
    if "file" not in found:
        return BinlogPosition(None, 0, 0, tables)
    place = Place(_text(found["file"]), _count(found["byte"]))
    return BinlogPosition(place, _count(found["server_id"]), _count(found["file_time"]), tables)


def _decode_table(found: Mapping[str, object]) -> TableState:
    state = found["state"]
    columns = found["columns"]
    estimated = found["estimated_rows"]
    return TableState(
        state=next(name for name in _STATES if name == state) if state in _STATES else _refuse(state),
        after=_texts(found["after"]),
        rows=_count(found["rows"]),
        estimated_rows=None if estimated is None else _count(estimated),
        key=_texts(found["key"]),
        columns=None if columns is None else {_text(n): _text(type_) for n, type_ in _mapping(columns).items()},
    )


def _refuse(value: object) -> CopyState:
    raise ValueError(value)


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(value)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    return tuple(map(_text, value))


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(value)
    return value
