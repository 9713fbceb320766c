"""A capture as a process: what it stores about itself, what it waits for, and what ends it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from penstock.capture.declaration import CaptureDeclaration, CapturedTable, load_declaration
from penstock.capture.folder import CaptureFolder, CaptureStatus, Request
from penstock.capture.pump import PumpOptions
from penstock.capture.run import run_capture
from penstock.contracts import Database, SourceOptions, SourceTable
from penstock.errors import ChangesLostError, DeclarationError, FencedError, UnavailableError
from penstock.testing import MemoryLog
from penstock.testing.memory_database import Delete, MemoryDatabase, Upsert
from tests.capture.copy.copied import latest_rows

QUICK = PumpOptions(first_pause=0.01, longest_pause=0.01)
URL = "postgresql://app:hidden-word@db/shop"


@dataclass(slots=True)
class World:
    """A log, a database, and captures of it."""

    log: MemoryLog = field(default_factory=MemoryLog)
    database: MemoryDatabase = field(default_factory=lambda: MemoryDatabase(idle_seconds=0.001))
    opened: list[SourceOptions] = field(default_factory=list)
    refusals: list[Exception] = field(default_factory=list)  # raised when the database is opened
    tables: tuple[str, ...] = ("orders",)

    def __post_init__(self) -> None:
        self.database.create_table("orders", "id long not null, note string", key="id")
        self.database.commit(Upsert("orders", {"id": 1, "note": "a"}), Upsert("orders", {"id": 2, "note": "b"}))

    @property
    def declaration(self) -> CaptureDeclaration:
        return CaptureDeclaration("shop", URL, tuple(CapturedTable(table, table) for table in self.tables))

    @property
    def folder(self) -> CaptureFolder:
        return CaptureFolder.of(self.log, "shop")

    def open(self, url: str, tables: Sequence[SourceTable], options: SourceOptions) -> Database:
        self.opened.append(options)
        if self.refusals:
            raise self.refusals.pop(0)
        return self.database.connect(options)

    def run(
        self,
        *,
        once: bool = True,
        stop: threading.Event | None = None,
        report: Callable[[CaptureStatus], None] = lambda status: None,
    ) -> CaptureStatus:
        return run_capture(
            self.declaration, self.log, once=once, stop=stop, report=report, options=QUICK, open_source=self.open
        )

    def is_equal(self) -> bool:
        return latest_rows(self.log.topic("orders")) == self.database.rows("orders")


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    found.log.close()


def test_once_it_ends_when_it_has_what_the_database_had_at_the_start(world: World) -> None:
    status = world.run()
    assert world.is_equal()
    assert (status.state, status.rows) == ("stopped", 2)
    world.database.commit(Delete("orders", {"id": 1}))
    assert world.run().rows == 1
    assert world.is_equal()
    assert world.run().rows == 0


def test_its_folder_says_what_it_captures_and_how_far_it_is(world: World) -> None:
    world.run()
    assert load_declaration(world.folder.path) == world.declaration
    status = world.folder.load_status()
    assert status is not None
    assert status.url == "postgresql://app:***@db/shop"
    assert [(table.table, table.topic, table.state, table.rows) for table in status.tables] == [
        ("orders", "orders", "complete", 2)
    ]
    assert "hidden-word" not in (world.folder.path / "status.json").read_text()
    assert (world.folder.path / "capture.json").stat().st_mode & 0o077 == 0


def test_captures_of_one_name_in_two_logs_leave_different_things_in_the_database(world: World) -> None:
    second = World()
    for captured in (world, world, second):
        captured.run()
    second.log.close()
    assert len({options.identity for options in world.opened}) == 1
    assert world.opened[0].identity != second.opened[0].identity


def test_it_waits_for_the_database_and_says_so_once(world: World) -> None:
    refusal = UnavailableError("postgresql://app:hidden-word@db/shop: connection refused", hint="start it")
    world.refusals = [refusal, refusal, refusal]
    said: list[CaptureStatus] = []
    world.run(report=said.append)
    waiting = [status for status in said if status.state == "waiting"]
    assert {status.error for status in waiting} == {"postgresql://app:***@db/shop: connection refused"}
    assert len({status.waiting_since for status in waiting}) == 1
    assert said[-1].state == "stopped"
    assert said[-1].error is None
    assert world.is_equal()


def test_it_goes_on_after_the_database_was_gone_in_the_middle(world: World) -> None:
    world.run()
    for number in range(5):
        world.database.commit(Upsert("orders", {"id": 10 + number}))
        world.database.fail(UnavailableError("connection lost"))
    world.run()
    assert world.is_equal()


def test_an_error_that_needs_the_user_is_raised_and_stands_in_the_status(world: World) -> None:
    world.run()
    world.database.commit(Delete("orders", {"id": 1}))
    world.database.lose_changes()
    with pytest.raises(ChangesLostError):
        world.run()
    status = world.folder.load_status()
    assert status is not None
    assert status.state == "failed"
    assert status.hint == "copy its tables again: penstock capture snapshot shop"
    assert not world.folder.is_running()


def test_a_snapshot_that_was_requested_while_nobody_captured_is_taken_at_the_start(world: World) -> None:
    world.run()
    world.database.commit(Delete("orders", {"id": 1}))
    world.database.lose_changes()
    world.folder.request(Request(snapshot=("orders",)))
    world.run()
    assert world.is_equal()
    assert not world.folder.has_requests()


def test_a_running_capture_notices_requests(world: World) -> None:
    stop = threading.Event()
    seen: list[str] = []

    def report(status: CaptureStatus) -> None:
        if status.state == "following" and "asked" not in seen:
            seen.append("asked")
            world.folder.request(Request(snapshot=("orders",)))
            world.folder.request(Request(dropped=("orders.note",)))
        elif "asked" in seen and not world.folder.has_requests():
            stop.set()

    world.run(once=False, stop=stop, report=report)
    assert world.opened[-1].dropped == {"orders.note"}
    stored = load_declaration(world.folder.path)
    assert stored is not None
    assert stored.dropped == {"orders.note"}
    assert world.is_equal()


def test_a_second_capture_of_the_name_ends_the_first_with_a_clear_sentence(world: World) -> None:
    def report(status: CaptureStatus) -> None:
        if status.state == "following" and status.rows == 2:
            world.run()
            world.database.commit(Upsert("orders", {"id": 7}))

    with pytest.raises(FencedError, match="capture 'shop': another process captures under this name now"):
        world.run(once=False, report=report)
    status = world.folder.load_status()
    assert status is not None
    assert status.state == "stopped"


def test_a_table_that_is_added_is_copied_and_the_others_are_not(world: World) -> None:
    world.run()
    world.database.create_table("people", "id long not null", key="id")
    world.database.commit(Upsert("people", {"id": 5}))
    world.tables = ("orders", "people")
    assert world.run().rows == 2  # the change, and the copied row
    assert latest_rows(world.log.topic("people")) == [{"id": 5}]


def test_a_name_that_captures_another_database_is_refused(world: World) -> None:
    world.run()
    other = replace(world.declaration, url="postgresql://app:hidden-word@db/stock")
    with pytest.raises(DeclarationError, match=r"captures postgresql://app:\*\*\*@db/shop; found .*@db/stock"):
        run_capture(other, world.log, once=True, open_source=world.open)


def test_a_capture_whose_process_was_killed_is_shown_as_stopped(world: World) -> None:
    world.run()
    status = world.folder.load_status()
    assert status is not None
    world.folder.store_status(replace(status, state="following"))
    found = world.folder.load_status()
    assert found is not None
    assert found.state == "stopped"
    assert found.error == f"its process {status.process} has died"


def test_the_status_is_plain_json(world: World, tmp_path: Path) -> None:
    world.run()
    content = json.loads((world.folder.path / "status.json").read_text())
    assert CaptureStatus.from_json(content).state == "stopped"
