"""The captures of a log, as `penstock status` shows them: what they do, how far copies are, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.capture.output import copy_text, delay_text
from penstock.cli.output import print_line, print_table
from penstock.paths import capture_names, captures_folder

if TYPE_CHECKING:
    from penstock.capture.folder import CaptureStatus
    from penstock.log import Log

_COLUMNS = ("capture", "state", "from", "tables", "delay")


def capture_statuses(log: Log) -> list[CaptureStatus]:
    """The status of every capture that has run on the log."""
    from penstock.capture.folder import CaptureFolder

    folders = [CaptureFolder.of(log, name) for name in capture_names(captures_folder(log.apps_folder))]
    return [status for folder in folders if (status := folder.load_status()) is not None]


def print_captures(log: Log) -> None:
    """Print them below what else is shown; nothing if there are none."""
    statuses = capture_statuses(log)
    if not statuses:
        return
    print_line()
    print_table(_COLUMNS, [_row(status) for status in statuses])
    notes = [f"{status.name}: {note}" for status in statuses for note in _notes(status)]
    if notes:
        print_line()
    for note in notes:
        print_line(note)


def capture_documents(log: Log) -> list[dict[str, object]]:
    """The same for programs."""
    return [asdict(status) for status in capture_statuses(log)]


def _row(status: CaptureStatus) -> tuple[object, ...]:
    delay = None if status.delay_seconds is None else delay_text(status.delay_seconds)
    return status.name, status.state, status.url, len(status.tables), delay


def _notes(status: CaptureStatus) -> Iterator[str]:
    if status.error is not None:
        yield status.error + (f"; {status.hint}" if status.hint else "")
    for table in status.tables:
        if table.state != "complete":
            yield f"copy of {table.topic}: {copy_text(table)}; an app waits for the first copy"
