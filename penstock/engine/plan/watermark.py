"""How far time has come in one topic: a watermark per producer, and from them that of the topic. Pure.

A watermark of t says: no event earlier than t is expected any more. It is worked out once per epoch, from what that
reads and the driver's clock, and recorded with the cut, so a retry sees the same time. Times are microseconds since
1970, `NO_TIME` where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.units import NO_TIME

if TYPE_CHECKING:
    from penstock.flow.plan import Timing

# A producer that is silent for so much longer than `idle` is forgotten, so that what is recorded stays small however
# many producers come and go.
FORGET_AFTER = 24 * 3_600_000_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read of one producer: the largest credible event time, and when the last credible event was stored."""

    max_time: int
    last_append: int


@dataclass(frozen=True, slots=True)
class Clock:
    """One producer's time: what it has shown so far, when that was stored last, and what it has promised."""

    max_time: int = NO_TIME
    last_append: int = NO_TIME
    promise: int = NO_TIME


@dataclass(frozen=True, slots=True)
class SourceTime:
    """The time of a topic at a cut. `quiet_until` is the clock up to which silence has moved the watermark.

    `held_by` is the producer that the watermark waits for: the one furthest behind of those that are active; None if
    none is, and `held_until` the clock at which it has been silent for `idle`, so that it no longer counts.
    `finished_at` is where the input was last declared to have ended (`finish`).
    """

    watermark: int = NO_TIME
    producers: Mapping[int, Clock] = field(default_factory=dict)
    quiet_until: int = NO_TIME
    held_by: int | None = None
    finished_at: int = NO_TIME
    held_until: int = NO_TIME


def advance(
    before: SourceTime,
    seen: Mapping[int, Seen],
    promises: Mapping[int, int],
    *,
    timing: Timing,
    now: int,
    caught_up: bool,
) -> SourceTime:
    """The time of a topic after an epoch that reads `seen`, with the `promises` that count by then.

    `now` is the driver's clock, and `caught_up` says whether the epoch reads up to the end of the log.

    1. A producer's watermark is the largest event time it has shown less `lateness`, or what it has promised if that
       is later; neither counts further than `max_ahead` beyond `now`.
    2. The topic's is the smallest over the active producers. A producer is active until it has been silent for longer
       than `idle`, and again as soon as it returns. A promise is no sign of life, and does not end it either.
    3. Silence is measured up to `now` if the epoch has caught up with the log, and else up to the newest event read:
       while history is read, only those count as silent who were silent then.
    4. When all are silent and the epoch has caught up, the watermark moves on with the clock, from where it was when
       the last one fell silent.
    5. It never goes back. When the clock is set back, silence goes on moving it after at most `idle`.
    """
    producers = _merge_clocks(before.producers, seen, promises, now)
    newest = max((clock.last_append for clock in producers.values()), default=NO_TIME)
    present = now if caught_up else newest  # 3
    active = {
        producer: clock
        for producer, clock in producers.items()
        if newest != NO_TIME and _is_active(clock, present, timing)
    }
    quiet = caught_up and not active
    # The last to fall silent was the only one that counted then.
    counted = [clock for clock in producers.values() if clock.last_append == newest] if quiet else active.values()
    watermark = max(before.watermark, _smallest(counted, timing, now))  # 2, 5
    if quiet and watermark != NO_TIME:
        watermark += _silence(before, newest, timing, now)  # 4
    held_by = min(active, key=lambda producer: _watermark(active[producer], timing, now), default=None)
    return SourceTime(
        watermark,
        _without_forgotten(producers, newest, present, timing),
        now if quiet else min(before.quiet_until, now),
        held_by,
        before.finished_at,
        NO_TIME if held_by is None else active[held_by].last_append + timing.idle,
    )


def finish(time: SourceTime | None, end: int) -> SourceTime | None:
    """The time of a topic whose input has ended, with every window over at `end`. Without events it has no time."""
    if time is None or time.watermark == NO_TIME or end <= time.watermark:
        return time
    return replace(time, watermark=end, held_by=None, finished_at=end, held_until=NO_TIME)


def _merge_clocks(
    before: Mapping[int, Clock], seen: Mapping[int, Seen], promises: Mapping[int, int], now: int
) -> dict[int, Clock]:
    """What is known of each producer. Nothing was stored after `now`: where it seems so, a clock was set back."""
    merged = {}
    for producer in sorted({*before, *seen, *promises}):
        known = before.get(producer, Clock())
        shown = seen.get(producer, Seen(NO_TIME, NO_TIME))
        merged[producer] = Clock(
            max(known.max_time, shown.max_time),
            min(max(known.last_append, shown.last_append), now),
            max(known.promise, promises.get(producer, NO_TIME)),
        )
    return merged


def _is_active(clock: Clock, present: int, timing: Timing) -> bool:
    return clock.last_append != NO_TIME and present - clock.last_append <= timing.idle


def _smallest(clocks: Iterable[Clock], timing: Timing, now: int) -> int:
    return min((_watermark(clock, timing, now) for clock in clocks), default=NO_TIME)


def _watermark(clock: Clock, timing: Timing, now: int) -> int:
    shown = clock.max_time if clock.max_time == NO_TIME else clock.max_time - timing.lateness
    return min(max(shown, clock.promise), now + timing.max_ahead)


def _silence(before: SourceTime, newest: int, timing: Timing, now: int) -> int:
    """The time for which nobody has been active, as far as it has not moved the watermark before."""
    began = newest if newest == NO_TIME else newest + timing.idle
    counted = max(began, before.quiet_until)
    return 0 if counted == NO_TIME else max(0, now - counted)


def _without_forgotten(producers: Mapping[int, Clock], newest: int, present: int, timing: Timing) -> dict[int, Clock]:
    """The producers without those that have long been silent.

    The last one to be silent is kept: the silence is counted from it. So is the one that has come furthest: its events
    are in the last windows to end.
    """
    furthest = max((clock.max_time for clock in producers.values()), default=NO_TIME)
    return {
        producer: clock
        for producer, clock in producers.items()
        if clock.last_append >= newest
        or clock.max_time >= furthest
        or present - clock.last_append <= timing.idle + FORGET_AFTER
    }
