from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DeclarationError, FencedError
from penstock.log import Log, Topic, catalog_rows
from penstock.log.promises import MOST_KEPT, Promise, effective_times

GOLDEN = Path(__file__).parent / "golden" / "format-1"
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MICROSECONDS = int(NOON.timestamp()) * 1_000_000


@pytest.fixture
def events(log: Log) -> Topic:
    return log.create_topic("events", "id long, at timestamp", time="at", key="id", partitions=2)


def rows(count: int) -> list[dict[str, object]]:
    return [{"id": number, "at": NOON} for number in range(count)]


def test_a_promise_is_there_after_reopening_with_the_ends_it_was_made_at(log: Log, events: Topic) -> None:
    producer = log.producer("sensor")
    producer.append(events, rows(10))
    producer.promise(events, NOON)
    ends = events.ends()
    log.close()
    with Log(log.path) as again:
        assert again.promises("events") == [Promise(producer.id, MICROSECONDS, ends)]


@pytest.mark.parametrize("time", ["2026-05-01T12:00:00Z", "2026-05-01T14:00:00+02:00", "2026-05-01 12:00", NOON])
def test_a_time_is_given_as_text_or_as_a_datetime(log: Log, events: Topic, time: str | datetime) -> None:
    log.producer("sensor").promise(events, time)
    assert [promise.time for promise in log.promises(events)] == [MICROSECONDS]


@pytest.mark.parametrize("time", ["noon", "start", 12])
def test_what_is_no_time_is_refused_with_a_hint(log: Log, events: Topic, time: str) -> None:
    with pytest.raises(DeclarationError, match=r"producer 'sensor': .* is not a time to promise") as refused:
        log.producer("sensor").promise(events, time)
    assert "2026-01-31T12:00:00Z" in str(refused.value)
    assert log.promises(events) == []


def test_a_promise_counts_only_for_readers_that_have_read_what_was_there(log: Log, events: Topic) -> None:
    producer = log.producer("sensor")
    producer.append(events, rows(10))
    producer.promise(events, NOON)
    ends, promises = events.ends(), log.promises(events)
    assert effective_times(promises, events.starts()) == {}
    assert effective_times(promises, {**ends, 1: ends[1] - 1}) == {}
    assert effective_times(promises, ends) == {producer.id: MICROSECONDS}
    assert effective_times(promises, {number: end + 5 for number, end in ends.items()}) == {producer.id: MICROSECONDS}


def test_a_producer_finds_topics_by_their_names(log: Log, events: Topic) -> None:
    producer = log.producer("sensor")
    producer.append("events", rows(3))
    producer.promise("events", "2026-05-01T12:00:00Z")
    assert log.promised_times("events", events.ends()) == {producer.id: MICROSECONDS}
    assert len(events.read()) == 3
    with pytest.raises(DeclarationError, match="topic 'evnts': it does not exist"):
        producer.promise("evnts", NOON)


def test_in_a_topic_without_event_time_nothing_can_be_promised(log: Log) -> None:
    log.create_topic("lines", "text string")
    with pytest.raises(DeclarationError, match="topic 'lines' has no event time") as refused:
        log.producer("sensor").promise("lines", NOON)
    assert "time=" in str(refused.value.hint)


def test_a_reader_that_is_behind_goes_by_an_earlier_promise(log: Log, events: Topic) -> None:
    producer = log.producer("sensor")
    positions = []
    for minute in range(3):
        producer.append(events, rows(4))
        producer.promise(events, NOON.replace(minute=minute))
        positions.append(events.ends())
    promises = log.promises(events)
    times = [effective_times(promises, ends)[producer.id] - MICROSECONDS for ends in positions]
    assert times == [0, 60_000_000, 120_000_000]


def test_a_later_promise_at_the_same_ends_replaces_and_one_that_says_less_changes_nothing(
    log: Log, events: Topic
) -> None:
    producer = log.producer("sensor")
    producer.promise(events, NOON)
    producer.promise(events, NOON.replace(minute=5))
    producer.promise(events, NOON.replace(minute=5))
    producer.append(events, rows(1))
    producer.promise(events, NOON.replace(minute=1))
    assert log.promises(events) == [Promise(producer.id, MICROSECONDS + 300_000_000, {0: 0, 1: 0})]


def test_only_the_latest_promises_of_each_producer_are_kept(log: Log, events: Topic) -> None:
    quiet, busy = log.producer("quiet"), log.producer("busy")
    quiet.promise(events, NOON)
    for number in range(MOST_KEPT + 3):
        events.append(rows(1))
        busy.promise(events, NOON.replace(microsecond=number))
    kept = log.promises(events)
    assert [promise.producer for promise in kept] == [quiet.id] + [busy.id] * MOST_KEPT
    assert kept[1].time == MICROSECONDS + 3
    assert effective_times(kept, events.ends()) == {quiet.id: MICROSECONDS, busy.id: MICROSECONDS + MOST_KEPT + 2}


def test_a_producer_that_was_replaced_cannot_promise(log: Log, events: Topic) -> None:
    old = log.producer("sensor")
    new = log.producer("sensor")
    with pytest.raises(FencedError, match="epoch 1 was replaced by epoch 2"):
        old.promise(events, NOON)
    assert log.promises(events) == []
    new.promise(events, NOON)
    assert len(log.promises(events)) == 1


def test_a_topic_of_another_log_is_refused(log: Log, tmp_path: Path) -> None:
    with Log(tmp_path / "other") as other:
        elsewhere = other.create_topic("events", "id long")
        with pytest.raises(DeclarationError, match="is in another log"):
            log.producer("sensor").promise(elsewhere, NOON)


def test_a_dropped_topic_takes_its_promises_along(log: Log, events: Topic) -> None:
    others = log.create_topic("others", "id long, at timestamp", time="at")
    producer = log.producer("sensor")
    producer.promise(events, NOON)
    producer.promise(others, NOON)
    log.drop_topic("events")
    assert log.promises(log.create_topic("events", "id long, at timestamp")) == []
    assert len(log.promises(others)) == 1


def test_promises_of_an_earlier_topic_of_the_same_name_do_not_count(log: Log, events: Topic) -> None:
    log.producer("sensor").promise(events, NOON)
    with log._catalog.change() as connection:
        (row,) = catalog_rows.rows(connection, "promises")
        catalog_rows.put(connection, "promises", *row[:2], "another", *row[3:])
    assert log.promises(events) == []


def test_a_log_of_an_earlier_version_takes_promises_too(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "log")
    with Log(tmp_path / "log") as old:
        everything = old.topic("everything")
        assert old.promises(everything) == []
        old.producer("feed").promise(everything, NOON)
        assert [promise.time for promise in old.promises(everything)] == [MICROSECONDS]
        old.drop_topic("table")
    shutil.copytree(GOLDEN, tmp_path / "other")
    with Log(tmp_path / "other") as old:
        old.drop_topic("table")
        assert old.promises("everything") == []


@given(
    st.lists(
        st.builds(
            Promise,
            st.integers(1, 3),
            st.integers(0, 1000),
            st.dictionaries(st.integers(0, 2), st.integers(0, 20)),
        )
    ),
    st.dictionaries(st.integers(0, 2), st.integers(0, 20)),
    st.dictionaries(st.integers(0, 2), st.integers(0, 20)),
)
def test_whoever_has_read_more_knows_no_less(
    promises: list[Promise], ends: dict[int, int], more: dict[int, int]
) -> None:
    further = {number: ends.get(number, 0) + more.get(number, 0) for number in {*ends, *more}}
    known, later = effective_times(promises, ends), effective_times(promises, further)
    assert all(later[producer] >= time for producer, time in known.items())
    assert all(
        any(one.producer == producer and one.time == time for one in promises) for producer, time in later.items()
    )
