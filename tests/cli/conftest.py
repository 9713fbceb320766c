"""Fixtures for tests of commands: commands run in this process, and the program in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock import Log
from penstock.cli import app

ORDERS = "order_id bigint not null, country string, amount decimal(10,2), placed_at timestamp"
# Tests that run in the background of a shell inherit that Ctrl-C is ignored; the program starts as from a terminal.
START = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
PROGRAM = [sys.executable, "-c", f"{START}; from penstock.cli import main; main()"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the log, for every command of the test."""
    monkeypatch.setenv("PENSTOCK_LOG", str(tmp_path / "log"))
    monkeypatch.delenv("PENSTOCK_DEBUG", raising=False)
    return tmp_path / "log"


@pytest.fixture
def run(folder: Path) -> Callable[..., Result]:
    """Runs a command in this process."""
    return lambda *args, stdin=None: CliRunner().invoke(app, list(args), input=stdin)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the program in a process of its own, which is killed at the end of the test if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def begin(*args: str, **options: Any) -> subprocess.Popen[str]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen([*PROGRAM, *args], text=True, env=dict(os.environ), **{**pipes, **options})
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def restored_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undoes what a command changes in its process, for commands that run in the process of the tests."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def log(folder: Path) -> Iterator[Log]:
    """The log, opened by the test itself."""
    with Log(folder) as opened:
        yield opened


@pytest.fixture
def orders(run: Callable[..., Result]) -> str:
    """A topic `orders` with two partitions and three rows."""
    assert run("topic", "create", "orders", "--schema", ORDERS, "--key", "order_id", "--partitions", "2").exit_code == 0
    rows = "".join(
        f'{{"order_id": {number}, "country": "{country}", "amount": {number}.50, "placed_at": "2026-01-0{number}"}}\n'
        for number, country in ((1, "DE"), (2, "FR"), (3, "DE"))
    )
    assert run("produce", "orders", stdin=rows).exit_code == 0
    return "orders"
