"""Captures as processes beside an app: real processes, killed and stopped, over a database of SQLite."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock import Log
from penstock.capture.declaration import CaptureDeclaration, CapturedTable
from penstock.capture.folder import CaptureFolder
from penstock.capture.supervise import CaptureNews, Supervisor
from tests.capture.waiting import is_alive, wait_until


class Shop:
    """A database with customers, and the log that they are captured into."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        self.log = folder / "log"
        self.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
        self.execute("INSERT INTO customers VALUES (1, 'Ada'), (2, 'Bob')")

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            connection.execute(statement)

    def declared(self, table: str = "customers") -> CaptureDeclaration:
        return CaptureDeclaration("shop", f"sqlite:///{self.path}", (CapturedTable(table, table),))

    def names(self) -> set[str]:
        """The names that the topic has, of rows that were not deleted there."""
        with Log(self.log) as log:
            if "customers" not in log.topics():
                return set()
            return {row["name"] for batch in log.topic("customers").batches() for row in batch.rows_kept.to_pylist()}


class Heard:
    """The news of captures, in order."""

    def __init__(self) -> None:
        self.news: list[CaptureNews] = []

    def __call__(self, news: CaptureNews) -> None:
        self.news.append(news)

    def of(self, what: str) -> list[CaptureNews]:
        return [news for news in list(self.news) if news.what == what]

    def process(self, number: int = 0) -> int:
        """The process of the start of this number."""
        wait_until(lambda: len(self.of("started")) > number, f"start {number} of the capture")
        process = self.of("started")[number].process
        assert process is not None
        return process


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def captures(shop: Shop, heard: Heard) -> Iterator[Supervisor]:
    with Supervisor(shop.log, [shop.declared()], listen=heard) as running:
        yield running


def test_a_capture_follows_the_database_until_it_is_stopped(shop: Shop, heard: Heard) -> None:
    with Supervisor(shop.log, [shop.declared()], listen=heard):
        process = heard.process()
        wait_until(lambda: shop.names() == {"Ada", "Bob"}, "the first copy")
        shop.execute("INSERT INTO customers VALUES (3, 'Cleo')")
        wait_until(lambda: "Cleo" in shop.names(), "a change")
    assert not is_alive(process)
    assert heard.of("restarting") == heard.of("failed") == []
    assert CaptureFolder.at(shop.log, "shop").running_process() is None


def test_the_declaration_is_not_in_the_list_of_processes(captures: Supervisor, heard: Heard) -> None:
    line = Path(f"/proc/{heard.process()}/cmdline").read_bytes()
    assert b"penstock.capture.child" in line
    assert b"shop.db" not in line


def test_a_killed_capture_is_started_again_and_misses_nothing(captures: Supervisor, shop: Shop, heard: Heard) -> None:
    first = heard.process()
    wait_until(lambda: shop.names() == {"Ada", "Bob"}, "the first copy")
    os.kill(first, signal.SIGKILL)
    shop.execute("INSERT INTO customers VALUES (3, 'Cleo')")
    assert heard.process(1) != first
    wait_until(lambda: "Cleo" in shop.names(), "the change of the meantime")
    (news,) = heard.of("restarting")
    assert news.text == "ended by signal 9; it is started again in 1 s"


def test_an_error_that_needs_the_user_is_told_once_and_ends_it(shop: Shop, heard: Heard) -> None:
    with Supervisor(shop.log, [shop.declared("customer")], listen=heard) as captures:
        wait_until(lambda: captures.have_ended, "the end of the capture")
        (news,) = heard.of("failed")
        assert "customer" in news.text
        assert captures.failures["shop"].hint == news.hint
        assert "capture 'shop': " in captures.failures["shop"].message
    assert len(heard.of("started")) == 1


def test_with_once_a_capture_ends_at_the_present(shop: Shop, heard: Heard) -> None:
    with Supervisor(shop.log, [shop.declared()], once=True, listen=heard) as captures:
        wait_until(lambda: captures.have_ended, "the end of the capture")
        assert shop.names() == {"Ada", "Bob"}
        assert captures.failures == {}
    assert (heard.news[0].what, heard.news[-1].what) == ("started", "ended")
    assert heard.of("restarting") == []


def test_a_capture_that_runs_elsewhere_is_left_there_until_it_ends(shop: Shop, heard: Heard) -> None:
    first_heard = Heard()
    with Supervisor(shop.log, [shop.declared()], listen=first_heard) as first:
        process = first_heard.process()
        wait_until(lambda: CaptureFolder.at(shop.log, "shop").running_process() == process, "the status of the capture")
        with Supervisor(shop.log, [shop.declared()], listen=heard):
            wait_until(lambda: bool(heard.of("elsewhere")), "the news that it runs elsewhere")
            assert heard.of("elsewhere")[0].process == process
            assert heard.of("started") == []
            first.stop()
            assert heard.process() != process
    assert first_heard.of("failed") == []


PARENT = """
import sys, threading
from penstock.capture.declaration import CaptureDeclaration
from penstock.capture.supervise import Supervisor

def heard(news):
    print(news.what, news.process, flush=True)

if __name__ == "__main__":
    declared = CaptureDeclaration.from_json(__import__("json").loads(sys.argv[2]))
    with Supervisor(sys.argv[1], [declared], listen=heard):
        threading.Event().wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_captures_end_when_their_parent_does(shop: Shop, tmp_path: Path, number: int) -> None:
    import json

    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    arguments = [sys.executable, str(program), str(shop.log), json.dumps(shop.declared().to_json())]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        what, process = parent.stdout.readline().split()
        assert what == "started"
        wait_until(lambda: shop.names() == {"Ada", "Bob"}, "the first copy")
        parent.send_signal(number)
    wait_until(lambda: not is_alive(int(process)), "the end of the capture")
