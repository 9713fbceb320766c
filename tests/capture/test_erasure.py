"""Erasing rows of a captured topic: nothing of them stays in the files of the capture."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.capture.declaration import CaptureDeclaration, CapturedTable
from penstock.capture.erasure import captures_that_remember, forget_earlier_rows
from penstock.capture.folder import CaptureFolder
from penstock.capture.run import run_capture
from penstock.log import Log
from penstock.testing.capture import MemoryDatabase, Upsert
from tests.capture.waiting import wait_until

SECRET = "a name to be erased"
DECLARATION = CaptureDeclaration("shop", "sqlite:///shop.db", (CapturedTable("people", "people"),))


@pytest.fixture
def database() -> MemoryDatabase:
    """One table, of which a value was not sent: so the capture keeps the values of earlier rows."""
    database = MemoryDatabase()
    database.create_table("people", "id bigint not null, name string, age int", key="id")
    database.commit(Upsert("people", {"id": 1, "name": SECRET, "age": 40}))
    return database


def has_secret(log: Log) -> bool:
    files = CaptureFolder.of(log, "shop").copy_files
    return any(SECRET.encode() in path.read_bytes() for path in files.rglob("*") if path.is_file())


def test_a_capture_that_runs_forgets_erased_rows_and_goes_on(tmp_path: Path, database: MemoryDatabase) -> None:
    stop = threading.Event()
    with Log(tmp_path / "log") as log:
        thread = threading.Thread(
            target=run_capture,
            args=(DECLARATION, log),
            kwargs={"stop": stop, "open_source": lambda *_: database.connect()},
        )
        thread.start()
        try:
            wait_until(lambda: "people" in log.topics() and len(log.topic("people").read()) == 1, "the copy")
            database.commit(Upsert("people", {"id": 1, "name": SECRET, "age": 41}, unchanged=frozenset({"name"})))
            wait_until(lambda: has_secret(log), "the values of earlier rows")
            database.commit(Upsert("people", {"id": 1, "name": "-", "age": 41}))
            wait_until(lambda: log.topic("people").read()[-1]["name"] == "-", "the change")
            log.topic("people").erase({"id": 1})
            forget_earlier_rows(log, "people", wait=30)
            assert captures_that_remember(log, "people") == []
            assert not has_secret(log)
            database.commit(Upsert("people", {"id": 2, "name": "Grace", "age": 40}))
            wait_until(lambda: any(row["id"] == 2 for row in log.topic("people").read()), "a change after it")
        finally:
            stop.set()
            thread.join()
