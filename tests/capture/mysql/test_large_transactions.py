"""A transaction of a million rows, in memory that does not grow with it."""

from __future__ import annotations

import resource

import pytest

from penstock.contracts import Captured, SourceTable
from tests.capture.database_contract import items_to_end, opened
from tests.capture.mysql.world import MariaDBWorld

MEGABYTE = 1024  # in the units of getrusage


def read_rows(world: MariaDBWorld, position: object) -> tuple[int, int, object]:
    """How many rows come, how many items with rows have a position, and the last position."""
    rows, positions = 0, 0
    with opened(world, None, [SourceTable("t")]) as database:
        end = database.end()
        for item in database.read(position):  # type: ignore[arg-type]
            if isinstance(item, Captured):
                rows += len(item.rows)
                positions += bool(len(item.rows)) and item.position is not None
            if item.position is not None and database.has_reached(item.position, end):
                return rows, positions, item.position
    raise AssertionError("a database never ends")


@pytest.mark.parametrize("rows", [30_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_large_transaction_has_one_position_and_needs_little_memory(world: MariaDBWorld, rows: int) -> None:
    world.execute("CREATE TABLE t (id bigint PRIMARY KEY, name varchar(200))")
    with opened(world, None, [SourceTable("t")]) as database:
        position = items_to_end(database, None)[-1].position
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    world.execute(f"INSERT INTO t SELECT seq, repeat('x', 150) FROM seq_1_to_{rows}")
    found, positions, _ = read_rows(world, position)
    assert found == rows
    assert positions <= 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 * MEGABYTE
