"""Running an app from a program of the user: a script, a notebook, a thread of a larger program.

`penstock run` does the same from the command line. Here a program may go on afterwards, so nothing that belongs to it
stays changed: neither its Spark session, nor what it does on signals.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import DeclarationError, PenstockError, UnavailableError
from penstock.flow.load import is_loading
from penstock.flow.location import caller_location
from penstock.flow.warnings import plan_warnings
from penstock.summary import EpochSummary, RunSummary
from penstock.uncaught import print_line, show_plainly, show_plainly_if_uncaught
from penstock.units import utc_datetime

if TYPE_CHECKING:
    from penstock.capture.declaration import CaptureDeclaration
    from penstock.capture.first_copy import CopyProgress
    from penstock.capture.supervise import CaptureNews
    from penstock.engine.progress import Progress
    from penstock.engine.run_options import RunOptions
    from penstock.flow.plan import Plan
    from penstock.flow.settings import AppSettings

# How often the progress of first copies is logged.
COPY_SECONDS = 10.0
_LOGGER = logging.getLogger("penstock")
OnEpoch = Callable[[EpochSummary], object]


class Runnable(Protocol):
    """What is needed of an app to run it."""

    @property
    def name(self) -> str: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def log(self) -> str | Path: ...

    @property
    def settings(self) -> AppSettings: ...

    @property
    def captures(self) -> tuple[CaptureDeclaration, ...]: ...


def run_app(
    app: Runnable, options: RunOptions, *, stop: threading.Event | None, on_epoch: OnEpoch | None, capture: bool = True
) -> RunSummary:
    """Run an app until `stop` is set or Ctrl-C is pressed; with `options.once`, up to the present.

    With `capture`, the captures that it declares run beside it.
    """
    _check_arguments(app.name, stop, on_epoch)
    totals = _Totals(app.name, on_epoch)
    stop = threading.Event() if stop is None else stop
    with _plain_errors(), _stop_on_signals(stop, app.name):
        _run(app, options, stop, totals, capture)
    return totals.summary()


def _run(app: Runnable, options: RunOptions, stop: threading.Event, totals: _Totals, capture: bool) -> None:
    from penstock.capture.first_copy import FirstCopies
    from penstock.capture.supervise import Supervisor
    from penstock.engine.loop import Listener, Program, run
    from penstock.engine.spark import check_session, let_workers_import_from, without_repeated_errors

    for warning in plan_warnings(app.plan):
        _LOGGER.warning("%s", warning)
    if options.spark is not None:
        check_session(options.spark)
    else:
        let_workers_import_from(Path(sys.path[0]))
        # Elsewhere, a program's own output stays as it is.
        if sys.stderr.isatty() or "ipykernel" in sys.modules:
            print_line(f"app '{app.name}': starting Spark")
    listener = Listener(
        progress=totals.add, waiting=totals.log_waiting, cut_short=totals.log_cut_short, restarting=_LOGGER.warning
    )
    program = Program(app.plan, app.log, app.settings)
    captures = Supervisor(app.log, app.captures if capture else (), once=options.once, listen=_log_capture)
    copies = FirstCopies(
        app.log, app.captures, captures if capture else None, once=options.once, report=totals.log_copying
    )
    await_inputs = copies.wait if app.captures else None
    with captures, without_repeated_errors() if options.spark is not None else nullcontext():
        run(program, options, stop=stop, listener=listener, await_inputs=await_inputs)
    for failure in captures.failures.values():
        raise failure


def _log_capture(news: CaptureNews) -> None:
    level = logging.WARNING if news.what in ("restarting", "elsewhere", "failed") else logging.INFO
    hint = f" ({news.hint})" if news.hint else ""
    _LOGGER.log(level, "capture '%s': %s%s", news.capture, news.text, hint)


def _check_arguments(app: str, stop: object, on_epoch: object) -> None:
    where = f"{caller_location()}: run"
    if is_loading():
        raise DeclarationError(
            f"{where}: the file of app '{app}' is being loaded by a command of penstock, which runs the app itself",
            hint='put app.run() under: if __name__ == "__main__":',
        )
    if stop is not None and not isinstance(stop, threading.Event):
        raise DeclarationError(f"{where}: stop is a threading.Event; found {stop!r}", hint="stop=threading.Event()")
    if on_epoch is not None and not callable(on_epoch):
        raise DeclarationError(
            f"{where}: on_epoch is a function of one argument; found {on_epoch!r}",
            hint="on_epoch=lambda epoch: print(epoch.rows)",
        )


class _Totals:
    """Adds up what the epochs of a run do, logs it, and tells the caller."""

    def __init__(self, app: str, on_epoch: OnEpoch | None) -> None:
        self._app = app
        self._on_epoch = on_epoch
        self._began = time.monotonic()
        self._epochs = self._rows = self._late = self._dead = 0
        self._last: int | None = None
        self._waiting_for = ""
        self._told_copying = -COPY_SECONDS

    def add(self, done: Progress) -> None:
        self._epochs += 1
        self._rows += done.rows
        self._late += done.late
        self._dead += done.dead
        self._last = done.epoch
        self._waiting_for = ""
        _LOGGER.info("app '%s': epoch %d, %d rows in %.2f s", self._app, done.epoch, done.rows, done.seconds)
        if self._on_epoch is not None:
            self._on_epoch(_summary_of(done))

    def log_waiting(self, error: UnavailableError) -> None:
        if error.message != self._waiting_for:  # once, however often it is tried again
            self._waiting_for = error.message
            _LOGGER.warning("waiting: %s", error.message)

    def log_copying(self, progress: CopyProgress) -> None:
        now = time.monotonic()
        if now - self._told_copying >= COPY_SECONDS:
            self._told_copying = now
            _LOGGER.info("%s", progress)

    def log_cut_short(self) -> None:
        _LOGGER.warning("app '%s': Spark was ended too; the next start runs the last epoch again", self._app)

    def summary(self) -> RunSummary:
        return RunSummary(
            app=self._app,
            epochs=self._epochs,
            last_epoch=self._last,
            rows=self._rows,
            late=self._late,
            dead=self._dead,
            seconds=time.monotonic() - self._began,
        )


def _summary_of(done: Progress) -> EpochSummary:
    return EpochSummary(
        epoch=done.epoch,
        rows=done.rows,
        lag=done.lag,
        late=done.late,
        dead=done.dead,
        watermark=None if done.watermark is None else utc_datetime(done.watermark),
        building=done.building,
        seconds=done.seconds,
    )


# -- signals ----------------------------------------------------------------------------------------------------------


@contextmanager
def _stop_on_signals(stop: threading.Event, app: str) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM set `stop`, where the program does nothing of its own on them.

    The second Ctrl-C is a KeyboardInterrupt: an epoch that is broken off is run again at the next start.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python runs handlers of signals in the main thread, which is somebody else's
        return

    def request_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        print_line(f"app '{app}': stopping after the running epoch")

    replaced = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    replaced = {number: handler for number, handler in replaced.items() if _is_default(handler)}
    try:
        for number in replaced:
            signal.signal(number, request_stop)
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


def _is_default(handler: Any) -> bool:
    """Whether a handler was installed by Python or by PySpark, whose own cancels the running job."""
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    return str(getattr(handler, "__module__", "")).startswith("pyspark.")


# -- errors that nobody catches ---------------------------------------------------------------------------------------


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors go to the caller. One that nobody catches is shown as `penstock run` shows it, without a traceback."""
    try:
        yield
    except (PenstockError, KeyboardInterrupt):
        show_plainly_if_uncaught(_show_end_of_run)
        raise


def _show_end_of_run(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        print_line("stopped: the epoch that was running is run again at the next start")
    else:
        # Of an error of the run, the line of `app.run()` says nothing.
        show_plainly(kind, error, None if isinstance(error, PenstockError) else trace)
