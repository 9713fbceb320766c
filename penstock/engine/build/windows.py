"""Windows as Spark expressions: which windows an event is in, in whole microseconds."""

from __future__ import annotations

import math

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import quote
from penstock.engine.operators.windows import WindowOrder
from penstock.flow.plan import Hopping, Lateness, Session, Shape, Sliding, Tumbling, Windowing

DAY = 86_400_000_000
HOUR = 3_600_000_000
# A window in local time can be this much longer than its size.
LONGEST_SHIFT = 25 * HOUR
# An event whose time is null counts as older than all others, so that it is late and not lost.
NO_MOMENT = -(2**62)


def moment(shape: Shape) -> Column:
    """The event time of rows in microseconds since 1970; 0 where they have none."""
    if shape.time is None:
        return F.lit(0).cast("long")
    at = F.coalesce(F.unix_micros(F.col(quote(shape.time))), F.lit(NO_MOMENT))
    return at - F.lit(1) if shape.time_is_end else at


def window_order(windowing: Windowing) -> WindowOrder:
    """The order of windows of this kind in the state."""
    window = windowing.window
    assert isinstance(window, Tumbling | Hopping)
    step = window.every if isinstance(window, Hopping) else window.size
    if window.zone is not None:
        return WindowOrder(HOUR, window.size + LONGEST_SHIFT, windowing.keep)
    return WindowOrder(step, window.size, windowing.keep)


def deadline_of(at: Column, late: Lateness) -> Column:
    """The watermark from which on an event of this time is late."""
    keep = F.lit(late.keep)
    match late.window:
        case None | Sliding():
            return at + keep
        case Session(gap) as window:
            # The same for all events of a piece of time, as in the operator.
            return at - F.pmod(at, F.lit(gap)) + F.lit(window.reach) + keep
        case Tumbling() | Hopping() as window:
            start = pane_of(window, at)
            if isinstance(window, Hopping):
                start = floor_to(start, window.every, window.offset)
            return to_utc(start + F.lit(window.size), window.zone) + keep


def longest_lateness(late: Lateness) -> int:
    """The longest time after which an event can come without being late."""
    match late.window:
        case None | Sliding():
            return late.keep
        case Session() as window:
            return late.keep + window.reach
        case Tumbling() | Hopping() as window:
            return late.keep + window.size + (LONGEST_SHIFT if window.zone else 0)


def to_local(moment_: Column, zone: str | None) -> Column:
    """The local time of the zone, as microseconds."""
    if zone is None:
        return moment_
    return F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(moment_), zone))


def to_utc(local_: Column, zone: str | None) -> Column:
    """The time at which this is the local time of the zone."""
    if zone is None:
        return local_
    return F.unix_micros(F.to_utc_timestamp(F.timestamp_micros(local_), zone))


def pane_of(window: Tumbling | Hopping, moment_: Column) -> Column:
    """The start, in local time, of the pane that an event is in. Windows consist of whole panes."""
    length = window.size if isinstance(window, Tumbling) else math.gcd(window.size, window.every)
    pane = floor_to(to_local(moment_, window.zone), length, window.offset)
    if window.zone is None:
        return pane
    # If clocks change at the bound of a pane, their time may be that of the pane before or after.
    starts_later = to_utc(pane, window.zone) > moment_
    has_ended = to_utc(pane + F.lit(length), window.zone) <= moment_
    return F.when(starts_later, pane - F.lit(length)).when(has_ended, pane + F.lit(length)).otherwise(pane)


def starts_of(window: Hopping, pane: Column) -> Column:
    """The starts of all windows that a pane is in, the last one first."""
    last = floor_to(pane, window.every, window.offset)
    further = -(-window.size // window.every) - 1
    starts = F.sequence(last, last - F.lit(further * window.every), F.lit(-window.every))
    return F.filter(starts, lambda start: start + F.lit(window.size) > pane)


def floor_to(value: Column, length: int, offset: int) -> Column:
    return value - F.pmod(value - F.lit(offset), F.lit(length))
