"""What every command has in common: how errors are printed, and how output ends."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from penstock import Log


def test_an_error_is_two_lines_on_stderr_and_status_1(run: Callable[..., Result], orders: str) -> None:
    result = run("topic", "describe", "order")
    assert result.exit_code == 1
    assert result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith("error: topic 'order': it does not exist")
    assert second == "hint: did you mean 'orders'?"


def test_a_folder_without_a_log_is_not_made_into_one(run: Callable[..., Result], folder: Path) -> None:
    result = run("topic", "list")
    assert result.exit_code == 1
    assert "there is no log" in result.stderr
    assert not folder.exists()


def test_debug_shows_the_traceback_too(run: Callable[..., Result], orders: str) -> None:
    result = run("topic", "describe", "order", "--debug")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "error: topic 'order'" in result.stderr


def test_debug_can_come_from_the_environment(
    run: Callable[..., Result], orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    assert "Traceback" in run("topic", "describe", "order").stderr


def test_an_unexpected_exception_is_one_line_and_the_advice_to_debug(
    run: Callable[..., Result], orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(log: Log) -> list[str]:
        raise KeyError("lost")

    monkeypatch.setattr(Log, "topics", fail)
    result = run("topic", "list")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: unexpected KeyError: 'lost'",
        "hint: run it again with --debug to see where it comes from",
    ]


def test_a_reader_that_goes_away_leaves_no_traceback(
    start: Callable[..., subprocess.Popen[str]], run: Callable[..., Result], log: Log
) -> None:
    # More than a pipe holds, so that the program is still writing when its reader is gone.
    log.create_topic("lines", "text string").append([{"text": "x" * 100} for _ in range(10_000)])
    writing = start("tail", "lines", "--from", "start")
    reading = subprocess.run(["head", "-n", "2"], stdin=writing.stdout, capture_output=True, text=True, check=True)
    assert writing.stdout is not None
    writing.stdout.close()
    assert writing.wait() == 0
    assert writing.stderr is not None
    assert writing.stderr.read() == ""
    assert len(reading.stdout.splitlines()) == 2
