"""What goes wrong around a capture: its server, the way to it, its log, its slot, its password, a second capture."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock import Log
from tests.capture.proof.bank import CAPTURED, Bank, MariaDBBank, PostgresBank
from tests.capture.proof.load import Load
from tests.capture.proof.processes import CaptureProcess
from tests.capture.proof.reader import SumReader, copied_rows
from tests.capture.waiting import wait_until
from tests.servers.wire import Wire


@pytest.fixture
def capture(bank: Bank, tmp_path: Path) -> Iterator[CaptureProcess]:
    bank.create()
    with closing(CaptureProcess(tmp_path / "log", bank.url, CAPTURED)) as capture:
        yield capture


def wait_for_state(capture: CaptureProcess, *states: str) -> None:
    wait_until(lambda: capture.state() in states, f"{states}: {capture.output()}", while_=capture.is_running)


def check(bank: Bank, capture: CaptureProcess) -> None:
    """Catch up, and compare."""
    capture.kill()
    capture.catch_up()
    with Log(capture.log) as log:
        for table in CAPTURED:
            assert copied_rows(log, table) == bank.rows(table), table
    assert capture.verify().returncode == 0


@pytest.mark.timeout(300)
def test_a_capture_continues_when_the_network_is_cut_and_mended(bank: Bank, tmp_path: Path) -> None:
    bank.create()
    reader = SumReader(tmp_path / "log", "bank")
    with closing(Wire(bank.server.port)) as wire:
        url = bank.url.replace(f":{urlsplit(bank.url).port}/", f":{wire.port}/")
        with (
            closing(CaptureProcess(tmp_path / "log", url, CAPTURED)) as capture,
            reader.running(),
            Load(bank, 3).running(),
        ):
            capture.start()
            wait_until(reader.are_copied, "the first copies", while_=capture.is_running)
            for _ in range(3):
                wire.cut()
                wait_for_state(capture, "waiting")
                seen = reader.states
                wire.mend()
                wait_until(lambda seen=seen: reader.states > seen, "new states", while_=capture.is_running)
        with closing(CaptureProcess(tmp_path / "log", bank.url, CAPTURED)) as capture:
            check(bank, capture)


@pytest.mark.timeout(300)
def test_a_second_capture_of_a_name_replaces_the_first_which_says_so(bank: Bank, capture: CaptureProcess) -> None:
    with closing(CaptureProcess(capture.log, bank.url, CAPTURED)) as second, Load(bank, 4).running():
        capture.start()
        wait_for_state(capture, "following")
        second.start()
        assert capture.ended() != 0
        assert "another process captures under this name" in capture.output()
        wait_for_state(second, "following")
        assert second.is_running()
        assert capture.status()["process"] == second.process
    check(bank, capture)


@pytest.mark.timeout(300)
def test_a_log_that_is_locked_for_a_while_loses_and_doubles_nothing(bank: Bank, capture: CaptureProcess) -> None:
    load = Load(bank, 5)
    with load.running():
        capture.start()
        wait_for_state(capture, "following")
        with stopped(capture):
            before = load.commits
            load.write_large_transaction(random.Random(1), rows=10_000)
            wait_until(lambda: load.commits > before + 50, "commits that the capture does not see")
    check(bank, capture)


@contextmanager
def stopped(capture: CaptureProcess) -> Iterator[None]:
    """The process stands still, as one does whose disk or machine does not answer."""
    assert capture.process is not None
    os.kill(capture.process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(capture.process, signal.SIGCONT)


@pytest.mark.timeout(300)
def test_a_capture_whose_disk_is_full_continues_when_there_is_room(bank: Bank, capture: CaptureProcess) -> None:
    """With a limit on the size of files, as a disk that is full refuses to write."""
    capture.catch_up()
    Load(bank, 6).write_large_transaction(random.Random(6), rows=20_000)
    capture.start("--once", file_bytes=300_000)
    wait_until(lambda: not capture.is_running() or capture.state() == "waiting", "it notices that the disk is full")
    assert capture.state() in ("waiting", "failed"), capture.output()
    check(bank, capture)


@pytest.mark.timeout(300)
def test_a_changed_password_is_waited_for_or_told(bank: Bank, tmp_path: Path) -> None:
    if isinstance(bank, PostgresBank):
        pytest.skip("its test server trusts everybody")
    bank.create()
    with closing(CaptureProcess(tmp_path / "log", bank.url, CAPTURED)) as capture, Load(bank, 8).running():
        capture.start()
        wait_for_state(capture, "following")
        bank.server.execute("SET PASSWORD FOR capture@'%' = PASSWORD('other')")
        for (number,) in bank.server.execute("SELECT id FROM information_schema.processlist WHERE user = 'capture'"):
            with suppress(*bank.errors):
                bank.server.execute(f"KILL {number}")
        wait_until(lambda: not capture.is_running() or capture.state() == "waiting", "it notices")
        assert "s3cret" not in capture.output()
        bank.server.execute("SET PASSWORD FOR capture@'%' = PASSWORD('s3cret-p4ss')")
        if not capture.is_running():
            capture.start()
        wait_for_state(capture, "following")
    with closing(CaptureProcess(tmp_path / "log", bank.url, CAPTURED)) as capture:
        check(bank, capture)


@pytest.mark.timeout(300)
def test_a_dropped_slot_stops_the_capture_until_it_is_copied_again(bank: Bank, capture: CaptureProcess) -> None:
    if isinstance(bank, MariaDBBank):
        pytest.skip("it has no slots")
    capture.catch_up()
    assert capture.state() == "stopped"
    slot = bank.execute("SELECT slot_name FROM pg_replication_slots")[0][0]
    bank.execute(f"SELECT pg_drop_replication_slot('{slot}')", "DELETE FROM items WHERE id < 500")
    capture.start()
    assert capture.ended() != 0
    assert "penstock capture snapshot" in capture.output()
    assert capture.status()["state"] == "failed"
    capture.snapshot_all()
    check(bank, capture)


@pytest.mark.timeout(300)
def test_a_capture_gives_up_its_slot_rather_than_retain_too_much(bank: Bank, tmp_path: Path) -> None:
    if isinstance(bank, MariaDBBank):
        pytest.skip("it retains its log for a time, for nobody in particular")
    bank.create()
    with closing(CaptureProcess(tmp_path / "log", bank.url, CAPTURED, "bank", "--max-retained", "1MB")) as capture:
        capture.catch_up()
        Load(bank, 9).write_large_transaction(random.Random(9), rows=20_000)
        capture.start()
        assert capture.ended() != 0
        assert "max_retained_bytes" in capture.output()
        assert bank.execute("SELECT count(*) FROM pg_replication_slots")[0][0] == 0
        capture.snapshot_all()
        check(bank, capture)
