"""A SQLite database to capture, beside the log of the test."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROWS = 300


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A database with orders and people."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table orders (id integer primary key, note text, amount real)")
        connection.execute("create table people (id integer primary key, name text)")
        connection.executemany("insert into orders values (?, ?, ?)", [(n, f"n{n}", n * 1.5) for n in range(ROWS)])
        connection.execute("insert into people values (1, 'Ada')")
    connection.close()
    return path


@pytest.fixture
def sql(shop: Path) -> Iterator[Callable[..., None]]:
    """Runs statements in one transaction."""
    connection = sqlite3.connect(shop, timeout=30)

    def execute(*statements: str) -> None:
        with connection:
            for statement in statements:
                connection.execute(statement)

    yield execute
    connection.close()


@pytest.fixture
def url(shop: Path) -> str:
    return f"sqlite:///{shop}"
