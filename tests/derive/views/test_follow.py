"""Following a view: each epoch once and in order, and never an unreported gap."""

from __future__ import annotations

import threading
import time

import pytest

from penstock.derive.views import ViewChange, changes
from penstock.errors import ChangesLostError, DamagedError, DeclarationError
from penstock.flow.settings import ChangeRetention
from tests.derive.views.written_app import WrittenApp, WrittenView


def test_each_epoch_says_what_came_and_what_went(shop: WrittenApp) -> None:
    first, second = changes(shop.directory, "totals", after=0, timeout=0)
    assert (first.epoch, second.epoch, first.key) == (1, 2, ("country",))
    rows = sorted(((row["country"] or "", row["n"], weight) for row, weight in second.rows()), key=str)
    assert rows == [("DE", 1, -1), ("DE", 10, 1), ("FR", 2, -1)]
    assert second.table.schema.names == ["country", "n", "amount", "_weight"]
    assert second.committed_at > first.committed_at


def test_added_removed_and_deleted_rows_are_results(shop: WrittenApp) -> None:
    first, second = changes(shop.directory, "totals", after=0, timeout=0)
    assert first.deleted == first.removed == []
    assert [row["n"] for row in second.added] == [10]
    assert sorted(row["n"] for row in second.removed) == [1, 2]
    assert [(row["country"], row["n"]) for row in second.deleted] == [("FR", 2)], "DE has a new row"
    assert second.added.epoch == 2
    assert repr(second) == "<ViewChange of totals: epoch 2, 1 added, 2 removed>"


def test_a_row_that_is_added_several_times_is_there_as_often(shop: WrittenApp) -> None:
    (bag, *_) = changes(shop.directory, "bag", after=0, timeout=0)
    weights = [(row, weight) for row, weight in bag.rows() if weight > 0]
    assert len(bag.added) == sum(weight for _, weight in weights)
    assert bag.deleted == bag.removed


def test_an_epoch_that_changed_nothing_is_given_too(shop: WrittenApp) -> None:
    (change,) = changes(shop.directory, "SEEN", after=1, timeout=0)
    assert (change.view, change.epoch, len(change), change.rows()) == ("seen", 2, 0, [])
    assert change.table.schema.names == ["id", "at", "_weight"]


def test_without_a_place_to_begin_it_is_the_newest_commit(shop: WrittenApp) -> None:
    following = changes(shop.directory, "seen", timeout=0)
    shop.append("seen", [{"id": 7}])
    shop.commit()
    assert [change.epoch for change in following] == [3]


def test_a_follower_wakes_when_an_epoch_is_committed(shop: WrittenApp) -> None:
    seen: list[ViewChange] = []
    stop = threading.Event()

    def follow() -> None:
        for change in changes(shop.directory, "seen", after=2, stop=stop):
            seen.append(change)
            if len(seen) == 3:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    for number in range(3):
        shop.append("seen", [{"id": number}])
        shop.commit()
    thread.join(timeout=30)
    assert [change.epoch for change in seen] == [3, 4, 5]
    assert [change.rows()[0][0]["id"] for change in seen] == [0, 1, 2]


def test_a_follower_ends_when_it_is_stopped_or_nothing_comes(shop: WrittenApp) -> None:
    stop = threading.Event()
    ended = threading.Event()

    def follow() -> None:
        list(changes(shop.directory, "seen", stop=stop))
        ended.set()

    thread = threading.Thread(target=follow)
    thread.start()
    stop.set()
    assert ended.wait(timeout=30)
    thread.join()
    before = time.monotonic()
    assert list(changes(shop.directory, "seen", timeout=0.3)) == []
    assert time.monotonic() - before >= 0.3


def test_changes_that_are_no_longer_kept_are_never_skipped(shop: WrittenApp) -> None:
    shop.garbage = type(shop.garbage)(shop.ledger, retention=ChangeRetention(epochs=2))
    for number in range(4):
        shop.append("seen", [{"id": number}])
        shop.commit(collect=True)
    with pytest.raises(ChangesLostError, match="the changes of epoch 1 are not kept, or no longer") as caught:
        list(changes(shop.directory, "seen", after=0, timeout=0))
    assert "rows = app.read(view)" in (caught.value.hint or "")
    assert [change.epoch for change in changes(shop.directory, "seen", after=5, timeout=0)] == [6]


def test_a_view_that_was_replaced_makes_followers_start_over(shop: WrittenApp) -> None:
    shop.declare(WrittenView("totals", "country string, n int", ("country",), "keyed", version="2"))
    shop.upsert("totals", [{"country": "DE", "n": 1}])
    shop.commit()
    with pytest.raises(ChangesLostError, match="in epoch 3 the view was replaced as a whole"):
        list(changes(shop.directory, "totals", after=2, timeout=0))
    assert [change.epoch for change in changes(shop.directory, "seen", after=2, timeout=0)] == [3]


def test_an_epoch_that_does_not_exist_yet_belongs_to_another_history(shop: WrittenApp) -> None:
    with pytest.raises(ChangesLostError, match="the last epoch that was committed is 2"):
        list(changes(shop.directory, "totals", after=9))


def test_an_unknown_view_is_refused_at_once(shop: WrittenApp) -> None:
    with pytest.raises(DeclarationError, match="there is no view 'totls'"):
        changes(shop.directory, "totls")


def test_damaged_changes_are_never_shown(shop: WrittenApp) -> None:
    kept = shop.ledger.changes_of(2)
    assert kept is not None
    path = shop.directory / kept.views["totals"].files[0].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=r"view 'totals': .* its checksum is wrong"):
        list(changes(shop.directory, "totals", after=1, timeout=0))
    path.unlink()
    with pytest.raises(DamagedError, match="the file is missing"):
        list(changes(shop.directory, "totals", after=1, timeout=0))
