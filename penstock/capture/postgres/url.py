"""PostgreSQL by URL, as libpq reads it: `postgresql://user:${PASSWORD}@host/database?sslmode=require`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from penstock.contracts import Database, SourceOptions, SourceTable
from penstock.errors import DeclarationError

_EXAMPLE = "as in postgresql://app@localhost/shop, or postgresql://app:${SHOP_PASSWORD}@db.example.com:5432/shop"
_VARIABLE = re.compile(r"\$\{[^}]*\}")


def check_url(url: str) -> None:
    """Raise DeclarationError unless libpq can read the URL. Variables of the environment may still be missing."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        options = conninfo_to_dict(_VARIABLE.sub("x", url))
    except ProgrammingError:
        # What libpq says quotes the part that it could not read, which may be one of a password.
        raise DeclarationError(
            f"database: the '{urlsplit(url).scheme}:' URL cannot be read; special characters in it must be encoded",
            hint=_EXAMPLE,
        ) from None
    if "replication" in options:
        raise DeclarationError("database: the URL has the option 'replication'", hint="leave it out")


def open_database(url: str, tables: Sequence[SourceTable], options: SourceOptions) -> Database:
    """The tables of a PostgreSQL database. Connects when it is first asked for something."""
    from penstock.capture.postgres.source import PostgresDatabase

    check_url(url)
    if not tables:
        raise DeclarationError("database: no tables to capture are named", hint="name at least one")
    return PostgresDatabase(url, tables, options)
