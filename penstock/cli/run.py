"""`penstock run`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import AppFile, ChosenApp, FromOldest, LogOfApp
from penstock.cli.output import count_text, instant_text, json_value, print_line, print_stderr, print_warnings

if TYPE_CHECKING:
    from penstock.engine.epoch import Progress
    from penstock.errors import UnavailableError

# How often to print a line if stderr is not a terminal.
SECONDS_BETWEEN_LINES = 10.0


@command
def run(
    file: AppFile,
    once: Annotated[bool, typer.Option("--once", help="Process everything in the log, then exit.")] = False,
    finish: Annotated[
        bool,
        typer.Option("--finish", help="With --once: the input has ended, so close the windows that are still open."),
    ] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build all views again from the log.")] = False,
    from_oldest: FromOldest = False,
    spark: Annotated[
        str | None, typer.Option("--spark", metavar="MASTER", help="A Spark cluster; without it, this machine.")
    ] = None,
    app: ChosenApp = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document for every epoch.")] = False,
    log_path: LogOfApp = None,
) -> None:
    """Run an app: keep its views in step with the log, until it is stopped.

    SIGTERM and Ctrl-C let it finish the epoch it is at. However it ends, the next start goes on where it was.
    """
    from penstock.app import load_app
    from penstock.engine.loop import Listener, Program, RunOptions
    from penstock.engine.loop import run as run_app
    from penstock.engine.spark import let_workers_import_from

    loaded = load_app(file, name=app)
    let_workers_import_from(file.parent)
    stop = threading.Event()
    _stop_on_signals(stop)
    printer = _ProgressPrinter(as_json=as_json)
    print_warnings(loaded.plan)
    print_stderr(f"app '{loaded.name}': starting Spark")
    program = Program(loaded.plan, log_path or loaded.log, loaded.settings)
    options = RunOptions(once=once, finish=finish, rebuild=rebuild, from_oldest=from_oldest, master=spark)
    try:
        listener = Listener(
            printer.print_progress, printer.print_waiting, printer.print_cut_short, printer.print_restart
        )
        run_app(program, options, stop=stop, listener=listener)
    finally:
        printer.finish()


def _stop_on_signals(stop: threading.Event) -> None:
    def request_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set():  # the second signal: stop at once, since an epoch can be repeated
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request_stop)


class _ProgressPrinter:
    """Prints the progress of an app: one changing line on a terminal, a line now and then elsewhere, or JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._terminal = sys.stderr.isatty()
        self._last = 0.0
        self._pending: str | None = None
        self._rows = self._epochs = 0

    def print_progress(self, progress: Progress) -> None:
        self._rows += progress.rows
        self._epochs += 1
        if self._as_json:
            print_line(json.dumps(json_value(_document(progress))))
            return
        self._print_gaps(progress)
        line = _line(progress)
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        elif time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            print_stderr(line)
            self._last, self._pending = time.monotonic(), None
        else:
            self._pending = line

    def _print_gaps(self, progress: Progress) -> None:
        from penstock.engine.ledger.gaps import gap_text

        if progress.gaps:
            self._end_line()
        for gap in progress.gaps:
            print_stderr(f"left out, no longer in the log: {gap_text(gap)}; missing in {', '.join(gap.outputs)}")

    def print_waiting(self, error: UnavailableError) -> None:
        self._end_line()
        print_stderr(f"waiting: {error.message}")

    def print_cut_short(self) -> None:
        self._end_line()
        print_stderr("Spark was ended too: the epoch that was running is run again at the next start")

    def print_restart(self, what: str) -> None:
        self._end_line()
        print_stderr(what)

    def finish(self) -> None:
        if self._pending:
            print_stderr(self._pending)
        self._end_line()
        if not self._as_json:
            print_stderr(f"stopped after {count_text(self._epochs, 'epoch')} and {count_text(self._rows, 'row')}")

    def _end_line(self) -> None:
        if self._terminal:
            sys.stderr.write("\n")


def _document(progress: Progress) -> dict[str, object]:
    from penstock.engine.ledger.gaps import gap_document

    return {
        "epoch": progress.epoch,
        "rows": progress.rows,
        "lag": progress.lag,
        "watermark": None if progress.watermark is None else instant_text(progress.watermark),
        "late": progress.late,
        "dead": progress.dead,
        "building": progress.building,
        "seconds": round(progress.seconds, 4),
        "targets": {
            name: {"rows": target.rows, "seconds": round(target.seconds, 4)}
            for name, target in progress.targets.items()
        },
        "gaps": [gap_document(gap) for gap in progress.gaps],
    }


def _line(progress: Progress) -> str:
    mark = "none" if progress.watermark is None else instant_text(progress.watermark)
    parts = [
        f"epoch {progress.epoch:,}",
        f"{count_text(progress.rows, 'row')} in {progress.seconds:.2f} s",
        f"lag {progress.lag:,}",
        f"watermark {mark}",
        f"late {progress.late:,}",
    ]
    if progress.dead:
        parts.append(f"dead {progress.dead:,}")
    if progress.building:
        parts.append("building changed views")
    return ", ".join(parts)
