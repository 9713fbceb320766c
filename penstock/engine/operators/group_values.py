"""States with one row per value of a group: what `count(distinct x)` and `approx_count_distinct(x)` have in common.

The input has one row per group and value that the epoch touches; its hashes are those of group and value. To a
HyperLogLog the values are registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.engine.operators.contract import Watermarks, hashes_of, old_numbers, with_run_key
from penstock.engine.operators.windows import END, WindowOrder, group_order, late_windows, window_expiry
from penstock.engine.state.arrangement import Adding, Arrangement
from penstock.engine.state.columns import ID, ORDER
from penstock.engine.state.combine import Rule
from penstock.engine.state.rows import Numbers, filter_rows
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import Mask


@dataclass(frozen=True, slots=True)
class GroupValues:
    """`rules` has the columns of the state. `window` is that of the groups; None for groups that never expire."""

    rules: ClassVar[dict[str, Rule]]
    state: str
    window: WindowOrder | None = None

    @property
    def kind(self) -> Adding:
        return Adding(self.rules)

    def schema(self, changes: pa.Schema) -> pa.Schema:
        columns = [*self.rules, *([END] if self.window else []), ORDER, ID]
        return pa.schema([(name, pa.int64()) for name in columns])

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return window_expiry(self.window, rows)

    def look_up(
        self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks, name: str
    ) -> tuple[Run, Numbers, Mask]:
        """The values that the epoch touches, but for late ones; their old numbers in column `name`; which had any."""
        changes = filter_rows(changes, ~late_windows(self.window, changes, watermarks.before))
        _, second = hashes_of(changes)
        values = sorted_run(with_run_key(changes, group_order(self.window, changes), second))
        old, has_old = arrangement.look_up(values.order, values.id)
        return values, old_numbers(old, has_old, name), has_old
