"""Windows: stretches of event time by which a stream is grouped.

`tumbling`, `hopping`, `sliding` and `session` are arguments of `.window(...)`. Durations are words: `"10 seconds"`.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo, available_timezones

from penstock.calls import answer_call
from penstock.errors import DeclarationError
from penstock.flow.habits import KEYWORDS
from penstock.flow.location import Declaring, located
from penstock.flow.plan import Emit, Hopping, Late, Session, Sliding, Tumbling, Window, Windowing
from penstock.suggest import closest
from penstock.units import parse_duration

DEFAULT_KEEP = "1 hour"
_DAY = 86_400_000_000
_WINDOW_HINTS = {
    **KEYWORDS["window"],
    **dict.fromkeys(("tz", "timezone", "time_zone", "zoneinfo"), 'write zone="Europe/Berlin"'),
    **dict.fromkeys(
        ("emit", "late", "keep"), 'it is a parameter of .window: .window(tumbling("1 minute"), emit="changes")'
    ),
}


@answer_call(_WINDOW_HINTS, locate=located)
def tumbling(size: str, *, offset: str = "0 seconds", zone: str | None = None) -> Tumbling:
    """Windows of one size, one after the other: each event is in exactly one.

    They are counted from the start of 1970, plus `offset`: `tumbling("1 hour", offset="15 minutes")` starts at a
    quarter past. Times are UTC unless `zone` names another zone (`"Europe/Berlin"`); with a zone the size is whole
    days, and a day is as long as it is there, 23 to 25 hours.
    """
    with Declaring("tumbling"):
        length = _positive_duration(size, "size")
        _check_zone(zone, size=length)
        return Tumbling(length, microseconds(offset, "offset") % length, zone)


@answer_call({**_WINDOW_HINTS, **dict.fromkeys(("slide", "step", "hop"), 'every="1 minute"')}, locate=located)
def hopping(size: str, every: str, *, offset: str = "0 seconds", zone: str | None = None) -> Hopping:
    """Windows of one size, a new one after each `every`: each event is in several.

    `hopping("10 minutes", "1 minute")` answers each minute for the last ten. `offset` and `zone` are those of
    `tumbling`; with a zone both `size` and `every` are whole days.
    """
    with Declaring("hopping"):
        length, step = _positive_duration(size, "size"), _positive_duration(every, "every")
        if step > length:
            raise DeclarationError(
                f"events between two windows would be in none; found every {every!r} with a size of {size!r}",
                hint="make 'every' at most 'size'",
            )
        _check_zone(zone, size=length, every=step)
        return Hopping(length, step, microseconds(offset, "offset") % step, zone)


@answer_call(_WINDOW_HINTS, locate=located)
def sliding(size: str) -> Sliding:
    """For each moment at which a group has an event: the events of that group in the `size` up to that moment.

    Of `sliding("1 hour")`, `window_end` is the moment and `window_start` an hour before it. An event exactly `size`
    before is not included.
    """
    with Declaring("sliding"):
        return Sliding(_positive_duration(size, "size"))


@answer_call(_WINDOW_HINTS, locate=located)
def session(gap: str) -> Session:
    """Events of a group with less than `gap` between one and the next; a session ends `gap` after its last event.

    `session("30 minutes")`
    """
    with Declaring("session"):
        return Session(_positive_duration(gap, "gap"))


def check_windowing(window: Window, emit: Emit, late: Late, keep: str | None) -> Windowing:
    """The checked arguments of `.window(...)`."""
    if not isinstance(window, Tumbling | Hopping | Sliding | Session):
        raise DeclarationError(
            f"a window is needed; found {window!r}",
            hint=f"write .window(tumbling({window if isinstance(window, str) else '1 minute'!r})), "
            "or hopping, sliding, session",
        )
    if emit not in ("final", "changes"):
        raise DeclarationError(f"emit is 'final' or 'changes'; found {emit!r}")
    if late not in ("correct", "drop"):
        raise DeclarationError(f"late is 'correct' or 'drop'; found {late!r}")
    if late == "drop":
        if keep is not None:
            raise DeclarationError(f"with late='drop' nothing is kept for corrections; found keep={keep!r}")
        return Windowing(window, emit, late, keep=0)
    return Windowing(window, emit, late, microseconds(DEFAULT_KEEP if keep is None else keep, "keep"))


def microseconds(text: str, what: str) -> int:
    """A duration in whole microseconds."""
    if not isinstance(text, str):
        raise DeclarationError(f"{what} is a duration in words; found {text!r}", hint="such as '10 seconds'")
    try:
        return round(parse_duration(text) * 1_000_000)
    except DeclarationError as error:
        raise DeclarationError(f"{what}: {error.message}", hint=error.hint) from None


def _positive_duration(text: str, what: str) -> int:
    length = microseconds(text, what)
    if length == 0:
        raise DeclarationError(f"{what} must be more than nothing; found {text!r}")
    return length


def _check_zone(zone: str | None, **lengths: int) -> None:
    if zone is None:
        return
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError, TypeError):
        hint = closest(str(zone), sorted(available_timezones())) or "use a name such as 'Europe/Berlin'"
        raise DeclarationError(f"there is no time zone {zone!r}", hint=hint) from None
    for name, length in lengths.items():
        if length % _DAY:
            raise DeclarationError(
                f"with a zone, {name} is a number of whole days; found {length / _DAY:g} days",
                hint="leave the zone out: shorter windows are the same everywhere",
            )
