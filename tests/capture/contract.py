"""The conformance suite of `Source`: every source inherits its tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from penstock.capture.gather import mark_list
from penstock.contracts import Captured, Position, Source

ROWS = 12
Pair = tuple[dict[str, Any], bool]


def pairs(item: Captured) -> list[Pair]:
    """The rows of an item with their delete marks."""
    rows = list(item.rows) if isinstance(item.rows, Sequence) else item.rows.to_pylist()
    marks = [False] * len(rows) if item.deleted is None else mark_list(item.deleted)
    return [(dict(row), mark) for row, mark in zip(rows, marks, strict=True)]


class SourceContract(ABC):
    """A subclass opens a source that gives twelve rows, with `id` from 1 up, and then ends."""

    @abstractmethod
    def open(self) -> Source: ...

    def read(self, after: Position | None) -> list[Captured]:
        source = self.open()
        try:
            return list(source.read(after))
        finally:
            source.close()

    def ids(self, after: Position | None) -> list[int]:
        return [row["id"] for item in self.read(after) for row, _ in pairs(item)]

    def test_every_item_is_of_one_of_its_tables(self) -> None:
        source = self.open()
        names = {table.name for table in source.tables()}
        assert {item.table for item in source.read(None) if len(item.rows)} <= names
        source.close()

    def test_from_the_beginning_it_gives_everything_in_order(self) -> None:
        assert self.ids(None) == list(range(1, ROWS + 1))

    def test_from_every_position_it_gives_exactly_what_follows(self) -> None:
        given = 0
        for item in self.read(None):
            given += len(item.rows)
            if item.position is not None:
                assert self.ids(item.position) == list(range(given + 1, ROWS + 1))
        assert given == ROWS

    def test_an_item_with_rows_has_another_position_than_the_one_before(self) -> None:
        items = [item for item in self.read(None) if item.position is not None]
        assert all(before.position != item.position for before, item in pairwise(items) if len(item.rows))

    def test_its_end_has_a_position_after_which_nothing_comes(self) -> None:
        last = self.read(None)[-1].position
        assert last is not None
        assert self.ids(last) == []

    def test_reading_may_be_abandoned_and_resumed_from_its_position(self) -> None:
        source = self.open()
        items = source.read(None)
        taken = [next(items)]
        while taken[-1].position is None:
            taken.append(next(items))
        if hasattr(items, "close"):
            items.close()
        taken += source.read(taken[-1].position)
        assert [row["id"] for item in taken for row, _ in pairs(item)] == list(range(1, ROWS + 1))
        source.close()

    def test_closing_in_the_middle_and_twice_is_allowed(self) -> None:
        source = self.open()
        next(source.read(None))
        source.close()
        source.close()

    @pytest.mark.parametrize("position", ["nonsense", [1], {"other": 1}])
    def test_a_position_that_it_never_gave_is_refused(self, position: Position) -> None:
        source = self.open()
        with pytest.raises(Exception, match="position"):
            list(source.read(position))
        source.close()
