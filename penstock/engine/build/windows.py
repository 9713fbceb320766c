"""Windows as expressions of Spark SQL: which windows an event is in, in whole microseconds."""

from __future__ import annotations

import math

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import quoted
from penstock.engine.operators.windows import WindowOrder
from penstock.flow.plan import Hopping, Lateness, Session, Shape, Sliding, Tumbling, Windowing

DAY = 86_400_000_000
HOUR = 3_600_000_000
# A local day can be this much longer than 24 hours.
LONGEST_SHIFT = 25 * HOUR
# An event whose time has become null is older than everything, so that it is late and not lost.
NO_MOMENT = -(2**62)


def moment(shape: Shape) -> Column:
    """The event time of rows in microseconds since 1970; 0 where they have none."""
    if shape.time is None:
        return F.lit(0).cast("long")
    at = F.coalesce(F.unix_micros(F.col(quoted(shape.time))), F.lit(NO_MOMENT))
    return at - F.lit(1) if shape.time_is_end else at


def order_of(windowing: Windowing) -> WindowOrder:
    """How windows of this kind lie in the state."""
    window = windowing.window
    assert isinstance(window, Tumbling | Hopping)
    step = window.every if isinstance(window, Hopping) else window.size
    if window.zone is not None:
        return WindowOrder(HOUR, window.size + LONGEST_SHIFT, windowing.keep)
    return WindowOrder(step, window.size, windowing.keep)


def last_moment(at: Column, late: Lateness) -> Column:
    """The watermark at which an event of this time is too late."""
    keep = F.lit(late.keep)
    match late.window:
        case None | Sliding():
            return at + keep
        case Session(gap):
            # With all others of its piece of time, as the operator has it.
            return at - F.pmod(at, F.lit(gap)) + F.lit(2 * gap) + keep
        case Tumbling() | Hopping() as window:
            start = pane_of(window, at)
            if isinstance(window, Hopping):
                start = floored(start, window.every, window.offset)
            return universal(start + F.lit(window.size), window.zone) + keep


def longest_lateness(late: Lateness) -> int:
    """How long after its time an event is too late at the latest."""
    match late.window:
        case None | Sliding():
            return late.keep
        case Session(gap):
            return late.keep + 2 * gap
        case Tumbling() | Hopping() as window:
            return late.keep + window.size + (LONGEST_SHIFT if window.zone else 0)


def local(moment_: Column, zone: str | None) -> Column:
    """What the clocks of the zone show, as microseconds."""
    if zone is None:
        return moment_
    return F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(moment_), zone))


def universal(local_: Column, zone: str | None) -> Column:
    """The moment at which the clocks of the zone show this."""
    if zone is None:
        return local_
    return F.unix_micros(F.to_utc_timestamp(F.timestamp_micros(local_), zone))


def pane_of(window: Tumbling | Hopping, moment_: Column) -> Column:
    """The start, by the clocks of the zone, of the piece of time an event is in; windows are made of whole ones."""
    length = window.size if isinstance(window, Tumbling) else math.gcd(window.size, window.every)
    pane = floored(local(moment_, window.zone), length, window.offset)
    if window.zone is None:
        return pane
    # Where clocks are changed at the bound of a pane, what they show may belong to the pane before or after.
    starts_later = universal(pane, window.zone) > moment_
    has_ended = universal(pane + F.lit(length), window.zone) <= moment_
    return F.when(starts_later, pane - F.lit(length)).when(has_ended, pane + F.lit(length)).otherwise(pane)


def starts_of(window: Hopping, pane: Column) -> Column:
    """The starts of all windows that a piece of time is in, the last one first."""
    last = floored(pane, window.every, window.offset)
    further = -(-window.size // window.every) - 1
    starts = F.sequence(last, last - F.lit(further * window.every), F.lit(-window.every))
    return F.filter(starts, lambda start: start + F.lit(window.size) > pane)


def floored(value: Column, length: int, offset: int) -> Column:
    return value - F.pmod(value - F.lit(offset), F.lit(length))
