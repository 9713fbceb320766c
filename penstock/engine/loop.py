"""Running an app until it is told to stop, or up to the present."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.contracts import Log, Wakes, Watch
from penstock.engine.epoch import Instance
from penstock.engine.ledger.instances import RunningInstance, running_instances
from penstock.engine.ledger.ledger import topics_read_before
from penstock.engine.progress import Progress, Totals
from penstock.engine.run.failures import SparkLostError
from penstock.engine.run_options import RunOptions
from penstock.engine.spark import (
    SparkSession,
    StartStoppedError,
    end_spark,
    has_ended,
    how_it_ended,
    start_spark,
)
from penstock.errors import DeclarationError, PenstockError, UnavailableError
from penstock.flow import plan as flow
from penstock.flow.settings import AppSettings
from penstock.logs import open_log
from penstock.storage.files import NO_PERMISSION, NO_SPACE

# In the app's folder: what Spark itself has to say.
SPARK_OUTPUT = "spark.log"
# With nothing to read, the clock may still close windows: so often it is looked at.
LOOK_SECONDS = 1.0
# A store that is locked, a disk that is full: so often and so long it is tried again before we give up.
TRY_AGAIN_SECONDS = 1.0
MOST_SECONDS = 300.0
LONGEST_PAUSE_SECONDS = 15.0
# Spark's own process is started again after so many seconds: so often within so long, and then no more.
RESTART_PAUSES = (1.0, 5.0, 15.0)
RESTARTS_SECONDS = 600.0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Program:
    """What is to be run: a plan, the log it reads by its URL or path, and settings."""

    plan: flow.Plan
    log: str | Path
    settings: AppSettings


@dataclass(frozen=True, slots=True)
class Started:
    """An app that is ready to run epochs: the topics that it reads, and the running instances that it has replaced."""

    app: str
    topics: tuple[str, ...]
    replaced: tuple[RunningInstance, ...]


@dataclass(frozen=True, slots=True)
class Listener:
    """Who hears what happens.

    `progress`: an epoch is done. `waiting`: something is not available, said once; `available`: it is again, after so
    many seconds. `cut_short`: we were told to stop, and the epoch did not finish. `restarting`: Spark has ended and is
    started again. `started`: the app has been opened; `idle`: everything was read, said once in a run.
    """

    progress: Callable[[Progress], None]
    waiting: Callable[[UnavailableError], None]
    cut_short: Callable[[], None] = lambda: None
    restarting: Callable[[str], None] = lambda what: None
    available: Callable[[float], None] = lambda seconds: None
    started: Callable[[Started], None] = lambda started: None
    idle: Callable[[Started], None] = lambda started: None


AwaitInputs = Callable[[Collection[str], threading.Event], None]


def run(
    program: Program,
    options: RunOptions,
    *,
    stop: threading.Event,
    listener: Listener,
    await_inputs: AwaitInputs | None = None,
) -> None:
    """Run epochs until `stop` is set; the one that is running is finished. A Spark that is still starting is ended.

    `await_inputs` is called once, before the app is opened, with the topics that it has read in earlier runs: it
    returns when all others are ready to be read, or `stop` is set.

    If Spark itself ends, it is started again, and the app is opened as after a crash: its plan is on disk.
    """
    restarts = _Restarts(program.plan.app)
    with closing(open_log(program.log, create=True)) as log:
        if options.finish:
            _refuse_if_running(log, program.plan.app)
        runner = _Runner(program, options, log, stop, listener, await_inputs)
        while True:
            try:
                runner.run_with_a_spark()
            except StartStoppedError:
                return
            except _SparkEndedError as ended:
                if options.spark is not None and not stop.is_set():
                    raise UnavailableError(
                        f"app '{program.plan.app}': {ended.how}",
                        hint="it was started by the caller of run(spark=...); with another session the app continues "
                        "with the same epoch",
                    ) from ended
                # Who ends a whole group of processes ends Spark too, and perhaps before us: hence also the pause.
                if stop.is_set() or stop.wait(restarts.pause(ended, listener)):
                    listener.cut_short()
                    return
            else:
                return


def _refuse_if_running(log: Log, app: str) -> None:
    """Refuse to finish the input of an app that is running: whoever runs it expects more."""
    if running := running_instances(log.apps_folder / app):
        raise DeclarationError(
            f"app '{app}': it is running in {running[-1]} and expects more rows, so its input cannot be finished",
            hint="stop that process first; without --finish, this run would take over from it",
        )


class _SparkEndedError(Exception):
    """Spark can do no more work, and nobody has asked us to stop."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class _Restarts:
    """How often Spark was started again of late, and how long to wait before the next time."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._moments: list[float] = []

    def pause(self, ended: _SparkEndedError, listener: Listener) -> float:
        """In seconds, which the listener is told; raises if it was too often."""
        now = time.monotonic()
        self._moments = [moment for moment in self._moments if now - moment < RESTARTS_SECONDS]
        if len(self._moments) == len(RESTART_PAUSES):
            raise PenstockError(
                f"app '{self._app}': {ended.how}, for the {len(self._moments) + 1}th time within "
                f"{RESTARTS_SECONDS / 60:.0f} minutes",
                hint="if memory is short, the kernel ends processes (dmesg), or Java ends itself (spark.log, in the "
                "folder of the app): smaller epochs need less, AppSettings(max_rows=...); the next start continues "
                "with the same epoch",
            ) from ended
        self._moments.append(now)
        seconds = RESTART_PAUSES[len(self._moments) - 1]
        listener.restarting(f"{ended.how}; it is started again in {seconds:.0f} s, and the epoch run again")
        return seconds


class _Runner:
    """Runs an app with one Spark, and then perhaps with another."""

    def __init__(
        self,
        program: Program,
        options: RunOptions,
        log: Log,
        stop: threading.Event,
        listener: Listener,
        await_inputs: AwaitInputs | None,
    ) -> None:
        self._program = program
        self._options = options
        self._log = log
        self._stop = stop
        self._listener = listener
        self._await_inputs = await_inputs
        self._rebuild = options.rebuild
        self._totals = Totals()
        self._was_idle = False
        self._was_open = False

    def run_with_a_spark(self) -> None:
        with self._spark() as spark:
            try:
                self._run(spark)
            except Exception as error:
                # Who ends a whole group of processes ends Spark too. The epoch is planned, and the next start runs it.
                if self._stop.is_set():
                    if not isinstance(error, UnavailableError) and not has_ended(spark):
                        raise
                    self._listener.cut_short()
                elif (how := how_it_ended(spark)) is not None:
                    raise _SparkEndedError(how) from error
                else:
                    raise

    @contextmanager
    def _spark(self) -> Iterator[SparkSession]:
        """A session while the app runs. A cluster is told when it ends; on this machine Spark ends with the process.

        One that can do no more work is ended and forgotten, so that another can be started. A session that somebody
        else has started is used as it is, and left alone.
        """
        if self._options.spark is not None:
            yield self._options.spark
            return
        app, master = self._program.plan.app, self._options.master
        spark = start_spark(app, master, output=self._log.apps_folder / app / SPARK_OUTPUT, stop=self._stop)
        try:
            yield spark
        except _SparkEndedError:
            end_spark(spark)
            raise
        finally:
            if master is not None:
                with suppress(Exception):  # it may be gone
                    spark.stop()

    def _run(self, spark: SparkSession) -> None:
        if self._await_inputs is not None:
            self._await_inputs(topics_read_before(self._log.apps_folder / self._program.plan.app), self._stop)
            self._await_inputs = None
        if self._stop.is_set():
            return
        running = tuple(running_instances(self._log.apps_folder / self._program.plan.app))
        instance = self._retry(lambda: self._open_instance(spark))
        if instance is None:
            return
        with instance:
            self._was_open = True
            started = Started(self._program.plan.app, tuple(instance.topics()), running)
            self._listener.started(started)
            self._run_epochs(instance, spark, started)

    def _retry(self, attempt: Callable[[], Result]) -> Result | None:
        return retry_while_unavailable(attempt, self._stop, self._listener.waiting, self._listener.available)

    def _open_instance(self, spark: SparkSession) -> Instance:
        program = self._program
        try:
            instance = Instance(
                program.plan,
                self._log,
                program.settings,
                spark,
                rebuild=self._rebuild,
                from_oldest=self._options.from_oldest,
                stopping=self._stop.is_set,
            )
        except UnavailableError as error:
            # Nobody relies on an app that has never run, so it is said at once what whoever starts it has to mend.
            if not self._was_open and _is_for_the_user_to_mend(error):
                raise PenstockError(error.message, hint=error.hint) from error
            raise
        instance.totals = self._totals
        self._rebuild = False  # it has begun, and continues also with another Spark
        return instance

    def _run_epochs(self, instance: Instance, spark: SparkSession, started: Started) -> None:
        stop = self._stop
        present = instance.present()
        watch = _AppendedRows(self._log, instance.topics())
        try:
            while not stop.is_set():
                done = self._retry(lambda: self._run_step(instance.step, spark))
                if done is not None:
                    self._totals = done.totals
                    self._listener.progress(done)
                if self._options.once and (done is None or not done.rows) and instance.has_read(present):
                    break
                if done is None and not stop.is_set():
                    self._say_idle(started)
                    watch.wait(LOOK_SECONDS, stop)
        finally:
            watch.close()
        if self._options.finish and not stop.is_set():
            self._finish(instance, spark)

    def _finish(self, instance: Instance, spark: SparkSession) -> None:
        done = self._retry(lambda: self._run_step(instance.finish, spark))
        if done is not None:
            self._totals = done.totals
            self._listener.progress(done)

    def _say_idle(self, started: Started) -> None:
        if not self._was_idle:
            self._was_idle = True
            self._listener.idle(started)

    def _run_step(self, step: Callable[[], Progress | None], spark: SparkSession) -> Progress | None:
        try:
            return step()
        except SparkLostError as error:  # a Spark that has ended is not waited for
            if self._stop.is_set():
                has_ended(spark)  # who has told us to stop may have told it too, and it takes its time
            if (how := how_it_ended(spark)) is not None:
                raise _SparkEndedError(how) from error
            raise


def retry_while_unavailable(
    attempt: Callable[[], Result],
    stop: threading.Event,
    waiting: Callable[[UnavailableError], None],
    available: Callable[[float], None] = lambda seconds: None,
) -> Result | None:
    """Try again while something is not available; None if we are told to stop meanwhile.

    For an epoch that does no harm: its plan is stored, so it is the same epoch. `waiting` hears of each reason once,
    and `available` for how many seconds we have waited.
    """
    began: float | None = None
    reason = ""
    while not stop.is_set():
        try:
            result = attempt()
        except UnavailableError as error:
            began = began or time.monotonic()
            if stop.is_set() or time.monotonic() - began > MOST_SECONDS:
                raise
            if error.message != reason:
                reason = error.message
                waiting(error)
            stop.wait(_pause(error))
        else:
            if began is not None:
                available(time.monotonic() - began)
            return result
    return None


def _is_for_the_user_to_mend(error: UnavailableError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (*NO_SPACE, *NO_PERMISSION)


def _pause(error: UnavailableError) -> float:
    """What Spark loses, it may lose again soon: each pause is longer than the one before."""
    longer = 2 ** (error.attempt - 1) if isinstance(error, SparkLostError) else 1
    return min(TRY_AGAIN_SECONDS * longer, LONGEST_PAUSE_SECONDS)


class _AppendedRows:
    """Waits until something is appended to some topics. Where the log wakes nobody, the time is waited out."""

    def __init__(self, log: Log, topics: Iterable[str]) -> None:
        self._watch: Watch | None = log.watch(topics) if isinstance(log, Wakes) else None

    def wait(self, seconds: float, stop: threading.Event) -> None:
        if self._watch is None:
            stop.wait(seconds)
            return
        until = time.monotonic() + seconds
        # Signals end no wait here, so it is short enough to stop soon.
        while not stop.is_set() and time.monotonic() < until and not self._watch.wait(0.1):
            pass

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
