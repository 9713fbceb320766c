"""States that hold the rows of groups, for operators that need all rows of a group to compute its answer.

A row of the input has a count (`_n`), the hashes of its group and a hash of all its columns. The state holds the rows
sorted by group; the counts of the same row in several runs add up.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import DEADLINE, EVENTS, HASH, ROW_HASH, SECOND_HASH, run_schema, with_run_key
from penstock.engine.operators.sorted_groups import group_numbers, search_in_groups
from penstock.engine.state.arrangement import Adding
from penstock.engine.state.columns import COUNT, ID, ORDER
from penstock.engine.state.rows import Numbers, filter_rows, hashes, integers, with_columns
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import NOWHERE, Hashes, Mask, Ordered, Positions, argsort_by_key, firsts, positions

MEMBERS = Adding({COUNT: "sum"})
# The columns of the state in addition to those of the user.
STATE_COLUMNS = (ORDER, ID, SECOND_HASH, COUNT)


class MemberState:
    """What states that hold the rows of groups have in common."""

    __slots__ = ()

    @property
    def kind(self) -> Adding:
        return MEMBERS

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return members_schema(changes)


def members_schema(changes: pa.Schema) -> pa.Schema:
    return run_schema(changes, {}, (HASH, ROW_HASH, EVENTS, DEADLINE))


def member_run(changes: pa.RecordBatch, order: Hashes) -> Run:
    """The changes as a run of the state: each different row once, with its count, without those that cancel out."""
    rows = with_run_key(changes, order, hashes(changes, ROW_HASH)).select(members_schema(changes.schema).names)
    run = sorted_run(rows)
    begins = firsts(run.order, run.id)
    batch, counts = filter_rows(run.batch, begins), integers(run.batch, COUNT)
    if not begins.all():
        counts = np.add.reduceat(counts, np.flatnonzero(begins))
        batch = with_columns(batch, {COUNT: counts})
    return Run(filter_rows(batch, counts != 0))


def member_groups(rows: pa.RecordBatch) -> Numbers:
    """For each row the number of its group; the rows must be sorted by group."""
    return group_numbers(integers(rows, ORDER), integers(rows, SECOND_HASH))


def argsort_by_group(rows: pa.RecordBatch, *within: Ordered) -> Positions:
    """The permutation that sorts rows by group, and those of the same group by further columns in turn."""
    return argsort_by_key(hashes(rows, ORDER), hashes(rows, SECOND_HASH), *within)


def in_groups_of(rows: Run, others: Run) -> Mask:
    """Which rows are in the same group as one of the `others`. The order alone does not tell: groups may share it."""
    at = argsort_by_group(others.batch)
    order, second = others.order[at], hashes(others.batch, SECOND_HASH)[at]
    is_in_group: Mask = positions(order, second, rows.order, hashes(rows.batch, SECOND_HASH)) != NOWHERE
    return is_in_group


class TimeIndex:
    """Finds the rows of a group by time, among rows sorted by group and time."""

    def __init__(self, order: Hashes, second: Hashes, moments: Numbers) -> None:
        begins = firsts(order, second)
        self._order, self._second = order[begins], second[begins]
        self._group, self._moments = np.cumsum(begins) - 1, moments
        self._starts = np.append(np.flatnonzero(begins), len(begins))

    def groups_of(self, rows: Run) -> Positions:
        """For rows of another side the number of the group with their key; NOWHERE if there is none."""
        return positions(self._order, self._second, rows.order, hashes(rows.batch, SECOND_HASH))

    def starts_of(self, group: Positions) -> Positions:
        """The position of the first row of each of these groups."""
        starts: Positions = self._starts[group]
        return starts

    def find(self, group: Positions, moments: Numbers, side: Literal["left", "right"]) -> Positions:
        """Like `searchsorted` by time, each search in a group of its own."""
        return search_in_groups(self._group, self._moments, group, moments, side)


def missing_from(rows: pa.RecordBatch, others: pa.RecordBatch) -> Mask:
    """Which rows are not among the others."""
    run = sorted_run(others.select([ORDER, ID]))
    absent: Mask = positions(run.order, run.id, hashes(rows, ORDER), hashes(rows, ID)) == NOWHERE
    return absent
