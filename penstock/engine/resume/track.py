"""A track: some outputs of an app on their way along the log, with the cut, the states and the views they have reached.

An app has one, which is live. While outputs that changed are built again, it has a second one for the backfill, which
starts at the beginning of the log and ends where the live one is; then the two become one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.engine.build.outputs import growth_of
from penstock.engine.ledger.records import Account, GroupWatermarks, States, StoredView, TrackRecord, Versions
from penstock.engine.plan.cut import Cut
from penstock.engine.plan.last_end import last_end, newest_times
from penstock.engine.plan.next_cut import Input, latest, times_after, together
from penstock.engine.plan.watermark import finish
from penstock.engine.publish.accounts import account, count_corrected, meters
from penstock.engine.run.compiled import CompiledPlan, EpochResult
from penstock.flow import plan as flow
from penstock.flow.lateness import timed_sources
from penstock.schema.arrow import parse_schema
from penstock.schema.ddl import to_ddl
from penstock.units import NO_TIME

# Where any moment may be an end, silence makes an epoch this often, in microseconds.
TICK = 1_000_000


@dataclass(frozen=True, slots=True)
class Track:
    """Where some outputs are: everything up to `cut` is in `states`, `views` and `accounts`; `times` are its clocks.

    `views` are the runs of each view.
    """

    engine: CompiledPlan
    plan: flow.Plan
    inputs: Mapping[str, Input]
    cut: Cut
    times: GroupWatermarks
    states: States
    views: States
    accounts: Mapping[str, Account]

    def after(self, cut: Cut, times: GroupWatermarks, ran: EpochResult) -> Track:
        """The track after an epoch."""
        totals = {
            name: self.accounts.get(name, Account()) + account for name, account in self.epoch_accounts(ran).items()
        }
        # Of topics that are no longer read together the time is forgotten: it would stand still, and be wrong later on.
        groups = set(map(together, self.timed_groups()))
        current = {group: time for group, time in self.times.items() if group in groups}
        clocks = {**current, **times}
        return replace(self, cut=cut, times=clocks, states=ran.states, views=ran.views, accounts=totals)

    def epoch_accounts(self, ran: EpochResult) -> dict[str, Account]:
        """What became of the events of one epoch, by view and sink."""
        states = self.engine.states().values()
        state_of = {
            (state.node, state.input): state.name
            for state in states
            if "events" in ran.state_counts.get(state.name, {})
        }
        corrected_by = dict[flow.Node, int]()
        for state in states:  # those of one node see the same answers
            count = ran.state_counts.get(state.name, {}).get("corrected", 0)
            corrected_by[state.node] = max(count, corrected_by.get(state.node, 0))
        accounts = {}
        for output in self.plan.outputs:
            places = meters(output.node, state_of)
            events = account(output.name, places, ran.source_counts, ran.state_counts, ran.events)
            accounts[output.name] = replace(events, corrected=count_corrected(output.node, corrected_by))
        return accounts

    def timed_groups(self) -> set[tuple[str, ...]]:
        """The topics that are read together, whose time is one."""
        groups = {state.sources for state in self.engine.states().values()}
        return groups | {timed_sources(output.node) for output in self.plan.outputs}

    def closes_something(self, cut: Cut, times: GroupWatermarks) -> bool:
        """Whether a window may end because time has moved on, though nothing has come in."""
        newest = newest_times(cut)
        for state in self.engine.states().values():
            then, now = state.watermark_at(self.times), state.watermark_at(times)
            if then < min(now, last_end(state.node, newest)) and _may_end(state.node, then, now):
                return True
        return False

    def finished_cut(self, now: int) -> tuple[Cut, GroupWatermarks]:
        """The cut and the clocks after an epoch that reads nothing and ends every window that holds an event so far.

        The watermark of a topic moves to the end of the last window that its events are in, and no further, so that
        windows after that one are not affected. Topics without events have no time, and hold nobody up.
        """
        newest, ends = newest_times(self.cut), dict[str, int]()
        for state in self.engine.states().values():
            end = last_end(state.node, newest)
            for name in state.sources if end != NO_TIME else ():
                ends[name] = max(ends.get(name, NO_TIME), end + state.delay)
        sources = {
            name: replace(source, starts=source.ends, time=finish(source.time, ends.get(name, NO_TIME)))
            for name, source in self.cut.sources.items()
        }
        cut = replace(self.cut, wall=now, sources=sources)
        return cut, times_after(self.timed_groups(), self.times, cut, frozenset(sources))

    def outputs_of(self, node: flow.Node) -> str:
        """The views and sinks that a node is part of."""
        names = [output.name for output in self.plan.outputs if node in flow.upstream(output.node)]
        return ", ".join(names)

    def to_record(self, versions: Versions) -> TrackRecord:
        schemas = self.engine.build().outputs if self.plan.outputs else {}
        return TrackRecord(
            self.cut,
            self.times,
            {output.name: versions[output.name] for output in self.plan.outputs},
            self.states,
            {view.name: self._stored_view(view, schemas[view.name], versions[view.name]) for view in self.plan.views},
            self.accounts,
        )

    def _stored_view(self, view: flow.View, schema: pa.Schema, version: str) -> StoredView:
        shape, time = view.node.shape, latest(self.times, [timed_sources(view.node)])
        return StoredView(
            version,
            to_ddl(parse_schema(schema)),
            shape.key,
            growth_of(shape),
            self.views.get(view.name, {}),
            None if time == NO_TIME else time,
        )


def _may_end(node: flow.Node, then: int, now: int) -> bool:
    """Whether an answer that waits for an end can be given between two moments."""
    if isinstance(node, flow.TimedJoin):
        return node.how not in ("inner", "semi") and now // TICK > then // TICK
    if not isinstance(node, flow.Aggregate) or node.windowing is None or node.windowing.emit != "final":
        return False
    match node.windowing.window:
        case flow.Tumbling(size, offset, None):
            return (now - offset) // size > (then - offset) // size
        case flow.Hopping(size, every, offset, None):
            return (now - offset - size) // every > (then - offset - size) // every
        case _:
            return now // TICK > then // TICK
