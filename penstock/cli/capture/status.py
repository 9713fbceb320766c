"""`penstock capture status`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.capture.find import CaptureName, FoundCapture, find_capture
from penstock.cli.capture.output import copy_text, delay_text
from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath
from penstock.cli.output import instant_text, print_json, print_line, print_table
from penstock.cli.run_output import duration_text
from penstock.errors import PenstockError
from penstock.units import format_size

if TYPE_CHECKING:
    from penstock.capture.folder import CaptureStatus, TableStatus
    from penstock.contracts import SourceHealth


@command
def status(name: CaptureName = None, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Show how far a capture is, whether it runs, and how its database sees it."""
    with find_capture(log_path, name) as capture:
        last = capture.folder.load_status()
        health, problem = _health(capture)
        tables = _tables(capture, last)
        if as_json:
            print_json(_document(capture, last, tables, health, problem))
            return
        _print(capture, last, health, problem)
        print_line()
        print_table(("table", "topic", "copy", "copied"), [(t.table, t.topic, copy_text(t), t.rows) for t in tables])
        _print_problems(last, health)


def _health(capture: FoundCapture) -> tuple[SourceHealth | None, PenstockError | None]:
    """What the database says about the capture, or why it cannot be asked."""
    from penstock.capture.copy.position import CopyPosition
    from penstock.capture.run import writer_name

    try:
        with capture.database() as database:
            return database.health(CopyPosition.parse(capture.log.position(writer_name(capture.name))).source), None
    except PenstockError as error:
        return None, error


def _tables(capture: FoundCapture, last: CaptureStatus | None) -> list[TableStatus]:
    from penstock.capture.folder import TableStatus

    known = {table.table: table for table in last.tables} if last is not None else {}
    return [known.get(t.table, TableStatus(t.table, t.topic)) for t in capture.declaration.tables]


def _print(
    capture: FoundCapture, last: CaptureStatus | None, health: SourceHealth | None, problem: PenstockError | None
) -> None:
    print_line(f"capture {capture.name}")
    print_line()
    print_line(f"source     {capture.declaration.shown_url}")
    print_line(f"state      {_state_text(last)}")
    if last is not None and last.delay_seconds is not None:
        print_line(f"delay      {delay_text(last.delay_seconds)} from commit to log")
    if problem is not None:
        print_line(f"database   not asked: {problem.message}")
    if health is not None:
        for title, text in _health_lines(health):
            print_line(f"{title:<11}{text}")


def _state_text(last: CaptureStatus | None) -> str:
    if last is None:
        return "never run"
    if last.state in ("stopped", "failed"):
        return f"{last.state} since {_moment(last.updated)}"
    where = f"process {last.process} on {last.host}"
    return f"{last.state} ({where}, since {_moment(last.started)})"


def _health_lines(health: SourceHealth) -> list[tuple[str, str]]:
    lines = [("database", health.state)]
    if health.behind_bytes is not None:
        lines.append(("behind", format_size(health.behind_bytes)))
    if health.retained_bytes is not None:
        limit = f" of {format_size(health.limit_bytes)}" if health.limit_bytes is not None else ""
        lines.append(("retained", f"{format_size(health.retained_bytes)}{limit}"))
    if health.seconds_to_full is not None:
        lines.append(("full in", f"{duration_text(health.seconds_to_full)}, if nobody captures"))
    if health.last_commit is not None:
        lines.append(("committed", instant_text(health.last_commit)))
    return lines


def _print_problems(last: CaptureStatus | None, health: SourceHealth | None) -> None:
    if last is not None and last.error:
        print_line()
        print_line(f"error: {last.error}")
        if last.hint:
            print_line(f"hint: {last.hint}")
    if health is not None and health.problem and (last is None or health.problem != last.error):
        print_line()
        print_line(f"problem: {health.problem}")
        if health.hint:
            print_line(f"hint: {health.hint}")


def _document(
    capture: FoundCapture,
    last: CaptureStatus | None,
    tables: list[TableStatus],
    health: SourceHealth | None,
    problem: PenstockError | None,
) -> dict[str, object]:
    document = {} if last is None else asdict(last)
    document |= {
        "name": capture.name,
        "url": capture.declaration.shown_url,
        "running": capture.folder.is_running(),
        "tables": [asdict(table) for table in tables],
        "database": None if health is None else asdict(health),
        "database_error": None if problem is None else problem.message,
    }
    return document


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
