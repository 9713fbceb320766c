"""What a node remembers from one epoch to the next, and for how long, in words."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.flow.expressions import split_aggregates
from penstock.flow.lateness import corrected_for, window_end
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

# These add up, also backwards; all others are evaluated again over the rows of the groups that changed.
_SUMS = frozenset({"avg", "count", "count_if", "mean", "sum"})
# These add up as long as no row is taken back.
_GROWING = frozenset({"bitmap_and_agg", "bitmap_construct_agg", "bitmap_or_agg", "max", "min"})
# So do these, of which Spark can put two together; not in sessions, which may join any number of them.
_FAMILIES = {
    "hll": ("sketch_agg", "union_agg"),
    "theta": ("sketch_agg", "union_agg"),
    "kll": tuple(f"{verb}_agg_{type_}" for verb in ("merge", "sketch") for type_ in ("bigint", "double", "float")),
    "tuple": tuple(f"{verb}_agg_{type_}" for verb in ("sketch", "union") for type_ in ("double", "integer")),
}
SKETCHES = frozenset({"approx_count_distinct"} | {f"{one}_{end}" for one, ends in _FAMILIES.items() for end in ends})


def state_of(node: Node) -> str | None:
    """What is kept, and until when; None for a node without state."""
    match node:
        case Topic(timing=timing):
            return None if timing is None else "the highest event time of each producer"
        case Changelog():
            return f"one row per {_listed(node.key)}, until it is deleted"
        case Distinct(within=None):
            return f"the first row per {_listed(node.columns)}, for ever"
        case Distinct(within=within):
            return f"the rows of the last {duration(within or 0)}"
        case Latest():
            return f"one row per {_listed(node.key)}, for ever"
        case Top():
            end = window_end(node.input, node.per)
            until = "for ever" if end is None else f"until {duration(corrected_for(node))} after {end}"
            return f"rows{_per(node.per)}, {until}"
        case Aggregate():
            return _of_aggregate(node)
        case Join() | TimedJoin() | AsOfJoin():
            return _of_join(node)
        case _:
            return None


def window_text(windowing: Windowing) -> str:
    """A window and what becomes of its results, in a few words."""
    parts = [_window(windowing.window), f"emit {windowing.emit}", f"late {windowing.late}"]
    return ", ".join(parts)


def duration(microseconds: int) -> str:
    return format_duration(microseconds / 1_000_000)


def _of_aggregate(node: Aggregate) -> str:
    kept = _kept(node)
    keys = tuple(key.name for key in node.keys)
    if node.windowing is None:
        return f"{kept}{_per(keys)}, for ever"
    keep = duration(node.windowing.keep)
    if isinstance(node.windowing.window, Sliding):
        size = duration(node.windowing.window.size)
        return f"rows{_per(keys)}, until {keep} after they are {size} old"
    what = "session" if isinstance(node.windowing.window, Session) else "window"
    until = f"until {keep} after its end" if node.windowing.keep else "until its end"
    return f"{kept}{_per((*keys, what))}, {until}"


def _of_join(node: Join | TimedJoin | AsOfJoin) -> str:
    match node:
        case Join():
            return f"rows of both sides{_per(tuple(map(joined_on, node.on)))}, for ever"
        case TimedJoin():
            kept = duration(node.before + node.after + node.keep)
            return f"events of both sides{_per(tuple(map(joined_on, node.on)))}, until {kept} after they happened"
        case AsOfJoin():
            row = f"one row{_per(tuple(key.right for key in node.on))}, until it is deleted"
            if node.as_of is None:
                return row
            return (
                f"{row}; its versions and the events that looked it up, until {duration(node.keep)} after {node.as_of}"
            )


def joined_on(key: JoinKey) -> str:
    """What is equal in a join: one name, or two."""
    return key.left if key.left == key.right else f"{key.left} = {key.right}"


def _kept(node: Aggregate) -> str:
    """Accumulators, or the rows themselves where some aggregate has to be evaluated from them again."""
    calls = [call for one in node.aggregates for call in split_aggregates(one.expression).calls]
    sessions = node.windowing is not None and isinstance(node.windowing.window, Session)
    distinct = [call.function for call in calls if call.distinct]
    sketches = [call.function for call in calls if call.function in SKETCHES]
    retracts = node.input.shape.retracts
    functions = _SUMS if retracts else _SUMS | _GROWING | SKETCHES
    add_up = all(call.function in functions and call.clause is None for call in calls) and {*distinct} <= {"count"}
    if not add_up or (sessions and (retracts or distinct or sketches)):
        return "rows"
    parts = ["accumulators", *(["sketches"] if sketches else []), *(["different values"] if distinct else [])]
    kept = _and(parts)
    # A double that was added cannot be taken back: the rounding it caused, or NaN, would stay.
    sums = any(call.function in ("avg", "mean", "sum") for call in calls)
    return f"{kept} (rows, if doubles are summed)" if retracts and sums else kept


def _window(window: Window) -> str:
    match window:
        case Tumbling(size=size, offset=offset, zone=zone):
            return f"tumbling {duration(size)}{_shift(offset, zone)}"
        case Hopping(size=size, every=every, offset=offset, zone=zone):
            return f"hopping {duration(size)} every {duration(every)}{_shift(offset, zone)}"
        case Sliding(size=size):
            return f"sliding {duration(size)}"
        case Session(gap=gap):
            return f"session with a gap of {duration(gap)}"


def _shift(offset: int, zone: str | None) -> str:
    return (f" from {duration(offset)}" if offset else "") + (f" in {zone}" if zone else "")


def _per(names: tuple[str, ...]) -> str:
    return f" per {_and(names)}" if names else ""


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)
