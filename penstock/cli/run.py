"""`penstock run`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import AppFile, ChosenApp, LogOfApp
from penstock.cli.output import counted, instant, say, tell

if TYPE_CHECKING:
    from penstock.engine.epoch import Progress
    from penstock.errors import UnavailableError

# Where nobody watches a terminal, a line this often is enough.
SECONDS_BETWEEN_LINES = 10.0


@command
def run(
    file: AppFile,
    once: Annotated[bool, typer.Option("--once", help="Run up to the present, and end.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build all views again from the log.")] = False,
    spark: Annotated[
        str | None, typer.Option("--spark", metavar="MASTER", help="A Spark cluster; without it, this machine.")
    ] = None,
    app: ChosenApp = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document for every epoch.")] = False,
    log: LogOfApp = None,
) -> None:
    """Run an app: keep its views in step with the log, until it is stopped.

    SIGTERM and Ctrl-C let it finish the epoch it is at. However it ends, the next start goes on where it was.
    """
    from penstock.app import load_app
    from penstock.engine.loop import Listener, Program, RunOptions
    from penstock.engine.loop import run as run_app

    loaded = load_app(file, name=app)
    _let_workers_import_from(file.resolve().parent)
    stop = threading.Event()
    _stop_on_signals(stop)
    told = _Told(as_json=as_json)
    tell(f"app '{loaded.name}': starting Spark")
    program = Program(loaded.plan, log or loaded.log, loaded.settings)
    options = RunOptions(once=once, rebuild=rebuild, master=spark)
    try:
        listener = Listener(told.progress, told.waiting, told.cut_short, told.restarting)
        run_app(program, options, stop=stop, listener=listener)
    finally:
        told.end()


def _let_workers_import_from(folder: Path) -> None:
    """A user's function may use modules that lie beside the app."""
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def _stop_on_signals(stop: threading.Event) -> None:
    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():  # asked twice: somebody is in a hurry, and an epoch can be repeated
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)


class _Told:
    """Tells how an app gets on: a line that changes on a terminal, some lines elsewhere, or JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._terminal = sys.stderr.isatty()
        self._last = 0.0
        self._pending: str | None = None
        self._rows = self._epochs = 0

    def progress(self, done: Progress) -> None:
        self._rows += done.rows
        self._epochs += 1
        if self._as_json:
            say(json.dumps(_document(done)))
            return
        line = _line(done)
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        elif time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            tell(line)
            self._last, self._pending = time.monotonic(), None
        else:
            self._pending = line

    def waiting(self, error: UnavailableError) -> None:
        self._break()
        tell(f"waiting: {error.message}")

    def cut_short(self) -> None:
        self._break()
        tell("Spark was ended too: the epoch that was running is run again at the next start")

    def restarting(self, what: str) -> None:
        self._break()
        tell(what)

    def end(self) -> None:
        if self._pending:
            tell(self._pending)
        self._break()
        if not self._as_json:
            tell(f"stopped after {counted(self._epochs, 'epoch')} and {counted(self._rows, 'row')}")

    def _break(self) -> None:
        if self._terminal:
            sys.stderr.write("\n")


def _document(done: Progress) -> dict[str, object]:
    return {
        "epoch": done.epoch,
        "rows": done.rows,
        "lag": done.lag,
        "watermark": None if done.watermark is None else instant(done.watermark),
        "late": done.late,
        "dead": done.dead,
        "building": done.building,
        "seconds": round(done.seconds, 4),
        "targets": {name: {"rows": one.rows, "seconds": round(one.seconds, 4)} for name, one in done.targets.items()},
    }


def _line(done: Progress) -> str:
    mark = "none" if done.watermark is None else instant(done.watermark)
    parts = [
        f"epoch {done.epoch:,}",
        f"{counted(done.rows, 'row')} in {done.seconds:.2f} s",
        f"lag {done.lag:,}",
        f"watermark {mark}",
        f"late {done.late:,}",
    ]
    if done.dead:
        parts.append(f"dead {done.dead:,}")
    if done.building:
        parts.append("building changed views")
    return ", ".join(parts)
