from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from penstock.contracts import HeldRange, Hold, ReadOffset
from penstock.errors import DamagedError, DeclarationError, FencedError, PenstockError, RangeError, UnavailableError
from penstock.log import Log, Topic, TopicSettings
from penstock.log import rewrite as rewriting
from penstock.log.holds import SLOT_BYTES, Holds
from penstock.storage.document import encode_document
from tests.log.simulated import Fault, SimulatedCrash, SimulatedDisk

ROOT = Path("log")


@pytest.fixture
def prices(log: Log) -> Topic:
    return log.create_topic("prices", "item long, price long", key="item", settings=TopicSettings(segment_bytes=6_000))


def update(topic: Topic, rounds: range, items: int = 10) -> None:
    for price in rounds:
        topic.append([{"item": item, "price": price} for item in range(items)])


def rows_in(topic: Topic, start: int, end: int, number: int = 0) -> list[object]:
    """All that a reader can know of the rows in a range, and of their frames."""
    rows = [
        (offset, row, batch.append_time, batch.producer)
        for batch in topic.batches({number: start}, until={number: end})
        for offset, row in zip(batch.offsets.tolist(), batch.rows.to_pylist(), strict=True)
    ]
    frames = [header.tolist() for found in topic.files.headers(number, start, end) for header in found]
    return [rows, frames]


def latest(topic: Topic) -> dict[int, int]:
    """A table as its readers keep it: the last row of each key, and none after a delete marker."""
    table: dict[int, int] = {}
    for batch in topic.batches():
        for index, row in enumerate(batch.rows.to_pylist()):
            if batch.deleted is not None and batch.deleted[index].as_py():
                table.pop(row["item"], None)
            else:
                table[row["item"]] = row["price"]
    return table


# -- compaction -------------------------------------------------------------------------------------------------------


def test_compaction_leaves_held_rows_and_their_frames_as_they_are(log: Log, prices: Topic) -> None:
    update(prices, range(40))
    log.hold("app", {"prices": {0: (105, 222)}})
    before = rows_in(prices, 105, 222)
    (done,) = prices.compact()
    assert rows_in(prices, 105, 222) == before
    with Log(log.path) as again:
        assert rows_in(again.topic("prices"), 105, 222) == before
    assert latest(prices) == dict.fromkeys(range(10), 39)
    assert (done.held_rows, done.held_by) == (130, ("app",))  # thirteen frames of ten
    assert done.rows_after == 130 + 10
    assert prices.verify()[0].problems == []


def test_what_was_held_goes_with_the_next_compaction_after_its_release(log: Log, prices: Topic) -> None:
    update(prices, range(40))
    log.hold("app", {"prices": {0: (105, 222)}})
    prices.compact()
    log.release("app")
    log.release("app")
    (done,) = prices.compact()
    assert (done.rows_after, done.held_rows, done.held_by) == (10, 0, ())
    assert len(prices.read()) == 10


def test_a_delete_marker_stays_while_an_older_row_of_its_key_is_held(log: Log, prices: Topic) -> None:
    update(prices, range(3))
    prices.delete({"item": 4})
    update(prices, range(3), items=2)
    log.hold("app", {"prices": {0: (0, 10)}})
    expected = latest(prices)
    assert 4 not in expected
    prices.compact()
    assert latest(prices) == expected
    log.release("app")
    prices.compact()
    assert latest(prices) == expected
    assert len(prices.read()) == len(expected)


@contextmanager
def before_the_swap(monkeypatch: pytest.MonkeyPatch, act) -> Iterator[None]:  # type: ignore[no-untyped-def]
    """Do something when a rewrite has written everything and is about to look for holds, once."""
    swap = rewriting._swap_when_free

    def acting(*arguments, **options):  # type: ignore[no-untyped-def]
        act()
        return swap(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(rewriting, "_swap_when_free", acting)
        yield


def test_rows_that_are_held_while_they_are_compacted_stay_as_they_are(
    log: Log, prices: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    update(prices, range(60))
    before = rows_in(prices, 0, 100)
    monkeypatch.setattr("penstock.log.topic.COMPACT_WAIT_SECONDS", 0.05)
    with before_the_swap(monkeypatch, lambda: log.hold("app", {"prices": {0: (0, 100)}})):
        (done,) = prices.compact()
    assert rows_in(prices, 0, 100) == before
    assert done.held_by == ("app",)
    assert done.held_rows >= 100
    assert len(prices.read()) < 600, "other segments were compacted"
    assert latest(prices) == dict.fromkeys(range(10), 59)
    assert prices.verify()[0].problems == []


def test_markers_stay_behind_a_segment_that_was_held_while_it_was_compacted(
    log: Log, prices: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    update(prices, range(30))
    prices.delete({"item": 4})
    update(prices, range(30), items=2)
    expected = latest(prices)
    monkeypatch.setattr("penstock.log.topic.COMPACT_WAIT_SECONDS", 0.05)
    with before_the_swap(monkeypatch, lambda: log.hold("app", {"prices": {0: (0, 10)}})):
        prices.compact()
    assert latest(prices) == expected


def test_a_hold_that_moves_on_in_time_costs_a_compaction_nothing(
    log: Log, prices: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    update(prices, range(20))
    with before_the_swap(monkeypatch, lambda: log.hold("app", {"prices": {0: (0, 100)}})):
        compaction = threading.Thread(target=prices.compact)
        compaction.start()
        while not log.holds():
            time.sleep(0.001)
        log.hold("app", {"prices": {0: (200, 210)}})
        compaction.join()
    assert len(prices.read()) == 10


# -- readers ----------------------------------------------------------------------------------------------------------


def read_up_to(topic: Topic, offset: int, number: int = 0) -> list[ReadOffset]:
    return [ReadOffset(topic.name, topic.id, number, offset)]


def markers(topic: Topic) -> list[int]:
    """The offsets of the delete markers."""
    return [
        offset
        for batch in topic.batches()
        if batch.deleted is not None
        for offset, deleted in zip(batch.offsets.tolist(), batch.deleted.to_pylist(), strict=True)
        if deleted
    ]


def delete(topic: Topic, items: range) -> None:
    for item in items:
        topic.delete({"item": item})


def test_a_delete_marker_stays_until_every_reader_and_group_has_passed_it(log: Log, prices: Topic) -> None:
    update(prices, range(1))
    delete(prices, range(5))  # offsets 10 to 14
    log.hold("app:fast", {}, read=read_up_to(prices, 14))
    log.hold("app:slow", {}, read=read_up_to(prices, 12))
    log.group("report").commit("prices", {0: 13})
    (done,) = prices.compact()
    assert markers(prices) == [12, 13, 14]
    assert (done.unread_markers, done.unread_by) == (3, ("app:fast", "app:slow", "group:report"))
    log.hold("app:slow", {}, read=read_up_to(prices, 14))
    (done,) = prices.compact()
    assert (markers(prices), done.unread_by) == ([13, 14], ("app:fast", "app:slow", "group:report"))
    log.group("report").drop()
    log.release("app:slow")
    (done,) = prices.compact()
    assert (markers(prices), done.unread_by) == ([14], ("app:fast",))
    log.release("app:fast")
    assert prices.compact()[0].unread_markers == 0
    assert (markers(prices), sorted(latest(prices))) == ([], [5, 6, 7, 8, 9])


def test_of_rows_that_a_reader_has_not_read_only_delete_markers_stay(log: Log, prices: Topic) -> None:
    update(prices, range(40))
    delete(prices, range(3))
    log.hold("app:shop", {}, read=read_up_to(prices, 0))
    (done,) = prices.compact()
    assert (done.rows_after, done.unread_markers, done.held_rows) == (10, 3, 0)


def test_a_marker_that_a_newer_row_replaces_holds_up_nobody(
    log: Log, prices: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.topic.COMPACT_WAIT_SECONDS", 3_600)
    delete(prices, range(10))
    update(prices, range(1))
    log.hold("app:shop", {}, read=read_up_to(prices, 0))
    (done,) = prices.compact()
    assert (done.rows_after, done.unread_markers) == (10, 0)


@pytest.mark.parametrize("group", [False, True])
def test_a_reader_that_registers_while_a_topic_is_compacted_keeps_its_markers(
    log: Log, prices: Topic, monkeypatch: pytest.MonkeyPatch, group: bool
) -> None:
    update(prices, range(1))
    delete(prices, range(5))
    monkeypatch.setattr("penstock.log.topic.COMPACT_WAIT_SECONDS", 0.05)

    def begin_to_read() -> None:
        if group:
            log.group("report").commit("prices", {0: 12})
        else:
            log.hold("app:shop", {}, read=read_up_to(prices, 12))

    with before_the_swap(monkeypatch, begin_to_read):
        prices.compact()
    assert markers(prices) == [12, 13, 14]


def test_erasure_and_retention_do_not_wait_for_readers(log: Log, prices: Topic) -> None:
    update(prices, range(1))
    delete(prices, range(5))
    log.hold("app:shop", {}, read=read_up_to(prices, 0))
    prices.erase({"item": 3}, wait=0)
    assert markers(prices) == [10, 11, 12, 14]
    lines = log.create_topic("lines", "text string", settings=TopicSettings(segment_bytes=3_000, retention_bytes=6_000))
    log.hold("app:other", {}, read=read_up_to(lines, 0))
    fill(lines)
    assert lines.files.start(0) > 5
    assert [kept.lost for kept in log.kept() if kept.holder == "app:other"] == [lines.files.start(0)]


def test_a_reader_is_registered_for_the_topic_and_not_for_its_name(log: Log, prices: Topic) -> None:
    log.hold("app:shop", {}, read=read_up_to(prices, 0))
    log.drop_topic("prices")
    again = log.create_topic("prices", "item long, price long", key="item")
    delete(again, range(3))
    again.compact()
    assert markers(again) == []


def test_an_owner_that_was_replaced_changes_nothing(log: Log, prices: Topic) -> None:
    log.hold("app:shop", {}, read=read_up_to(prices, 5), token=1)
    with Log(log.path) as elsewhere:
        elsewhere.hold("app:shop", {}, read=read_up_to(prices, 3), token=2)
    for attempt in (log, Log(log.path)):
        with pytest.raises(FencedError, match="hold 'app:shop': owner 1 was replaced by owner 2"):
            attempt.hold("app:shop", {}, read=read_up_to(prices, 9), token=1)
    log.hold("app:shop", {}, read=read_up_to(prices, 4), token=3)
    with pytest.raises(FencedError, match="owner 2 was replaced by owner 3"):
        log.hold("app:shop", {}, read=read_up_to(prices, 9), token=2)
    assert [hold.read[0].offset for hold in log.holds()] == [4]


def test_moving_a_reader_costs_one_sync(log: Log, prices: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = []
    log.hold("app:shop", {}, read=read_up_to(prices, 0), token=1)
    for name in ("fsync", "fdatasync"):
        whole = getattr(os, name)
        monkeypatch.setattr(os, name, lambda descriptor, whole=whole: syncs.append(whole(descriptor)))
    for offset in range(1, 6):
        log.hold("app:shop", {"prices": {0: (offset, offset + 1)}}, read=read_up_to(prices, offset), token=1)
    assert len(syncs) == 5


def test_a_hold_of_an_earlier_version_is_read_as_it_is(log: Log, prices: Topic) -> None:
    topics = {prices.id: {"name": "prices", "partitions": [[0, 3, 9]]}}
    identity = json.loads((log.path / "penstock.json").read_bytes())["content"]["id"]
    content = {"name": "app", "log": identity, "number": 7, "placed": "2026-01-31T12:00:00+00:00", "topics": topics}
    (log.path / "holds").mkdir()
    (log.path / "holds" / "app.json").write_bytes(2 * encode_document(content).ljust(SLOT_BYTES))
    (hold,) = log.holds()
    assert (hold.ranges[0].start, hold.ranges[0].end, hold.read, hold.token) == (3, 9, (), 0)
    log.hold("app", {"prices": {0: (4, 9)}}, token=1)
    assert log.holds()[0].ranges[0].start == 4


def test_what_is_kept_for_whom_can_be_seen(log: Log, prices: Topic) -> None:
    update(prices, range(3))
    delete(prices, range(5))
    log.hold("app:shop", {"prices": {0: (5, 12)}}, read=read_up_to(prices, 32))
    rows, unread = log.kept()
    assert (rows.keeps, rows.rows, rows.start, rows.end) == ("rows", 20, 5, 12)  # whole frames
    assert (unread.keeps, unread.rows, unread.start, unread.end) == ("delete markers", 3, 32, None)
    assert rows.bytes > 500
    assert unread.bytes > 100
    prices.compact()
    assert log.kept()[1].rows == 3


# -- erasure ----------------------------------------------------------------------------------------------------------


def test_erasure_waits_for_a_hold_and_is_complete_when_it_returns(log: Log, prices: Topic) -> None:
    update(prices, range(20))
    log.hold("app", {"prices": {0: (0, 50)}})
    erasure = threading.Thread(target=lambda: prices.erase({"item": 3}))
    erasure.start()
    erasure.join(0.1)
    assert erasure.is_alive()
    assert len(prices.read()) == 200
    log.release("app")
    erasure.join()
    assert len(prices.read()) == 180
    assert 3 not in latest(prices)


def test_erasure_names_the_holder_and_changes_nothing_when_it_waited_too_long(log: Log, prices: Topic) -> None:
    update(prices, range(20))
    log.hold("app", {"prices": {0: (7, 50)}})
    before = rows_in(prices, 0, 200)
    with pytest.raises(UnavailableError, match="'app' holds offsets 7 to 49") as refused:
        prices.erase({"item": 3}, wait=0.05)
    assert "penstock holds release" in str(refused.value.hint)
    assert rows_in(prices, 0, 200) == before
    prices.append({"item": 3, "price": 100})
    assert latest(prices)[3] == 100


def test_erasure_need_not_wait_where_no_held_frame_has_the_key(log: Log, prices: Topic) -> None:
    update(prices, range(5))
    prices.append({"item": 77, "price": 1})
    update(prices, range(5))
    log.hold("app", {"prices": {0: (0, 50)}})
    log.hold("other", {"prices": {0: (51, 101)}})
    before = rows_in(prices, 0, 50), rows_in(prices, 51, 101)
    prices.erase({"item": 77}, wait=0)
    assert (rows_in(prices, 0, 50), rows_in(prices, 51, 101)) == before
    assert 77 not in latest(prices)


# -- retention --------------------------------------------------------------------------------------------------------


@pytest.fixture
def lines(log: Log) -> Topic:
    settings = TopicSettings(segment_bytes=3_000, retention_seconds=3_600)
    return log.create_topic("lines", "text string", settings=settings)


def fill(lines: Topic, rows: int = 30) -> None:
    for _ in range(rows):
        lines.append({"text": "x" * 900})


def test_expiry_stops_at_the_first_held_row(log: Log, lines: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lines)
    log.hold("app", {"lines": {0: (13, 15)}})
    before = rows_in(lines, 13, 15)
    monkeypatch.setattr(lines.files.writer(0), "_clock", lambda: time.time() + 7_200)
    done = lines.expire()
    assert done.segments > 0
    assert (done.held_segments > 0, done.held_by) == (True, ("app",))
    assert 5 < lines.files.start(0) <= 13
    assert rows_in(lines, 13, 15) == before
    log.release("app")
    assert lines.expire().held_segments == 0
    assert lines.files.start(0) > 15


def test_a_roll_lets_no_held_row_go(log: Log) -> None:
    topic = log.create_topic("lines", "text string", settings=TopicSettings(segment_bytes=3_000, retention_bytes=6_000))
    topic.append({"text": "first"})
    log.hold("app", {"lines": {0: (0, 1)}})
    fill(topic, 60)
    assert topic.files.start(0) == 0
    assert len(topic.read()) == 61
    log.release("app")
    fill(topic, 4)
    assert topic.files.start(0) > 40


def test_a_range_that_begins_between_segments_stays_readable(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TopicSettings(segment_bytes=2_000, retention_seconds=3_600)
    topic = log.create_topic("prices", "item long, price long", key="item", settings=settings)
    update(topic, range(30))
    topic.compact()
    update(topic, range(30, 60))
    middle = topic.files.partition(0).manifest().segments[1].base_offset - 1
    log.hold("app", {"prices": {0: (middle, middle + 5)}})
    before = rows_in(topic, middle, middle + 5)
    monkeypatch.setattr(topic.files.writer(0), "_clock", lambda: time.time() + 7_200)
    topic.expire()
    assert rows_in(topic, middle, middle + 5) == before


# -- placing and reading holds ----------------------------------------------------------------------------------------


def test_a_hold_replaces_what_its_name_held_before_and_is_seen_by_all(log: Log, prices: Topic) -> None:
    update(prices, range(10))
    for turn in range(5):
        log.hold("app", {"prices": {0: (turn, turn + 5)}})
    log.hold("other", {})
    with Log(log.path) as again:
        found = {hold.name: hold.ranges for hold in again.holds()}
    assert found == {"app": (HeldRange("prices", prices.id, 0, 4, 9),), "other": ()}


def test_a_hold_of_many_partitions_has_larger_slots(log: Log) -> None:
    topic = log.create_topic("wide", "a long", settings=TopicSettings(partitions=160))
    log.hold("app", {})
    for turn in range(3):
        log.hold("app", {"wide": dict.fromkeys(range(topic.settings.partitions), (0, 2**60 + turn))})
    (hold,) = log.holds()
    assert [held.end for held in hold.ranges] == [2**60 + 2] * 160


def test_rows_that_are_gone_cannot_be_held(log: Log) -> None:
    topic = log.create_topic("lines", "text string", settings=TopicSettings(segment_bytes=3_000, retention_bytes=6_000))
    fill(topic)
    log.hold("app", {"lines": {0: (topic.files.start(0), topic.files.end(0))}})
    with pytest.raises(RangeError, match="offset 0 cannot be held, it is gone"):
        log.hold("app", {"lines": {0: (0, 10)}})
    log.hold("empty", {"lines": {0: (0, 0)}})
    assert [hold.ranges[0].start for hold in log.holds()] == [topic.files.start(0), 0]


@pytest.mark.parametrize("ranges", [{0: (5, 4)}, {0: (-1, 4)}, {1: (0, 1)}])
def test_a_range_that_makes_no_sense_is_refused(log: Log, prices: Topic, ranges: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(RangeError):
        log.hold("app", {"prices": ranges})
    assert log.holds() == []


def test_an_unknown_topic_and_a_strange_name_are_refused(log: Log) -> None:
    with pytest.raises(DeclarationError, match="topic 'nothing'"):
        log.hold("app", {"nothing": {0: (0, 1)}})
    with pytest.raises(DeclarationError, match="not a name for a hold"):
        log.hold("../app", {})


def test_a_hold_is_about_the_topic_and_not_about_its_name(log: Log, prices: Topic) -> None:
    update(prices, range(20))
    log.hold("app", {"prices": {0: (0, 100)}})
    log.drop_topic("prices")
    again = log.create_topic("prices", "item long, price long", key="item")
    update(again, range(20))
    (done,) = again.compact()
    assert (done.rows_after, done.held_rows) == (10, 0)


def test_every_flipped_bit_of_a_hold_is_an_error_that_names_the_file(log: Log, prices: Topic) -> None:
    update(prices, range(5))
    log.hold("app", {"prices": {0: (0, 10)}})
    log.hold("app", {"prices": {0: (0, 20)}})
    path = log.path / "holds" / "app.json"
    content = path.read_bytes()
    rng = random.Random(1)
    for _ in range(300):
        damaged = bytearray(content)
        bit = rng.choice([rng.randrange(8 * 300), rng.randrange(8 * len(content))])
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(DamagedError, match=r"holds/app\.json"):
            log.holds()
    for act in (prices.compact, lambda: prices.erase({"item": 1})):
        with pytest.raises(DamagedError, match=r"holds/app\.json"):
            act()
    update(prices, range(5))  # appends go on
    log.hold("app", {"prices": {0: (0, 30)}})
    assert [hold.ranges[0].end for hold in log.holds()] == [30]


@pytest.mark.parametrize("length", [0, 1, 4096, 8191])
def test_a_shortened_hold_is_an_error(log: Log, prices: Topic, length: int) -> None:
    log.hold("app", {"prices": {0: (0, 10)}})
    path = log.path / "holds" / "app.json"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DamagedError, match=r"holds/app\.json"):
        log.holds()
    log.release("app")
    assert log.holds() == []


def test_a_foreign_file_among_the_holds_is_an_error(log: Log, prices: Topic) -> None:
    log.hold("app", {"prices": {0: (0, 10)}})
    path = log.path / "holds" / "app.json"
    path.rename(path.with_name("other.json"))
    with pytest.raises(DamagedError, match=r"other\.json: this is the hold of 'app'"):
        log.holds()
    path.with_name("other.json").rename(path.with_name("notes.txt"))
    with pytest.raises(DamagedError, match=r"notes\.txt: this is not a hold"):
        prices.compact()


def test_a_damaged_hold_does_not_stop_an_append_that_rolls(log: Log) -> None:
    topic = log.create_topic("lines", "text string", settings=TopicSettings(segment_bytes=3_000, retention_bytes=6_000))
    log.hold("app", {"lines": {0: (0, 1)}})
    (log.path / "holds" / "app.json").write_bytes(b"{")
    fill(topic)
    assert len(topic.read()) == 30
    with pytest.raises(DamagedError, match=r"holds/app\.json"):
        topic.expire()


# -- on a disk that loses its power -----------------------------------------------------------------------------------


def held(end: int, partitions: int = 1) -> list[HeldRange]:
    return [HeldRange("t", "00" * 16, number, 0, end) for number in range(partitions)]


def place(holds: Holds, end: int, partitions: int = 1) -> None:
    """Hold rows up to an offset, as a reader that has come so far."""
    read = [ReadOffset("t", "00" * 16, number, end) for number in range(partitions)]
    with holds.locked():
        holds.place("app", held(end, partitions), read=read, token=end)


def found(disk: SimulatedDisk) -> list[Hold]:
    holds = Holds(disk, ROOT)
    with holds.locked():
        return holds.all()


def started() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    return disk


@pytest.mark.parametrize("partitions", [1, 200])
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_after_a_power_loss_a_hold_is_what_it_was_or_was_to_become(fault: Fault, partitions: int) -> None:
    """Placed for the first time, moved in place, and moved when it no longer fits: never lost once it has returned."""
    for before in (0, 1, 4):
        for step in count():
            for seed in range(6):
                disk = started()
                holds = Holds(disk, ROOT)
                for end in range(1, before + 1):
                    place(holds, end)
                disk.fail(step, fault)
                try:
                    place(holds, before + 1, partitions)
                    died = False
                except SimulatedCrash:
                    died = True
                after = disk.crash(random.Random(seed))
                ends = {before + 1} if not died else {before, before + 1}
                try:
                    seen = {held.end for hold in found(after) for held in hold.ranges} or {0}
                    assert seen == ({position.offset for hold in found(after) for position in hold.read} or {0})
                    assert seen <= ends
                    assert len(seen) == 1
                except DamagedError:
                    assert died, "a hold that was placed cannot be read"
                place(Holds(after, ROOT), 99)
                assert {held.end for hold in found(after) for held in hold.ranges} == {99}
            if not died:
                break


@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.BROKEN])
def test_a_disk_that_refuses_a_hold_leaves_the_one_before_or_an_error(fault: Fault) -> None:
    for step in count():
        disk = started()
        holds = Holds(disk, ROOT)
        place(holds, 1)
        disk.fail(step, fault)
        try:
            place(holds, 2)
        except OSError:
            pass
        else:
            break
        disk.heal()
        with suppress(PenstockError):
            assert {held.end for hold in found(disk) for held in hold.ranges} <= {1, 2}
        place(holds, 3)
        assert {held.end for hold in found(disk) for held in hold.ranges} == {3}
