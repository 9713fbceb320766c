"""The ends of several topics: whole transactions, as of one moment."""

from __future__ import annotations

import threading

import pytest

from penstock import Log, TopicSettings
from penstock.errors import UnavailableError
from penstock.log import Topic
from penstock.log import ends as ends_module
from penstock.log.catalog import Catalog
from penstock.log.partition import Partition
from penstock.log.pending_write import Staged
from penstock.log.recovery import Outcome
from penstock.log.tail import Tail
from penstock.log.transaction import Transaction
from penstock.log.writer import PartitionWriter

OS = TopicSettings(durability="os")


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
    assert log.consistent_ends(three) == {name: topic.ends() for name, topic in three.items()}
    assert log.consistent_ends([]) == {}


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
    ends = log.consistent_ends(three)
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
        while len(cuts) < 400 or cuts[-1]["one"] == cuts[0]["one"]:
            cuts.append(log.consistent_ends(three))
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
        ends_module._decided_tail,
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
    monkeypatch.setattr(ends_module, "_decided_tail", look_and_commit)
    committing = threading.Thread(target=commit_one, args=(log, three, 1))
    committing.start()
    wait_until_pending(three["three"])
    ends = log.consistent_ends(three)
    committing.join()
    assert looks == 3
    assert assert_whole(three, ends) == {1}


def wait_until_pending(topic: Topic) -> None:
    numbers = range(topic.settings.partitions)
    while not any(topic.files.partition(number).tail().pending_transaction for number in numbers):
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
        assert assert_whole(topics, again.consistent_ends(topics)) == {1, 2}


def test_a_transaction_that_is_not_committed_yet_is_in_no_partition(
    log: Log, three: dict[str, Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = []
    record = "penstock.log.transaction.Transaction._record"
    monkeypatch.setattr(record, lambda *_: cuts.append(log.consistent_ends(three)) or _refuse())
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
    ends = log.consistent_ends(topics)
    monkeypatch.undo()
    assert assert_whole(topics, ends) == set(range(1, 9))


def test_topics_that_begin_segments_all_the_time_are_named(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends_module, "_find_untorn_ends", lambda partitions: None)
    topics = {"one": log.create_topic("one", "id long")}
    with pytest.raises(UnavailableError, match="topics one: their partitions begin new segments faster"):
        log.consistent_ends(topics)
