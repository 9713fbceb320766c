"""The conformance suite of `Target` and `KeepsTables`: every target that has tables inherits its tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import closing
from typing import Protocol

import pytest

from penstock.contracts import KeepsTables, Target
from penstock.errors import DeclarationError, FencedError
from tests.derive.sqlite.changes import added, changes, removed, view

TOTALS = view("totals", "country string, total bigint", ("country",))
SEEN = view("seen", "id bigint, name string")
Rows = list[tuple[object, ...]]


class TableTarget(Target, KeepsTables, Protocol): ...


class TableTargetContract(ABC):
    """A subclass says how its sink is opened and what is in a view; opening twice gives two sinks on the same views."""

    @abstractmethod
    def open(self) -> TableTarget: ...

    @abstractmethod
    def rows(self, name: str) -> Rows:
        """The rows of a view as a reader sees them, sorted."""

    @abstractmethod
    def epoch(self) -> int:
        """The epoch that a reader sees."""

    def started(self, token: int = 1) -> TableTarget:
        sink = self.open()
        sink.take_over("shop", token)
        sink.declare([TOTALS, SEEN])
        return sink

    def test_a_new_sink_has_no_epoch(self) -> None:
        with closing(self.open()) as sink:
            assert sink.take_over("shop", 1) == 0

    def test_an_epoch_is_applied_to_all_views_at_once(self) -> None:
        with closing(self.started()) as sink:
            both = {"totals": added(TOTALS, {"country": "DE", "total": 5}), "seen": added(SEEN, {"id": 1, "name": "a"})}
            assert sink.apply(1, both) is True
            assert (self.rows("totals"), self.rows("seen"), self.epoch()) == ([("DE", 5)], [(1, "a")], 1)

    def test_an_epoch_without_changes_counts(self) -> None:
        with closing(self.started()) as sink:
            assert sink.apply(1, {}) is True
            assert sink.apply(2, {"seen": []}) is True
            assert self.epoch() == 2

    def test_an_epoch_that_was_applied_changes_nothing_and_is_not_read(self) -> None:
        with closing(self.started()) as sink:
            sink.apply(1, {"seen": added(SEEN, {"id": 1})})
            sink.apply(2, {})
            unread = iter(added(SEEN, {"id": 2}))
            assert sink.apply(1, {"seen": unread}) is False
            assert len(list(unread)) == 1
            assert (self.rows("seen"), self.epoch()) == ([(1, None)], 2)

    def test_epochs_may_be_left_out_and_never_come_back(self) -> None:
        with closing(self.started()) as sink:
            sink.apply(1, {})
            assert sink.apply(3, {"seen": added(SEEN, {"id": 1})}) is True
            assert sink.apply(2, {"seen": added(SEEN, {"id": 2})}) is False
            assert (self.rows("seen"), self.epoch()) == ([(1, None)], 3)

    def test_a_target_that_is_realigned_takes_the_epoch_after_that(self) -> None:
        with closing(self.started()) as sink:
            sink.apply(7, {"seen": added(SEEN, {"id": 1})})
            sink.realign(2)
            assert sink.status().epoch == 2
            assert sink.apply(3, {"seen": added(SEEN, {"id": 2})}) is True
            assert self.rows("seen") == [(1, None), (2, None)]

    def test_a_table_that_is_built_hidden_is_shown_by_an_epoch(self) -> None:
        other = view("totals", "country string, most bigint", ("country",), "2")
        with closing(self.started()) as sink:
            sink.apply(1, {"totals": added(TOTALS, {"country": "DE", "total": 1})})
            sink.declare([other], hidden=True)
            sink.apply(2, {"totals": added(other, {"country": "FR", "most": 9})})
            assert self.rows("totals") == [("DE", 1)]
            assert (sink.status().tables["totals"], sink.status().hidden) == ("", {"totals": "2"})
            sink.apply(3, {}, show=["totals"])
            assert self.rows("totals") == [("FR", 9)]
            assert (sink.status().tables["totals"], sink.status().hidden) == ("2", {})

    def test_the_last_epoch_is_told_to_the_next_instance_and_the_views_are_there(self) -> None:
        with closing(self.started()) as sink:
            sink.apply(1, {"seen": added(SEEN, {"id": 1})})
        with closing(self.open()) as sink:
            assert sink.take_over("shop", 2) == 1
            sink.declare([TOTALS, SEEN])
            assert sink.apply(2, {"seen": added(SEEN, {"id": 2})}) is True
            assert self.rows("seen") == [(1, None), (2, None)]

    def test_a_replaced_instance_is_refused_at_its_next_epoch(self) -> None:
        with closing(self.started(3)) as old, closing(self.open()) as new:
            old.apply(1, {})
            assert new.take_over("shop", 4) == 1
            with pytest.raises(FencedError, match="app 'shop': instance 3 was replaced by instance 4"):
                old.apply(2, {"seen": added(SEEN, {"id": 1})})
            with pytest.raises(FencedError):
                old.apply(1, {})  # also one that was applied: it has nothing to say any more
            assert new.apply(2, {"seen": added(SEEN, {"id": 2})}) is True
            assert self.rows("seen") == [(2, None)]

    @pytest.mark.parametrize("token", [1, 2])
    def test_an_older_or_equal_instance_cannot_take_over(self, token: int) -> None:
        with closing(self.started(2)), closing(self.open()) as other, pytest.raises(FencedError):
            other.take_over("shop", token)

    def test_nothing_is_applied_when_the_changes_cannot_be_read_to_their_end(self) -> None:
        def broken() -> object:
            yield from added(TOTALS, {"country": "DE", "total": 1})
            raise KeyError("a file has gone")

        with closing(self.started()) as sink:
            with pytest.raises(KeyError):
                sink.apply(1, {"seen": added(SEEN, {"id": 1}), "totals": broken()})  # type: ignore[dict-item]
            assert (self.rows("seen"), self.rows("totals"), self.epoch()) == ([], [], 0)
            assert sink.apply(1, {"seen": added(SEEN, {"id": 1})}) is True

    def test_a_row_takes_the_place_of_the_row_of_its_key_whatever_the_order(self) -> None:
        old, new = {"country": "DE", "total": 1}, {"country": "DE", "total": 2}
        other = {"country": "FR", "total": 7}
        with closing(self.started()) as sink:
            sink.apply(1, {"totals": added(TOTALS, old, other)})
            update = [*added(TOTALS, new), *removed(TOTALS, old, other)]
            sink.apply(2, {"totals": update})
            assert self.rows("totals") == [("DE", 2)]

    def test_null_is_a_key_like_others(self) -> None:
        with closing(self.started()) as sink:
            sink.apply(1, {"totals": added(TOTALS, {"country": None, "total": 1})})
            sink.apply(2, {"totals": added(TOTALS, {"country": None, "total": 2})})
            assert self.rows("totals") == [(None, 2)]
            sink.apply(3, {"totals": removed(TOTALS, {"country": None, "total": 2})})
            assert self.rows("totals") == []

    def test_a_bag_has_as_many_equal_rows_as_their_weights_add_up_to(self) -> None:
        row = {"id": None, "name": "a"}
        with closing(self.started()) as sink:
            sink.apply(1, {"seen": [changes(SEEN, [(3, row), (1, {"id": 2, "name": None})])]})
            assert self.rows("seen") == [(2, None), (None, "a"), (None, "a"), (None, "a")]
            sink.apply(2, {"seen": [changes(SEEN, [(-4, row), (0, row)]), changes(SEEN, [(2, row)])]})
            assert self.rows("seen") == [(2, None), (None, "a")]

    def test_a_view_that_is_not_declared_is_refused(self) -> None:
        with closing(self.started()) as sink, pytest.raises(DeclarationError, match="view 'sen'") as refused:
            sink.apply(1, {"sen": added(SEEN, {"id": 1})})
        assert refused.value.hint == "did you mean 'seen'?"

    def test_declaring_the_same_again_changes_nothing_and_another_form_is_refused(self) -> None:
        with closing(self.started()) as sink:
            sink.apply(1, {"seen": added(SEEN, {"id": 1})})
            sink.declare([SEEN])
            for other in (view("seen", "id bigint"), view("seen", "id bigint, name string", ("id",))):
                with pytest.raises(DeclarationError, match="view 'seen': it is there with"):
                    sink.declare([view("new", "a int"), other])
            assert self.rows("seen") == [(1, None)]
            with pytest.raises(DeclarationError, match="view 'new'"):
                sink.apply(2, {"new": []})

    def test_closing_twice_is_closing(self) -> None:
        sink = self.started()
        sink.close()
        sink.close()
