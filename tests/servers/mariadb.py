"""A real MariaDB server for tests: a data folder of its own in a temporary folder, on a free port of 127.0.0.1.

`data_template` is made once per process; each server copies it, which takes a tenth of the time of mariadb-install-db.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.servers.starting import WAIT_SECONDS, free_port, wait_until

_SETTINGS = {
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_metadata": "FULL",
    "server_id": "1",
    "innodb_buffer_pool_size": "64M",
    "innodb_log_file_size": "32M",
    "innodb_flush_log_at_trx_commit": "2",
    "max_connections": "60",
    "character_set_server": "utf8mb4",
    "skip_name_resolve": "1",
}
PASSWORD = "s3cret-p4ss"


def binary(name: str) -> str:
    """The path of a program of MariaDB; skips the test if this machine does not have it."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        pytest.skip(f"needs a MariaDB server ({name}): apt-get install mariadb-server")
    return found


@cache
def data_template() -> Path:
    """A data folder, to be copied. Its users `admin` and `capture` connect from anywhere."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-mariadb-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _give_to_server_user(folder)
    command = [binary("mariadb-install-db"), "--no-defaults", f"--datadir={folder / 'data'}", "--skip-test-db"]
    command += ["--auth-root-authentication-method=normal", *_server_user()]
    _run(command)
    server = MariaDBServer.__new__(MariaDBServer)
    server.folder, server.port, server.settings, server._process = folder, free_port(), {"skip_log_bin": "1"}, None
    server.start()
    with pymysql.connect(unix_socket=str(folder / "socket"), user="root", autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE USER admin@'%' IDENTIFIED BY '{PASSWORD}'")
        cursor.execute("GRANT ALL ON *.* TO admin@'%' WITH GRANT OPTION")
        cursor.execute(f"CREATE USER capture@'%' IDENTIFIED BY '{PASSWORD}'")
        cursor.execute("GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO capture@'%'")
        cursor.execute("GRANT SELECT ON `shop%`.* TO capture@'%'")
    server.stop()
    return folder


class MariaDBServer:
    """One server. `settings` are added to those that capturing needs, which any of them may override."""

    def __init__(self, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-mariadb-"))
        self.port = free_port()
        self.settings = {**_SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        _run(["cp", "-r", str(data_template() / "data"), str(self.folder / "data")])
        _give_to_server_user(self.folder)

    @property
    def url(self) -> str:
        """The URL for a user who has exactly the rights that capturing needs."""
        return self.url_of("shop")

    def url_of(self, database: str, user: str = "capture") -> str:
        return f"mariadb://{user}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def start(self) -> MariaDBServer:
        command = [binary("mariadbd"), "--no-defaults", *_server_user(), f"--datadir={self.folder / 'data'}"]
        command += [f"--port={self.port}", f"--socket={self.folder / 'socket'}", "--bind-address=127.0.0.1"]
        command += [f"--{name.replace('_', '-')}={value}" for name, value in self.settings.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._accepts_connections, lambda: (self.folder / "log").read_text()[-2000:])
        return self

    def stop(self) -> None:
        """Shut down as an administrator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would. The next start recovers."""
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, database: str | None = None, user: str = "admin", **options: Any) -> Any:
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=user,
            password=PASSWORD,
            database=database,
            charset="utf8mb4",
            **{"autocommit": True, **options},
        )

    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run statements as the administrator. Returns the rows of the last."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def purge_logs(self) -> None:
        """Remove all binary logs but a new one. The server keeps those that it is still sending to somebody."""
        self.execute("FLUSH BINARY LOGS")
        last = self.execute("SHOW MASTER STATUS")[0][0]

        def purged() -> bool:
            self.execute(f"PURGE BINARY LOGS TO '{last}'")
            return len(self.execute("SHOW BINARY LOGS")) == 1

        wait_until(purged)

    def _accepts_connections(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.folder / "socket")) == 0

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(WAIT_SECONDS)
        self._process = None


def _server_user() -> list[str]:
    """MariaDB refuses to run as root."""
    return ["--user=mysql"] if os.getuid() == 0 else []


def _give_to_server_user(folder: Path) -> None:
    if os.getuid() == 0:
        _run(["chown", "-R", "mysql", str(folder)])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
