"""How far time has come: with producers that are early, late, idle, wrong, and with clocks that go back."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.engine.ledger.codec import decode, encode
from penstock.engine.plan.watermark import FORGET_AFTER, Clock, Seen, SourceTime, advance, finish
from penstock.flow.plan import Timing
from penstock.units import NO_TIME

SECOND = 1_000_000
MINUTE = 60 * SECOND
NOON = 1_777_636_800 * SECOND
TIMING = Timing("at", lateness=10 * SECOND, idle=30 * SECOND, max_ahead=10 * MINUTE)


def after(
    before: SourceTime,
    seen: Mapping[int, Seen] | None = None,
    promises: Mapping[int, int] | None = None,
    *,
    timing: Timing = TIMING,
    now: int,
    caught_up: bool = True,
) -> SourceTime:
    return advance(before, seen or {}, promises or {}, timing=timing, now=now, caught_up=caught_up)


def live(*times: int, now: int = NOON) -> dict[int, Seen]:
    """Producers 1, 2, ... whose largest event times are these, stored just now."""
    return {number: Seen(time, now) for number, time in enumerate(times, start=1)}


# -- what a watermark is ----------------------------------------------------------------------------------------------


def test_before_the_first_event_there_is_no_time() -> None:
    assert after(SourceTime(), now=NOON).watermark == NO_TIME
    assert after(after(SourceTime(), now=NOON), now=NOON + MINUTE).watermark == NO_TIME


def test_the_watermark_is_the_largest_time_less_the_lateness() -> None:
    assert after(SourceTime(), {0: Seen(NOON, NOON)}, now=NOON).watermark == NOON - 10 * SECOND


def test_the_slowest_active_producer_decides() -> None:
    assert after(SourceTime(), live(NOON, NOON - MINUTE, NOON), now=NOON).watermark == NOON - 70 * SECOND


def test_an_idle_producer_does_not_hold_the_others_and_counts_again_when_it_returns() -> None:
    time = after(SourceTime(), live(NOON, NOON - MINUTE), now=NOON)
    later = NOON + 31 * SECOND
    time = after(time, {1: Seen(later, later)}, now=later)
    assert time.watermark == later - 10 * SECOND
    much_later = later + MINUTE
    time = after(time, {1: Seen(much_later, much_later), 2: Seen(later + SECOND, much_later)}, now=much_later)
    assert time.watermark == max(later - 10 * SECOND, later + SECOND - 10 * SECOND)


def test_a_producer_that_returns_with_older_events_does_not_turn_time_back() -> None:
    time = after(SourceTime(), live(NOON), now=NOON)
    returned = after(time, {2: Seen(NOON - 60 * MINUTE, NOON)}, now=NOON)
    assert returned.watermark == time.watermark


def test_while_history_is_read_only_those_count_as_silent_who_were_silent_then() -> None:
    past = NOON - 24 * 60 * MINUTE
    time = after(SourceTime(), live(past, past - MINUTE, now=past), now=NOON, caught_up=False)
    assert time.watermark == past - 70 * SECOND
    time = after(time, {1: Seen(past + MINUTE, past + MINUTE)}, now=NOON, caught_up=False)
    assert time.watermark == past + 50 * SECOND


def test_a_bad_clock_counts_no_further_than_a_little_beyond_ours() -> None:
    year = 365 * 24 * 60 * MINUTE
    time = after(SourceTime(), {1: Seen(NOON + year, NOON + year)}, now=NOON)
    assert time.watermark == NOON + 10 * MINUTE


# -- promises ---------------------------------------------------------------------------------------------------------


def test_a_promise_counts_where_it_is_later_than_what_was_shown() -> None:
    time = after(SourceTime(), live(NOON - MINUTE, NOON), now=NOON)
    assert after(time, promises={1: NOON - 30 * SECOND}, now=NOON).watermark == NOON - 30 * SECOND
    assert after(time, promises={1: NOON - 60 * MINUTE}, now=NOON).watermark == time.watermark


def test_a_promise_is_remembered_when_it_is_told_no_more() -> None:
    time = after(SourceTime(), live(NOON - MINUTE, NOON - MINUTE), {1: NOON}, now=NOON)
    time = after(time, {2: Seen(NOON + MINUTE, NOON + SECOND)}, now=NOON + SECOND)
    assert time.watermark == NOON


def test_a_promise_neither_ends_nor_renews_activity() -> None:
    time = after(SourceTime(), live(NOON, NOON), {1: NOON + SECOND}, now=NOON)
    assert time.watermark == NOON - 10 * SECOND
    later = NOON + 20 * SECOND
    time = after(time, {2: Seen(later + MINUTE, later)}, now=later)
    assert time.watermark == NOON + SECOND
    later = NOON + 31 * SECOND
    time = after(time, {2: Seen(later + MINUTE, later)}, {1: NOON + 2 * SECOND}, now=later)
    assert time.watermark == later + 50 * SECOND


def test_a_promise_alone_gives_a_silent_topic_a_time_that_moves_on() -> None:
    time = after(SourceTime(), promises={1: NOON}, now=NOON + SECOND)
    assert time.watermark == NOON
    assert after(time, promises={1: NOON}, now=NOON + MINUTE).watermark == NOON + 59 * SECOND


def test_a_promise_from_a_bad_clock_counts_no_further_than_a_little_beyond_ours() -> None:
    assert after(SourceTime(), live(NOON), {1: NOON * 2}, now=NOON).watermark == NOON + 10 * MINUTE


# -- silence ----------------------------------------------------------------------------------------------------------


def test_when_all_are_silent_time_moves_on_with_the_clock_from_where_it_was() -> None:
    time = after(SourceTime(), live(NOON), now=NOON)
    assert after(time, now=NOON + 30 * SECOND).watermark == time.watermark
    assert after(time, now=NOON + 45 * SECOND).watermark == time.watermark + 15 * SECOND


def test_silence_that_is_looked_at_often_moves_time_as_far_as_when_it_is_looked_at_once() -> None:
    time = often = after(SourceTime(), live(NOON, NOON - MINUTE), now=NOON)
    for second in range(1, 600):
        often = after(often, now=NOON + second * SECOND)
    assert often.watermark == after(time, now=NOON + 599 * SECOND).watermark


def test_the_last_one_to_fall_silent_tells_from_where_time_moves_on() -> None:
    seen = {1: Seen(NOON - 60 * MINUTE, NOON - SECOND), 2: Seen(NOON, NOON)}
    time = after(SourceTime(), seen, now=NOON)
    assert time.watermark == NOON - 60 * MINUTE - 10 * SECOND
    assert after(time, now=NOON + MINUTE).watermark == NOON - 10 * SECOND + 30 * SECOND


def test_a_replay_of_old_events_is_not_jumped_over() -> None:
    long_ago = NOON - 1000 * 24 * 60 * MINUTE
    time = after(SourceTime(), {1: Seen(long_ago, NOON)}, now=NOON)
    time = after(time, now=NOON + MINUTE)
    assert time.watermark == long_ago - 10 * SECOND + 30 * SECOND


def test_time_does_not_move_with_the_clock_while_the_log_is_not_read_to_its_end() -> None:
    time = after(SourceTime(), live(NOON), now=NOON)
    assert after(time, now=NOON + 60 * MINUTE, caught_up=False).watermark == time.watermark


def test_an_app_that_was_stopped_finds_the_silence_it_missed() -> None:
    day = 24 * 60 * MINUTE
    stopped = after(SourceTime(), live(NOON), now=NOON)
    never_stopped = stopped
    for hour in range(1, 25):
        never_stopped = after(never_stopped, now=NOON + hour * 60 * MINUTE)
    assert after(stopped, now=NOON + day).watermark == never_stopped.watermark


def test_what_came_in_a_pause_is_not_late_for_the_silence_before_it() -> None:
    time = after(SourceTime(), live(NOON), now=NOON)
    later = NOON + 60 * MINUTE
    time = after(time, {1: Seen(later, later)}, now=later)
    assert time.watermark == later - 10 * SECOND


def test_a_clock_that_is_set_back_stops_time_for_no_longer_than_idle() -> None:
    time = after(SourceTime(), live(NOON), now=NOON)
    time = after(time, now=NOON + MINUTE)
    back = NOON - 4 * MINUTE
    set_back = after(time, now=back)
    assert set_back.watermark == time.watermark
    assert after(set_back, now=back + 40 * SECOND).watermark == time.watermark + 10 * SECOND
    spoke = after(set_back, {1: Seen(NOON + 5 * MINUTE, NOON)}, now=back + SECOND)
    assert spoke.watermark == NOON + 5 * MINUTE - 10 * SECOND
    assert after(spoke, now=back + 41 * SECOND).watermark == spoke.watermark + 10 * SECOND


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_producers_that_never_come_back_are_forgotten_in_the_end() -> None:
    time = SourceTime()
    for number in range(1, 100):
        at = NOON + number * (FORGET_AFTER // 10)
        time = after(time, {number: Seen(at, at)}, now=at)
    assert set(time.producers) == set(range(89, 100))
    for _ in range(3):
        time = after(time, now=at + 100 * FORGET_AFTER)
    assert set(time.producers) == {99}


def test_the_producer_that_has_come_furthest_is_not_forgotten_for_its_windows_are_the_last_to_end() -> None:
    time = after(SourceTime(), {1: Seen(NOON + MINUTE, NOON), 2: Seen(NOON, NOON)}, now=NOON)
    for number in (3, 4):
        at = NOON + number * FORGET_AFTER
        time = after(time, {number: Seen(NOON - number, at)}, now=at)
    assert set(time.producers) == {1, 3, 4}


# -- who holds it back, and the end of the input ----------------------------------------------------------------------


def test_the_active_producer_furthest_behind_holds_the_watermark() -> None:
    time = after(SourceTime(), live(NOON, NOON - MINUTE), now=NOON)
    assert time.held_by == 2
    assert time.held_until == NOON + TIMING.idle
    promised = after(time, promises={2: NOON + SECOND}, now=NOON)
    assert promised.held_by == 1
    assert after(time, {1: Seen(NOON + MINUTE, NOON + MINUTE)}, now=NOON + MINUTE).held_by == 1  # the other one is idle
    assert after(time, now=NOON + 10 * MINUTE).held_by is None  # nobody is active


def test_a_finished_input_is_where_its_windows_end_and_time_continues_from_there() -> None:
    time = after(SourceTime(), live(NOON, NOON - MINUTE), now=NOON)
    ended = finish(time, NOON + 5 * MINUTE)
    assert ended is not None
    assert (ended.watermark, ended.finished_at, ended.held_by) == (NOON + 5 * MINUTE, NOON + 5 * MINUTE, None)
    assert finish(ended, NOON) == ended
    more = after(ended, {1: Seen(NOON + 9 * MINUTE, NOON + 9 * MINUTE)}, now=NOON + 9 * MINUTE)
    assert (more.watermark, more.finished_at) == (NOON + 9 * MINUTE - 10 * SECOND, NOON + 5 * MINUTE)


def test_an_input_without_events_has_no_end() -> None:
    assert finish(SourceTime(), NOON) == SourceTime()
    assert finish(None, NOON) is None


def stored_and_loaded(time: SourceTime) -> SourceTime:
    return decode(SourceTime, json.loads(json.dumps(encode(time))))


def test_a_time_is_the_same_after_it_was_stored() -> None:
    time = after(SourceTime(), live(NOON, NOON - MINUTE), {1: NOON}, now=NOON)
    assert stored_and_loaded(time) == time
    assert stored_and_loaded(SourceTime()) == SourceTime()
    assert time.producers[1] == Clock(NOON, NOON, NOON)


# -- what always holds ------------------------------------------------------------------------------------------------

OFFSETS = st.integers(-300, 300).map(lambda seconds: NOON + seconds * SECOND)
TIMINGS = st.builds(
    Timing,
    st.just("at"),
    st.integers(0, 60).map(lambda seconds: seconds * SECOND),
    st.integers(0, 60).map(lambda seconds: seconds * SECOND),
    st.integers(0, 600).map(lambda seconds: seconds * SECOND),
)
SEEN = st.dictionaries(st.integers(0, 3), st.builds(Seen, OFFSETS, OFFSETS), max_size=3)
STEPS = st.lists(
    st.tuples(SEEN, st.dictionaries(st.integers(0, 4), OFFSETS, max_size=2), OFFSETS, st.booleans()), max_size=12
)


@given(TIMINGS, STEPS)
def test_time_never_goes_back_and_is_the_same_for_a_retry(
    timing: Timing, steps: list[tuple[dict[int, Seen], dict[int, int], int, bool]]
) -> None:
    time = SourceTime()
    for seen, promises, now, caught_up in steps:
        stored = stored_and_loaded(time)
        moved = after(time, seen, promises, timing=timing, now=now, caught_up=caught_up)
        assert moved.watermark >= time.watermark
        assert moved == after(stored, seen, promises, timing=timing, now=now, caught_up=caught_up)
        assert moved.quiet_until <= now
        time = moved


@given(TIMINGS, st.lists(SEEN, min_size=1, max_size=12))
def test_while_history_is_read_time_is_never_ahead_of_what_was_shown(
    timing: Timing, steps: list[dict[int, Seen]]
) -> None:
    time = SourceTime()
    largest = NO_TIME
    for seen in steps:
        largest = max([largest, *(one.max_time for one in seen.values())])
        time = after(time, seen, timing=timing, now=NOON + 60 * MINUTE, caught_up=False)
        assert time.watermark <= (largest if largest == NO_TIME else largest - timing.lateness)


@given(TIMINGS, st.lists(SEEN, min_size=1, max_size=12), st.data())
def test_reading_in_smaller_steps_gives_the_same_time_as_long_as_the_same_producers_are_active(
    timing: Timing, steps: list[dict[int, Seen]], data: st.DataObject
) -> None:
    known = {number: Seen(data.draw(OFFSETS), NOON) for number in range(4)}
    begun = after(SourceTime(), known, timing=timing, now=NOON + 60 * MINUTE, caught_up=False)
    active = [{number: Seen(one.max_time, NOON) for number, one in seen.items()} for seen in steps]
    split = begun
    for seen in active:
        split = after(split, seen, timing=timing, now=NOON + 60 * MINUTE, caught_up=False)
    whole = after(begun, _together(active), timing=timing, now=NOON + 60 * MINUTE, caught_up=False)
    assert split == whole


@given(TIMINGS, st.lists(SEEN, min_size=1, max_size=12))
def test_reading_in_smaller_steps_never_leaves_time_further_back(timing: Timing, steps: list[dict[int, Seen]]) -> None:
    split = SourceTime()
    for seen in steps:
        split = after(split, seen, timing=timing, now=NOON + 60 * MINUTE, caught_up=False)
    whole = after(SourceTime(), _together(steps), timing=timing, now=NOON + 60 * MINUTE, caught_up=False)
    assert split.watermark >= whole.watermark
    assert split.producers == whole.producers


@given(TIMINGS, SEEN, st.integers(0, 10**9))
def test_quiet_streams_finish(timing: Timing, seen: dict[int, Seen], seconds: int) -> None:
    assume(seen)
    now = NOON + 60 * MINUTE
    time = after(SourceTime(), seen, timing=timing, now=now)
    assert time.watermark != NO_TIME
    wanted = NOON + seconds * SECOND
    # The whole span from where it stands, and what may pass before the last one counts as silent.
    enough = max(0, wanted - time.watermark) + timing.idle
    assert after(time, timing=timing, now=now + enough).watermark >= wanted


@given(TIMINGS, SEEN, OFFSETS)
def test_idle_producers_do_not_hold_time(timing: Timing, idle: dict[int, Seen], shown: int) -> None:
    before = after(SourceTime(), idle, timing=timing, now=NOON + 10 * MINUTE, caught_up=False)
    now = NOON + 60 * MINUTE
    time = after(before, {9: Seen(shown, now)}, timing=timing, now=now)
    assert time.watermark == max(before.watermark, shown - timing.lateness)


@pytest.mark.parametrize("caught_up", [True, False])
def test_nothing_read_and_nobody_known_is_no_time(caught_up: bool) -> None:
    assert after(SourceTime(), now=NOON, caught_up=caught_up).watermark == NO_TIME


def _together(steps: list[dict[int, Seen]]) -> dict[int, Seen]:
    whole: dict[int, Seen] = {}
    for seen in steps:
        for number, one in seen.items():
            known = whole.get(number, one)
            whole[number] = Seen(max(known.max_time, one.max_time), max(known.last_append, one.last_append))
    return whole
