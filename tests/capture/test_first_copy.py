"""Waiting for first copies, by what captures have stored: which tables count, what is said, and what is hopeless."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.capture.declaration import CaptureDeclaration, CapturedTable
from penstock.capture.first_copy import CopyProgress, FirstCopies
from penstock.capture.folder import CaptureFolder, CaptureStatus, TableStatus, this_process
from penstock.errors import PenstockError, UnavailableError

TABLES = (CapturedTable("public.customers", "customers"), CapturedTable("public.orders", "orders"))
SHOP = CaptureDeclaration("shop", "postgresql://ada:secret@localhost/shop", TABLES)
NONE: frozenset[str] = frozenset()


@dataclass
class Running:
    """Captures that run with the app, as far as they matter here."""

    failures: Mapping[str, PenstockError] = field(default_factory=dict)
    have_ended: bool = False


@dataclass
class Waiting:
    """A wait for first copies that is stopped when it reports, after `changes` of what is stored."""

    folder: CaptureFolder
    copies: FirstCopies
    changes: list[dict[str, TableStatus]]
    reported: list[CopyProgress] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def report(self, progress: CopyProgress) -> None:
        self.reported.append(progress)
        if self.changes:
            store(self.folder, **self.changes.pop(0))
        else:
            self.stop.set()


def table(state: str, rows: int = 0, estimated: int | None = None, seconds: float | None = None) -> TableStatus:
    return TableStatus("", "", state, rows, estimated, seconds)


def store(folder: CaptureFolder, **tables: TableStatus) -> None:
    statuses = [
        TableStatus(f"public.{topic}", topic, status.state, status.rows, status.estimated_rows, status.seconds_left)
        for topic, status in tables.items()
    ]
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.store_status(this_process(CaptureStatus("shop", "postgresql://", "copying", tables=tuple(statuses))))


@pytest.fixture
def folder(tmp_path: Path) -> CaptureFolder:
    return CaptureFolder.at(tmp_path, "shop")


@contextmanager
def captured_elsewhere(folder: CaptureFolder) -> Iterator[None]:
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder.running():
        yield


def wait(
    folder: CaptureFolder,
    *changes: dict[str, TableStatus],
    running: Running | None = None,
    once: bool = False,
    already_read: frozenset[str] = NONE,
) -> Waiting:
    copies = FirstCopies(folder.path.parent.parent, [SHOP], running, once=once)
    waiting = Waiting(folder, copies, list(changes))
    copies.report = waiting.report
    copies.wait(already_read, waiting.stop)
    return waiting


COMPLETE = {"customers": table("complete", 10), "orders": table("complete", 10)}


def test_complete_copies_are_not_waited_for_whoever_made_them(folder: CaptureFolder) -> None:
    store(folder, **COMPLETE)
    assert wait(folder).reported == []


def test_it_waits_until_the_last_copy_is_complete(folder: CaptureFolder) -> None:
    store(folder, customers=table("copying", 43, 100, 118), orders=table("waiting"))
    with captured_elsewhere(folder):
        waiting = wait(folder, {"customers": table("complete", 100), "orders": table("copying", 2_000)}, COMPLETE)
    assert list(map(str, waiting.reported)) == [
        "waiting for the first copy of customers: 43%, 2 minutes left, 1 more table",
        "waiting for the first copy of orders: 2,000 rows so far",
    ]


def test_a_table_that_the_app_has_read_before_is_not_waited_for_while_it_is_copied_again(
    folder: CaptureFolder,
) -> None:
    store(folder, customers=table("copying", 43, 100), orders=table("complete"))
    assert wait(folder, already_read=frozenset({"customers"})).reported == []


def test_a_guess_of_the_server_that_is_too_low_never_reads_as_complete(folder: CaptureFolder) -> None:
    store(folder, customers=table("copying", 500, 100), orders=table("complete"))
    assert wait(folder, running=Running()).reported[0].share == 0.99


def test_that_nobody_captures_is_said_while_it_waits(folder: CaptureFolder) -> None:
    store(folder, customers=table("copying", 43, 100), orders=table("complete"))
    assert str(wait(folder).reported[0]) == "waiting for the first copy of customers: capture 'shop' does not run"


def test_what_nobody_has_captured_and_nobody_will_is_an_error_with_the_command(folder: CaptureFolder) -> None:
    with pytest.raises(PenstockError, match="customers, orders has never been captured into this log") as raised:
        wait(folder)
    assert raised.value.hint is not None
    command = "penstock capture run postgresql://ada:***@localhost/shop --name shop --table public.customers --topic "
    assert f"{command}public.customers=customers" in raised.value.hint


def test_a_run_that_is_to_end_does_not_wait_for_a_capture_that_nobody_runs(folder: CaptureFolder) -> None:
    store(folder, customers=table("copying", 43, 100), orders=table("complete"))
    with pytest.raises(UnavailableError, match="the first copy of customers is not complete"):
        wait(folder, once=True)


def test_a_capture_that_failed_before_the_copy_was_complete_ends_the_run_with_its_error(folder: CaptureFolder) -> None:
    failure = PenstockError("capture 'shop': the table is gone", hint="create it")
    with pytest.raises(PenstockError, match="the table is gone"):
        wait(folder, running=Running({"shop": failure}, have_ended=True))


def test_a_capture_that_failed_afterwards_does_not(folder: CaptureFolder) -> None:
    store(folder, **COMPLETE)
    failure = PenstockError("capture 'shop': the table is gone", hint="create it")
    assert wait(folder, running=Running({"shop": failure}, have_ended=True), once=True).reported == []


def test_with_once_it_waits_until_the_captures_have_ended(folder: CaptureFolder) -> None:
    store(folder, **COMPLETE)
    running = Running()
    waiting = threading.Thread(target=wait, args=(folder,), kwargs={"running": running, "once": True})
    waiting.start()
    waiting.join(1.0)
    assert waiting.is_alive()
    running.have_ended = True
    waiting.join(30.0)
    assert not waiting.is_alive()
