"""What `penstock capture run` prints: one changing line on a terminal, lines for changes elsewhere, or JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

from penstock.cli.output import count_text, print_line, print_stderr
from penstock.cli.run_output import duration_text

if TYPE_CHECKING:
    from penstock.capture.declaration import CaptureDeclaration
    from penstock.capture.folder import CaptureStatus, TableStatus

_SHORTEST_BAR, _LONGEST_BAR = 6, 24


class CaptureOutput:
    """`report` is called with every status of the capture."""

    def __init__(self, declaration: CaptureDeclaration, *, as_json: bool) -> None:
        self._declaration = declaration
        self._as_json = as_json
        self._terminal = sys.stderr.isatty() and not as_json
        self._last: CaptureStatus | None = None
        self._waiting_since: float | None = None
        self._is_line_open = False

    def report(self, status: CaptureStatus) -> None:
        before, self._last = self._last, status
        if self._as_json:
            if before is None or _document(before) != _document(status):
                print_line(json.dumps(_document(status)))
            return
        if status.state == "waiting":
            if status.waiting_since != self._waiting_since:
                self._waiting_since = status.waiting_since
                since = time.strftime("%H:%M", time.localtime(status.waiting_since))
                self._say(f"waiting for {status.error}, since {since}")
        elif status.state in ("copying", "following"):
            if self._terminal:
                self._show(status_line(status, shutil.get_terminal_size().columns - 1))
            elif before is None or before.state != status.state:
                self._say(status_line(status, None))

    def stopping(self) -> None:
        """Called in a signal handler, in the middle of anything: it writes to the terminal past all buffers."""
        if self._terminal:
            os.write(2, b"\r\x1b[K")
            self._is_line_open = False

    def __enter__(self) -> CaptureOutput:
        tables = ", ".join(table.table for table in self._declaration.tables)
        self._say(f"capture '{self._declaration.name}': {self._declaration.shown_url}, {tables}")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._last is not None:
            if self._terminal:
                os.write(2, b"\r\x1b[K")
                self._is_line_open = False
            self._say(f"stopped after {count_text(self._last.rows, 'row')}")
        elif self._is_line_open:
            sys.stderr.write("\n")  # the error gets a line of its own

    def _say(self, text: str) -> None:
        """A line that stays."""
        if self._as_json:
            return
        if self._is_line_open:
            sys.stderr.write("\n")
            self._is_line_open = False
        print_stderr(text)

    def _show(self, line: str) -> None:
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
        self._is_line_open = True


def status_line(status: CaptureStatus, width: int | None) -> str:
    """What a capture does at the moment, on one line of at most `width` characters."""
    if status.state == "copying":
        return _copy_line(status, width)
    parts = [status.state, count_text(status.rows, "row")]
    if status.delay_seconds is not None:
        parts.append(f"{delay_text(status.delay_seconds)} behind")
    return ", ".join(parts)[:width]


def _copy_line(status: CaptureStatus, width: int | None) -> str:
    table = next((table for table in status.tables if table.state == "copying"), None)
    if table is None:
        return f"copying, {count_text(status.rows, 'row')}"[:width]
    title = f"copying {table.table}"
    others = sum(other.state == "waiting" for other in status.tables)
    left = None if table.seconds_left is None else f"{duration_text(table.seconds_left)} left"
    more = f"{count_text(others, 'more table')}" if others else None
    rate = f"{status.rows_per_second:,.0f} rows/s"
    share = _share(table)
    amount = count_text(table.rows, "row") if share is None else f"{share:.0%}"
    variants: list[list[str | None]] = [[amount, rate, left, more], [amount, rate, left], [amount, left], [amount]]
    texts = [", ".join(filter(None, variant)) for variant in variants]
    if share is None or width is None:
        lines = [f"{title}: {text}" for text in texts]
        return lines[0] if width is None else next((line for line in lines if len(line) <= width), lines[-1][:width])
    text = next((text for text in texts if len(title) + len(text) + _SHORTEST_BAR + 2 <= width), texts[-1])
    length = max(0, min(_LONGEST_BAR, width - len(title) - len(text) - 2))
    return f"{title} {bar(share, length)} {text}"[:width]


def bar(share: float, length: int) -> str:
    done = round(share * length)
    return f"{'━' * done}{'┄' * (length - done)}"


def copy_text(table: TableStatus) -> str:
    """How far the copy of a table has come: '━━━━┄┄┄┄ 42%, 12 s left'."""
    if table.state == "complete":
        return "complete"
    if table.state == "waiting":
        return "waiting"
    share = _share(table)
    parts = [count_text(table.rows, "row") if share is None else f"{bar(share, 8)} {share:.0%}"]
    if table.seconds_left is not None:
        parts.append(f"{duration_text(table.seconds_left)} left")
    return ", ".join(parts)


def delay_text(seconds: float) -> str:
    """'3 ms', '12 s', '3 min 20 s'."""
    return f"{max(1, round(seconds * 1000))} ms" if seconds < 1 else duration_text(seconds)


def _share(table: TableStatus) -> float | None:
    """The estimate may be too low; a copy that runs is not at its end."""
    return min(table.rows / table.estimated_rows, 0.99) if table.estimated_rows else None


def _document(status: CaptureStatus) -> dict[str, object]:
    from dataclasses import asdict

    document = asdict(status)
    for name in ("updated", "rows_per_second"):
        del document[name]
    return document
