"""An app over captured tables as one tree of processes that is killed: its views are what the server has."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock import Log
from penstock.derive.views import ViewReader
from penstock.logs import apps_folder
from tests.capture.proof.bank import PEOPLE, TOTAL, PostgresBank
from tests.capture.proof.load import Load
from tests.capture.waiting import is_alive, wait_until
from tests.faults.app_processes import RunningApp, children

PROGRAM = """
from penstock import App, AppSettings

app = App("bank", settings=AppSettings(state_partitions=2))
accounts = app.capture("{url}", table="accounts").drop("committed_at")
savings = app.capture("{url}", table="savings")
items = app.capture("{url}", table="items").drop("committed_at")
both = accounts.select("balance").union(savings.select("balance"))
app.view("total", both.group_by().agg(balance="sum(balance)"))
app.view("wealth", both.group_by().agg(people="count(*)"))
owned = items.with_columns(owner="id % {people} + 1").select(item="id", owner="owner", amount="amount")
joined = owned.join(savings.select(owner="id", balance="balance"), on="owner")
app.view("owned", joined.group_by("owner").agg(items="count(*)", amount="sum(amount)", balance="max(balance)"))
visits = app.topic("visits", schema="visit bigint, id bigint, at timestamp", time="at", lateness="1 hour")
app.view("visited", visits.join(savings, on="id", as_of="at").select("visit", "balance"))
"""
OWNED = f"""
SELECT s.id AS owner, count(*) AS items, sum(i.amount) AS amount, max(s.balance) AS balance
FROM items i JOIN savings s ON i.id % {PEOPLE} + 1 = s.id GROUP BY s.id ORDER BY s.id
"""
AS_OF = """
SELECT visit, balance FROM (
    SELECT visit, balance, row_number() OVER (PARTITION BY visit ORDER BY committed_at DESC, place DESC) AS newest
    FROM visits JOIN history USING (id) WHERE committed_at <= "at"
) WHERE newest = 1 ORDER BY visit
"""


@pytest.fixture
def bank() -> Iterator[PostgresBank]:
    bank = PostgresBank()
    bank.create()
    yield bank
    bank.server.remove()


def kill_tree(app: RunningApp) -> None:
    """`kill -9` of the app, its captures and its JVM; returns when all of them have ended."""
    found, waiting = [app.process.pid], [app.process.pid]
    while waiting:
        below = children(waiting.pop())
        found += below
        waiting += below
    for process in found:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    app.ended()
    for process in found[1:]:
        wait_until(lambda process=process: not is_alive(process), "the end of the children")


class TotalReader:
    """Follows the view of the sum, epoch by epoch. The sum never changes, so neither may the view."""

    def __init__(self, log: Path) -> None:
        self._folder = apps_folder(log) / "bank"
        self._epoch: int | None = None
        self.sums: list[int] = []
        self.epochs = 0

    def look(self) -> None:
        """Read what was committed since the last time."""
        views = ViewReader(self._folder)
        found = views.read("total")
        if self._epoch is not None:
            for change in views.changes("total", after=self._epoch, timeout=0.1):
                self.sums += [row["balance"] for row in change.added]
                self.epochs += 1
        self.sums += [row["balance"] for row in found]
        self._epoch = found.epoch


def visit(log: Path, dice: random.Random, numbers: range) -> None:
    rows = [{"visit": number, "id": dice.randint(1, PEOPLE), "at": datetime.now(UTC)} for number in numbers]
    with Log(log) as opened:
        opened.topic("visits").append(rows)


def as_of_answer(log: Path) -> list[dict[str, Any]]:
    """What DuckDB says each visit saw, from the history of the savings in their topic."""
    import pyarrow as pa

    with Log(log) as opened:
        visits = pa.Table.from_batches([batch.rows for batch in opened.topic("visits").batches()])
        batches = list(opened.topic("savings").batches())
        history = pa.Table.from_batches(
            [batch.rows.append_column("place", pa.array(batch.offsets)) for batch in batches]
        )
    with duckdb.connect() as connection:
        connection.register("visits", visits)
        connection.register("history", history)
        return connection.sql(AS_OF).to_arrow_table().to_pylist()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_views_over_captured_tables_survive_kills_of_the_whole_tree(bank: PostgresBank, tmp_path: Path) -> None:
    log, program = tmp_path / "log", tmp_path / "bank.py"
    program.write_text(PROGRAM.format(url=bank.url, people=PEOPLE))
    dice, load = random.Random(11), Load(bank, 11)
    total = TotalReader(log)
    for kill in range(int(os.environ.get("PENSTOCK_KILLS", "3"))):
        app = RunningApp(program, log)
        try:
            with load.running():
                app.wait_for_epochs(1)  # without a load, one that has nothing left to do would make none
                for number in range(4):
                    app.wait_for_epochs(len(app.epochs) + 1)
                    total.look()
                    visit(log, dice, range(100 * kill + 10 * number, 100 * kill + 10 * number + 10))
                if kill == 1:
                    bank.execute("ALTER TABLE items ADD COLUMN extra0 int", "UPDATE items SET extra0 = 1 WHERE id < 9")
                    load.columns.append("extra0")
                    app.wait_for_epochs(len(app.epochs) + 2)
                kill_tree(app)
        finally:
            kill_tree(app)
    last = RunningApp(program, log, "--once")
    try:
        assert last.ended(600.0) == 0, last.stderr
    finally:
        kill_tree(last)
    total.look()
    assert total.epochs
    assert set(total.sums) == {TOTAL}
    views = ViewReader(apps_folder(log) / "bank")
    owned = views.read("owned", columns=["owner", "items", "amount", "balance"]).to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in owned) == bank.execute(OWNED)
    visited = views.read("visited", columns=["visit", "balance"]).to_arrow().to_pylist()
    assert visited
    assert sorted(visited, key=lambda row: row["visit"]) == as_of_answer(log)
