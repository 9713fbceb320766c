"""What a node remembers from one epoch to the next, and for how long, in words."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.flow.accumulators import SKETCHES, adds_up
from penstock.flow.expressions import split_aggregates
from penstock.flow.lateness import correction_period, timed_join_memory, window_end
from penstock.flow.plan import (
    Aggregate,
    AsOfJoin,
    Changelog,
    Distinct,
    Hopping,
    Join,
    JoinKey,
    Latest,
    Node,
    Session,
    Sliding,
    TimedJoin,
    Top,
    Topic,
    Tumbling,
    Window,
    Windowing,
)
from penstock.units import format_duration


def describe_state(node: Node) -> str | None:
    """What a node stores, and until when; None for a node without state."""
    match node:
        case Topic(timing=timing):
            return None if timing is None else "the highest event time of each producer"
        case Changelog():
            return f"one row per {comma_list(node.key)}, until it is deleted"
        case Distinct(within=None):
            return f"the first row per {comma_list(node.columns)}, for ever"
        case Distinct(within=within):
            return f"the rows of the last {duration_text(within or 0)}"
        case Latest():
            return f"one row per {comma_list(node.key)}, for ever"
        case Top():
            end = window_end(node.input, node.per)
            until = "for ever" if end is None else f"until {duration_text(correction_period(node))} after {end}"
            return f"rows{_per(node.per)}, {until}"
        case Aggregate():
            return _describe_aggregate(node)
        case Join() | TimedJoin() | AsOfJoin():
            return _describe_join(node)
        case _:
            return None


def describe_window(windowing: Windowing) -> str:
    """A window and what becomes of its results, in a few words."""
    parts = [_window_text(windowing.window), f"emit {windowing.emit}", f"late {windowing.late}"]
    return ", ".join(parts)


def duration_text(microseconds: int) -> str:
    return format_duration(microseconds / 1_000_000)


def _describe_aggregate(node: Aggregate) -> str:
    state = _aggregate_state(node)
    keys = tuple(key.name for key in node.keys)
    if node.windowing is None:
        return f"{state}{_per(keys)}, for ever"
    keep = duration_text(node.windowing.keep)
    if isinstance(node.windowing.window, Sliding):
        size = duration_text(node.windowing.window.size)
        return f"rows{_per(keys)}, until {keep} after they are {size} old"
    what = "session" if isinstance(node.windowing.window, Session) else "window"
    until = f"until {keep} after its end" if node.windowing.keep else "until its end"
    return f"{state}{_per((*keys, what))}, {until}"


def _describe_join(node: Join | TimedJoin | AsOfJoin) -> str:
    match node:
        case Join():
            return f"rows of both sides{_per(tuple(map(join_key_text, node.on)))}, for ever"
        case TimedJoin():
            kept_for = duration_text(max(timed_join_memory(node.how, node.before, node.after, node.keep)))
            return (
                f"events of both sides{_per(tuple(map(join_key_text, node.on)))}, until {kept_for} after they happened"
            )
        case AsOfJoin():
            row = f"one row{_per(tuple(key.right for key in node.on))}, until it is deleted"
            if node.as_of is None:
                return row
            kept_for = duration_text(node.keep)
            return f"{row}; its versions and the events that looked it up, until {kept_for} after {node.as_of}"


def join_key_text(key: JoinKey) -> str:
    """What must be equal in a join: one column name, or two."""
    return key.left if key.left == key.right else f"{key.left} = {key.right}"


def _aggregate_state(node: Aggregate) -> str:
    """Accumulators, or the rows themselves if some aggregate has to be evaluated from them again."""
    calls = [call for named in node.aggregates for call in split_aggregates(named.expression).calls]
    sessions = node.windowing is not None and isinstance(node.windowing.window, Session)
    retracts = node.input.shape.retracts
    if not all(adds_up(call, retracts=retracts, sessions=sessions) for call in calls):
        return "rows"
    parts = ["accumulators"]
    parts += ["sketches"] if any(call.function in SKETCHES for call in calls) else []
    parts += ["different values"] if any(call.distinct for call in calls) else []
    state = _and_list(parts)
    # A double that was added cannot be taken back: the rounding error it caused, or NaN, would stay.
    sums = any(call.function in ("avg", "mean", "sum") for call in calls)
    return f"{state} (rows, if doubles are summed)" if retracts and sums else state


def _window_text(window: Window) -> str:
    match window:
        case Tumbling(size=size, offset=offset, zone=zone):
            return f"tumbling {duration_text(size)}{_offset_and_zone(offset, zone)}"
        case Hopping(size=size, every=every, offset=offset, zone=zone):
            return f"hopping {duration_text(size)} every {duration_text(every)}{_offset_and_zone(offset, zone)}"
        case Sliding(size=size):
            return f"sliding {duration_text(size)}"
        case Session(gap=gap):
            return f"session with a gap of {duration_text(gap)}"


def _offset_and_zone(offset: int, zone: str | None) -> str:
    return (f" from {duration_text(offset)}" if offset else "") + (f" in {zone}" if zone else "")


def _per(names: tuple[str, ...]) -> str:
    return f" per {_and_list(names)}" if names else ""


def _and_list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def comma_list(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))
