"""For tests of what captures: a source whose events a test lists, and a database in memory for what keeps copies.

Crashes are items of the input: an exception in the list is raised once, when it is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from penstock.contracts import Captured, Position, SourceTable
from penstock.errors import DeclarationError
from penstock.testing.memory_database import Change, Delete, MemoryDatabase, Truncate, Upsert

__all__ = [
    "Change",
    "ConfirmedMemorySource",
    "Delete",
    "Event",
    "MemoryDatabase",
    "MemorySource",
    "Pause",
    "Truncate",
    "Upsert",
]


@dataclass(frozen=True, slots=True)
class Event:
    """A row of a table. `more`: the next event belongs to the same transaction, so no position lies between them."""

    table: str
    row: Mapping[str, object]
    deleted: bool = False
    more: bool = False


class Pause:
    """In the list of a `MemorySource`: nothing arrives for a moment, and the source gives a heartbeat."""


class MemorySource:
    """Gives the events of a list, at most `item_rows` of one table per item. Its position is an index in the list.

    `on_durable` is called with each position that the source knows to be durable.
    """

    def __init__(
        self,
        events: Sequence[Event | Pause | Exception],
        *,
        item_rows: int = 1,
        on_durable: Callable[[Position], None] = lambda position: None,
    ) -> None:
        self.events = events
        self._item_rows = item_rows
        self._on_durable = on_durable
        self._raised: set[int] = set()
        self._closed = False

    def tables(self) -> Sequence[SourceTable]:
        names = dict.fromkeys(event.table for event in self.events if isinstance(event, Event))
        return [SourceTable(name) for name in names]

    def read(self, after: Position | None) -> Iterator[Captured]:
        for item in self._items(after):
            yield item
            if item.position is not None:
                self._on_durable(item.position)

    def _items(self, after: Position | None) -> Iterator[Captured]:
        index = 0 if after is None else _index(after)
        if not 0 <= index <= len(self.events):
            raise DeclarationError(f"{after!r} is not a position of this source")
        while index < len(self.events):
            if self._closed:
                raise DeclarationError("this source is closed")
            event = self.events[index]
            if isinstance(event, Event):
                count = self._rows_of_item(index)
                yield self._item(index, index + count)
                index += count
                continue
            index += 1
            if isinstance(event, Pause):
                yield Captured("", position=None if self._is_open(index) else index)
            elif index not in self._raised:
                self._raised.add(index)
                raise event

    def _item(self, start: int, end: int) -> Captured:
        events = [event for event in self.events[start:end] if isinstance(event, Event)]
        marks = [event.deleted for event in events]
        position = None if self._is_open(end) else end
        return Captured(events[0].table, [event.row for event in events], marks if any(marks) else None, position)

    def _rows_of_item(self, start: int) -> int:
        """How many events of one table follow each other, up to the size of an item."""
        events = self.events[start : start + self._item_rows]
        tables = [event.table if isinstance(event, Event) else "" for event in events]
        return next((count for count, table in enumerate(tables) if table != tables[0]), len(tables))

    def _is_open(self, end: int) -> bool:
        """Whether this index is inside a transaction."""
        before = (event for event in reversed(self.events[:end]) if isinstance(event, Event))
        return any(event.more for event in islice(before, 1))

    def close(self) -> None:
        self._closed = True


class ConfirmedMemorySource(MemorySource):
    """A `MemorySource` that `Confirms`: several of its items may be written together."""

    def read(self, after: Position | None) -> Iterator[Captured]:
        return self._items(after)

    def confirm(self, position: Position) -> None:
        self._on_durable(position)


def _index(position: Position) -> int:
    if not isinstance(position, int):
        raise DeclarationError(f"{position!r} is not a position of this source")
    return position
