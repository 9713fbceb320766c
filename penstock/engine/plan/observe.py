"""What one epoch will read of a topic, as far as time goes: how many rows, whose, how late, and which are ahead.

Summaries of rows tell that without a row being read, where the topic has such. Only where a summary cannot tell - of
rows that are cut in two, of an event from too far ahead, of event times that are corrected - the columns with times are
read.

What carries no credible time says nothing about time: neither how far its producer has come nor that it is alive. So a
producer whose clock has gone wrong is soon left out, instead of holding all others where its clock was last right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.contracts import Batch, Summaries, SummarisesRows, Topic
from penstock.engine.plan.watermark import Seen
from penstock.errors import DeclarationError
from penstock.flow.plan import Timing
from penstock.units import NO_TIME

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# About 73,000 years from 1970, both ways: three such times add up without running over.
_FURTHEST = 2**61
# Rows are looked at in groups of about so many: small batches one by one would cost ten times as much.
_TOGETHER = 64 * 1024


@dataclass(frozen=True, slots=True)
class EventTimes:
    """The event time of each row, in microseconds since 1970. Where `valid` is false the row has none."""

    times: Times
    valid: Mask


@dataclass(frozen=True, slots=True)
class Ahead:
    """Rows of one partition from `start` up to `end` (exclusive), of which `rows` are too far ahead to be believed."""

    partition: int
    start: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True)
class Observed:
    """What lies between two cuts of a topic. Delete markers are rows too; producer 0 is everybody without a name."""

    rows: int
    producers: dict[int, Seen]
    ahead: tuple[Ahead, ...]


def observe(topic: Topic, starts: Mapping[int, int], ends: Mapping[int, int], timing: Timing) -> Observed:
    """Look at the rows from `starts` up to `ends` (exclusive), by partition."""
    tally = _Tally()
    summarised = timing.sent is None and timing.column == topic.settings.time
    for number in sorted(starts):
        start, end = starts[number], ends.get(number, starts[number])
        if start >= end:
            continue
        if summarised and isinstance(topic, SummarisesRows):
            for unclear in _add_summaries(tally, topic.summaries(number, start, end), (start, end), timing):
                _add_rows(tally, topic, number, unclear, timing)
        else:
            _add_rows(tally, topic, number, (start, end), timing)
    return Observed(tally.rows, dict(sorted(tally.producers.items())), tuple(tally.ahead))


def event_times(batch: Batch, timing: Timing) -> EventTimes:
    """The event time of every row of a batch that has the columns of `timing`.

    With `sent`, the clock that told both when the event happened and when it was sent is corrected by the difference
    between when the event was sent and when it was received. A row that lacks one of these has no event time.
    """
    return _event_times(batch.rows, batch.append_time, timing)


def ahead_mask(events: EventTimes, append_time: int | Times, timing: Timing) -> Mask:
    """Which rows are further ahead of when they were stored than is credible. A row without event time is not."""
    ahead: Mask = events.valid & (events.times > append_time + min(timing.max_ahead, _FURTHEST))
    return ahead


def _event_times(rows: pa.RecordBatch, append_time: int | Times, timing: Timing) -> EventTimes:
    occurred, valid = _microseconds(rows, timing.column)
    if timing.sent is None:
        return EventTimes(occurred, valid)
    sent, was_sent = _microseconds(rows, timing.sent)
    received, was_received = (append_time, True) if timing.received is None else _microseconds(rows, timing.received)
    corrected: Times = _clip_times(occurred) + (_clip_times(received) - _clip_times(sent))
    return EventTimes(corrected, valid & was_sent & was_received)


def _microseconds(rows: pa.RecordBatch, name: str) -> tuple[Times, Mask]:
    column = rows.column(name)
    if not pa.types.is_timestamp(column.type):
        raise DeclarationError(
            f"column '{name}': it cannot say when an event happened; it has the type {column.type}",
            hint="name a column of type timestamp",
        )
    times = column.cast(pa.int64()).fill_null(0).to_numpy()  # topics hold all timestamps in microseconds
    return times, column.is_valid().to_numpy(zero_copy_only=False)


def _clip_times(times: int | Times) -> Times:
    return np.clip(times, -_FURTHEST, _FURTHEST)


@dataclass(slots=True)
class _Tally:
    rows: int = 0
    producers: dict[int, Seen] = field(default_factory=dict)
    ahead: list[Ahead] = field(default_factory=list)

    def add_summaries(self, summaries: Summaries) -> None:
        self.rows += int(summaries["rows"].sum())
        timed = summaries[summaries["max_time"] != NO_TIME]
        self._show(timed["producer"], timed["max_time"], timed["append_time"])

    def add_batches(self, batches: Sequence[Batch], timing: Timing) -> None:
        lengths = [len(batch) for batch in batches]
        rows = pa.concat_batches([batch.rows for batch in batches])  # type: ignore[attr-defined]
        append_times = np.repeat([batch.append_time for batch in batches], lengths)
        producers = np.repeat([batch.producer for batch in batches], lengths)
        events = _event_times(rows, append_times, timing)
        ahead = ahead_mask(events, append_times, timing)
        credible = events.valid & ~ahead
        self.rows += rows.num_rows
        self._show(producers[credible], events.times[credible], append_times[credible])
        counts = np.add.reduceat(ahead, np.cumsum([0, *lengths[:-1]]), dtype=np.int64)
        for place in np.flatnonzero(counts).tolist():
            batch = batches[place]
            self._set_aside(Ahead(batch.partition, int(batch.offsets[0]), batch.next_offset, int(counts[place])))

    def _show(self, producers: Times, times: Times, append_times: Times) -> None:
        """Take in credible events: whose, of what time, and when they were stored."""
        if not len(producers):
            return
        order = np.argsort(producers, kind="stable")
        found, first = np.unique(producers[order], return_index=True)
        largest = np.maximum.reduceat(times[order], first)
        last = np.maximum.reduceat(append_times[order], first)
        for producer, max_time, last_append in zip(found.tolist(), largest.tolist(), last.tolist(), strict=True):
            known = self.producers.get(producer, Seen(NO_TIME, NO_TIME))
            self.producers[producer] = Seen(max(known.max_time, max_time), max(known.last_append, last_append))

    def _set_aside(self, ahead: Ahead) -> None:
        last = self.ahead[-1] if self.ahead else None
        if last is not None and (last.partition, last.end) == (ahead.partition, ahead.start):
            self.ahead[-1] = Ahead(last.partition, last.start, ahead.end, last.rows + ahead.rows)
        else:
            self.ahead.append(ahead)


def _add_summaries(
    tally: _Tally, found: Iterator[Summaries], span: tuple[int, int], timing: Timing
) -> Iterator[tuple[int, int]]:
    """Add what summaries tell, and give the ranges of offsets of which they do not tell enough."""
    start, end = span
    for summaries in found:
        clear = _are_clear(summaries, start, end, timing)
        tally.add_summaries(summaries[clear])
        yield from _spans(summaries, ~clear, start, end)
        # Should a rewrite join groups now, the next one may reach back over rows that were counted.
        start = int(summaries["last_offset"][-1]) + 1


def _are_clear(summaries: Summaries, start: int, end: int, timing: Timing) -> Mask:
    """Which groups of rows lie within the range and have nothing from too far ahead: of those a summary is enough."""
    whole = (summaries["base_offset"] >= start) & (summaries["last_offset"] < end)
    clear: Mask = whole & (summaries["max_time"] <= summaries["append_time"] + min(timing.max_ahead, _FURTHEST))
    return clear


def _spans(summaries: Summaries, wanted: Mask, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges of offsets of the wanted groups, one for all that are side by side."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], wanted, [False])).astype(np.int8)))
    for first, after in edges.reshape(-1, 2):
        base, last = summaries["base_offset"][first], summaries["last_offset"][after - 1]
        yield max(int(base), start), min(int(last) + 1, end)


def _add_rows(tally: _Tally, topic: Topic, number: int, span: tuple[int, int], timing: Timing) -> None:
    names = [name for name in (timing.column, timing.sent, timing.received) if name is not None]
    batches = topic.batches({number: span[0]}, until={number: span[1]}, columns=list(dict.fromkeys(names)))
    for group in _groups(batches):
        tally.add_batches(group, timing)


def _groups(batches: Iterator[Batch]) -> Iterator[list[Batch]]:
    held, rows = list[Batch](), 0
    for batch in batches:
        held.append(batch)
        rows += len(batch)
        if rows >= _TOGETHER:
            yield held
            held, rows = [], 0
    if held:
        yield held
