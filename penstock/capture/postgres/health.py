"""How a server sees a capture: what it retains for it, how far behind it is, and when its disk or limit is full."""

from __future__ import annotations

import time
from datetime import datetime

from penstock.capture.postgres.connection import Connection
from penstock.capture.postgres.position import StreamPosition, lsn_text
from penstock.capture.postgres.slot import Slot, find_slot
from penstock.contracts import SourceHealth, SourceOptions

_RETAINED = """
SELECT s.active, s.wal_status, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), s.restart_lsn)::bigint,
       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s::pg_lsn)::bigint, s.safe_wal_size,
       (SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'max_slot_wal_keep_size'),
       (SELECT r.state FROM pg_catalog.pg_stat_replication r WHERE r.pid = s.active_pid)
FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = %s
"""
_MEASURE_SECONDS = 0.2


def source_health(
    connection: Connection, slot: str, position: StreamPosition | None, options: SourceOptions
) -> SourceHealth:
    """Ask the server. Takes a moment, in which the rate of its log is measured."""
    found = find_slot(connection, slot)
    if found is None or position is None:
        return _without_slot(found is not None, position, options)
    begin = _log_end(connection)
    started = time.monotonic()
    time.sleep(_MEASURE_SECONDS)
    rate = (_log_end(connection) - begin) / (time.monotonic() - started)
    row = connection.execute(_RETAINED, [lsn_text(position.lsn), slot]).fetchone()
    if row is None:
        return _without_slot(False, position, options)
    active, wal_status, retained, behind, safe, keep_megabytes, state = row
    limits = [options.max_retained_bytes, None if int(str(keep_megabytes)) < 0 else int(str(keep_megabytes)) << 20]
    limit = min((bytes_ for bytes_ in limits if bytes_ is not None), default=None)
    retained_bytes = int(str(retained or 0))
    room = None if limit is None else max(0, limit - retained_bytes)
    if safe is not None and room is not None:
        room = min(room, max(0, int(str(safe))))
    problem = _problem(found, position)
    return SourceHealth(
        state=str(state or ("capturing" if active else "nobody is connected"))
        if problem is None
        else f"lost ({wal_status})",
        behind_bytes=max(0, int(str(behind))),
        retained_bytes=retained_bytes,
        limit_bytes=limit,
        seconds_to_full=None if room is None or rate <= 0 else room / rate,
        last_commit=_last_commit(connection),
        problem=problem,
        hint=None if problem is None else _copy_again(options),
    )


def _without_slot(has_slot: bool, position: StreamPosition | None, options: SourceOptions) -> SourceHealth:
    if position is None:
        return SourceHealth(state="not begun" if not has_slot else "beginning")
    return SourceHealth(
        state="lost",
        problem="its replication slot no longer exists, so changes since its position are lost",
        hint=_copy_again(options),
    )


def _problem(slot: Slot, position: StreamPosition) -> str | None:
    """Somebody who captures has begun at his position, and moves on: then the one asked about may just be older."""
    if not slot.is_usable:
        return "the server has removed what it retained for this capture, which was more than max_slot_wal_keep_size"
    if slot.active_pid is None and slot.confirmed > position.lsn:
        return "its replication slot is ahead of this capture, so changes in between are lost"
    return None


def _copy_again(options: SourceOptions) -> str:
    return f"copy the tables again: penstock capture snapshot {options.name}"


def _log_end(connection: Connection) -> int:
    row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").fetchone()
    return int(str(row[0])) if row else 0


def _last_commit(connection: Connection) -> datetime | None:
    """Known only if the server keeps the times of commits."""
    row = connection.execute("SHOW track_commit_timestamp").fetchone()
    if row is None or row[0] != "on":
        return None
    row = connection.execute("SELECT (pg_last_committed_xact()).timestamp").fetchone()
    return row[0] if row is not None and isinstance(row[0], datetime) else None
