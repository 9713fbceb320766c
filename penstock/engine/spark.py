"""The Spark session that an app runs in."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

__all__ = ["SparkSession", "evaluated_in_place", "has_ended", "session_for", "start_spark"]

_SHARED_EVALUATION = "spark.sql.subexpressionElimination.enabled"
# How long the process may take to end after it was told to.
END_SECONDS = 5.0
# With TCP sockets every Python task waits 40 ms for a delayed acknowledgement; with Unix sockets it does not.
_CONTEXT = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
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
    for name in ("SQLQueryContextLogger", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(is_not_of_py4j)
    builder = SparkSession.builder.appName(f"penstock {name}").master(master or "local[*]")
    for key, value in _CONTEXT.items():
        builder = builder.config(key, value)
    with _printing_to(output), _own_interrupt():
        return builder.getOrCreate()


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
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


def has_ended(spark: SparkSession) -> bool:
    """Whether Spark's own process is gone, or goes within seconds."""
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


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
