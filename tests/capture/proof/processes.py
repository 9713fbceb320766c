"""`penstock capture` as a user starts it: real processes, which are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.capture.folder import CaptureFolder

ROOT = Path(__file__).resolve().parents[3]
PENSTOCK = [sys.executable, "-c", "from penstock.cli import main; main()"]
PATIENCE = 300.0


class CaptureProcess:
    """`penstock capture run` of one capture, which can be started again and again."""

    def __init__(self, log: Path, url: str, tables: tuple[str, ...], name: str = "bank", *options: str) -> None:
        self.log, self.name = log, name
        self._tables = [word for table in tables for word in ("--table", table)]
        self._url, self._options = url, options
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it

    @property
    def process(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self, *options: str, environment: Mapping[str, str] | None = None, file_bytes: int | None = None) -> None:
        """`file_bytes`: no file can become larger, as on a disk that is full."""
        words = ["capture", "run", self._url, *self._tables, "--name", self.name, "--log", str(self.log)]
        self._process = subprocess.Popen(
            [*_limit(file_bytes), *PENSTOCK, *words, *self._options, *options],
            stdout=self._output,
            stderr=self._output,
            env=process_environment(environment),
        )

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill_within(self, seconds: float) -> None:
        """`kill -9` when this time is over. It must not end before."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            raise AssertionError(f"the capture ended by itself: {self.output()}")
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.kill()
        self._output.close()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(PATIENCE)

    def ended(self, patience: float = PATIENCE, *, must_end: bool = True) -> int | None:
        """Wait until it ends by itself; its status, or None if it has not ended and need not."""
        assert self._process is not None
        with suppress(*(() if must_end else (subprocess.TimeoutExpired,))):
            return self._process.wait(patience)
        return None

    def catch_up(self) -> None:
        """Run it until everything is in the log that the database has."""
        self.start("--once")
        try:
            assert self.ended() == 0, self.output()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the capture does not catch up: {self.output()}; {self.status()}") from None
        finally:
            self.kill()

    def output(self) -> str:
        """What its processes have printed, the last lines."""
        return os.pread(self._output.fileno(), 1 << 24, 0).decode()[-3000:]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(penstock("capture", "status", self.name, "--log", self.log, "--json").stdout)
        return found

    def state(self) -> str:
        """What its status file says."""
        status = CaptureFolder.at(self.log, self.name).load_status()
        return "" if status is None else status.state

    def verify(self) -> subprocess.CompletedProcess[str]:
        return penstock("capture", "verify", self.name, "--log", self.log)

    def snapshot(self, table: str) -> None:
        done = penstock("capture", "snapshot", self.name, "--table", table, "--log", self.log)
        assert done.returncode == 0, done.stderr

    def snapshot_all(self) -> None:
        done = penstock("capture", "snapshot", self.name, "--log", self.log)
        assert done.returncode == 0, done.stderr


def penstock(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [*PENSTOCK, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=process_environment(), timeout=PATIENCE
    )


def _limit(file_bytes: int | None) -> list[str]:
    """What a command begins with whose files are limited. The signal is ignored, so that writing fails."""
    if file_bytes is None:
        return []
    program = "import os, resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    program += (
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({file_bytes}, {file_bytes})); os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-c", program]


def process_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of these tests, in which the package of this checkout is imported."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **(more or {})}
