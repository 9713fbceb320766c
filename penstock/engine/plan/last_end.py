"""When everything that a step waits for is over: the end of the last window that holds an event so far. Pure.

Times are microseconds since 1970, `NO_TIME` where there is none. `newest` is the largest event time that was read, by
topic. A `map` is taken to leave event times as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from penstock.engine.plan.cut import Cut
from penstock.flow import plan as flow
from penstock.flow.lateness import timed_inputs
from penstock.units import NO_TIME, utc_datetime

# A window in local time can be this much longer than its size.
_LONGEST_SHIFT = 25 * 3_600_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def newest_times(cut: Cut) -> dict[str, int]:
    """The largest event time that was read so far, by topic; topics without any are left out."""
    times = {name: source.time.producers.values() for name, source in cut.sources.items() if source.time is not None}
    newest = {name: max((clock.max_time for clock in clocks), default=NO_TIME) for name, clocks in times.items()}
    return {name: time for name, time in newest.items() if time != NO_TIME}


def last_end(node: flow.Node, newest: Mapping[str, int]) -> int:
    """The watermark of a step from which on nothing is open in it; NO_TIME for a step that waits for no end."""
    match node:
        case flow.TimedJoin():
            left, right = last_moment(node.left, newest), last_moment(node.right, newest)
            return max(_later(left, node.after + 1), _later(right, node.before + 1))
        case flow.Aggregate() if node.windowing is not None:
            moment = last_moment(node.input, newest)
            return NO_TIME if moment == NO_TIME else window_end_of(node.windowing.window, moment)
        case _:
            return NO_TIME


def last_moment(node: flow.Node, newest: Mapping[str, int]) -> int:
    """The largest event time that a row of a step can have, once all windows before it have ended."""
    if isinstance(node, flow.Topic | flow.Changelog):
        return newest.get(node.name, NO_TIME)
    if isinstance(node, flow.Aggregate):
        end = last_end(node, newest)
        return end - 1 if end != NO_TIME and node.shape.time_is_end else end
    return max((last_moment(input_, newest) for input_ in timed_inputs(node)), default=NO_TIME)


def window_end_of(window: flow.Window, moment: int) -> int:
    """The end of the last window that an event of this time is in."""
    match window:
        case flow.Session(gap):
            return moment + gap
        case flow.Sliding():
            return moment
        case flow.Tumbling(size, offset, zone):
            return _fixed_end(moment, (size, size, offset), zone)
        case flow.Hopping(size, every, offset, zone):
            return _fixed_end(moment, (size, every, offset), zone)


def _fixed_end(moment: int, lengths: tuple[int, int, int], zone: str | None) -> int:
    """The end of the last window of a size that starts every so often, counted from an offset."""
    if zone is not None:
        return _end_in_zone(moment, lengths, ZoneInfo(zone))
    size, every, offset = lengths
    return moment - (moment - offset) % every + size


def _end_in_zone(moment: int, lengths: tuple[int, int, int], zone: ZoneInfo) -> int:
    size, every, offset = lengths
    try:
        local = _microseconds(utc_datetime(moment).astimezone(zone).replace(tzinfo=UTC))
        end = local - (local - offset) % every + size
        # If clocks change at the bound of a window, the local time may be that of the window before.
        candidates = (_from_local(candidate, zone) for candidate in (end, end + every))
        return next(candidate for candidate in candidates if candidate > moment)
    except OverflowError:  # the years before 1 and after 9999
        return moment + size + _LONGEST_SHIFT


def _from_local(local: int, zone: ZoneInfo) -> int:
    return _microseconds(utc_datetime(local).replace(tzinfo=zone).astimezone(UTC))


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _later(moment: int, by: int) -> int:
    return moment if moment == NO_TIME else moment + by
