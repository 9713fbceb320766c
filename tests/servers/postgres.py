"""A real PostgreSQL server for tests: a cluster of its own in a temporary folder, on a free port of 127.0.0.1.

`cluster_template` is made once per process; each server copies it, which takes a tenth of the time of initdb.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.servers.starting import WAIT_SECONDS, free_port, wait_until

_SETTINGS = {
    "wal_level": "logical",
    "fsync": "off",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
    "log_min_messages": "warning",
}


def binaries() -> Path:
    """The folder of initdb and postgres; skips the test if this machine has none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    if on_path is None or shutil.which("initdb") is None:
        pytest.skip("needs a PostgreSQL server: apt-get install postgresql")
    return Path(on_path).parent


@cache
def cluster_template() -> Path:
    """A cluster made by initdb, to be copied. Its superuser is `postgres`, without a password."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _give_to_server_user(folder)
    _run([str(binaries() / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"])
    return folder


class PostgresServer:
    """One server. `settings` are added to those that capturing needs, which any of them may override."""

    def __init__(self, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        self.port = free_port()
        self.settings = {**_SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        _run(["cp", "-r", str(cluster_template() / "data"), str(self.folder / "data")], user=None)
        _give_to_server_user(self.folder)

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, user: str, password: str = "", database: str = "postgres") -> str:
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@127.0.0.1:{self.port}/{database}"

    def start(self) -> PostgresServer:
        command = [str(binaries() / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        for name, value in {**self.settings, "unix_socket_directories": str(self.folder)}.items():
            command += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(_as_server_user(command), stdout=log, stderr=log)
        wait_until(self._accepts_connections, lambda: (self.folder / "log").read_text()[-2000:])
        return self

    def stop(self) -> None:
        """Shut down as an administrator would; connections are closed."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as a crash would. The next start recovers from the log."""
        self._end(signal.SIGQUIT)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, or several without parameters, as the superuser, and commit. Returns the rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def connect(self, user: str = "postgres") -> psycopg.Connection[Any]:
        return psycopg.connect(self.url_of(user), autocommit=True)

    def _accepts_connections(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        postmaster = self.folder / "data" / "postmaster.pid"
        if postmaster.exists():
            os.kill(int(postmaster.read_text().split()[0]), number)
        self._process.wait(WAIT_SECONDS)
        self._process = None


def _as_server_user(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.getuid() == 0 else command


def _give_to_server_user(folder: Path) -> None:
    if os.getuid() == 0:
        _run(["chown", "-R", "postgres", str(folder)], user=None)


def _run(command: list[str], user: str | None = "server") -> None:
    done = subprocess.run(_as_server_user(command) if user else command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
