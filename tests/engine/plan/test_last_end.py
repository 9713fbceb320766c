"""When the last window that holds an event so far has ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.plan.cut import Cut, SourceCut
from penstock.engine.plan.last_end import last_end, last_moment, newest_times, window_end_of
from penstock.engine.plan.watermark import Clock, SourceTime
from penstock.flow.plan import Hopping, Node, Session, Sliding, Tumbling
from penstock.flow.stream import Stream
from penstock.units import NO_TIME, utc_datetime

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND
NOON = 1_777_636_800 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENTS = st.integers(-(10**15), 4 * 10**15)


def micros(*when: int, zone: str = "UTC") -> int:
    moment = datetime(*when, tzinfo=ZoneInfo(zone))  # type: ignore[arg-type, misc]
    return (moment - EPOCH) // timedelta(microseconds=1)


# -- windows ----------------------------------------------------------------------------------------------------------


@given(MOMENTS, st.integers(1, 10**9), st.integers(0, 10**9))
def test_a_tumbling_window_ends_after_its_events_and_no_later_than_its_size(
    moment: int, size: int, offset: int
) -> None:
    end = window_end_of(Tumbling(size, offset % size), moment)
    assert moment < end <= moment + size
    assert (end - offset) % size == 0


@given(MOMENTS, st.integers(1, 10**6), st.integers(1, 20), st.integers(0, 10**6))
def test_the_last_hopping_window_is_the_one_that_starts_last(moment: int, every: int, times: int, offset: int) -> None:
    size = every * times
    end = window_end_of(Hopping(size, every, offset % every), moment)
    assert end - size <= moment < end - size + every


def test_sessions_end_a_gap_after_their_last_event_and_sliding_windows_with_it() -> None:
    assert window_end_of(Session(30 * SECOND), NOON) == NOON + 30 * SECOND
    assert window_end_of(Sliding(MINUTE), NOON) == NOON


@pytest.mark.parametrize(
    ("moment", "end"),
    [
        ((2024, 3, 31, 12), (2024, 4, 1)),  # a day of 23 hours
        ((2024, 10, 27, 2, 30), (2024, 10, 28)),  # a day of 25 hours
        ((2024, 6, 1), (2024, 6, 2)),  # the first moment of a day
    ],
)
def test_a_local_day_ends_at_local_midnight(moment: tuple[int, ...], end: tuple[int, ...]) -> None:
    day = Tumbling(DAY, 0, "Europe/Berlin")
    assert window_end_of(day, micros(*moment, zone="Europe/Berlin")) == micros(*end, zone="Europe/Berlin")


ZONES = st.sampled_from(["Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu", "Africa/Cairo"])


@given(MOMENTS, ZONES)
@example(micros(2018, 11, 4, 2, 59), "America/Sao_Paulo")  # there is no midnight on this day
@example(micros(2018, 2, 18, 2, 30), "America/Sao_Paulo")  # 23:30 for the second time
@example(micros(2011, 12, 30, 9, 59), "Pacific/Apia")  # a whole day is left out
def test_a_local_day_is_never_over_before_its_events_nor_two_days_later(moment: int, zone: str) -> None:
    end = window_end_of(Tumbling(DAY, 0, zone), moment)
    assert moment < end <= moment + 2 * DAY
    local = utc_datetime(end).astimezone(ZoneInfo(zone))
    assert (local - timedelta(seconds=1)).date() >= utc_datetime(moment).astimezone(ZoneInfo(zone)).date()


def test_times_that_no_calendar_has_end_some_day() -> None:
    beyond = micros(9999, 12, 31, 23)
    assert window_end_of(Tumbling(DAY, 0, "America/New_York"), beyond + DAY) > beyond + 2 * DAY


# -- steps ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def topics() -> tuple[Stream, Stream]:
    app = ps.App("shop")
    orders = app.topic("orders", schema="id long, k string, at timestamp", key="id", time="at")
    payments = app.topic("payments", schema="pid long, k string, paid timestamp", key="pid", time="paid")
    return orders, payments


def test_a_window_over_windows_ends_with_the_last_answer(topics: tuple[Stream, Stream]) -> None:
    minutes = topics[0].window(ps.tumbling("1 minute")).group_by("k").agg(n="count(*)")
    hours = minutes.window(ps.tumbling("1 hour")).group_by("k").agg(most="max(n)")
    newest = {"orders": NOON + 59 * MINUTE + 30 * SECOND}
    assert last_end(minutes.node, newest) == NOON + 60 * MINUTE
    # The answer of the last minute belongs to the hour that it ends, not to the next one.
    assert last_end(hours.node, newest) == NOON + 60 * MINUTE


def test_an_unmatched_row_waits_for_its_last_partner(topics: tuple[Stream, Stream]) -> None:
    orders, payments = topics
    joined = orders.join(payments.rename(other="k"), on={"k": "other"}, within="1 minute", how="left")
    assert last_end(joined.node, {"orders": NOON, "payments": NOON + 5 * SECOND}) > NOON + MINUTE
    assert last_end(joined.node, {"orders": NOON}) == NOON + MINUTE + 1
    assert last_moment(joined.node, {"orders": NOON, "payments": NOON + 5 * SECOND}) == NOON + 5 * SECOND


def test_steps_without_windows_wait_for_nothing(topics: tuple[Stream, Stream]) -> None:
    nodes: list[Node] = [topics[0].node, topics[0].group_by("k").agg(n="count(*)").node]
    assert [last_end(node, {"orders": NOON}) for node in nodes] == [NO_TIME, NO_TIME]


def test_without_events_no_window_is_open(topics: tuple[Stream, Stream]) -> None:
    minutes = topics[0].window(ps.tumbling("1 minute")).group_by("k").agg(n="count(*)")
    assert last_end(minutes.node, {}) == NO_TIME


def test_the_newest_time_of_a_topic_is_that_of_the_producer_that_has_come_furthest() -> None:
    time = SourceTime(NOON, {1: Clock(NOON), 2: Clock(NOON + MINUTE)})
    sources = {name: SourceCut(name, name, {}, {}, each) for name, each in (("a", time), ("b", SourceTime()))}
    assert newest_times(Cut(1, NOON, sources)) == {"a": NOON + MINUTE}
