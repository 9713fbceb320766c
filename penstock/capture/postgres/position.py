"""Positions in a PostgreSQL database, and their JSON: an LSN, and how far the copy of each table has come. No I/O.

Everything that was committed before `lsn` has been given, and nothing after it, except by copies. While a table is
copied, `key` is the last key of a chunk that is safe: the stream has passed the moment at which it was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from penstock.contracts import Position
from penstock.errors import DeclarationError

CopyState: TypeAlias = Literal["waiting", "copying", "complete"]
_STATES: Sequence[CopyState] = ("waiting", "copying", "complete")
ColumnIds: TypeAlias = Mapping[str, tuple[int, int]]
"""By the name of a column: its number in the table, which renaming does not change, and its type."""


@dataclass(frozen=True, slots=True)
class TableState:
    """How far a table has been copied, and which columns it had.

    `fence`: the copy may begin once all transactions before this one have ended. Their changes are perhaps not in the
    stream, because they were made before the table was part of the publication.
    """

    state: CopyState = "waiting"
    key: tuple[str, ...] | None = None
    rows: int = 0  # up to `key`
    given: int = 0  # rows of chunks that have been given, of which the last ones may not be safe yet
    fence: int = 0
    estimated_rows: int = 0  # 0: not known
    oid: int = 0
    columns: ColumnIds = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A position. `unseen` are transactions that were given, and that a snapshot might not show yet.

    `system` and `timeline` say in which history of which server the LSN is.
    """

    lsn: int
    tables: Mapping[str, TableState]
    system: str
    timeline: int
    unseen: tuple[int, ...] = ()


def to_json(position: StreamPosition) -> Position:
    return {
        "lsn": lsn_text(position.lsn),
        "system": position.system,
        "timeline": position.timeline,
        "tables": {name: _state_to_json(state) for name, state in position.tables.items()},
        **({"unseen": list(position.unseen)} if position.unseen else {}),
    }


def from_json(position: Position) -> StreamPosition:
    """The position of a JSON value that `to_json` made. DeclarationError for anything else."""
    try:
        fields = _mapping(position)
        return StreamPosition(
            lsn=parse_lsn(_text(fields["lsn"])),
            tables={name: _state_from_json(state) for name, state in _mapping(fields["tables"]).items()},
            system=_text(fields["system"]),
            timeline=_number(fields["timeline"]),
            unseen=tuple(_number(xid) for xid in _list(fields.get("unseen", []))),
        )
    except (KeyError, ValueError, TypeError):
        raise DeclarationError(
            f"database: {position!r:.200} is not a position in a PostgreSQL database",
            hint="this capture belongs to another source: use another name",
        ) from None


def lsn_text(lsn: int) -> str:
    """An LSN as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def _state_to_json(state: TableState) -> Position:
    return {
        "state": state.state,
        "oid": state.oid,
        "columns": {name: list(ids) for name, ids in state.columns.items()},
        **({} if state.key is None else {"key": list(state.key)}),
        **({"rows": state.rows} if state.rows else {}),
        **({"given": state.given} if state.given else {}),
        **({"fence": state.fence} if state.fence else {}),
        **({"estimated": state.estimated_rows} if state.estimated_rows and state.state != "complete" else {}),
    }


def _state_from_json(value: Position | None) -> TableState:
    fields = _mapping(value)
    name = _text(fields["state"])
    (state,) = [known for known in _STATES if known == name]
    return TableState(
        state=state,
        key=tuple(_text(text) for text in _list(fields["key"])) if "key" in fields else None,
        rows=_number(fields.get("rows", 0)),
        given=_number(fields.get("given", 0)),
        fence=_number(fields.get("fence", 0)),
        estimated_rows=_number(fields.get("estimated", 0)),
        oid=_number(fields["oid"]),
        columns={name: _column_ids(ids) for name, ids in _mapping(fields["columns"]).items()},
    )


def _column_ids(value: Position | None) -> tuple[int, int]:
    number, type_oid = _list(value)
    return _number(number), _number(type_oid)


def _mapping(value: Position | None) -> Mapping[str, Position | None]:
    if not isinstance(value, Mapping):
        raise TypeError
    return value


def _list(value: Position | None) -> Sequence[Position | None]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError
    return value


def _text(value: Position | None) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: Position | None) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value
