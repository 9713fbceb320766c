"""`penstock run`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from penstock.cli.command import command
from penstock.cli.interrupt import STOP_SIGNALS, end_by_signal
from penstock.cli.options import AppFile, ChosenApp, FromOldest, LogOfApp
from penstock.cli.output import print_warnings
from penstock.cli.run_output import RunOutput

# How long Spark may take to end when Ctrl-C is pressed for the second time.
HASTY_SECONDS = 2.0


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
    capture: Annotated[
        bool,
        typer.Option("--capture/--no-capture", help="Run the captures that the app declares, or leave it to others."),
    ] = True,
    app: ChosenApp = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document for every event.")] = False,
    log_path: LogOfApp = None,
) -> None:
    """Run an app: keep its views in step with the log, until it is stopped.

    Ctrl-C and SIGTERM let it finish the current epoch; a second one stops it at once. However it ends, the next start
    resumes where it left off.
    """
    from penstock.app import load_app
    from penstock.capture.first_copy import FirstCopies
    from penstock.capture.supervise import Supervisor
    from penstock.engine.loop import Listener, Program
    from penstock.engine.loop import run as run_app
    from penstock.engine.run_options import RunOptions
    from penstock.engine.spark import let_workers_import_from

    loaded = load_app(file, name=app)
    let_workers_import_from(file.parent)
    print_warnings(loaded.plan)
    output = RunOutput(loaded.name, as_json=as_json)
    listener = Listener(
        output.progress,
        output.waiting,
        output.cut_short,
        output.restarting,
        output.available,
        output.started,
        output.idle,
    )
    program = Program(loaded.plan, log_path or loaded.log, loaded.settings)
    options = RunOptions(once=once, finish=finish, rebuild=rebuild, from_oldest=from_oldest, master=spark)
    declared = loaded.captures
    captures = Supervisor(program.log, declared if capture else (), once=once, listen=output.capture)
    copies = FirstCopies(program.log, declared, captures if capture else None, once=once, report=output.copying)
    with _stop_on_signals(output.stopping, captures.kill) as stop, output, captures:
        output.starting()
        await_inputs = copies.wait if declared else None
        run_app(program, options, stop=stop.event, listener=listener, await_inputs=await_inputs)
    if stop.number is not None:
        raise typer.Exit(128 + stop.number)
    if captures.failures:
        raise typer.Exit(1)


class _Stop:
    """Whether we were told to stop, and by which signal."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.number: int | None = None


@contextmanager
def _stop_on_signals(stopping: Callable[[], None], kill_captures: Callable[[], None]) -> Iterator[_Stop]:
    """Set an event on the first signal, and end at once on the second: an epoch can be repeated."""
    stop = _Stop()

    def request_stop(number: int, frame: FrameType | None) -> None:
        if stop.number is not None:
            kill_captures()
            _end_at_once(number)
        stop.number = number
        stop.event.set()
        stopping()

    before = {number: signal.signal(number, request_stop) for number in STOP_SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_at_once(number: int) -> None:
    from penstock.engine.spark import end_java

    for ignored in STOP_SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    os.write(2, b"\r\x1b[K" if os.isatty(2) else b"")
    os.write(2, b"stopped at once; the next start runs the epoch again\n")
    end_java(HASTY_SECONDS)
    end_by_signal(number)
    os._exit(128 + number)
