"""When the events of a topic happened, and how far their clocks are trusted: `time=ps.event_time("placed_at", ...)`."""

from __future__ import annotations

import pyarrow as pa

from penstock.calls import answer_call
from penstock.errors import DeclarationError
from penstock.flow.location import Declaring, located
from penstock.flow.plan import Timing
from penstock.flow.windows import microseconds
from penstock.schema.ddl import type_ddl
from penstock.suggest import closest

_LATENESS, _IDLE, _MAX_AHEAD = "0 seconds", "30 seconds", "10 minutes"


@answer_call(locate=located)
def event_time(
    column: str,
    *,
    lateness: str = _LATENESS,
    idle: str = _IDLE,
    max_ahead: str = _MAX_AHEAD,
    sent: str | None = None,
    received: str | None = None,
) -> Timing:
    """The event time of a topic: `app.topic(..., time=ps.event_time("placed_at", lateness="10 seconds"))`.

    - `column`: the timestamp that says when an event happened.
    - `lateness`: how much later than a newer event of the same producer an event may come and still be in time.
    - `idle`: a producer that is silent for this long no longer holds back anybody's windows.
    - `max_ahead`: an event that is further in the future than this has a wrong clock; it is a bad row.
    - `sent`: the column that says when the device sent the event, by the same clock as `column`, and `received`: when
      it was received, by ours (without it: when the log stored it). The event time is then corrected by the difference
      of the two clocks, and is in the additional column `event_time`.

    Where only the column matters, `time="placed_at"` says the same as `time=ps.event_time("placed_at")`.
    """
    with Declaring("event_time"):
        return make_timing(column, lateness=lateness, idle=idle, max_ahead=max_ahead, sent=sent, received=received)


def make_timing(column: str, *, sent: str | None = None, received: str | None = None, **durations: str) -> Timing:
    """What `event_time` says; mistakes are errors without a location."""
    for what, name in (("column", column), ("sent", sent), ("received", received)):
        if not isinstance(name, str) and (what == "column" or name is not None):
            raise DeclarationError(f"{what} is the name of a column; found {name!r}", hint='ps.event_time("placed_at")')
    if received is not None and sent is None:
        raise DeclarationError(
            "received corrects the time together with sent, which is missing",
            hint="name both columns, or neither: without received it is when the log stored the event",
        )
    lengths = {what: microseconds(text, what) for what, text in durations.items()}
    return Timing(column, **lengths, sent=sent, received=received)


def timing_of(time: str | Timing | None, lateness: str | None) -> Timing | None:
    """What the parameters `time` and `lateness` of a topic say. None: its events have no time."""
    if time is None:
        if lateness is not None:
            raise DeclarationError(
                "lateness needs events with a time", hint=f'name the column: time="...", lateness="{lateness}"'
            )
        return None
    if isinstance(time, Timing):
        if lateness is not None:
            raise DeclarationError(
                "lateness is given twice: it is a parameter of ps.event_time(...)",
                hint=f'time=ps.event_time("{time.column}", lateness="{lateness}")',
            )
        return time
    if not isinstance(time, str):
        raise DeclarationError(
            f"time is the name of a column, or ps.event_time(...); found {time!r}", hint='time="placed_at"'
        )
    return Timing(time, microseconds(_LATENESS if lateness is None else lateness, "lateness"))


def check_clock_columns(timing: Timing, schema: pa.Schema) -> None:
    """Raise DeclarationError unless `sent` and `received` are timestamps of the schema."""
    for what, column in (("sent", timing.sent), ("received", timing.received)):
        if column is None:
            continue
        if column not in schema.names:
            raise DeclarationError(
                f"{what}: there is no column '{column}'; there are {', '.join(schema.names)}",
                hint=closest(column, schema.names),
            )
        kind = schema.field(column).type
        if not pa.types.is_timestamp(kind):
            raise DeclarationError(f"{what}: '{column}' must be a timestamp; found {type_ddl(kind)}")
