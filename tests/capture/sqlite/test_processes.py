"""Several processes write, are killed in the middle, and captures are closed and opened again: the copy stays right."""

from __future__ import annotations

import resource
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from penstock.contracts import Captured, SourceOptions
from tests.capture.database_contract import (
    SMALL_CHUNKS,
    assert_equal_to_source,
    catch_up,
    is_heartbeat,
    new_fold,
    opened,
)
from tests.capture.database_fold import Fold
from tests.capture.sqlite.world import SqliteWorld

WRITER = Path(__file__).with_name("writer.py")
MEBIBYTE = 1024


def start_writer(world: SqliteWorld, seed: int, count: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, WRITER, world.path, str(seed), str(count)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    return process


def is_balanced(fold: Fold) -> bool:
    return sum(row["amount"] for row in fold.rows("accounts")) == 0


def follow(world: SqliteWorld, fold: Fold, items: int, options: SourceOptions | None = None) -> None:
    """Apply some items and confirm them; at each position, transactions are whole. Then stop as a crash does."""
    with opened(world, options) as database:
        is_copied = all(copy.state == "complete" for copy in database.copies(fold.position))
        for item, _ in zip(database.read(fold.position), range(items), strict=False):
            fold.add(item)
            if item.position is not None:
                database.confirm(item.position)
                assert not is_copied or is_balanced(fold)
            if is_heartbeat(item):
                break
    fold.forget_open_items()


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_three_processes_write_while_it_is_captured_and_captures_come_and_go(tmp_path: Path, journal_mode: str) -> None:
    world = SqliteWorld(tmp_path / "shop.db", journal_mode=journal_mode)
    with closing(world.connect()) as connection:
        connection.execute("PRAGMA synchronous = OFF")
    processes = [start_writer(world, seed, 60) for seed in range(3)]
    fold, step = new_fold(), 0
    while any(process.poll() is None for process in processes):
        step += 1
        follow(world, fold, items=1 + step % 7, options=SMALL_CHUNKS)
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    catch_up(world, fold)
    assert_equal_to_source(fold, world)
    assert is_balanced(fold)


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_a_writer_that_is_killed_leaves_whole_transactions_only(tmp_path: Path, journal_mode: str) -> None:
    world = SqliteWorld(tmp_path / "shop.db", journal_mode=journal_mode)
    fold = new_fold()
    catch_up(world, fold)
    for seed in range(5):
        process = start_writer(world, seed, 1_000_000)
        follow(world, fold, items=5 + seed)
        process.kill()
        process.communicate()
        catch_up(world, fold)
        assert is_balanced(fold)
        assert_equal_to_source(fold, world)


def test_a_transaction_of_many_rows_is_given_in_flat_memory(tmp_path: Path) -> None:
    check_large_transaction(tmp_path, rows=100_000)


@pytest.mark.long
def test_a_transaction_of_a_million_rows_is_given_in_flat_memory(tmp_path: Path) -> None:
    check_large_transaction(tmp_path, rows=1_000_000)


def check_large_transaction(tmp_path: Path, rows: int) -> None:
    """Follow a large transaction, then copy the table. Neither holds more than a few items at a time."""
    world = SqliteWorld(tmp_path / "shop.db")
    fold = new_fold()
    catch_up(world, fold)
    world.execute(
        f"WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) "
        "INSERT INTO accounts SELECT i, 'a name of some length ' || i, i FROM n"
    )
    before = peak_memory()
    for position in (fold.position, None):
        count, places = 0, 0
        with opened(world) as database:
            end = database.end()
            for item in database.read(position):
                count += len(item.rows) if isinstance(item, Captured) else 0
                if isinstance(item, Captured) and len(item.rows):
                    places += item.position is not None
                    assert item.position is not None or position is not None
                if is_heartbeat(item) and database.has_reached(item.position, end):
                    break
        assert count == rows
        assert places == 1 or position is None
    assert peak_memory() - before < 150 * MEBIBYTE


def peak_memory() -> int:
    """The most memory that this process has ever had, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
