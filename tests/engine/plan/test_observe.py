"""What an epoch will read, told by headers where they can tell it and by rows where they cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Log, TopicSettings
from penstock.engine.plan.observe import Ahead, Observed, ahead_mask, event_times, observe
from penstock.engine.plan.watermark import Seen, SourceTime, advance
from penstock.errors import DeclarationError
from penstock.flow.plan import Timing
from penstock.log import Batch, Topic
from penstock.log.headers import HeaderReader, Headers
from penstock.log.tail import Tail
from penstock.units import NO_TIME

SECOND = 1_000_000
DAY = timedelta(days=1)
EVENTS = "id long, at timestamp, sent timestamp, received timestamp"
TIMING = Timing("at", max_ahead=600 * SECOND)
CORRECTED = Timing("at", max_ahead=600 * SECOND, sent="sent")
OS = TopicSettings(durability="os")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as opened:
        yield opened


@pytest.fixture
def events(log: Log) -> Topic:
    return log.create_topic("events", EVENTS, key="id", time="at", settings=OS)


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


def row(number: int, at: datetime | None, **others: datetime | None) -> dict[str, object]:
    return {"id": number, "at": at, **others}


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def everything(topic: Topic, timing: Timing = TIMING) -> Observed:
    return observe(topic, topic.starts(), topic.ends(), timing)


def last_append(topic: Topic) -> int:
    return max(batch.append_time for batch in topic.batches())


# -- producers --------------------------------------------------------------------------------------------------------


def test_each_producer_shows_its_largest_time_and_when_it_was_last_there(
    log: Log, events: Topic, now: datetime
) -> None:
    one, two = log.producer("one"), log.producer("two")
    one.append(events, [row(1, now - DAY), row(2, now)])
    two.append(events, [row(3, now - 2 * DAY)])
    events.append(row(4, now - 3 * DAY))
    one.append(events, [row(5, now - DAY)])
    appends = [batch.append_time for batch in events.batches()]
    assert everything(events) == Observed(
        5,
        {
            0: Seen(micros(now - 3 * DAY), appends[2]),
            one.id: Seen(micros(now), appends[3]),
            two.id: Seen(micros(now - 2 * DAY), appends[1]),
        },
        (),
    )


def test_nothing_lies_between_equal_cuts(events: Topic, now: datetime) -> None:
    events.append(row(1, now))
    assert observe(events, events.ends(), events.ends(), TIMING) == Observed(0, {}, ())


def test_a_delete_marker_is_a_row_and_counts_for_time_only_if_it_has_one(events: Topic, now: datetime) -> None:
    events.append(row(1, now - DAY))
    events.delete({"id": 1})
    assert everything(events).rows == 2
    assert everything(events).producers[0].max_time == micros(now - DAY)
    events.delete({"id": 1, "at": now})
    assert everything(events).producers[0].max_time == micros(now)


def test_whoever_shows_no_time_at_all_is_not_seen(events: Topic) -> None:
    events.delete({"id": 1})
    assert everything(events) == Observed(1, {}, ())


# -- ahead ------------------------------------------------------------------------------------------------------------


def test_events_from_too_far_ahead_are_told_with_their_frames_and_move_nothing(events: Topic, now: datetime) -> None:
    events.append([row(1, now)])
    events.append([row(2, now - DAY), row(3, now + 365 * DAY)])
    events.append([row(4, now + DAY)])
    events.append([row(5, now)])
    events.append([row(6, now + DAY)])
    observed = everything(events)
    assert observed.rows == 6
    assert observed.producers[0].max_time == micros(now)
    assert observed.ahead == (Ahead(0, 1, 4, 2), Ahead(0, 5, 6, 1))


def test_a_producer_whose_clock_went_wrong_is_as_good_as_silent(log: Log, events: Topic, now: datetime) -> None:
    producer = log.producer("broken")
    producer.append(events, [row(1, now)])
    right = everything(events).producers[producer.id]
    producer.append(events, [row(2, now + 365 * DAY)])
    assert everything(events).producers == {producer.id: right}
    assert observe(events, {0: 1}, {0: 2}, TIMING).producers == {}


def test_one_producer_a_year_ahead_never_moves_the_watermark(log: Log, events: Topic, now: datetime) -> None:
    honest, broken = log.producer("honest"), log.producer("broken")
    for number in range(5):
        honest.append(events, [row(number, now + timedelta(seconds=number))])
        broken.append(events, [row(number, now + 365 * DAY)])
    time = advance(
        SourceTime(), everything(events).producers, {}, timing=TIMING, now=micros(now) + 5 * SECOND, caught_up=True
    )
    assert time.watermark == micros(now) + 4 * SECOND


def test_a_little_ahead_is_not_ahead(events: Topic) -> None:
    events.append(row(1, datetime.now(UTC) + timedelta(minutes=9)))
    assert everything(events).ahead == ()
    assert everything(events, Timing("at", max_ahead=0)).ahead == (Ahead(0, 0, 1, 1),)


# -- frames that are cut ----------------------------------------------------------------------------------------------


def test_of_a_frame_that_is_cut_only_the_rows_inside_count(events: Topic, now: datetime) -> None:
    events.append([row(number, now - number * DAY) for number in range(10)])
    observed = observe(events, {0: 3}, {0: 7}, TIMING)
    assert observed.rows == 4
    assert observed.producers[0].max_time == micros(now - 3 * DAY)


def test_a_cut_may_leave_out_the_row_that_is_ahead(events: Topic, now: datetime) -> None:
    events.append([row(1, now), row(2, now), row(3, now + DAY), row(4, now)])
    assert observe(events, {0: 0}, {0: 2}, TIMING).ahead == ()
    assert observe(events, {0: 1}, {0: 3}, TIMING).ahead == (Ahead(0, 1, 3, 1),)


def test_a_compacted_topic_is_observed_by_the_rows_that_are_left(events: Topic, now: datetime) -> None:
    for number in range(40):
        events.append([row(number % 3, now - DAY + timedelta(seconds=number)), row(100 + number, now - DAY)])
    events.compact()
    assert everything(events).rows == 43
    plain = observe(events, {0: 1}, {0: 80}, TIMING)
    assert plain.rows == sum(len(batch) for batch in events.batches({0: 1}))


def test_rows_are_counted_once_though_frames_are_joined_meanwhile(
    events: Topic, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        events.append([row(number, now - DAY), row(number, now - DAY + timedelta(seconds=number))])
    expected = everything(events)
    read = HeaderReader.read_headers

    def read_and_rewrite(reader: HeaderReader, tail: Tail, until: int) -> Headers:
        found = read(reader, tail, until)
        monkeypatch.setattr(HeaderReader, "read_headers", read)
        events.erase({"id": 1_000})
        return found

    monkeypatch.setattr("penstock.log.headers.MOST_HEADERS", 10)
    monkeypatch.setattr(HeaderReader, "read_headers", read_and_rewrite)
    assert everything(events) == expected


@given(
    st.lists(st.lists(st.integers(-100, 40), min_size=1, max_size=5), min_size=1, max_size=8),
    st.tuples(st.integers(0, 40), st.integers(0, 40)),
    st.data(),
)
def test_headers_tell_the_same_as_the_rows(
    tmp_path_factory: pytest.TempPathFactory, frames: list[list[int]], bounds: tuple[int, int], data: st.DataObject
) -> None:
    now = datetime.now(UTC)
    with Log(tmp_path_factory.mktemp("log")) as log:
        topic = log.create_topic("events", EVENTS, time="at", partitions=2, settings=OS)
        producers = [log.producer("one"), log.producer("two")]
        for minutes in frames:
            producer = data.draw(st.sampled_from(producers))
            producer.append(topic, [row(0, now + timedelta(minutes=one)) for one in minutes])
        ends = {number: min(end, max(bounds)) for number, end in topic.ends().items()}
        starts = {number: min(end, min(bounds)) for number, end in ends.items()}
        observed = observe(topic, starts, ends, TIMING)
        expected = by_rows(topic, starts, ends)
    assert observed.rows == expected.rows
    assert observed.producers == expected.producers
    assert sum(one.rows for one in observed.ahead) == sum(one.rows for one in expected.ahead)
    assert all(starts[one.partition] <= one.start < one.end <= ends[one.partition] for one in observed.ahead)


def by_rows(topic: Topic, starts: Mapping[int, int], ends: Mapping[int, int]) -> Observed:
    """The plain version: every row by itself."""
    rows, producers, ahead = 0, dict[int, Seen](), 0
    for batch in topic.batches(starts, until=ends):
        for at in batch.rows.column("at").cast(pa.int64()).to_pylist():
            rows += 1
            if at > batch.append_time + TIMING.max_ahead:
                ahead += 1
                continue
            known = producers.get(batch.producer, Seen(NO_TIME, NO_TIME))
            producers[batch.producer] = Seen(max(known.max_time, at), max(known.last_append, batch.append_time))
    return Observed(rows, producers, (Ahead(0, 0, 0, ahead),))


# -- corrected times --------------------------------------------------------------------------------------------------


def only_batch(topic: Topic) -> Batch:
    (batch,) = topic.batches()
    return batch


def test_a_wrong_clock_is_corrected_by_when_the_event_was_sent_and_received(events: Topic, now: datetime) -> None:
    wrong = now + 365 * DAY
    events.append([row(1, wrong - timedelta(seconds=5), sent=wrong, received=now)])
    received = Timing("at", max_ahead=600 * SECOND, sent="sent", received="received")
    assert event_times(only_batch(events), received).times.tolist() == [micros(now) - 5 * SECOND]
    assert everything(events, received).producers[0].max_time == micros(now) - 5 * SECOND
    stored = everything(events, CORRECTED)
    assert stored.producers[0] == Seen(last_append(events) - 5 * SECOND, last_append(events))
    assert stored.ahead == ()
    assert everything(events).ahead == (Ahead(0, 0, 1, 1),)


def test_what_lacks_a_time_for_the_correction_has_no_event_time(events: Topic, now: datetime) -> None:
    events.append([row(1, now, sent=now), row(2, now), row(3, now, sent=now, received=now)])
    batch = only_batch(events)
    assert event_times(batch, TIMING).valid.tolist() == [True, True, True]
    assert event_times(batch, CORRECTED).valid.tolist() == [True, False, True]
    received = Timing("at", sent="sent", received="received")
    assert event_times(batch, received).valid.tolist() == [False, False, True]
    assert everything(events, received).rows == 3


def test_a_correction_of_absurd_times_does_not_wrap_around(log: Log) -> None:
    topic = log.create_topic("events", "at timestamp, sent timestamp", settings=OS)
    extremes = pa.array([2**63 - 1, -(2**63) + 1, 2**63 - 1], pa.int64()).cast(pa.timestamp("us", "UTC"))
    topic.append(pa.record_batch({"at": extremes, "sent": extremes.take(pa.array([1, 0, 2]))}))
    batch = only_batch(topic)
    times = event_times(batch, CORRECTED)
    assert times.times[0] > 2**61
    assert times.times[1] < -(2**61)
    assert times.times[2] == batch.append_time
    assert ahead_mask(times, batch.append_time, CORRECTED).tolist() == [True, False, False]


# -- other columns ----------------------------------------------------------------------------------------------------


def test_a_time_that_is_not_the_topics_own_is_read_from_the_rows(log: Log, now: datetime) -> None:
    topic = log.create_topic("events", EVENTS, time="at", settings=OS)
    topic.append([row(1, now, sent=now - DAY), row(2, now)])
    batch = only_batch(topic)
    other = Timing("sent")
    assert event_times(batch, other).valid.tolist() == [True, False]
    assert not ahead_mask(event_times(batch, other), batch.append_time, other).any()
    assert everything(topic, other).producers[0].max_time == micros(now - DAY)


def test_a_column_that_is_missing_or_no_timestamp_is_refused(events: Topic, now: datetime) -> None:
    events.append(row(1, now))
    with pytest.raises(DeclarationError, match="there is no column 'att'"):
        everything(events, Timing("att"))
    with pytest.raises(DeclarationError, match="column 'id': it cannot say when an event happened"):
        everything(events, Timing("id"))
