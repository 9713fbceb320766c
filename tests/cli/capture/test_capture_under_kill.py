"""`kill -9` of a real `penstock capture` process, again and again, while its database changes."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from penstock import Log

Start = Callable[..., subprocess.Popen[str]]
Run = Callable[..., Result]
PAIRS = 50


@dataclass(slots=True)
class Changes:
    """Moves amounts between orders, two rows in each transaction, so that their sum never changes."""

    path: Path
    seed: int
    stop: threading.Event = field(default_factory=threading.Event)
    made: int = 0

    def run(self) -> None:
        chance = random.Random(self.seed)
        connection = sqlite3.connect(self.path, timeout=60)
        while not self.stop.wait(0.002):
            one, two = chance.sample(range(PAIRS), 2)
            with connection:
                connection.execute("update orders set amount = amount - 1, note = note || 'x' where id = ?", (one,))
                connection.execute("update orders set amount = amount + 1 where id = ?", (two,))
                key = 1000 + chance.randrange(20)
                if not connection.execute("delete from people where id = ?", (key,)).rowcount:
                    connection.execute("insert into people values (?, ?)", (key, f"p{self.made}"))
                if chance.random() < 0.01:
                    connection.execute("delete from people")
            self.made += 1
        connection.close()


@pytest.mark.parametrize("kills", [6, pytest.param(300, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_the_copy_equals_the_source_however_often_its_capture_is_killed(
    kills: int, start: Start, run: Run, shop: Path, url: str, folder: Path
) -> None:
    with sqlite3.connect(shop) as connection:
        connection.execute("update orders set amount = 0")
        connection.execute("delete from orders where id >= ?", (PAIRS,))
    connection.close()
    tables = ["--table", "orders", "--table", "people"]
    assert run("capture", url, *tables, "--once").exit_code == 0
    changes = Changes(shop, kills)
    thread = threading.Thread(target=changes.run)
    thread.start()
    chance, looked = random.Random(kills), 0
    try:
        for number in range(kills):
            if number % 3 == 1:
                assert run("capture", "snapshot", "shop").exit_code == 0
            process = start("capture", url, *tables)
            deadline = time.monotonic() + chance.uniform(0.8, 3.0)
            while time.monotonic() < deadline:
                looked += check_whole_transactions(folder)
                time.sleep(0.02)
            assert process.poll() is None, process.communicate()
            process.kill()
            process.communicate()
    finally:
        changes.stop.set()
        thread.join()
    assert run("capture", url, *tables, "--once").exit_code == 0
    verified = run("capture", "verify")
    assert verified.exit_code == 0, verified.output
    assert looked > kills
    assert changes.made > kills


def check_whole_transactions(folder: Path) -> int:
    """What a reader of consistent ends sees has both rows of each transaction, or neither."""
    with Log(folder) as log:
        ends = log.consistent_ends(["orders", "people"])["orders"]
        amounts: dict[int, Any] = {}
        for batch in log.topic("orders").batches(until=ends):
            for row in batch.rows_kept.to_pylist():
                amounts[row["id"]] = row["amount"]
    assert sum(amounts.values()) == 0
    return 1
