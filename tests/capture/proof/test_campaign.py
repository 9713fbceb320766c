"""Campaigns: a capture is killed again and again, and so is its server, while a load changes everything."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from penstock import Log
from tests.capture.proof.bank import CAPTURED, Bank
from tests.capture.proof.load import Load
from tests.capture.proof.processes import CaptureProcess
from tests.capture.proof.reader import SumReader, captured_versions, copied_rows
from tests.capture.waiting import wait_until


class Campaign:
    """One load, one capture, one reader."""

    def __init__(self, bank: Bank, folder: Path, seed: int, *, copies_again: bool = True) -> None:
        self.bank, self.copies_again = bank, copies_again
        self.dice = random.Random(seed)
        self.load = Load(bank, seed)
        self.capture = CaptureProcess(folder / "log", bank.url, CAPTURED)
        self.reader = SumReader(folder / "log", "bank")
        self.done: list[str] = []

    def run(self, kills: int) -> None:
        self.bank.create()
        try:
            with self.reader.running(), self.load.running():
                self.capture.start()
                wait_until(self.reader.are_copied, "the first copies", while_=self.capture.is_running)
                self.load.record.set()
                for number in range(kills):
                    self._disturb(number)
                    self.capture.kill_within(self.dice.uniform(0.3, 4.0))
                    self.capture.start()
                self.capture.kill_within(2.0)
            self.capture.catch_up()
            self.check()
        finally:
            self.capture.close()

    def _disturb(self, number: int) -> None:
        disturbances = [self._write_large, self._kill_server, self._truncate, self._add_column]
        disturbances += [self._copy_again] * self.copies_again
        rare = [self._restart_server, self._do_nothing, self._do_nothing]
        # The first of each in any campaign, then at random.
        chosen = disturbances[number] if number < len(disturbances) else self.dice.choice(disturbances + rare)
        self.done.append(chosen.__name__)
        chosen()

    def _do_nothing(self) -> None:
        pass

    def _write_large(self) -> None:
        self.load.write_large_transaction(self.dice)

    def _kill_server(self) -> None:
        self.bank.server.kill()
        self.bank.server.start()

    def _restart_server(self) -> None:
        self.bank.server.stop()
        self.bank.server.start()

    def _copy_again(self) -> None:
        self.capture.snapshot("items")

    def _truncate(self) -> None:
        self.bank.execute("TRUNCATE TABLE items")

    def _add_column(self) -> None:
        name = f"extra{len(self.load.columns)}"
        # Rows that exist get a default without being changed, so the table is copied again.
        default = self.dice.choice(("", "DEFAULT 7")) if self.copies_again else ""
        self.bank.execute(f"ALTER TABLE items ADD COLUMN {name} int {default}")
        self.load.columns.append(name)

    def check(self) -> None:
        verified = self.capture.verify()
        assert verified.returncode == 0, verified.stdout + verified.stderr
        with Log(self.capture.log) as log:
            for table in CAPTURED:
                in_order = table != "items" or not self.copies_again
                assert copied_rows(log, table, in_order=in_order) == self.bank.rows(table), table
            found = captured_versions(log, "accounts") + captured_versions(log, "savings")
        recorded = {tuple(row) for row in self.bank.execute("SELECT id, version FROM history")}
        wrong = {change: found[change] for change in recorded if found[change] != 1}
        assert recorded
        assert not wrong, f"how often changes came that should be there once: {wrong}"
        assert self.reader.states > 0


@pytest.mark.timeout(900)
def test_a_copy_equals_its_source_whatever_is_killed(bank: Bank, tmp_path: Path) -> None:
    Campaign(bank, tmp_path, seed=1).run(kills=5)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(2, 5))
def test_a_copy_equals_its_source_after_hundreds_of_kills(bank: Bank, tmp_path: Path, seed: int) -> None:
    campaign = Campaign(bank, tmp_path, seed, copies_again=seed % 2 == 0)
    campaign.run(kills=int(os.environ.get("PENSTOCK_KILLS", "100")))
