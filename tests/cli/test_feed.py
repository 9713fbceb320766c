"""Appending numbered records: each once, whatever the chunks were and wherever it was cut short."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Log, TopicSettings
from penstock.cli.feed import Feed, chunks, uninterrupted
from penstock.cli.records import Record
from penstock.log import Topic
from penstock.log.frame import Stamp

RECORDS = 24
NUMBERS = count()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """One log for all examples, each with a topic of its own."""
    with Log(tmp_path_factory.mktemp("feed") / "log") as opened:
        yield opened


def records(count: int) -> list[Record]:
    return [Record(number, number, "", {"id": number}) for number in range(1, count + 1)]


def send(log: Log, topic: Topic, *, size: int, count: int) -> Feed:
    """Run over the whole input, as the command does."""
    feed = Feed(topic, log.producer("input"), deletes=False)
    for chunk in chunks(iter(records(count)), size=size, stops=feed.stops, idle=lambda: False):
        feed.send(chunk)
    return feed


def crash_in(log: Log, topic: Topic, *, size: int, count: int, only: frozenset[int]) -> None:
    """Run over the first records, and store the last chunk of them in some partitions only, as a crash would."""
    producer = log.producer("input")
    feed = Feed(topic, producer, deletes=False)
    *whole, last = chunks(iter(records(count)), size=size, stops=feed.stops, idle=lambda: False)
    for chunk in whole:
        feed.send(chunk)
    sequence = last[-1].number * topic.settings.partitions
    stamp = Stamp(producer.id, producer.epoch, sequence)
    requests = topic.requests([record.row for record in last], stamp=stamp)
    topic.store({number: request for number, request in requests.items() if number in only})


@given(
    crashes=st.lists(
        st.tuples(st.integers(1, 10), st.integers(1, RECORDS), st.frozensets(st.integers(0, 2))), min_size=1, max_size=3
    ),
    size=st.integers(1, 10),
)
def test_a_rerun_after_crashes_stores_every_record_once_whatever_the_sizes_of_its_chunks(
    log: Log, crashes: list[tuple[int, int, frozenset[int]]], size: int
) -> None:
    settings = TopicSettings(partitions=3, key=("id",), durability="os")
    topic = log.create_topic(f"t{next(NUMBERS)}", "id bigint", settings=settings)
    for crash_size, sent, only in crashes:
        crash_in(log, topic, size=crash_size, count=sent, only=only)
    send(log, topic, size=size, count=RECORDS)
    assert sorted(topic.read()["id"].to_pylist()) == list(range(1, RECORDS + 1))
    again = send(log, topic, size=7, count=RECORDS)
    assert (again.stored, again.passed_over) == (0, RECORDS)


@given(first=st.integers(1, 10), second=st.integers(1, 10), sent=st.integers(1, RECORDS))
def test_without_a_key_too_and_when_the_input_has_grown(log: Log, first: int, second: int, sent: int) -> None:
    settings = TopicSettings(partitions=3, durability="os")
    topic = log.create_topic(f"t{next(NUMBERS)}", "id bigint", settings=settings)
    assert send(log, topic, size=first, count=sent).stored == sent
    grown = send(log, topic, size=second, count=RECORDS)
    assert (grown.stored, grown.passed_over) == (RECORDS - sent, sent)
    assert sorted(topic.read()["id"].to_pylist()) == list(range(1, RECORDS + 1))


def test_without_a_key_the_partitions_take_turns(log: Log) -> None:
    topic = log.create_topic("turns", "id bigint", partitions=3)
    send(log, topic, size=4, count=RECORDS)
    assert topic.ends() == {0: 8, 1: 8, 2: 8}


def test_one_name_may_feed_two_topics(log: Log) -> None:
    for name in ("one", "two"):
        assert send(log, log.create_topic(name, "id bigint"), size=4, count=8).stored == 8


def test_a_chunk_ends_where_the_input_pauses() -> None:
    pauses = iter([False, True, False, False])
    found = chunks(iter(records(4)), size=100, stops=frozenset(), idle=lambda: next(pauses, False))
    assert [[record.number for record in chunk] for chunk in found] == [[1, 2], [3, 4]]


def press_ctrl_c(times: int, done: list[str]) -> None:
    with uninterrupted():
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        done.append("the block")
    done.append("what follows")


def test_ctrl_c_waits_for_the_end_of_the_block() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c(1, done)
    assert done == ["the block"]


def test_ctrl_c_pressed_twice_does_not_wait() -> None:
    before = signal.getsignal(signal.SIGINT)
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c(2, done)
    assert done == []
    assert signal.getsignal(signal.SIGINT) is before
