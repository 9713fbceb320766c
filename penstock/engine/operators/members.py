"""The rows of groups, kept as they are: what operators stand on that need all rows of a group to give an answer.

A row of the input has how often it was added (`_n`), the hashes of its group and one of the whole row. A state holds
what came in: rows lie together by group, and the same row of two runs counts as often as both say.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import DEADLINE, EVENTS, HASH, ROW_HASH, SECOND_HASH, keyed, run_schema
from penstock.engine.operators.sorted_groups import segments
from penstock.engine.state.arrangement import Adding
from penstock.engine.state.columns import COUNT, ID, ORDER
from penstock.engine.state.rows import Numbers, hashes, integers, picked, with_columns
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import NOWHERE, Hashes, Mask, Ordered, Positions, by_key, firsts, positions

MEMBERS = Adding({COUNT: "sum"})
# What a row of the state has beside the columns of the user.
OWN = (ORDER, ID, SECOND_HASH, COUNT)


def members_schema(changes: pa.Schema) -> pa.Schema:
    return run_schema(changes, {}, (HASH, ROW_HASH, EVENTS, DEADLINE))


def members(changes: pa.RecordBatch, order: Hashes) -> Run:
    """The changes as rows of the state: each different row once, without those that change nothing."""
    rows = keyed(changes, order, hashes(changes, ROW_HASH)).select(members_schema(changes.schema).names)
    run = sorted_run(rows)
    begins = firsts(run.order, run.id)
    batch, counts = picked(run.batch, begins), integers(run.batch, COUNT)
    if not begins.all():
        counts = np.add.reduceat(counts, np.flatnonzero(begins))
        batch = with_columns(batch, {COUNT: counts})
    return Run(picked(batch, counts != 0))


def groups(rows: pa.RecordBatch) -> Numbers:
    """The number of each row's group, for rows sorted by group."""
    return segments(integers(rows, ORDER), integers(rows, SECOND_HASH))


def by_group(rows: pa.RecordBatch, *within: Ordered) -> Positions:
    """How to sort rows by group, and those of one group by other columns, the most important first."""
    return by_key(hashes(rows, ORDER), hashes(rows, SECOND_HASH), *within)


def of_groups(rows: Run, some: Run) -> Mask:
    """Which rows are of a group that has one of `some`: groups may share an order."""
    at = by_group(some.batch)
    order, second = some.order[at], hashes(some.batch, SECOND_HASH)[at]
    found: Mask = positions(order, second, rows.order, hashes(rows.batch, SECOND_HASH)) != NOWHERE
    return found


def missing(rows: pa.RecordBatch, others: pa.RecordBatch) -> Mask:
    """Which rows the others do not have."""
    run = sorted_run(others.select([ORDER, ID]))
    lacking: Mask = positions(run.order, run.id, hashes(rows, ORDER), hashes(rows, ID)) == NOWHERE
    return lacking
