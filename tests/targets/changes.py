"""Short ways to write tables of targets and their changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from penstock.contracts import Changes, TargetTable
from penstock.schema.arrow import parse_schema

Row = Mapping[str, object]


def target_table(name: str, schema: str, key: tuple[str, ...] | None = None, version: str = "") -> TargetTable:
    return TargetTable(name, parse_schema(schema), key, version)


def changes(table: TargetTable, weighted: Iterable[tuple[int, Row]]) -> Changes:
    """From pairs of a weight and a row."""
    pairs = list(weighted)
    rows = pa.RecordBatch.from_pylist([dict(row) for _, row in pairs], schema=table.schema)
    return Changes(rows, pa.array([weight for weight, _ in pairs], pa.int64()))


def additions(table: TargetTable, *rows: Row) -> list[Changes]:
    return [changes(table, [(1, row) for row in rows])]


def removals(table: TargetTable, *rows: Row) -> list[Changes]:
    return [changes(table, [(-1, row) for row in rows])]
