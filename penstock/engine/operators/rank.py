"""The first rows of each group in an order, with their ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.operators.contract import (
    HASH,
    SECOND_HASH,
    WEIGHT,
    Outcome,
    Times,
    hashes_of,
    integers,
    with_columns,
    without_columns,
)
from penstock.engine.operators.regroup import ROW_HASH
from penstock.engine.operators.segments import segments
from penstock.engine.state.arrangement import WEIGHT as COUNT
from penstock.engine.state.arrangement import Adding, Arrangement, Keep
from penstock.engine.state.run import ID, ORDER, Hashes, Run, hashes, sorted_run
from penstock.engine.state.search import NOWHERE, firsts, positions

RANK = "rank"
COPIES = "_copies"


@dataclass(frozen=True, slots=True)
class Rank:
    """`order` names columns and says which of them descend; `ties`: rows equal in them share a rank.

    With `grows` no row is ever taken away, and only rows among the first `count` are kept.
    """

    state: str
    count: int
    order: tuple[tuple[str, bool], ...]
    ties: bool
    grows: bool

    @property
    def kind(self) -> Adding:
        return Adding({COUNT: "sum"})

    def schema(self, changes: pa.Schema) -> pa.Schema:
        fields = [pa.field(one.name, one.type) for one in changes if one.name not in (HASH, ROW_HASH)]
        return pa.schema([*fields, pa.field(ORDER, pa.int64()), pa.field(ID, pa.int64())])

    def keep(self, times: Times) -> Keep | None:
        return None

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        first, _ = hashes_of(changes)
        rows = with_columns(changes, {ORDER: first.view(np.int64), ID: changes.column(ROW_HASH)})
        part = sorted_run(rows.select(self.schema(changes.schema).names))
        before = arrangement.of_orders(np.unique(part.order))
        after = self.kind.merged(before, part)
        old, new = self._ranked(before.batch), self._ranked(after.batch)
        output = _difference(old, new)
        run = sorted_run(_moves(before, after, new)) if self.grows else part
        return Outcome(output, run, {"events": int(np.abs(integers(changes, COUNT)).sum())})

    def _ranked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows among the first of their group, with their rank; one that is there twice stands twice."""
        keys = [(ORDER, "ascending"), (SECOND_HASH, "ascending")]
        keys += [(name, "descending" if descends else "ascending") for name, descends in self.order]
        rows = rows.take(pc.sort_indices(rows, sort_keys=[*keys, (ID, "ascending")]))
        copies = integers(rows, COUNT)
        if not self.ties:
            rows = rows.take(pa.array(np.repeat(np.arange(rows.num_rows), np.minimum(copies, self.count))))
            copies = np.ones(rows.num_rows, dtype=np.int64)
        group = segments(integers(rows, ORDER), integers(rows, SECOND_HASH))
        rank = self._ranks(rows, group)
        return with_columns(rows, {RANK: rank.astype(np.int32), COPIES: copies}).filter(pa.array(rank <= self.count))

    def _ranks(self, rows: pa.RecordBatch, group: np.ndarray) -> np.ndarray:
        begins = np.flatnonzero(firsts(group))
        if not self.ties:
            return np.arange(rows.num_rows) - begins[group] + 1 if rows.num_rows else group
        if not rows.num_rows:
            return group
        ahead = np.cumsum(integers(rows, COUNT)) - integers(rows, COUNT)
        place = ahead - ahead[begins][group]
        equal = [_codes(rows.column(name)) for name, _ in self.order]
        leaders = np.flatnonzero(firsts(group, *equal))
        leader = np.repeat(leaders, np.diff(np.append(leaders, rows.num_rows)))
        return place[leader] + 1


def _codes(column: pa.Array) -> np.ndarray:
    """Numbers that are equal where the values are."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False)


def _difference(old: pa.RecordBatch, new: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The old ranked rows taken back and the new ones given, without those that are the same in both."""
    old_key, new_key = _ranked_id(old), _ranked_id(new)
    gone, come = ~np.isin(old_key, new_key), ~np.isin(new_key, old_key)
    return [_weighted(old.filter(pa.array(gone)), -1), _weighted(new.filter(pa.array(come)), 1)]


def _ranked_id(rows: pa.RecordBatch) -> Hashes:
    """Tells rows apart, with their ranks and how often they are there."""
    mixed = hashes(rows, ID) ^ (hashes(rows, ORDER) * np.uint64(0x9E3779B97F4A7C15))
    for column, factor in ((RANK, 0xBF58476D1CE4E5B9), (COPIES, 0x94D049BB133111EB)):
        mixed = mixed + integers(rows, column).astype(np.int64).view(np.uint64) * np.uint64(factor)
    return mixed


def _weighted(rows: pa.RecordBatch, sign: int) -> pa.RecordBatch:
    bare = without_columns(rows, ORDER, ID, SECOND_HASH, COUNT, COPIES)
    return with_columns(bare, {WEIGHT: sign * integers(rows, COPIES)})


def _moves(before: Run, after: Run, ranked: pa.RecordBatch) -> pa.RecordBatch:
    """What makes the state hold exactly the ranked rows: those that are new, and takings of those that fell out."""
    unique = ranked.take(pa.array(np.sort(np.unique(hashes(ranked, ID), return_index=True)[1])))
    at = positions(before.order, before.id, hashes(unique, ORDER), hashes(unique, ID))
    was = np.where(at == NOWHERE, 0, integers(before.batch, COUNT)[at] if before.rows else 0)
    more = integers(unique, COUNT) - was
    arrived = without_columns(with_columns(unique, {COUNT: more}), RANK, COPIES).filter(pa.array(more != 0))
    left = ~np.isin(before.id, hashes(unique, ID))
    fallen = before.batch.filter(pa.array(left))
    fallen = with_columns(fallen, {COUNT: -integers(fallen, COUNT)})
    return pa.concat_batches([arrived, fallen.cast(arrived.schema)])
