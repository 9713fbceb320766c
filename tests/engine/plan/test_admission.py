"""What one epoch reads: whole transactions up to one moment, and of those as much as the limits allow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Log, TopicSettings
from penstock.engine.plan import admission
from penstock.engine.plan.admission import Backlog, admit, admit_all, backlogs, consistent_ends
from penstock.errors import UnavailableError
from penstock.log import Topic
from penstock.log.catalog import Catalog
from penstock.log.partition import Partition
from penstock.log.pending_write import Staged
from penstock.log.recovery import Outcome
from penstock.log.tail import Tail
from penstock.log.transaction import Transaction
from penstock.log.writer import PartitionWriter

OS = TopicSettings(durability="os")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as opened:
        yield opened


def filled(log: Log, name: str, *rows: int, frame: int = 1_000) -> Topic:
    """A topic with so many rows in each of its partitions."""
    topic = log.create_topic(name, "a bigint", partitions=len(rows), settings=OS)
    for partition, count in enumerate(rows):
        for start in range(0, count, frame):
            values = pa.array(range(start, min(start + frame, count)), pa.int64())
            topic.append(pa.record_batch({"a": values}), partition=partition)
    return topic


def whole(topic: Topic) -> Backlog:
    return Backlog(topic, topic.starts(), topic.ends())


# -- limits -----------------------------------------------------------------------------------------------------------


def test_without_limits_everything_is_admitted(log: Log) -> None:
    topic = filled(log, "numbers", 10, 0, 3)
    assert admit(topic, topic.starts(), topic.ends()) == {0: 10, 1: 0, 2: 3}


def test_admission_keeps_to_rows_and_bytes_and_always_goes_on(log: Log) -> None:
    settings = TopicSettings(durability="os", segment_bytes=1024 * 1024)
    topic = log.create_topic("numbers", "a bigint", partitions=2, settings=settings)
    for _ in range(30):
        topic.append(pa.record_batch({"a": pa.array(range(10_000))}), partition=0)
    topic.append([{"a": 1}], partition=1)
    starts, ends = topic.starts(), topic.ends()
    assert admit(topic, starts, ends, max_rows=1000) == {0: 999, 1: 1}
    assert admit(topic, ends, ends, max_rows=1000, max_bytes=1) == ends
    assert sum(admit(topic, starts, ends, max_bytes=1).values()) == 1
    assert sum(admit(topic, starts, ends, max_rows=0).values()) == 1
    # 80 kB a frame: half a megabyte is six of them.
    for max_rows in (None, 200_000):
        half = admit(topic, starts, ends, max_rows=max_rows, max_bytes=512 * 1024)
        assert half[1] == 1
        assert 60_000 < half[0] < 70_000


def test_a_large_source_with_many_partitions_does_not_starve_a_small_one(log: Log) -> None:
    table = filled(log, "table", *[5_000] * 8)
    stream = filled(log, "stream", 600)
    other = filled(log, "other", 10)
    sources = {"table": whole(table), "stream": whole(stream), "other": whole(other)}
    admitted = admit_all(sources, max_rows=1_010)
    assert sum(admitted["stream"].values()) == 500
    assert sum(admitted["other"].values()) == 10
    assert sum(admitted["table"].values()) == 500
    assert set(admitted["table"].values()) == {62, 63}
    by_bytes = admit_all(sources, max_bytes=3_000)
    assert all(sum(ends.values()) > 0 for ends in by_bytes.values())


def test_the_limit_is_that_of_all_sources_together_and_what_one_leaves_goes_to_the_others(log: Log) -> None:
    sources = {"one": whole(filled(log, "one", 100, 100)), "two": whole(filled(log, "two", 20))}
    admitted = admit_all(sources, max_rows=120)
    assert admitted == {"one": {0: 50, 1: 50}, "two": {0: 20}}
    assert admit_all(sources, max_rows=220) == {"one": {0: 100, 1: 100}, "two": {0: 20}}


def test_a_limit_below_one_row_for_each_still_gives_everybody_a_turn(log: Log) -> None:
    sources = {name: whole(filled(log, name, 2, 2)) for name in ("one", "two", "three")}
    for _ in range(12):
        admitted = admit_all(sources, max_rows=1)
        moved = sum(sum(admitted[name].values()) - sum(one.starts.values()) for name, one in sources.items())
        assert moved == 1
        sources = {name: Backlog(one.topic, admitted[name], one.ends) for name, one in sources.items()}
    assert all(one.starts == one.ends for one in sources.values())
    assert admit_all(sources, max_rows=1) == {name: one.ends for name, one in sources.items()}


def test_a_source_that_stands_behind_the_ends_stays_where_it_is(log: Log) -> None:
    topic = filled(log, "numbers", 10)
    assert admit(topic, {0: 8}, {0: 5}, max_rows=3, max_bytes=10) == {0: 8}
    assert admit_all({}, max_rows=1, max_bytes=1) == {}


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=3),
    st.integers(1, 40),
    st.integers(1, 5_000),
)
def test_epochs_within_limits_read_everything_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int]], max_rows: int, max_bytes: int
) -> None:
    with Log(tmp_path_factory.mktemp("log")) as log:
        sources = {str(n): whole(filled(log, str(n), *rows, frame=7)) for n, rows in enumerate(sizes)}
        behind = sum(map(sum, sizes))
        while behind:
            admitted = admit_all(sources, max_rows=max_rows, max_bytes=max_bytes)
            left = sum(sum(one.ends.values()) - sum(admitted[name].values()) for name, one in sources.items())
            assert 1 <= behind - left <= max_rows
            behind = left
            sources = {name: Backlog(one.topic, admitted[name], one.ends) for name, one in sources.items()}
        assert all(one.starts == one.ends for one in sources.values())


# -- limits where rows were removed -----------------------------------------------------------------------------------


@pytest.fixture
def compacted(log: Log) -> Topic:
    """Twenty rows are left of four thousand, the last ones of their keys, and one frame follows."""
    topic = log.create_topic("states", "id long, n long", key="id", settings=OS)
    for round_ in range(200):
        topic.append([{"id": number, "n": round_} for number in range(20)])
    topic.compact()
    topic.append([{"id": 1, "n": 0}])
    return topic


def rows_between(topic: Topic, start: int, end: int) -> int:
    return sum(len(batch) for batch in topic.batches({0: start}, until={0: end}))


def test_rows_that_were_removed_do_not_count(compacted: Topic) -> None:
    assert compacted.ends() == {0: 4_001}
    assert admit(compacted, {0: 0}, {0: 4_001}, max_rows=21) == {0: 4_001}
    assert admit(compacted, {0: 0}, {0: 3_000}, max_rows=1) == {0: 3_000}
    at = admit(compacted, {0: 0}, {0: 4_001}, max_rows=20)[0]
    assert rows_between(compacted, 0, at) == 20


def test_at_least_one_row_is_admitted_of_those_that_are_left(compacted: Topic) -> None:
    epochs, at = 0, 0
    while at < 4_001:
        admitted = admit(compacted, {0: at}, {0: 4_001}, max_rows=1, max_bytes=1)[0]
        assert rows_between(compacted, at, admitted) >= 1
        at, epochs = admitted, epochs + 1
    assert epochs <= 21


# -- one moment -------------------------------------------------------------------------------------------------------


@pytest.fixture
def three(log: Log) -> dict[str, Topic]:
    return {
        name: log.create_topic(name, "id long", key="id", partitions=partitions, settings=OS)
        for name, partitions in (("one", 1), ("two", 2), ("three", 3))
    }


def commit_one(log: Log, topics: dict[str, Topic], number: int) -> None:
    """One row with this number in each topic."""
    with log.transaction() as transaction:
        for topic in topics.values():
            transaction.append(topic, {"id": number})


def numbers_before(topic: Topic, ends: dict[int, int]) -> set[int]:
    rows = [batch.rows.column("id").to_pylist() for batch in topic.batches(until=ends)]
    return {number for numbers in rows for number in numbers if number >= 0}


def assert_whole(topics: dict[str, Topic], ends: dict[str, dict[int, int]]) -> set[int]:
    found = [numbers_before(topic, ends[name]) for name, topic in topics.items()]
    assert all(numbers == found[0] for numbers in found)
    return found[0]


def test_the_ends_of_quiet_topics_are_their_ends(log: Log, three: dict[str, Topic]) -> None:
    commit_one(log, three, 1)
    three["two"].append([{"id": -1}])
    assert consistent_ends(three) == {name: topic.ends() for name, topic in three.items()}
    assert consistent_ends({}) == {}
    starts = {name: (topic, topic.starts()) for name, topic in three.items()}
    found = backlogs(starts)
    assert all(found[name] == Backlog(topic, topic.starts(), topic.ends()) for name, topic in three.items())


@pytest.mark.parametrize("every", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("after", range(7))
def test_a_transaction_that_commits_between_any_two_looks_is_whole(
    log: Log, three: dict[str, Topic], monkeypatch: pytest.MonkeyPatch, every: int, after: int
) -> None:
    looks, commits = 0, 0
    look = Partition.tail

    def commit_and_look(partition: Partition) -> Tail:
        nonlocal looks, commits
        looks += 1
        if looks > after and (looks - after) % every == 0:
            commits += 1
            commit_one(log, three, commits)
            three["two"].append({"id": -1})
        return look(partition)

    monkeypatch.setattr(Partition, "tail", commit_and_look)
    ends = consistent_ends(three)
    monkeypatch.undo()
    assert commits
    found = assert_whole(three, ends)
    assert found == set(range(1, len(found) + 1))


def test_every_cut_holds_whole_transactions_while_others_commit_all_the_time(
    log: Log, three: dict[str, Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()

    def commit_all_the_time(first: int) -> None:
        number = first
        while not stop.is_set():
            commit_one(log, three, number)
            number += 2

    def append_all_the_time() -> None:
        while not stop.is_set():
            three["three"].append([{"id": -number} for number in range(1, 10)])

    # Transactions are forgotten as soon as they may be, which is the hardest case.
    monkeypatch.setattr("penstock.log.transaction.FORGET_EVERY", 1)
    threads = [threading.Thread(target=commit_all_the_time, args=(first,)) for first in (0, 1)]
    threads.append(threading.Thread(target=append_all_the_time))
    for thread in threads:
        thread.start()
    try:
        cuts = []
        while len(cuts) < 400 or not any(ends["one"][0] for ends in cuts):
            cuts.append(consistent_ends(three))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    counts = [len(assert_whole(three, ends)) for ends in cuts]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]


def test_a_transaction_that_is_forgotten_while_one_asks_for_it_is_whole(
    log: Log, three: dict[str, Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits after the second look at the first partition, and is published and forgotten within the third."""
    commit, recorded, publish = threading.Event(), threading.Event(), threading.Event()
    record, publish_one, ask, look = (
        Transaction._record,
        PartitionWriter.publish,
        Catalog.outcome,
        admission._decided_tail,
    )
    looks = 0

    def slow_record(transaction: Transaction, number: int) -> None:
        assert commit.wait(30)
        record(transaction, number)

    def slow_publish(writer: PartitionWriter, staged: Staged) -> None:
        recorded.set()
        assert publish.wait(30)
        publish_one(writer, staged)

    def ask_too_late(catalog: Catalog, number: int) -> Outcome:
        if looks == 3 and threading.current_thread() is not committing:
            publish.set()
            committing.join()
        return ask(catalog, number)

    def look_and_commit(partition: Partition) -> Tail:
        nonlocal looks
        looks += partition.topic == "one"
        tail = look(partition)
        if looks == 2 and not commit.is_set():
            commit.set()
            assert recorded.wait(30)
        return tail

    monkeypatch.setattr("penstock.log.transaction.FORGET_EVERY", 1)
    monkeypatch.setattr(Transaction, "_record", slow_record)
    monkeypatch.setattr(PartitionWriter, "publish", slow_publish)
    monkeypatch.setattr(Catalog, "outcome", ask_too_late)
    monkeypatch.setattr(admission, "_decided_tail", look_and_commit)
    committing = threading.Thread(target=commit_one, args=(log, three, 1))
    committing.start()
    wait_until_pending(three["three"])
    ends = consistent_ends(three)
    committing.join()
    assert looks == 3
    assert assert_whole(three, ends) == {1}


def wait_until_pending(topic: Topic) -> None:
    numbers = range(topic.settings.partitions)
    while not any(topic.partition(number).tail().pending_transaction for number in numbers):
        pass


def test_a_transaction_of_a_process_that_died_after_the_commit_is_whole(
    log: Log, three: dict[str, Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    class DiedError(Exception):
        pass

    def die(*_: object) -> None:
        raise DiedError

    commit_one(log, three, 1)
    with monkeypatch.context() as patched:
        patched.setattr("penstock.log.writer.PartitionWriter.publish", die)
        with pytest.raises(DiedError):
            commit_one(log, three, 2)
    with Log(log.path) as again:
        topics = {name: again.topic(name) for name in three}
        assert assert_whole(topics, consistent_ends(topics)) == {1, 2}


def test_a_transaction_that_is_not_committed_yet_is_in_no_partition(
    log: Log, three: dict[str, Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = []
    record = "penstock.log.transaction.Transaction._record"
    monkeypatch.setattr(record, lambda *_: cuts.append(consistent_ends(three)) or _refuse())
    with pytest.raises(UnavailableError):
        commit_one(log, three, 1)
    assert cuts == [{name: topic.starts() for name, topic in three.items()}]


def _refuse() -> None:
    raise UnavailableError("the catalogue is held")


def test_new_segments_only_make_it_look_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TopicSettings(durability="os", segment_bytes=1)
    topics = {name: log.create_topic(name, "id long", settings=settings) for name in ("one", "two")}
    look = Partition.tail
    commits = 0

    def commit_and_look(partition: Partition) -> Tail:
        nonlocal commits
        commits += 1
        if commits < 9:
            commit_one(log, topics, commits)
        return look(partition)

    monkeypatch.setattr(Partition, "tail", commit_and_look)
    ends = consistent_ends(topics)
    monkeypatch.undo()
    assert assert_whole(topics, ends) == set(range(1, 9))


def test_topics_that_begin_segments_all_the_time_are_named(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_untorn", lambda partitions: None)
    topics = {"one": filled(log, "one", 1)}
    with pytest.raises(UnavailableError, match="topics one: their partitions begin new segments faster"):
        consistent_ends(topics)
