"""`count(distinct x)`: the values of each group, with their counts.

The input has one row per group and value that the epoch touches, with its count. A row is emitted when a value is new
to its group (+1) or has left it (-1). The number of distinct values is the sum of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import Outcome, Watermarks
from penstock.engine.operators.group_values import GroupValues
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.columns import COUNT
from penstock.engine.state.combine import Rule
from penstock.engine.state.rows import filter_rows, integers, with_columns
from penstock.engine.state.run import Run

DELTA = "_delta"


@dataclass(frozen=True, slots=True)
class CountDistinct(GroupValues):
    """The state holds the count of each value."""

    rules: ClassVar[dict[str, Rule]] = {COUNT: "sum"}

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks) -> Outcome:
        values, before, _ = self.look_up(changes, arrangement, watermarks, COUNT)
        added_counts = integers(values.batch, COUNT)
        delta = (before + added_counts > 0).astype(np.int64) - (before > 0).astype(np.int64)
        output = filter_rows(with_columns(values.batch, {DELTA: delta}), delta != 0)
        run = filter_rows(values.batch.select(self.schema(changes.schema).names), added_counts != 0)
        return Outcome([output], Run(run))
