"""Connections to the server, and its errors in our classes. No password is in any message or repr."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
from pymysql.constants.COMMAND import COM_QUERY

from penstock.errors import DeclarationError, PenstockError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

_READ_SECONDS = 600  # a query that says nothing for so long is lost
_LARGEST_PACKET = 0xFFFFFF
_NO_RIGHT = frozenset({1044, 1142, 1143, 1227})
_WRONG_DATABASE = frozenset({1049, 1146})
CHANGED_TABLE = 1412
_PROBLEMS = {
    1040: "it has too many connections",
    1045: "it refuses this user or password",
    1053: "it is shutting down",
    1129: "it has blocked this host after too many errors",
    1130: "it does not let this host connect",
    1203: "this user has too many connections",
    1205: "it waited too long for a lock",
    1226: "this user has used up its resources",
    1927: "it has ended the connection",
    2002: "it cannot be reached",
    2003: "it cannot be reached",
    2006: "the connection was lost",
    2013: "the connection was lost",
    2026: "the encrypted connection failed",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is and who connects. `shown` is the URL as it may be in messages."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    shown: str
    options: Mapping[str, str] = field(default_factory=dict)


class Session:
    """A connection that is used by one thread. Errors are raised in our classes."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._user = ""
        with self.answers():
            self.raw = pymysql.connect(**_arguments(address))
        self._user = str(self.value("SELECT CURRENT_USER()"))
        # Everything is shown in UTC, and as it is stored.
        self.execute("SET time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600, net_read_timeout = 3600")

    def execute(self, statement: str, arguments: Sequence[object] = ()) -> None:
        self.rows(statement, arguments)

    def rows(self, statement: str, arguments: Sequence[object] = ()) -> list[tuple[object, ...]]:
        with self.answers(), self.raw.cursor() as cursor:
            cursor.execute(statement, tuple(arguments) or None)
            return list(cursor.fetchall())

    def value(self, statement: str, arguments: Sequence[object] = ()) -> object:
        """The first column of the first row, or None."""
        rows = self.rows(statement, arguments)
        return rows[0][0] if rows else None

    def raw_rows(self, statement: str) -> list[bytes]:
        """The rows of a query as the server sends them. So nothing is done value by value."""
        with self.answers():
            self.raw._execute_command(COM_QUERY, statement)
            columns = self.raw._read_packet().read_length_encoded_integer()
            for _ in range(columns + 1):  # the descriptions of the columns, and their end
                self.raw._read_packet()
            return _read_rows(self.raw)

    @contextmanager
    def answers(self) -> Iterator[None]:
        """Raise errors of the server in our classes."""
        try:
            yield
        except pymysql.err.MySQLError as error:
            raise self.our_error(error) from error
        except OSError as error:
            raise UnavailableError(
                f"database {self.address.shown}: the connection was lost; {type(error).__name__}: {error}"
            ) from error

    def our_error(self, error: pymysql.err.MySQLError) -> PenstockError:
        code, text = error_parts(error)
        where = f"database {self.address.shown}"
        if code in _NO_RIGHT:
            return DeclarationError(f"{where}: a right is missing; {text}", hint=self.missing_right(text))
        if code in _WRONG_DATABASE:
            return DeclarationError(f"{where}: {text}", hint="correct the URL or the name of the table")
        if code in _PROBLEMS or isinstance(error, pymysql.err.OperationalError | pymysql.err.InterfaceError):
            problem = _PROBLEMS.get(code, "it is not available")
            return UnavailableError(f"{where}: {problem}; {code}: {text}", hint=_hint(code))
        return DeclarationError(f"{where}: the server refuses; {code}: {text}")

    def missing_right(self, text: str) -> str:
        """The statement that grants what an error message says is missing."""
        user = self.quoted_user()
        if "BINLOG MONITOR" in text or "REPLICATION CLIENT" in text:
            return f"GRANT BINLOG MONITOR ON *.* TO {user}"
        if "REPLICATION SLAVE" in text or "REPLICATION REPLICA" in text:
            return f"GRANT REPLICATION SLAVE ON *.* TO {user}"
        return f"GRANT SELECT ON {quoted(self.address.database)}.* TO {user}"

    def quoted_user(self) -> str:
        name, _, host = (self._user or f"{self.address.user}@%").rpartition("@")
        return "{}@{}".format(*("'" + part.replace("'", "''") + "'" for part in (name, host)))

    def close(self) -> None:
        try:
            self.raw.close()
        except (pymysql.err.MySQLError, OSError):
            self.raw._force_close()  # the server is gone, and so is the connection


@contextmanager
def session(address: Address) -> Iterator[Session]:
    """A connection that is closed at the end."""
    opened = Session(address)
    try:
        yield opened
    finally:
        opened.close()


def error_parts(error: pymysql.err.MySQLError) -> tuple[int, str]:
    """The code of an error and its text. What the driver itself finds has no code: 0."""
    if len(error.args) == 2 and isinstance(error.args[0], int):
        return error.args[0], str(error.args[1])
    return 0, str(error)


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def _hint(code: int) -> str | None:
    if code == 1045:
        return "correct the user or the password: in the URL, in MYSQL_PWD, or in the option file"
    return None


def _arguments(address: Address) -> dict[str, object]:
    options = address.options
    arguments: dict[str, object] = {
        "host": address.host,
        "port": address.port,
        "user": address.user or None,
        "password": address.password or os.environ.get("MYSQL_PWD", ""),
        "database": address.database,
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": int(options.get("connect_timeout", "10")),
        "read_timeout": _READ_SECONDS,
        "unix_socket": options.get("unix_socket"),
        "program_name": "penstock",
    }
    option_file = Path(options.get("option_file", "~/.my.cnf")).expanduser()
    if option_file.exists():
        arguments |= {"read_default_file": str(option_file), "read_default_group": "client"}
    for name in ("ssl_ca", "ssl_cert", "ssl_key"):
        if options.get(name):
            arguments[name] = options[name]
    if "ssl_ca" in options or "ssl_verify" in options:
        verify = options.get("ssl_verify", "true").lower() not in ("0", "false", "no")
        arguments |= {"ssl_verify_cert": verify, "ssl_verify_identity": verify}
    return arguments


def _read_rows(raw: pymysql.connections.Connection) -> list[bytes]:
    read, rows = raw._rfile.read, list[bytes]()
    while True:
        row = _read_packet(read)
        # A row begins with a value, and no value begins with 255; 254 begins one only if it is very long.
        if row[:1] == b"\xff":
            pymysql.err.raise_mysql_exception(row)
        if row[:1] == b"\xfe" and len(row) < 9:
            return rows
        rows.append(row)


def _read_packet(read: object) -> bytes:
    assert callable(read)
    body = b""
    while True:
        header = read(4)
        size = int.from_bytes(header[:3], "little")
        part: bytes = read(size)
        if len(header) < 4 or len(part) < size:
            raise pymysql.err.OperationalError(2013, "Lost connection during query")
        body = body + part if body else part
        if size < _LARGEST_PACKET:
            return body
