"""The SQLite file of `EarlierRows`: its tables, and what it says about itself."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from penstock.contracts import Offsets

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class FileState:
    """Of which topic the file is, up to which offsets, and where the copy began that ran then."""

    topic_id: str
    keeps_cells: bool
    offsets: Offsets
    since: Offsets | None
    digests: str  # by whom they were computed: another version may compute others
    format: int = _FORMAT

    @classmethod
    def now(cls, topic_id: str, *, keeps_cells: bool, offsets: Offsets, since: Offsets | None) -> FileState:
        return cls(topic_id, keeps_cells, offsets, since, _digests())

    def is_of(self, topic_id: str, *, keeps_cells: bool) -> bool:
        """Whether the file can be used for this topic."""
        same = (self.topic_id, self.digests, self.format) == (topic_id, _digests(), _FORMAT)
        return same and (self.keeps_cells or not keeps_cells)


def create_tables(connection: sqlite3.Connection) -> None:
    connection.executescript(
        """
        create table state (content text not null);
        create table schemas (id integer primary key, content blob not null);
        create table rows (key primary key, fresh integer, digest integer, time integer, schema integer, cells blob);
        """
    )


def store_state(connection: sqlite3.Connection, state: FileState) -> None:
    content = {
        "topic_id": state.topic_id,
        "keeps_cells": state.keeps_cells,
        "offsets": _to_json(state.offsets),
        "since": None if state.since is None else _to_json(state.since),
        "digests": state.digests,
        "format": state.format,
    }
    connection.execute("delete from state")
    connection.execute("insert into state values (?)", (json.dumps(content),))


def load_state(connection: sqlite3.Connection) -> FileState | None:
    """What the file says; None for a new file, or one that was not finished."""
    if connection.execute("select 1 from sqlite_master where name = 'state'").fetchone() is None:
        return None
    row = connection.execute("select content from state").fetchone()
    if row is None:
        return None
    content = json.loads(row[0])
    content["offsets"] = _from_json(content["offsets"])
    content["since"] = None if content["since"] is None else _from_json(content["since"])
    return FileState(**content)


def _digests() -> str:
    import duckdb

    return f"duckdb {duckdb.__version__}"


def _to_json(offsets: Offsets) -> dict[str, int]:
    return {str(number): offset for number, offset in offsets.items()}


def _from_json(offsets: dict[str, int]) -> dict[int, int]:
    return {int(number): offset for number, offset in offsets.items()}
