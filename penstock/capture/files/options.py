"""How an input is read, as plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from penstock.capture.files.earlier_records import EarlierRecords
from penstock.capture.files.records import Record
from penstock.capture.files.value_readers import TimeUnit
from penstock.contracts import Rows

Fit: TypeAlias = Callable[[Rows], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How CSV is written. `nulls` are the texts that mean null; without any, an empty field does.

    `header`: the first line names the columns. Without it, `FileOptions.columns` does.
    """

    delimiter: str = ","
    header: bool = True
    nulls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How an input is read.

    - `columns`: only these columns of the input are taken; without any, all. In CSV without a header they name the
      fields, and an empty name leaves a field out.
    - `time_unit`: what a number in a timestamp column counts, since 1970. Without it such a number is refused.
    - `fit` converts rows to those of their topic, or raises RowError. Without it rows are given as they are, and the
      topic refuses bad ones.
    - `on_bad` is called with every bad record, which is then left out. Without it the first bad record is raised, after
      everything before it was given.
    - `earlier` knows which records an earlier version of Penstock has stored.
    """

    csv: CsvOptions | None = None  # without it, JSON lines
    columns: tuple[str, ...] = ()
    time_unit: TimeUnit | None = None
    batch_rows: int = 5_000
    deletes: bool = False  # the rows are keys to be deleted
    fit: Fit | None = None
    on_bad: Callable[[Record], None] | None = None
    on_bytes: Callable[[int], None] = lambda count: None
    earlier: EarlierRecords | None = None
