"""Whatever happens to a database and to the capture, the copy equals the database: at the end, and in between wherever
the position says that it is complete."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.capture.copy.position import CopyPosition
from penstock.capture.pump import Progress
from penstock.contracts import SourceOptions
from penstock.testing import MemoryLog
from penstock.testing.memory_database import Change, Delete, MemoryDatabase, Truncate, Upsert
from penstock.testing.memory_position import MemoryPosition
from tests.capture.copy.copied import NAME, Capture, crash, latest_rows

TABLES = {"orders": "shop_orders", "people": "people"}
COLUMNS = ("note", "body")

tables = st.sampled_from(["orders", "orders", "orders", "people"])
keys = st.integers(0, 3)
texts = st.none() | st.sampled_from(["a", "b", "long" * 200])
changes = st.tuples(
    tables,
    keys,
    st.sampled_from(["put", "put", "put", "put", "delete", "truncate"]),
    st.tuples(texts, texts),
    st.sets(st.sampled_from(COLUMNS)),
)
steps = st.lists(
    st.one_of(
        *[st.tuples(st.just("commit"), st.lists(changes, min_size=2, max_size=7))] * 6,
        st.just(("crash", None)),
        st.just(("wait", None)),
        st.tuples(st.just("copy again"), tables),
        st.just(("lose", None)),
        st.just(("delete files", None)),
        st.tuples(st.just("add column"), tables),
    ),
    min_size=4,
    max_size=30,
)
Step = tuple[str, Any]


@dataclass(slots=True)
class World:
    """A database that changes as the steps say, and what it had at each place of its history."""

    database: MemoryDatabase
    capture: Capture
    states: dict[int, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    columns: int = 0

    def changes(self, given_steps: list[Step]) -> Iterator[Callable[[], None]]:
        for what, details in given_steps:
            yield lambda what=what, details=details: self.do(what, details)  # type: ignore[misc]

    def do(self, what: str, details: Any) -> None:
        if what == "commit":
            self.commit(details)
        elif what == "add column":
            self.columns += 1
            self.database.add_column(details, f"extra{self.columns} string", default="x" if self.columns % 2 else None)
            self.remember()
        elif what == "crash":
            crash()
        elif what in ("copy again", "lose"):
            if what == "lose":
                self.database.lose_changes()
            if self.capture.log.position(NAME) is not None:
                self.capture.copy_again(*([details] if what == "copy again" else TABLES))
            crash()
        elif what == "delete files":
            for file in self.capture.folder.glob("*.sqlite*"):
                file.unlink()
            crash()

    def commit(self, details: Any) -> None:
        present = {name: {row["id"]: row for row in self.database.rows(name)} for name in TABLES}
        transaction: list[Change] = []
        for table, key, kind, values, unchanged in details:
            rows = present[table]
            if kind == "truncate":
                transaction.append(Truncate(table))
                rows.clear()
            elif kind == "delete" and key in rows:
                transaction.append(Delete(table, {"id": key}))
                del rows[key]
            elif kind == "put":
                names = frozenset(unchanged if key in rows else ())
                row = {"id": key, **dict(zip(COLUMNS, values, strict=True))}
                transaction.append(Upsert(table, {n: v for n, v in row.items() if n not in names}, names))
                rows[key] = row
        if transaction:
            self.database.commit(*transaction)
            self.remember()

    def remember(self) -> None:
        end = self.database.end()
        assert isinstance(end, int)
        self.states[end] = copy.deepcopy({table: self.database.rows(table) for table in TABLES})

    def check(self, progress: Progress) -> None:
        """The copy after a write."""
        source = CopyPosition.parse(progress.position).source
        assert source is not None
        state = self.states.get(MemoryPosition.parse(source).index)
        for table_copy in self.database.copies(source):
            if table_copy.state == "complete" and state is not None:
                found = latest_rows(self.capture.log.topic(TABLES[table_copy.table]))
                assert _without_nulls(found) == _without_nulls(state[table_copy.table])


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.integers(1, 3), st.integers(1, 8), st.booleans())
def test_the_copy_equals_the_database(
    given_steps: list[Step], chunk_rows: int, batch_rows: int, is_copied_first: bool
) -> None:
    check_copy(given_steps, chunk_rows, batch_rows, is_copied_first=is_copied_first)


@pytest.mark.long
@settings(max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.integers(1, 3), st.integers(1, 8), st.booleans())
def test_the_copy_equals_the_database_many_times(
    given_steps: list[Step], chunk_rows: int, batch_rows: int, is_copied_first: bool
) -> None:
    check_copy(given_steps, chunk_rows, batch_rows, is_copied_first=is_copied_first)


def check_copy(given_steps: list[Step], chunk_rows: int, batch_rows: int, *, is_copied_first: bool) -> None:
    database = MemoryDatabase(SourceOptions(chunk_rows=chunk_rows), idle_seconds=0.0)
    for table in TABLES:
        database.create_table(table, "id long not null, note string, body string", key="id")
    with tempfile.TemporaryDirectory() as folder:
        capture = Capture(MemoryLog(), database.connect, TABLES, Path(folder), batch_rows=batch_rows)
        world = World(database, capture)
        world.remember()
        capture.report = world.check
        world.commit([("orders", 1, "put", ("a", "b"), ()), ("orders", 2, "put", ("a", "long" * 200), ())])
        if is_copied_first:
            capture.run()
        capture.run(world.changes(given_steps))
        for table, topic in TABLES.items():
            found = latest_rows(capture.log.topic(topic))
            assert _without_nulls(found) == _without_nulls(database.rows(table))


def _without_nulls(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A topic has a new column from the first row on that has it."""
    return [{name: value for name, value in row.items() if value is not None} for row in rows]
