"""Step 1 of an epoch: choosing its cut. How far to read each source, and how far time has come there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.contracts import KeepsPromises, Log, Topic
from penstock.engine.plan.admission import Backlog, admit_all, backlogs
from penstock.engine.plan.cut import Cut, Ends, SourceCut
from penstock.engine.plan.observe import observe
from penstock.engine.plan.watermark import SourceTime, advance
from penstock.engine.plan.whole import is_whole, keep_whole
from penstock.flow import plan as flow
from penstock.flow.settings import AppSettings
from penstock.units import NO_TIME

Times = Mapping[str, int]
"""How far time has come for what reads some topics together, by `together(topics)`. It never goes back."""


@dataclass(frozen=True, slots=True)
class Input:
    """A source of the plan and the topic it names.

    `waits_for` are the sources of tables in which its events look up rows: these are read before the first event.
    """

    node: flow.Source
    topic: Topic
    waits_for: frozenset[str] = frozenset()

    @property
    def timing(self) -> flow.Timing | None:
        return self.node.timing if isinstance(self.node, flow.Topic) else None


def together(sources: Iterable[str]) -> str:
    """A name for topics whose watermark is the lowest of them."""
    return ",".join(sorted(sources))


def topics_in(group: str) -> set[str]:
    """The topics that have such a name together."""
    return set(group.split(",")) if group else set()


def latest(times: Times, groups: Iterable[tuple[str, ...]]) -> int:
    """The time of the group of topics where it has come furthest."""
    return max((times.get(together(group), NO_TIME) for group in groups), default=NO_TIME)


def first_cut(inputs: Mapping[str, Input], now: int) -> Cut:
    """The cut before the first epoch: nothing is read yet."""
    sources = {name: _unread_source(input_) for name, input_ in inputs.items()}
    return Cut(0, now, sources)


def _unread_source(input_: Input) -> SourceCut:
    starts = input_.topic.starts()
    time = SourceTime() if input_.timing else None
    return SourceCut(input_.topic.name, input_.topic.id, starts, starts, time)


def next_cut(
    log: Log,
    inputs: Mapping[str, Input],
    before: Cut,
    settings: AppSettings,
    *,
    now: int,
    until: Mapping[str, SourceCut] | None = None,
) -> tuple[Cut, frozenset[str]]:
    """The cut after `before`, as far as the limits allow, and the sources of which it reads all there is.

    Of a source that is in `until` it goes no further than that, neither in rows nor in time, and once it has all the
    rows it has the same time.
    """
    bounds = until or {}
    present = backlogs(log, {name: (input_.topic, before.sources[name].ends) for name, input_ in inputs.items()})
    found = {
        name: replace(backlog, ends=bounds[name].ends) if name in bounds else backlog
        for name, backlog in present.items()
    }
    if found.keys() <= bounds.keys():  # a cut that was whole, as the present ends are
        present = found
    ends = _admit_inputs(inputs, found, settings, {name: backlog.ends for name, backlog in present.items()})
    reached = frozenset(name for name in inputs if _is_whole(found[name], ends[name]))
    sources = {}
    for name, input_ in inputs.items():
        caught_up = name in reached and name not in bounds
        cut = _source_cut(log, input_, before.sources[name], ends[name], now=now, caught_up=caught_up)
        sources[name] = _limit_to_bound(cut, bounds[name], reached=name in reached) if name in bounds else cut
    return Cut(before.epoch + 1, now, sources), reached


def _admit_inputs(
    inputs: Mapping[str, Input], found: Mapping[str, Backlog], settings: AppSettings, present: Mapping[str, Ends]
) -> Mapping[str, Ends]:
    """How far to read, with every transaction of the log whole.

    Events wait for the tables in which they look up rows, unless a transaction has rows of both: then they are read
    together, and tables are only read up to where the limits allow. Whole transactions matter more.
    """
    starts = {name: (backlog.topic, backlog.starts) for name, backlog in found.items()}
    bounds = {name: backlog.ends for name, backlog in found.items()}
    admitted = admit_all(found, max_rows=settings.max_rows, max_bytes=settings.max_bytes)
    ends = keep_whole(starts, admitted, present, bounds)
    held = {
        name: replace(found[name], ends=found[name].starts)
        for name, input_ in inputs.items()
        if _is_unread(input_.topic, found[name])
        and not all(_is_whole(found[each], ends[each]) for each in input_.waits_for & found.keys())
    }
    if held:
        admitted = admit_all({**found, **held}, max_rows=settings.max_rows, max_bytes=settings.max_bytes)
        tables = {name: admitted[name] for name in admitted if name not in held}
        waiting = {**admitted, **keep_whole(starts, tables, present, bounds)}
        if is_whole(starts, waiting, present):
            return waiting
    return ends


def _is_whole(backlog: Backlog, ends: Ends) -> bool:
    return all(ends[number] >= end for number, end in backlog.ends.items())


def _is_unread(topic: Topic, backlog: Backlog) -> bool:
    """Whether nothing was read so far of what the topic has."""
    return all(backlog.starts.get(number, start) <= start for number, start in topic.starts().items())


def _limit_to_bound(cut: SourceCut, bound: SourceCut, *, reached: bool) -> SourceCut:
    if bound.time is None or (cut.time is None and not reached):
        return cut
    if reached or cut.time is None:
        return replace(cut, time=bound.time)
    return replace(cut, time=replace(cut.time, watermark=min(cut.time.watermark, bound.time.watermark)))


def _source_cut(log: Log, input_: Input, before: SourceCut, ends: Ends, *, now: int, caught_up: bool) -> SourceCut:
    time = None
    if input_.timing is not None:
        seen = observe(input_.topic, before.ends, ends, input_.timing)
        promises = log.promised_times(input_.topic.name, ends) if isinstance(log, KeepsPromises) else {}
        time = advance(
            before.time or SourceTime(), seen.producers, promises, timing=input_.timing, now=now, caught_up=caught_up
        )
    return SourceCut(before.topic, before.topic_id, before.ends, ends, time)


def rows_in(cut: Cut) -> int:
    """About how many rows a cut reads: offsets that a rewrite has emptied count as well."""
    return sum(
        source.ends[number] - source.starts[number] for source in cut.sources.values() for number in source.starts
    )


def times_after(groups: Iterable[tuple[str, ...]], before: Times, cut: Cut, reached: frozenset[str]) -> Times:
    """The time of what reads these groups of topics, after an epoch that reads `reached` to the end."""
    return {
        together(group): max(before.get(together(group), NO_TIME), _watermark(cut, group, reached)) for group in groups
    }


def _watermark(cut: Cut, sources: tuple[str, ...], reached: frozenset[str]) -> int:
    """That of the source furthest behind. One that has no event yet, and none waiting, does not hold up the others."""
    times = {name: time.watermark for name in sources if (time := cut.sources[name].time) is not None}
    if any(mark == NO_TIME and name not in reached for name, mark in times.items()):
        return NO_TIME
    return min((mark for mark in times.values() if mark != NO_TIME), default=NO_TIME)
