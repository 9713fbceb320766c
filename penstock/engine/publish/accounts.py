"""The books of an app: every event that came in is in a view, or late, or dead, or filtered out. Plain data.

Events are counted where they first meet state, or where they are staged if they meet none. A view may have several such
places; an event that goes two ways is counted on both. Where a union brings events together with rows that were counted
before, those do not count again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.ledger.records import Account
from penstock.errors import PenstockError
from penstock.flow import plan as flow

Counts = Mapping[str, Mapping[str, int]]
_STATEFUL = (flow.Distinct, flow.Latest, flow.Top, flow.Aggregate)
StateNames = Mapping[tuple[flow.Node, int], str]
"""The state that a node keeps of an input, by the input's number."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Where the events of a view are counted: at a state, or (None) where they are staged."""

    state: str | None
    sources: tuple[str, ...]
    changes_numbers: bool  # a function of the user lies before it, which may make two rows of one


def meters(node: flow.Node, state_of: StateNames) -> list[Meter]:
    """The places where events on their way to a node are first counted."""
    if isinstance(node, flow.Topic):
        return [Meter(None, (node.name,), changes_numbers=False)]
    if isinstance(node, flow.Changelog):
        return [Meter(state_of[node, 0], (node.name,), changes_numbers=False)]
    if isinstance(node, flow.AsOfJoin) and node.as_of is not None:
        sides = [meters(node.left, state_of), _history(node.right, state_of)]
    else:
        inputs = flow.union_parts(node) if isinstance(node, flow.Union) else flow.inputs(node)
        sides = [meters(input_, state_of) for input_ in inputs]
    if isinstance(node, flow.Join | flow.TimedJoin | flow.AsOfJoin):
        return [meter for number, side in enumerate(sides) for meter in _count_at_state(side, (node, number), state_of)]
    below = [meter for side in sides for meter in side]
    if isinstance(node, _STATEFUL):
        return _count_at_state(below, (node, 0), state_of)
    if isinstance(node, flow.Map):
        return [Meter(meter.state, meter.sources, meter.changes_numbers or meter.state is None) for meter in below]
    return below


def count_corrected(node: flow.Node, corrected_by: Mapping[flow.Node, int]) -> int:
    """How many answers of the last windows before a node were corrected, of those that each window has corrected."""
    reached, ahead, total = set[int](), [node], 0
    while ahead:
        found = ahead.pop()
        if id(found) in reached:
            continue
        reached.add(id(found))
        if isinstance(found, flow.Aggregate) and found.windowing is not None:
            total += corrected_by.get(found, 0)
        else:
            ahead += flow.inputs(found)
    return total


def has_met_state(node: flow.Node) -> bool | None:
    """Whether the rows of a node have met state, and were counted there; None: some have, and others have not."""
    if isinstance(node, flow.Topic):
        return False
    if isinstance(node, flow.Union):
        found = set(map(has_met_state, flow.union_parts(node)))
        return found.pop() if len(found) == 1 else None
    if isinstance(node, flow.Where | flow.Select | flow.Map):
        return has_met_state(node.input)
    return True


def _history(table: flow.Node, state_of: StateNames) -> list[Meter]:
    """The same for the versions of a table, which a join keeps instead of the table itself."""
    match table:
        case flow.Changelog():
            return [Meter(None, (table.name,), changes_numbers=False)]
        case flow.Latest():
            return meters(table.input, state_of)
        case flow.Where() | flow.Select():
            return _history(table.input, state_of)
    raise AssertionError(table)


def _count_at_state(below: list[Meter], where: tuple[flow.Node, int], state_of: StateNames) -> list[Meter]:
    """The same, where events that were not counted yet are counted by a state."""
    free = [meter for meter in below if meter.state is None]
    if not free:
        return below
    counted = [meter for meter in below if meter.state is not None]
    sources = tuple(name for meter in free for name in meter.sources)
    meter = Meter(state_of[where], sources, any(meter.changes_numbers for meter in free))
    return [meter, *counted]


def account(view: str, meters_: list[Meter], sources: Counts, states: Counts, staged: Mapping[str, int]) -> Account:
    """What became of an epoch's events on their way to a view, without its corrections."""
    total = Account()
    staged_here = [meter for meter in meters_ if meter.state is None]
    for meter in meters_:
        if meter.state is not None:
            total += _at(view, meter, sources, states.get(meter.state, {}))
    if staged_here:
        every = tuple(name for meter in staged_here for name in meter.sources)
        changes = any(meter.changes_numbers for meter in staged_here)
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
    return Account(came, arrived - late, late, dead, filtered)
