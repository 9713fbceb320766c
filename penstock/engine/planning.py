"""Step 1 of an epoch: choosing its cut. How far to read each source, and how far time has come there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.engine.cut import Backlog, Cut, SourceCut, admit_all, backlogs
from penstock.engine.observe import observe
from penstock.engine.watermark import SourceTime, advance
from penstock.flow import plan as flow
from penstock.flow.settings import AppSettings
from penstock.log import Log
from penstock.log.frame import NO_TIME
from penstock.log.promises import effective
from penstock.log.topic import Topic


@dataclass(frozen=True, slots=True)
class Input:
    """A source of the plan and the topic it names."""

    node: flow.Source
    topic: Topic

    @property
    def timing(self) -> flow.Timing | None:
        return self.node.timing if isinstance(self.node, flow.Topic) else None


def first_cut(inputs: Mapping[str, Input], now: int) -> Cut:
    """The cut before the first epoch: nothing is read yet."""
    sources = {name: _untouched(one) for name, one in inputs.items()}
    return Cut(0, now, sources)


def _untouched(one: Input) -> SourceCut:
    starts = one.topic.starts()
    time = SourceTime() if one.timing else None
    return SourceCut(one.topic.name, one.topic.description.id, starts, starts, time)


def next_cut(
    log: Log,
    inputs: Mapping[str, Input],
    before: Cut,
    settings: AppSettings,
    *,
    now: int,
    until: Mapping[str, SourceCut] | None = None,
) -> Cut:
    """The cut after `before`: as far as the limits allow.

    Of a source that is in `until` it goes no further than that, neither in rows nor in time, and once it has all the
    rows it has the same time.
    """
    bounds = until or {}
    found = backlogs({name: (one.topic, before.sources[name].ends) for name, one in inputs.items()})
    found = {
        name: Backlog(one.topic, one.starts, bounds[name].ends) if name in bounds else one
        for name, one in found.items()
    }
    ends = admit_all(found, max_rows=settings.max_rows, max_bytes=settings.max_bytes)
    sources = {}
    for name, one in inputs.items():
        reached = all(ends[name][number] >= end for number, end in found[name].ends.items())
        caught_up = reached and name not in bounds
        cut = _source_cut(log, one, before.sources[name], ends[name], now=now, caught_up=caught_up)
        sources[name] = _bounded(cut, bounds[name], reached=reached) if name in bounds else cut
    return Cut(before.epoch + 1, now, sources)


def _bounded(cut: SourceCut, bound: SourceCut, *, reached: bool) -> SourceCut:
    if reached or cut.time is None or bound.time is None:
        return replace(cut, time=bound.time if reached else cut.time)
    return replace(cut, time=replace(cut.time, watermark=min(cut.time.watermark, bound.time.watermark)))


def _source_cut(
    log: Log, one: Input, before: SourceCut, ends: dict[int, int], *, now: int, caught_up: bool
) -> SourceCut:
    time = None
    if one.timing is not None:
        seen = observe(one.topic, before.ends, ends, one.timing)
        promises = effective(log.promises(one.topic), ends)
        time = advance(
            before.time or SourceTime(), seen.producers, promises, timing=one.timing, now=now, caught_up=caught_up
        )
    return SourceCut(before.topic, before.topic_id, before.ends, ends, time)


def rows_in(cut: Cut) -> int:
    """About how many rows a cut reads: offsets that a rewrite has emptied count as well."""
    return sum(one.ends[number] - one.starts[number] for one in cut.sources.values() for number in one.starts)


def watermark(cut: Cut, sources: tuple[str, ...]) -> int:
    """The time of a state that reads these sources: that of the one furthest behind."""
    times = [time.watermark for name in sources if (time := cut.sources[name].time) is not None]
    return min(times, default=NO_TIME)
