"""The conformance suite of `Writer`: every log that has writers inherits its tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, cast

import pytest

from penstock.contracts import Position, StagesRows, TopicRows, Writer
from penstock.errors import DeclarationError, FencedError, RowError

POSITIONS: list[Position] = [
    0,
    -(2**70),
    0.5,
    True,
    "0/16B3748",
    "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5,\ud800 ü \x00",
    [],
    {},
    {"a.csv": 120, "b.csv": 7, "more": [1, None, {"deep": True}]},
]


class StagingWriter(Writer, StagesRows, Protocol):
    """A writer that has the power."""


def rows_of(*numbers: int, topic: str = "orders", deleted: list[bool] | None = None) -> TopicRows:
    return TopicRows(topic, [{"id": number} for number in numbers], deleted)


class WriterContract(ABC):
    """A subclass says how a writer is opened and what readers see. There are topics `orders` and `people`, key `id`."""

    @abstractmethod
    def open(self, name: str = "capture") -> Writer: ...

    @abstractmethod
    def stored(self, topic: str = "orders") -> list[tuple[int, bool]]:
        """Id and delete mark of each row, in order."""

    def ids(self, topic: str = "orders") -> list[int]:
        return [number for number, _ in self.stored(topic)]

    def test_a_new_writer_has_no_position(self) -> None:
        assert self.open().position is None

    @pytest.mark.parametrize("position", POSITIONS)
    def test_any_json_value_is_a_position_and_comes_back_as_it_was(self, position: Position) -> None:
        writer = self.open()
        assert writer.write([rows_of(1)], position) is True
        assert writer.position == position
        assert type(self.open().position) is type(position)
        assert self.open().position == position
        assert self.ids() == [1]

    def test_none_is_no_position_and_nothing_is_stored(self) -> None:
        writer = self.open()
        with pytest.raises(DeclarationError, match="a position is a JSON value; found None"):
            writer.write([rows_of(1)], None)  # type: ignore[arg-type]
        assert (self.ids(), writer.position) == ([], None)

    def test_rows_of_several_topics_are_stored_with_one_position(self) -> None:
        writer = self.open()
        assert writer.write([rows_of(1, 2), rows_of(9, topic="people"), rows_of(3)], "a") is True
        assert (self.ids(), self.ids("people"), writer.position) == ([1, 2, 3], [9], "a")

    def test_rows_that_delete_their_key_are_marked(self) -> None:
        self.open().write([rows_of(1, 2), rows_of(1, 3, deleted=[True, False])], 1)
        assert self.stored() == [(1, False), (2, False), (1, True), (3, False)]

    def test_a_position_can_move_without_rows(self) -> None:
        writer = self.open()
        assert writer.write([], 1) is True
        assert writer.write([], 1) is False
        assert writer.write([], 2) is True
        assert (self.open().position, self.ids()) == (2, [])

    def test_writing_the_last_position_again_changes_nothing(self) -> None:
        writer = self.open()
        assert writer.write([rows_of(1)], {"a": 1, "b": 2}) is True
        assert writer.write([rows_of(1)], {"b": 2, "a": 1}) is False
        assert self.open().write([rows_of(1)], {"a": 1, "b": 2}) is False
        assert self.ids() == [1]

    def test_positions_are_not_ordered(self) -> None:
        writer = self.open()
        for number, position in enumerate([5, "x", 4]):
            assert writer.write([rows_of(number)], position) is True
        assert (self.ids(), writer.position) == ([0, 1, 2], 4)

    def test_opening_fences_whoever_had_the_name(self) -> None:
        old = self.open()
        old.write([rows_of(1)], 1)
        new = self.open()
        assert new.token > old.token
        for position in (1, 2):
            with pytest.raises(FencedError):
                old.write([rows_of(2)], position)
        assert new.write([rows_of(3)], 2) is True
        assert self.ids() == [1, 3]

    def test_writers_of_different_names_do_not_disturb_each_other(self) -> None:
        one, two = self.open("one"), self.open("two")
        assert one.write([rows_of(1)], 7) is True
        assert two.write([rows_of(2)], 7) is True
        assert one.write([rows_of(3)], 8) is True
        assert (one.position, two.position, self.ids()) == (8, 7, [1, 2, 3])

    def test_closing_twice_does_nothing_and_what_was_written_stays(self) -> None:
        writer = self.open()
        writer.write([rows_of(1)], 1)
        writer.close()
        writer.close()
        assert (self.open().position, self.ids()) == (1, [1])

    # -- rows in parts ------------------------------------------------------------------------------------------------

    def open_staging(self, name: str = "capture") -> StagingWriter:
        writer = self.open(name)
        if not isinstance(writer, StagesRows):
            pytest.skip("its writers take all rows of a write at once")
        return cast(StagingWriter, writer)

    def test_staged_rows_are_stored_by_the_next_write_before_its_own(self) -> None:
        writer = self.open_staging()
        writer.stage([rows_of(1, 2), rows_of(9, topic="people")])
        writer.stage([rows_of(1, 3, deleted=[True, False])])
        assert (self.ids(), self.ids("people"), writer.position) == ([], [], None)
        assert writer.write([rows_of(4), rows_of(8, topic="people")], "a") is True
        assert self.stored() == [(1, False), (2, False), (1, True), (3, False), (4, False)]
        assert (self.ids("people"), writer.position) == ([9, 8], "a")

    def test_staged_rows_are_stored_once_and_without_rows_of_the_write(self) -> None:
        writer = self.open_staging()
        writer.stage([rows_of(1)])
        assert writer.write([], 1) is True
        assert writer.write([], 2) is True
        assert self.ids() == [1]

    def test_rows_that_are_discarded_are_never_stored(self) -> None:
        writer = self.open_staging()
        writer.stage([rows_of(1)])
        writer.discard()
        writer.discard()
        writer.write([rows_of(2)], 1)
        assert self.ids() == [2]

    def test_a_repeat_forgets_what_was_staged(self) -> None:
        writer = self.open_staging()
        writer.write([rows_of(1)], 1)
        writer.stage([rows_of(1)])
        assert writer.write([], 1) is False
        assert writer.write([rows_of(2)], 2) is True
        assert self.ids() == [1, 2]

    def test_rows_that_do_not_fit_are_not_staged_and_earlier_ones_stay(self) -> None:
        writer = self.open_staging()
        writer.stage([rows_of(1)])
        with pytest.raises(RowError):
            writer.stage([rows_of(2), TopicRows("orders", [{"id": "x"}])])
        writer.write([], 1)
        assert self.ids() == [1]

    def test_staged_rows_survive_a_write_that_is_refused(self) -> None:
        writer = self.open_staging()
        writer.stage([rows_of(1)])
        with pytest.raises(RowError):
            writer.write([TopicRows("orders", [{"id": "x"}])], 1)
        assert (self.ids(), writer.position) == ([], None)
        assert writer.write([rows_of(2)], 1) is True
        assert self.ids() == [1, 2]

    def test_what_a_replaced_writer_has_staged_is_never_stored(self) -> None:
        old = self.open_staging()
        old.stage([rows_of(1)])
        new = self.open_staging()
        with pytest.raises(FencedError):
            old.write([], 1)
        assert new.write([rows_of(2)], 1) is True
        assert self.ids() == [2]

    def test_a_closed_writer_stages_nothing(self) -> None:
        writer = self.open_staging()
        writer.stage([rows_of(1)])
        writer.close()
        with pytest.raises(DeclarationError, match="closed"):
            writer.stage([rows_of(2)])
        assert self.open().write([], 1) is True
        assert self.ids() == []


def stored_rows(rows: list[dict[str, Any]], marks: list[bool]) -> list[tuple[int, bool]]:
    return [(row["id"], mark) for row, mark in zip(rows, marks, strict=True)]
