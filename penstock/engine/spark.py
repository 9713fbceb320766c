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
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext
from pyspark.sql.udf import UserDefinedFunction

from penstock.engine.run.failures import FAILURES, reason
from penstock.errors import UnavailableError

__all__ = ["SparkSession", "end_spark", "evaluated_in_place", "has_ended", "how_it_ended", "session_for", "start_spark"]

_SHARED_EVALUATION = "spark.sql.subexpressionElimination.enabled"
# How long the process may take to end after it was told to.
END_SECONDS = 5.0
_printed_to: set[str] = set()  # files
# With TCP sockets every Python task waits 40 ms for a delayed acknowledgement; with Unix sockets it does not.
_CONTEXT = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
}


def start_spark(name: str, master: str | None = None, *, output: Path | None = None) -> SparkSession:
    """A session on this machine's cores, or on the cluster that `master` names.

    What Spark's processes print goes to the file `output`, if there is one: most of it helps nobody.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Without it Spark looks up this machine's own name, and does not start where that name has no address.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # What fails is told by our own errors; Spark would tell it a second time, with the stacks of two languages.
    for logger in ("SQLQueryContextLogger", "py4j"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(is_not_of_py4j)
    builder = SparkSession.builder.appName(f"penstock {name}").master(master or "local[*]")
    for key, value in {**_CONTEXT, "spark.log.level": "OFF" if output is None else "ERROR"}.items():
        builder = builder.config(key, value)
    try:
        with _printing_to(output), _own_interrupt():
            spark = builder.getOrCreate()
    except FAILURES as error:
        where = "" if master is None else f" on '{master}'"
        raise UnavailableError(
            f"Spark did not start{where}: {reason(error)}",
            hint="it needs Java 17 or newer"
            + ("" if master is None else ", and a cluster that answers")
            + ("" if output is None else f"; what it says itself is in {output}"),
        ) from error
    # It would print a traceback when the process it listens to is gone.
    server: Any = spark.sparkContext._accumulatorServer
    server.handle_error = lambda request, address: None
    return spark


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Py4J tells of a Spark that has ended through the logger of everybody, past its own one."""
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Leave Ctrl-C to whoever had it: PySpark would end the running job with it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)


@contextmanager
def _printing_to(path: Path | None) -> Iterator[None]:
    """Let processes that are started meanwhile print to a file."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    # What an earlier Spark of this process has said stays: it may say why that one ended.
    fresh = 0 if str(path) in _printed_to else os.O_TRUNC
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | fresh, 0o644)
    _printed_to.add(str(path))
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


def has_ended(spark: SparkSession) -> bool:
    """Whether Spark's own process is gone, or goes within seconds."""
    try:
        _process(spark).wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def how_it_ended(spark: SparkSession) -> str | None:
    """What became of a Spark that can do no more work, in words; None if it can.

    Its process is gone, or does not answer, or has stopped working because somebody told it to, such as its cluster.
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
    status = _process(spark).poll()
    if status is not None and status < 0:
        return f"Spark's Java process was killed by signal {-status} ({signal.strsignal(-status)})"
    return f"Spark's Java process ended with status {status}"


def _process(spark: SparkSession) -> subprocess.Popen[bytes]:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    process: subprocess.Popen[bytes] = gateway.proc
    return process


def end_spark(spark: SparkSession) -> None:
    """End a Spark that may no longer answer, and forget it, so that the next `start_spark` starts another process.

    1. Stop it, if it still listens; then its process is ended.
    2. PySpark remembers its gateway, context and session for the life of this process: these are forgotten.
    3. So is what functions remember of the gateway, which users may have made once for all sessions.
    """
    context, gateway, process = spark.sparkContext, spark.sparkContext._gateway, _process(spark)
    with suppress(Exception), warnings.catch_warnings():  # 1
        warnings.simplefilter("ignore")
        context.stop()
    for end in (lambda: gateway.shutdown(), process.kill, lambda: process.wait(END_SECONDS)):  # type: ignore[union-attr]
        with suppress(Exception):
            end()
    server = getattr(context, "_accumulatorServer", None)  # 2
    if server is not None:
        with suppress(Exception):
            server.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    for function in gc.get_objects():  # 3
        if isinstance(function, UserDefinedFunction):
            function._judf_placeholder = None


@contextmanager
def evaluated_in_place(session: SparkSession) -> Iterator[None]:
    """Have each expression evaluated where it stands: one that stands twice is else evaluated before any guard."""
    session.conf.set(_SHARED_EVALUATION, "false")
    try:
        yield
    finally:
        session.conf.unset(_SHARED_EVALUATION)


def session_for(spark: SparkSession, partitions: int) -> SparkSession:
    """A session of its own for one app, with the settings its plan relies on."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    # An epoch is planned once and small: looking at the sizes of stages between them costs a job for each.
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    # With a limit in bytes Spark works out the size of a batch anew for every row of it.
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
    # Tasks write state and stage rows: a repeated exchange would repeat that.
    session.conf.set("spark.sql.exchange.reuse", "true")
    return session
