"""The Spark session that an app runs in."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark.core.context
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext
from pyspark.sql.udf import UserDefinedFunction

from penstock.engine.java import find_java
from penstock.engine.master import local_address
from penstock.engine.run.failures import FAILURES, reason
from penstock.engine.spark_process import (
    END_SECONDS,
    StartStoppedError,
    end_java,
    kill_group,
    killed_if_stopped,
    launch_java,
)
from penstock.engine.start_failure import start_error
from penstock.errors import DeclarationError, PenstockError, UnavailableError

__all__ = [
    "SparkSession",
    "StartStoppedError",
    "check_session",
    "end_java",
    "end_spark",
    "evaluate_in_place",
    "has_ended",
    "how_it_ended",
    "let_workers_import_from",
    "session_for",
    "start_spark",
    "without_repeated_errors",
]

_SHARED_EVALUATION = "spark.sql.subexpressionElimination.enabled"
# With TCP sockets every Python task waits 40 ms for a delayed acknowledgement; with Unix sockets none does.
_CONTEXT_SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
DRIVER_MEMORY = "4g"
# Our own errors say what fails. These would say it again, with the stack traces of two languages.
_REPEATING_LOGGERS = ("SQLQueryContextLogger", "py4j")
# Of what Spark has printed, so much is looked at for the reason why it did not start.
_LAST_CHARACTERS = 100_000


def start_spark(
    name: str, master: str | None = None, *, output: Path | None = None, stop: threading.Event | None = None
) -> SparkSession:
    """Start Spark on this machine's cores, or on the cluster that `master` names; a Spark that runs already is used.

    If `output` is given, what Spark's processes print goes to this file: most of it helps nobody. StartStoppedError if
    `stop` is set before Spark has started.
    """
    stop = stop or threading.Event()
    address = local_address(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if address is not None:
        # Without it Spark looks up the name of this machine, and does not start if that name has no address.
        os.environ.setdefault("SPARK_LOCAL_IP", address)
    for logger in _REPEATING_LOGGERS:
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(is_not_of_py4j)
    builder = SparkSession.builder.appName(f"penstock {name}").master(master or "local[*]")
    for key, value in {**_context_settings(), "spark.log.level": "OFF" if output is None else "ERROR"}.items():
        builder = builder.config(key, value)
    spark = _start_session(builder, master, output, stop)
    # It would print a traceback when the process it listens to has ended.
    server: Any = spark.sparkContext._accumulatorServer
    server.handle_error = lambda request, address: None
    return spark


@contextmanager
def without_repeated_errors() -> Iterator[None]:
    """Meanwhile, and in a session of the user, PySpark does not log what our own errors say."""
    levels = {name: logging.getLogger(name).level for name in _REPEATING_LOGGERS}
    try:
        for name in _REPEATING_LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def check_session(spark: object) -> None:
    """Raise DeclarationError unless an app can run in this session, which somebody else has started."""
    if not isinstance(spark, SparkSession) or not hasattr(spark, "_jsparkSession"):
        raise DeclarationError(
            f"run: spark is a SparkSession with a Java process of its own; found {_kind_of(spark)}",
            hint="spark=SparkSession.builder.getOrCreate(); sessions of Spark Connect are not supported",
        )
    stopped = spark.sparkContext._jsc is None
    if how := "it was stopped" if stopped else how_it_ended(spark):
        raise DeclarationError(f"run: the session cannot be used: {how}", hint="start another one, or leave spark= out")


def _kind_of(value: object) -> str:
    module = type(value).__module__
    return repr(value) if module == "builtins" else f"{module}.{type(value).__qualname__}"


def let_workers_import_from(folder: Path) -> None:
    """Let the Python workers of a Spark that is started next import modules from the folder of the user's program."""
    paths = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    if str(folder.resolve()) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder.resolve()), *paths])


def _start_session(
    builder: SparkSession.Builder, master: str | None, output: Path | None, stop: threading.Event
) -> SparkSession:
    """Start Spark's process, unless this one has one, and a session in it. A start that fails leaves no process."""
    launched = None
    try:
        if SparkContext._gateway is None:
            launched = launch_java(builder._options.items(), output, stop)
            SparkContext._gateway, SparkContext._jvm = launched, launched.jvm
        with killed_if_stopped(launched.proc if launched else None, stop), _keep_interrupt_handler():
            return builder.getOrCreate()
    except Exception as error:
        # While its process runs, an error of Java can say what it is about.
        failure = _start_error(error, master, output) if isinstance(error, FAILURES) and not stop.is_set() else None
        if launched is not None:
            kill_group(launched.proc)
            _forget_spark()
        if stop.is_set():
            raise StartStoppedError from None
        if failure is None:
            raise
        raise failure from error


def _start_error(error: BaseException, master: str | None, output: Path | None) -> PenstockError:
    """Why Spark did not start. Java is looked at only now: asking it for its version takes time."""
    where = "Spark did not start" if master is None else f"Spark did not start on '{master}'"
    try:
        find_java()
    except UnavailableError as no_java:
        return UnavailableError(f"{where}: {no_java.message}", hint=no_java.hint)
    printed = ""
    if output is not None:
        with suppress(OSError):
            printed = output.read_text(errors="replace")[-_LAST_CHARACTERS:]
    return start_error(where, reason(error), printed, None if output is None else str(output))


def _context_settings() -> dict[str, str]:
    return {**_CONTEXT_SETTINGS, "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", DRIVER_MEMORY)}


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    """A filter for the root logger, to which Py4J logs that Spark has ended, bypassing its own logger."""
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Keep the current handler of Ctrl-C: PySpark would install one that cancels the running job.

    Putting the current one back afterwards would be too late for a Ctrl-C in between.
    """
    its_module: Any = pyspark.core.context
    its_module.signal = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda number, handler: None)
    try:
        yield
    finally:
        its_module.signal = signal


def has_ended(spark: SparkSession) -> bool:
    """Whether Spark's own process has ended, or ends within seconds."""
    try:
        process = _process(spark)
        if process is None:
            return False
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def how_it_ended(spark: SparkSession) -> str | None:
    """What happened to a Spark that can no longer work, in words; None if it can.

    Its process has ended, or does not answer, or somebody has shut it down, such as its cluster.
    """
    try:
        if not spark.sparkContext._jsc.sc().isStopped():
            return None
    except (Py4JError, OSError, AttributeError):
        pass
    else:
        return "Spark was shut down" if not has_ended(spark) else _how_the_process_ended(spark)
    return _how_the_process_ended(spark) if has_ended(spark) else "Spark's Java process does not answer"


def _how_the_process_ended(spark: SparkSession) -> str:
    process = _process(spark)
    status = None if process is None else process.poll()
    if status is not None and status < 0:
        return f"Spark's Java process was killed by signal {-status} ({signal.strsignal(-status)})"
    return f"Spark's Java process ended with status {status}"


def _process(spark: SparkSession) -> subprocess.Popen[bytes] | None:
    """Spark's Java process; None if another process has started it, as `spark-submit` does."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    process: subprocess.Popen[bytes] | None = gateway.proc
    return process


def end_spark(spark: SparkSession) -> None:
    """End a Spark that may no longer answer, and forget it, so that the next `start_spark` starts another process.

    1. Stop it, if it still answers; then end its process.
    2. Reset the gateway, context and session that PySpark remembers for the life of this process.
    3. Reset what functions remember of the gateway: users may have made them once for all sessions.
    """
    context, gateway, process = spark.sparkContext, spark.sparkContext._gateway, _process(spark)
    with suppress(Exception), warnings.catch_warnings():  # 1
        warnings.simplefilter("ignore")
        context.stop()
    with suppress(Exception):
        gateway.shutdown()  # type: ignore[union-attr]
    if process is not None:
        with suppress(Exception):
            kill_group(process)
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        with suppress(Exception):
            server.shutdown()
    _forget_spark()  # 2, 3


def _forget_spark() -> None:
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    for function in gc.get_objects():
        if isinstance(function, UserDefinedFunction):
            function._judf_placeholder = None


@contextmanager
def evaluate_in_place(session: SparkSession) -> Iterator[None]:
    """Let Spark evaluate each expression where it occurs: one that occurs twice would be evaluated before any guard."""
    session.conf.set(_SHARED_EVALUATION, "false")
    try:
        yield
    finally:
        session.conf.unset(_SHARED_EVALUATION)


def session_for(spark: SparkSession, partitions: int) -> SparkSession:
    """A new session for one app, with the settings that its plan relies on."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    # An epoch is small and planned once: adapting the plan to the sizes of stages would cost a job for each.
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    # With a limit in bytes Spark would compute the size of a batch again for every row.
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
    # Tasks write state and stage rows: running an equal exchange twice would repeat that.
    session.conf.set("spark.sql.exchange.reuse", "true")
    return session
