"""For tests of sources and of what is written: a source whose events a test lists, and a log in memory to write to.

Crashes are items of the input: an exception in the list is raised when it is reached, once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from penstock.contracts import Captured, Position, SourceTable, TopicRows
from penstock.errors import DeclarationError, FencedError


@dataclass(frozen=True, slots=True)
class Event:
    """A row of a table. `more`: the next event belongs to the same transaction, so nobody may stop between them."""

    table: str
    row: Mapping[str, object]
    deleted: bool = False
    more: bool = False


class Pause:
    """In the list of a `MemorySource`: nothing comes for a moment, and the source gives a heartbeat."""


class MemorySource:
    """Gives the events of a list, at most `item_rows` of one table in an item. Its position is an index in the list.

    `on_durable` is called with each position of which the source knows that it is durable.
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
        """How many events of one table follow each other, at most as many as an item has."""
        events = self.events[start : start + self._item_rows]
        tables = [event.table if isinstance(event, Event) else "" for event in events]
        return next((count for count, table in enumerate(tables) if table != tables[0]), len(tables))

    def _is_open(self, end: int) -> bool:
        """Whether a transaction goes across this index."""
        before = (event for event in reversed(self.events[:end]) if isinstance(event, Event))
        return any(event.more for event in islice(before, 1))

    def close(self) -> None:
        self._closed = True


class ConfirmedMemorySource(MemorySource):
    """The same, for a source that is told what is durable: items of it may be written together."""

    def read(self, after: Position | None) -> Iterator[Captured]:
        return self._items(after)

    def confirm(self, position: Position) -> None:
        self._on_durable(position)


@dataclass(slots=True)
class MemoryLog:
    """What writers have written: rows by topic with their delete marks, and each writer's token and position."""

    topics: dict[str, list[tuple[Mapping[str, object], bool]]] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    positions: dict[str, str] = field(default_factory=dict)

    def writer(self, name: str) -> MemoryWriter:
        self.tokens[name] = self.tokens.get(name, 0) + 1
        return MemoryWriter(self, name, self.tokens[name])


@dataclass(slots=True)
class MemoryWriter:
    """Made by `MemoryLog.writer`; implements `contracts.Writer`."""

    log: MemoryLog
    name: str
    token: int

    @property
    def position(self) -> Position | None:
        stored = self.log.positions.get(self.name)
        if stored is None:
            return None
        position: Position = json.loads(stored)
        return position

    def write(self, rows: Sequence[TopicRows], position: Position) -> bool:
        if self.log.tokens[self.name] != self.token:
            raise FencedError(f"writer '{self.name}': token {self.token} was replaced")
        text = json.dumps(position, sort_keys=True)
        if text == "null":
            raise DeclarationError(f"writer '{self.name}': a position is a JSON value; found None")
        if self.log.positions.get(self.name) == text:
            return False
        stored = [(part.topic, row) for part in rows for row in _marked_rows(part)]
        for topic, row in stored:
            self.log.topics.setdefault(topic, []).append(row)
        self.log.positions[self.name] = text
        return True

    def close(self) -> None:
        """Nothing is open."""


def _marked_rows(part: TopicRows) -> list[tuple[Mapping[str, object], bool]]:
    rows = part.rows if isinstance(part.rows, Sequence) else part.rows.to_pylist()
    marks = [False] * len(rows) if part.deleted is None else [str(mark).lower() == "true" for mark in part.deleted]
    return list(zip(rows, marks, strict=True))


def _index(position: Position) -> int:
    if not isinstance(position, int):
        raise DeclarationError(f"{position!r} is not a position of this source")
    return position
