"""Databases by URL: which module captures from a scheme. Modules are loaded on first use.

Another package adds a database through an entry point in the group `penstock.databases`. It names a module with the
functions `check_url(url)` and `open_database(url, tables, options)`, whose contracts are those of the functions below.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.contracts import Database, SourceOptions, SourceTable
from penstock.plugins import Plugins

DATABASES = Plugins(
    kind="database",
    group="penstock.databases",
    built_in={
        "postgresql": "penstock.capture.postgres.url",
        "postgres": "penstock.capture.postgres.url",
        "mysql": "penstock.capture.mysql.url",
        "mariadb": "penstock.capture.mysql.url",
        "sqlite": "penstock.capture.sqlite.url",
    },
    functions=("check_url", "open_database"),
    example="postgresql://localhost/shop",
)


def check_database(url: object) -> None:
    """Raise DeclarationError unless this is the URL of a database. Called before anything runs; opens nothing."""
    DATABASES.module(url, where="database").check_url(url)


def open_database(url: str, tables: Sequence[SourceTable], options: SourceOptions) -> Database:
    """The database of a URL, to capture these tables. It connects when it is first asked for something."""
    database: Database = DATABASES.module(url, where="database").open_database(url, tables, options)
    return database
