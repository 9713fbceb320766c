"""Spark's Java process: started apart from the terminal, so that Ctrl-C does not reach it, and ended without a trace.

PySpark would start it in the process group of this program. There, a signal for the group would also end Spark's
processes, in the middle of an epoch that we let finish; and nobody could end a Spark that is still starting.
"""

from __future__ import annotations

import os
import shlex
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from penstock.storage.files import disk_errors

# How long the process may take to end after it was told to.
END_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_PORT_VARIABLE, _SECRET_VARIABLE = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
# The files to which this process has redirected the output of a Spark.
_redirected_files: set[str] = set()


class StartStoppedError(Exception):
    """We were told to stop while Spark was starting. Its process is gone."""


def launch_java(settings: Iterable[tuple[str, str]], output: Path | None, stop: threading.Event) -> Any:
    """Start Spark's Java process and connect to it: the gateway, whose `proc` is the process.

    What it prints goes to the file `output`, if given. Raises StartStoppedError if `stop` is set meanwhile, and
    PySparkRuntimeError if the process ends.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        address = Path(folder) / "address"
        process = _start_process(settings, output, address)
        try:
            while not address.is_file():
                if process.poll() is not None:
                    raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
                if stop.wait(_LOOK_SECONDS):
                    raise StartStoppedError
            return _connect(process, *_read_address(address.read_bytes()))
        except BaseException:
            kill_group(process)
            raise


def _read_address(raw: bytes) -> tuple[int, str]:
    """The port and the secret of the gateway, as its process has written them."""
    port, length = struct.unpack_from(">ii", raw)
    return port, raw[8 : 8 + length].decode()


def _start_process(settings: Iterable[tuple[str, str]], output: Path | None, address: Path) -> subprocess.Popen[bytes]:
    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit")]
    for key, value in settings:
        command += ["--conf", f"{key}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with _open_output(output) as file:
        return subprocess.Popen(
            # Who signals every process of this program, and not only its group, is not to end Spark by SIGINT either.
            ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],
            stdin=subprocess.PIPE,  # the process ends when this pipe is closed: however we end, it does too
            stdout=file,
            stderr=file,
            env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address)},
            process_group=0,
        )


@contextmanager
def _open_output(path: Path | None) -> Iterator[int | None]:
    if path is None:
        yield None
        return
    # The output of an earlier Spark of this process stays: it may say why that one ended.
    truncate = 0 if str(path) in _redirected_files else os.O_TRUNC
    with disk_errors(str(path.parent)):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | truncate, 0o644)
    _redirected_files.add(str(path))
    try:
        yield file
    finally:
        os.close(file)


def _connect(process: subprocess.Popen[bytes], port: int, secret: str) -> Any:
    """Connect to a gateway that runs already, which PySpark takes from the environment."""
    os.environ |= {_PORT_VARIABLE: str(port), _SECRET_VARIABLE: secret}
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in (_PORT_VARIABLE, _SECRET_VARIABLE):
            os.environ.pop(name, None)
    gateway.proc = process
    return gateway


@contextmanager
def killed_if_stopped(process: subprocess.Popen[bytes] | None, stop: threading.Event) -> Iterator[None]:
    """Kill the process if `stop` is set during the block: calls of Java cannot be interrupted otherwise."""
    if process is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            if stop.is_set():
                kill_group(process)
                return

    watcher = threading.Thread(target=watch, name="penstock-start", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and what else is in its group, and wait until it is gone."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)


def end_java(seconds: float = END_SECONDS) -> None:
    """End the Java process of this program, if it has one; kill it after so many seconds. Safe in a signal handler."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return
    with suppress(OSError):
        process.terminate()
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    if process.poll() is None:
        kill_group(process)
