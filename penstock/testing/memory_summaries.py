"""Summaries of the rows of a log in memory. See `contracts.SummarisesRows`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from penstock.contracts import Batch, Summaries
from penstock.units import NO_TIME

_FIELDS = ("base_offset", "last_offset", "rows", "producer", "append_time", "min_time", "max_time", "transaction")
SUMMARY = np.dtype([(name, np.int64) for name in _FIELDS])


def summarise(batches: Iterable[tuple[Batch, int]], time: str | None) -> Summaries:
    """A record for each batch and the number of its transaction. `time` is the column of event times, if any."""
    return np.array([_summary(batch, transaction, time) for batch, transaction in batches], dtype=SUMMARY)


def _summary(batch: Batch, transaction: int, time: str | None) -> tuple[int, ...]:
    times = np.empty(0, np.int64)
    if time is not None:
        times = batch.rows.column(time).cast(pa.int64()).drop_null().to_numpy()
    return (
        int(batch.offsets[0]),
        batch.next_offset - 1,
        len(batch),
        batch.producer,
        batch.append_time,
        int(times.min()) if len(times) else NO_TIME,
        int(times.max()) if len(times) else NO_TIME,
        transaction,
    )
