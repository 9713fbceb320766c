"""A capture dies at every place in one large transaction, around confirmations, and in copies; then it is complete."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Log
from tests.capture.proof.bank import CAPTURED, Bank
from tests.capture.proof.doomed import Doom
from tests.capture.proof.load import Load
from tests.capture.proof.processes import PATIENCE, ROOT, CaptureProcess, process_environment
from tests.capture.proof.reader import copied_rows


def die(doom: Doom) -> int:
    """Capture everything, dying on the way. How often it died."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.capture.proof.doomed"],
        input=doom.to_line(),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=process_environment(),
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def check(bank: Bank, folder: Path) -> None:
    with Log(folder) as log:
        for table in CAPTURED:
            assert copied_rows(log, table) == bank.rows(table), table


def events(folder: Path) -> int:
    """How many events there are in the topics."""
    with Log(folder) as log:
        return sum(len(batch) for table in CAPTURED for batch in log.topic(table).batches())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["rows", "confirm", "confirmed"])
def test_a_capture_may_die_anywhere_in_large_transactions(bank: Bank, tmp_path: Path, kind: str) -> None:
    """With the same events as a capture that does not die: none is lost, none is doubled."""
    bank.create()
    folders = [tmp_path / "dying", tmp_path / "living"]
    dooms = [Doom(str(folder), bank.url, CAPTURED, kind, most_deaths=0) for folder in folders]
    for doom in dooms:
        die(doom)
    load = Load(bank, seed=7)
    for number in range(3):
        load.write_large_transaction(random.Random(number), rows=4_000)
    deaths = die(Doom(str(folders[0]), bank.url, CAPTURED, kind, most_deaths=200))
    die(dooms[1])
    assert deaths >= (3 if kind == "rows" else 1)
    check(bank, folders[0])
    check(bank, folders[1])
    assert events(folders[0]) == events(folders[1])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["rows", "event", "confirm"])
def test_a_copy_may_die_at_each_of_its_chunks(bank: Bank, tmp_path: Path, kind: str) -> None:
    bank.create()
    with Load(bank, seed=5).running():
        doom = Doom(str(tmp_path / "log"), bank.url, CAPTURED, kind, again=True, step=2, chunk_rows=150, most_deaths=15)
        assert die(doom) >= 3
    die(Doom(str(tmp_path / "log"), bank.url, CAPTURED, kind, most_deaths=0))
    check(bank, tmp_path / "log")


@pytest.mark.timeout(600)
def test_a_copy_that_is_taken_again_may_die_at_each_of_its_chunks(bank: Bank, tmp_path: Path) -> None:
    bank.create()
    capture = CaptureProcess(tmp_path / "log", bank.url, CAPTURED)
    try:
        capture.catch_up()
        bank.execute("DELETE FROM items WHERE id > 2000", "UPDATE items SET amount = 5 WHERE id < 1000")
        capture.snapshot("items")
        doom = Doom(
            str(tmp_path / "log"), bank.url, CAPTURED, "rows", again=True, step=2, chunk_rows=100, most_deaths=15
        )
        assert die(doom) >= 5
        check(bank, tmp_path / "log")
        verified = capture.verify()
        assert verified.returncode == 0, verified.stdout + verified.stderr
    finally:
        capture.close()
