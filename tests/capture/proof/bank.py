"""A bank on a real server: its tables, and the few statements in which PostgreSQL and MariaDB differ.

`accounts` and `savings` have one sum forever, whatever is committed. `items` is for everything else: rows with a
`version` that grows with every change of a key, because it is taken while the row is locked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import psycopg
import pymysql

from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer

CAPTURED = ("accounts", "savings", "items")
PEOPLE = 40
BALANCE = 1_000
TOTAL = 2 * PEOPLE * BALANCE
BEFORE = "version bigint not null, note text"


class Bank(ABC):
    """`next_version` and `numbers` are SQL; `errors` is what a client gets whose server or transaction ends."""

    next_version: str
    errors: tuple[type[Exception], ...]
    server: PostgresServer | MariaDBServer

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def connect(self) -> Any:
        """A connection in which a transaction is always open."""

    @abstractmethod
    def numbers(self, first: int, count: int) -> str:
        """A table expression with a column `n` of consecutive numbers."""

    def create(self) -> None:
        connection = self.connect()
        cursor = connection.cursor()
        for name in ("accounts", "savings"):
            cursor.execute(f"CREATE TABLE {name} (id bigint primary key, balance bigint not null, {BEFORE})")
        cursor.execute(f"CREATE TABLE items (id bigint primary key, amount bigint, {BEFORE})")
        cursor.execute("CREATE TABLE history (id bigint, version bigint)")
        cursor.execute("CREATE SEQUENCE versions START WITH 1")
        for name in ("accounts", "savings"):
            select = f"SELECT n, {BALANCE}, 0, 'first' FROM {self.numbers(1, PEOPLE)}"
            cursor.execute(f"INSERT INTO {name} (id, balance, version, note) {select}")
        select = f"SELECT n, n, 0, 'first' FROM {self.numbers(1, 3_000)}"
        cursor.execute(f"INSERT INTO items (id, amount, version, note) {select}")
        connection.commit()
        connection.close()

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, and commit. Returns the rows of the last."""
        connection = self.connect()
        try:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            rows = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
            return rows
        finally:
            connection.close()

    def rows(self, table: str) -> dict[int, dict[str, Any]]:
        """The rows of a table by their key."""
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        finally:
            connection.close()
        return {row["id"]: row for row in found}


class PostgresBank(Bank):
    next_version = "nextval('versions')"
    errors = (psycopg.Error,)

    def __init__(self, **settings: str) -> None:
        # Transactions above 64 kB are streamed before they are committed, as large ones are with any setting.
        self.server = PostgresServer(**{"logical_decoding_work_mem": "64kB", **settings}).start()

    @property
    def url(self) -> str:
        return self.server.url

    def connect(self) -> Any:
        return psycopg.connect(self.server.url, connect_timeout=5)

    def numbers(self, first: int, count: int) -> str:
        return f"generate_series({first}::bigint, {first + count - 1}::bigint) AS numbers(n)"


class MariaDBBank(Bank):
    next_version = "nextval(versions)"
    # A client whose server is killed in the middle of an answer fails in the most various ways.
    errors = (pymysql.MySQLError, OSError, AttributeError, IndexError)

    def __init__(self, **settings: str) -> None:
        self.server = MariaDBServer(**settings).start()
        self.server.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")

    @property
    def url(self) -> str:
        return self.server.url

    def connect(self) -> Any:
        connection = self.server.connect("shop", autocommit=False, connect_timeout=5)
        with connection.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 5")
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return connection

    def numbers(self, first: int, count: int) -> str:
        return f"(SELECT seq AS n FROM seq_{first}_to_{first + count - 1}) AS numbers"
