"""`approx_count_distinct` by HyperLogLog: the registers of each group, each with its greatest rank so far.

The input has one row per group and register that the epoch touches. A row is emitted when a rank rises, with the
difference that makes to the two sums of which the estimate is made. Only risen ranks are stored, so a group that has
seen many values costs next to nothing.
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

RANK = "_rank"
RANK_SUM = "_said"  # by how much the sum of 2**-rank changes
USED_REGISTERS = "_used"  # by how much the number of registers with a rank changes


@dataclass(frozen=True, slots=True)
class HyperLogLog(GroupValues):
    """The state holds the greatest rank of each register."""

    rules: ClassVar[dict[str, Rule]] = {COUNT: "sum", RANK: "max"}

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks) -> Outcome:
        registers, before, has_old = self.look_up(changes, arrangement, watermarks, RANK)
        after = integers(registers.batch, RANK)
        # Sums of powers of two are exact, in any order.
        rank_sum = np.exp2(-after.astype(np.float64)) - np.where(has_old, np.exp2(-before.astype(np.float64)), 0.0)
        changed_registers = with_columns(
            registers.batch, {RANK_SUM: rank_sum, USED_REGISTERS: (~has_old).astype(np.int64)}
        )
        rises = after > before
        run = filter_rows(registers.batch.select(self.schema(changes.schema).names), rises)
        return Outcome([filter_rows(changed_registers, rises)], Run(run))
