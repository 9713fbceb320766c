"""What the views of an app are and how fresh: for people and programs that look, without Arrow."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.derive.connection import plain_faults
from penstock.derive.query import BUSY_SECONDS, Moment, moment_of, open_moment


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """A view at one moment; all of one call are of the same moment.

    `columns` are names with Spark types. `key` is None for a view whose rows may repeat. `watermark` and `events` are
    what the app said with the epoch, and `facts` all that it said of this view. `building`: another version of it is
    being built, and this one does not change until they are swapped.
    """

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...] | None
    rows: int
    epoch: int
    applied_at: datetime | None
    watermark: datetime | None
    events: int | None
    facts: Mapping[str, object]
    building: bool


def views(path: str | os.PathLike[str], *, busy_seconds: float = BUSY_SECONDS) -> list[ViewStatus]:
    """The views in this file, by name."""
    file = Path(path)
    with plain_faults(file), closing(open_moment(file, busy_seconds=busy_seconds)) as connection:
        moment = moment_of(connection)
        if moment.app == "":
            return []
        rows = connection.execute(
            "SELECT name, columns, key, EXISTS (SELECT 1 FROM penstock_views other "
            "WHERE other.name = one.name AND other.building) FROM penstock_views one WHERE NOT building ORDER BY name"
        ).fetchall()
        return [_status(connection, moment, *row) for row in rows]


def _status(
    connection: sqlite3.Connection, moment: Moment, name: str, columns: list[list[str]], key: str | None, building: int
) -> ViewStatus:
    quoted = name.replace('"', '""')
    (rows,) = connection.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()
    facts = _facts_of(moment, name)
    watermark, events = facts.get("watermark"), facts.get("events")
    return ViewStatus(
        name=name,
        columns={column: type_ for column, _, type_ in columns},
        key=None if key is None else tuple(json.loads(key)),
        rows=rows,
        epoch=moment.epoch,
        applied_at=moment.applied_at,
        watermark=_instant(watermark) if isinstance(watermark, str) else None,
        events=events if isinstance(events, int) else None,
        facts=facts,
        building=bool(building),
    )


def _facts_of(moment: Moment, name: str) -> Mapping[str, object]:
    facts = moment.facts.get("views")
    mine = facts.get(name) if isinstance(facts, dict) else None
    return mine if isinstance(mine, dict) else {}


def _instant(text: str) -> datetime | None:
    """None for a time that Python cannot hold; the facts still have its text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
