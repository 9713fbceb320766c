"""SQLite files by URL: `sqlite:///shop.db` in the current folder, `sqlite:////data/shop.db` anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from penstock.capture.sqlite.source import SqliteDatabase
from penstock.contracts import Database, SourceOptions, SourceTable
from penstock.errors import DeclarationError
from penstock.secrets import masked_url, resolved_url

_SCHEME = "sqlite:///"


def check_url(url: str) -> None:
    """Raise DeclarationError unless the URL names a file. Whether it exists is not checked."""
    if not url.startswith(_SCHEME) or not url.removeprefix(_SCHEME).strip("/") or "?" in url:
        raise DeclarationError(
            f"database: {masked_url(url)!r} does not name a SQLite file",
            hint="sqlite:///shop.db is a file in this folder, sqlite:////data/shop.db an absolute path",
        )


def open_database(url: str, tables: Sequence[SourceTable], options: SourceOptions) -> Database:
    """The file, to capture these tables (all, if none are named). It is opened when it is first needed."""
    check_url(url)
    return SqliteDatabase(Path(unquote(resolved_url(url).removeprefix(_SCHEME))), tables, options)
