"""The position of a `MemoryDatabase`: an index into its history, and how far each table is copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from penstock.contracts import Position
from penstock.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """How many rows of a table are copied, up to the key `after`; `complete`: all."""

    after: tuple[object, ...] | None = None
    rows: int = 0
    complete: bool = False

    @property
    def state(self) -> Literal["copying", "complete"]:
        return "complete" if self.complete else "copying"


@dataclass(slots=True)
class MemoryPosition:
    """Moves while a reader reads; `to_json` is what it gives away."""

    index: int
    copied: dict[str, CopiedRows] = field(default_factory=dict)

    @classmethod
    def parse(cls, position: Position) -> MemoryPosition:
        """DeclarationError unless `to_json` could have made it."""
        if not isinstance(position, Mapping) or set(position) != {"index", "copied"}:
            raise _refusal(position)
        index, copied = position["index"], position["copied"]
        if not isinstance(index, int) or not isinstance(copied, Mapping):
            raise _refusal(position)
        return cls(index, {table: _parse_copy(copy, position) for table, copy in copied.items()})

    def to_json(self) -> Position:
        copied = {
            table: {"after": None if copy.after is None else list(copy.after), "rows": copy.rows, "state": copy.state}
            for table, copy in self.copied.items()
        }
        return {"index": self.index, "copied": copied}  # type: ignore[dict-item]  # keys of its tables are JSON

    def table_to_copy(self, tables: Sequence[str]) -> str | None:
        """The first table that is not copied completely."""
        return next((table for table in tables if not self.copied.get(table, CopiedRows()).complete), None)

    def begin_copy(self, table: str) -> None:
        self.copied[table] = CopiedRows()

    def add_to_copy(self, table: str, key: tuple[object, ...], rows: int) -> None:
        self.copied[table] = CopiedRows(key, self.copied[table].rows + rows)

    def end_copy(self, table: str) -> None:
        self.copied[table] = CopiedRows(None, self.copied[table].rows, complete=True)

    def forget_copy(self, table: str) -> None:
        self.copied.pop(table, None)


def _parse_copy(copy: Position | None, position: Position) -> CopiedRows:
    if not isinstance(copy, Mapping) or set(copy) != {"after", "rows", "state"}:
        raise _refusal(position)
    after, rows = copy["after"], copy["rows"]
    if not isinstance(rows, int) or isinstance(after, str) or not (after is None or isinstance(after, Sequence)):
        raise _refusal(position)
    return CopiedRows(None if after is None else tuple(after), rows, copy["state"] == "complete")


def _refusal(position: Position) -> DeclarationError:
    return DeclarationError(f"database in memory: {position!r} is not a position of it")
