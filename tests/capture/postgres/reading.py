"""Reading a PostgreSQL database in tests, up to a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from penstock.capture.postgres.source import PostgresDatabase
from tests.capture.database_fold import Fold, Item

DEADLINE_SECONDS = 60


def fold_of(database: PostgresDatabase) -> Fold:
    return Fold.of(database.tables())


def follow(database: PostgresDatabase, fold: Fold, is_done: Callable[[Item], object]) -> list[Item]:
    """Apply what comes, confirm it, and close. Items after the last position are forgotten, as in a crash."""
    taken: list[Item] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    with closing(database.read(fold.position)) as items:  # type: ignore[type-var]
        for item in items:
            taken.append(item)
            fold.add(item)
            if item.position is not None:
                database.confirm(item.position)
            if is_done(item):
                break
            assert time.monotonic() < deadline, f"it did not come; the last of {len(taken)} items is {item}"
    fold.forget_open_items()
    return taken


def catch_up(database: PostgresDatabase, fold: Fold) -> list[Item]:
    """Apply all that is committed now, and the copies of all tables."""
    end = database.end()
    return follow(database, fold, lambda item: database.has_reached(fold.position, end))
