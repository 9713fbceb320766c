"""What a capture needs in the database: a publication of its tables, and a replication slot, both of one name.

The slot is the capture's place in the server's log. Whether it still has everything that comes after a position is
checked before anything is read: PostgreSQL itself would silently continue at a later place.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from penstock.capture.postgres.catalog import CapturedTable, literal, quoted
from penstock.capture.postgres.connection import Connection
from penstock.capture.postgres.position import StreamPosition, lsn_text, parse_lsn
from penstock.contracts import SourceOptions
from penstock.errors import ChangesLostError, DeclarationError, UnavailableError

_SLOT = """
SELECT slot_type, plugin, database = current_database(), active_pid, confirmed_flush_lsn::text, restart_lsn::text,
       wal_status, coalesce((to_jsonb(s) ->> 'conflicting')::boolean, false),
       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn)::bigint
FROM pg_catalog.pg_replication_slots s WHERE slot_name = %s
"""
_MEMBERS = """
SELECT p.pubviaroot, p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate,
       array(SELECT pc.oid::bigint FROM pg_catalog.pg_publication_tables pt
             JOIN pg_catalog.pg_namespace n ON n.nspname = pt.schemaname
             JOIN pg_catalog.pg_class pc ON pc.relnamespace = n.oid AND pc.relname = pt.tablename
             WHERE pt.pubname = p.pubname)
FROM pg_catalog.pg_publication p WHERE p.pubname = %s
"""
_DROP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot as the server shows it."""

    name: str
    active_pid: int | None
    confirmed: int  # LSN
    is_usable: bool
    retained_bytes: int


def slot_name(options: SourceOptions) -> str:
    """The name of the slot and of the publication: letters, digits and underscores, at most 63 of them."""
    capture = re.sub(r"[^a-z0-9_]", "_", options.name.lower())[:40]
    digest = hashlib.sha256(f"{options.name}\0{options.identity}".encode()).hexdigest()[:8]
    return f"penstock_{capture}_{digest}"


def check_settings(connection: Connection) -> None:
    """DeclarationError unless the server writes what logical replication needs, with the statement that corrects it."""
    (level,) = connection.execute("SHOW wal_level").fetchone() or ("",)
    if level != "logical":
        raise DeclarationError(
            f"database: the server's log does not have what capturing needs; wal_level is {level}",
            hint="ALTER SYSTEM SET wal_level = logical, then restart the server",
        )
    row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    if row and row[0]:
        raise DeclarationError("database: this server is a standby", hint="capture from the primary server")


def find_slot(connection: Connection, name: str) -> Slot | None:
    """The slot of this name, if it exists. DeclarationError if it is somebody else's."""
    row = connection.execute(_SLOT, [name]).fetchone()
    if row is None:
        return None
    kind, plugin, is_here, pid, confirmed, restart, status, conflicting, retained = row
    if (kind, plugin, is_here) != ("logical", "pgoutput", True):
        raise DeclarationError(
            f"slot {name}: it is not one of a capture of this database; found a {kind} slot of {plugin}",
            hint="choose another name for the capture",
        )
    return Slot(
        name=name,
        active_pid=None if pid is None else int(str(pid)),
        confirmed=parse_lsn(str(confirmed or "0/0")),
        is_usable=restart is not None and confirmed is not None and status != "lost" and not conflicting,
        retained_bytes=int(str(retained or 0)),
    )


def create_slot(connection: Connection, name: str) -> int:
    """Create the slot and return the LSN where it begins. Waits until all transactions that run now have ended."""
    with _slot_errors(name):
        row = connection.execute(
            "SELECT lsn::text FROM pg_catalog.pg_create_logical_replication_slot(%s, 'pgoutput')", [name]
        ).fetchone()
    assert row is not None
    return parse_lsn(str(row[0]))


@contextmanager
def _slot_errors(name: str) -> Iterator[None]:
    """Translate the errors of creating a slot that retrying cannot mend."""
    try:
        yield
    except psycopg.errors.ConfigurationLimitExceeded as error:
        raise DeclarationError(
            f"slot {name}: all replication slots of the server are in use",
            hint="ALTER SYSTEM SET max_replication_slots = 20, then restart the server",
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise DeclarationError(
            f"slot {name}: the role may not create replication slots",
            hint="as a superuser: ALTER ROLE ... REPLICATION",
        ) from error


def drop_slot(connection: Connection, name: str) -> None:
    """Drop the slot if it exists. UnavailableError while a capture uses it."""
    end = time.monotonic() + _DROP_SECONDS
    while find_slot(connection, name) is not None:
        try:
            connection.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", [name])
        except psycopg.errors.ObjectInUse as error:
            # The server notices the end of a connection a moment later.
            if time.monotonic() > end:
                raise UnavailableError(
                    f"slot {name}: it is in use by another process", hint="stop the capture first"
                ) from error
            time.sleep(0.05)
        except psycopg.errors.UndefinedObject:
            return


def check_publication(connection: Connection, name: str, tables: Sequence[CapturedTable]) -> None:
    """Create the publication, or add the tables that it does not have. DeclarationError: a right is missing for it."""
    row = connection.execute(_MEMBERS, [name]).fetchone()
    if row is not None and not row[1] and not all(table.inserts_only for table in tables):
        raise DeclarationError(
            f"publication {name}: it does not publish all changes",
            hint=f"ALTER PUBLICATION {quoted(name)} SET (publish = 'insert, update, delete, truncate')",
        )
    if row is not None and not row[0] and any(table.is_partitioned for table in tables):
        raise DeclarationError(
            f"publication {name}: it publishes changes of partitions under the names of these",
            hint=f"ALTER PUBLICATION {quoted(name)} SET (publish_via_partition_root = true)",
        )
    members = set(row[2]) if row is not None and isinstance(row[2], list) else set()
    _refuse_partitions(tables, members)
    missing = [_published(table) for table in tables if table.oid not in members]
    if not missing:
        return
    statement = f"ALTER PUBLICATION {quoted(name)} ADD TABLE {', '.join(missing)}"
    if row is None:
        statement = (
            f"CREATE PUBLICATION {quoted(name)} FOR TABLE {', '.join(missing)} WITH (publish_via_partition_root = true)"
        )
    try:
        connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege as error:
        raise DeclarationError(
            f"publication {name}: only the owner of a table can publish it; missing: {', '.join(missing)}",
            hint=f"as the owner: {statement}",
        ) from error
    except psycopg.errors.DuplicateObject:
        check_publication(connection, name, tables)  # somebody created it in the same moment


def _refuse_partitions(tables: Sequence[CapturedTable], members: Set[object]) -> None:
    """A partition has no changes of its own in a publication that has the table of which it is a part."""
    published = members | {table.oid for table in tables}
    for table in tables:
        if not published.isdisjoint(table.ancestors):
            raise DeclarationError(
                f"table {table.name}: it is a partition of a table that this capture publishes, under whose name its "
                "changes come",
                hint="leave it out, or capture it with another --name",
            )


def _published(table: CapturedTable) -> str:
    """PostgreSQL would publish tables that inherit from it, too, and refuse changes of those without a key."""
    return table.own_rows if table.has_children else table.quoted


def remember_tables(connection: Connection, name: str, tables: Sequence[CapturedTable]) -> None:
    """Note in the publication which tables the names of this capture mean, so that they may be renamed."""
    comment = json.dumps({table.name: table.oid for table in tables})
    if comment == _comment(connection, name):
        return
    try:
        connection.execute(f"COMMENT ON PUBLICATION {quoted(name)} IS {literal(comment)}".encode())
    except psycopg.errors.InsufficientPrivilege:
        return  # the publication belongs to the owner of the tables, who may have a comment of their own there


def remembered_tables(connection: Connection, name: str) -> dict[str, int]:
    """The oids of captured tables by the names that they had at first."""
    try:
        found = json.loads(_comment(connection, name) or "{}")
    except ValueError:
        return {}
    return {str(table): oid for table, oid in found.items() if isinstance(oid, int)} if isinstance(found, dict) else {}


def _comment(connection: Connection, name: str) -> str | None:
    row = connection.execute(
        "SELECT obj_description(oid, 'pg_publication') FROM pg_catalog.pg_publication WHERE pubname = %s", [name]
    ).fetchone()
    return None if row is None or row[0] is None else str(row[0])


def remove_all(connection: Connection, name: str) -> None:
    """Drop the slot and the publication. A publication of another owner stays."""
    drop_slot(connection, name)
    try:
        connection.execute(f"DROP PUBLICATION IF EXISTS {quoted(name)}".encode())
    except psycopg.errors.InsufficientPrivilege as error:
        raise DeclarationError(
            f"publication {name}: it belongs to another role", hint=f"as its owner: DROP PUBLICATION {quoted(name)}"
        ) from error


def check_slot(slot: Slot | None, name: str, position: StreamPosition, options: SourceOptions) -> None:
    """ChangesLostError unless the slot has everything that comes after the position."""
    if slot is None:
        raise changes_lost(options, f"slot {name}: it no longer exists; somebody dropped it")
    if not slot.is_usable:
        raise changes_lost(
            options, f"slot {name}: the server has removed what it retained; it was more than max_slot_wal_keep_size"
        )
    if slot.confirmed > position.lsn:
        raise changes_lost(
            options,
            f"slot {name}: it is ahead of this capture; it is at {lsn_text(slot.confirmed)}, "
            f"the capture at {lsn_text(position.lsn)}",
        )


def changes_lost(options: SourceOptions, message: str) -> ChangesLostError:
    return ChangesLostError(
        f"{message}. Changes that come after this capture's position are lost",
        hint=f"copy the tables again: penstock capture snapshot {options.name}",
    )
