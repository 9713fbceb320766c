"""The books of an app: every event that came in is in a view, or late, or dead, or filtered out. Plain data.

Events are counted where they first meet state, or where they are staged if they meet none. A view may have several such
places; an event that goes two ways is counted on both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from penstock.errors import PenstockError
from penstock.flow import plan as flow

Counts = Mapping[str, Mapping[str, int]]
_STATEFUL = (flow.Changelog, flow.Distinct, flow.Latest, flow.Top, flow.Aggregate)


@dataclass(frozen=True, slots=True)
class Account:
    """`came` = `counted` + `late` + `dead` + `filtered`. `corrected`: final answers that were given again."""

    came: int = 0
    counted: int = 0
    late: int = 0
    dead: int = 0
    filtered: int = 0
    corrected: int = 0

    def __add__(self, other: Account) -> Account:
        return Account(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def to_document(self) -> dict[str, int]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True, slots=True)
class Meter:
    """Where the events of a view are counted: at a state, or (None) where they are staged."""

    state: str | None
    sources: tuple[str, ...]
    changes_numbers: bool  # a function of the user lies before it, which may make two rows of one


def meters(node: flow.Node, state_of: Mapping[flow.Node, str]) -> list[Meter]:
    """The places where events on their way to a node are first counted."""
    below = [meter for one in flow.inputs(node) for meter in meters(one, state_of)]
    if isinstance(node, _STATEFUL) and (not below or any(meter.state is None for meter in below)):
        free = [meter for meter in below if meter.state is None]
        sources = tuple(name for meter in free for name in meter.sources)
        if isinstance(node, flow.Changelog):
            sources = (node.name,)
        mine = Meter(state_of[node], sources, any(meter.changes_numbers for meter in free))
        return [mine, *(meter for meter in below if meter.state is not None)]
    if isinstance(node, flow.Topic):
        return [Meter(None, (node.name,), changes_numbers=False)]
    if isinstance(node, flow.Map):
        return [Meter(meter.state, meter.sources, meter.changes_numbers or meter.state is None) for meter in below]
    return below


def account(view: str, places: list[Meter], sources: Counts, states: Counts, staged: Mapping[str, int]) -> Account:
    """What became of an epoch's events on their way to a view."""
    total = Account()
    staged_here = [meter for meter in places if meter.state is None]
    for meter in places:
        if meter.state is not None:
            total += _at(view, meter, sources, states.get(meter.state, {}))
    if staged_here:
        every = tuple(name for meter in staged_here for name in meter.sources)
        changes = any(meter.changes_numbers for meter in staged_here) or len(places) > len(staged_here)
        total += _at(view, Meter(None, every, changes), sources, {"events": staged[view]})
    return total


def _at(view: str, meter: Meter, sources: Counts, counts: Mapping[str, int]) -> Account:
    came = sum(sources[name]["in"] for name in meter.sources)
    dead = sum(sources[name]["dead"] for name in meter.sources)
    arrived, late = counts.get("events", 0), counts.get("late", 0)
    filtered = came - dead - arrived
    if filtered < 0 and not meter.changes_numbers:
        raise PenstockError(
            f"view '{view}': the books do not balance: {came} events came in, {dead} were set aside, {arrived} arrived"
        )
    return Account(came, arrived - late, late, dead, filtered, counts.get("corrected", 0))
