"""Rebuilding the catalogue of a log from what is still known, and saying by name what is not.

1. Say what is wrong with it; if nothing is, there is nothing to do.
2. Take its rows whose checksums are right, unless it belongs to another log.
3. Add what frames, tails and the files of producers tell.
4. Keep the old files beside the new ones, and put the new catalogue in place.

Transactions that may or may not have been committed are decided by whoever runs this, never here. Nobody may use the
log meanwhile: every partition is locked, and a process that has the old catalogue open is refused from then on.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import DamagedError, DeclarationError, PenstockError
from penstock.log.catalog import (
    CATALOG_FORMAT,
    CATALOG_NAME,
    CHECKED_FORMAT,
    TOPICS_DIRECTORY,
    catalog_errors,
    check_catalog,
    connect,
    create_catalog,
    number_of,
    refuse_missing_catalog,
    unchecked_rows,
)
from penstock.log.catalog_mark import load_mark
from penstock.log.catalog_rows import Row, check_total, read_snapshot
from penstock.log.frame import NO_SEQUENCE
from penstock.log.identity import Identity, load_identity, new_id, store_identity
from penstock.log.partition import LOCK_NAME
from penstock.log.salvage import Evidence, Salvaged, Undecided, gather_evidence, salvage_catalog
from penstock.storage.files import Disk, Files, disk_errors

# Epochs that were handed out and left no trace must stay refused: nobody opens a producer so often without appending.
EPOCH_JUMP = 65_536
# The same for changes of the catalogue, by which older copies are noticed.
CHANGES_JUMP = 1_000_000
LOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair would do. Without a `problem` there is nothing to do."""

    problem: str | None
    rebuilt: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    contents: tuple[tuple[str, tuple[Row, ...]], ...] = ()
    changes: int = 0


def plan_repair(path: Path, files: Files | None = None) -> Repair:
    """Steps 1 to 3. Nothing is changed."""
    files = files or Disk()
    with disk_errors(str(path)):
        identity = load_identity(files, path)
        problem = catalog_problem(files, path, identity)
        if problem is None:
            return Repair(None)
        salvaged = salvage_catalog(path, identity.id)
        evidence = gather_evidence(files, path)
        least = _least_changes(files, path, identity)
    outdated = least is None or salvaged.changes < least
    producers, lost = _producers(salvaged, evidence, outdated=outdated)
    committed = {number_of(row[0]) for row in salvaged.rows["transactions"]}
    evidence.committed |= committed & {rows.transaction for rows in evidence.in_doubt}
    kept: dict[str, list[Row]] = {table: salvaged.rows[table] for table in ("subscriptions", "offsets", "promises")}
    transactions = sorted(committed | (evidence.committed & {rows.transaction for rows in evidence.in_doubt}))
    positions, lost_positions = _positions(salvaged, producers, outdated=outdated)
    contents = kept | {
        "producers": producers,
        "transactions": list[Row]((transaction,) for transaction in transactions),
        "positions": positions,
    }
    return Repair(
        problem,
        rebuilt=tuple(f"{len(rows)} rows of {table}" for table, rows in contents.items()),
        lost=(
            *lost,
            *lost_positions,
            *_lost_groups(salvaged, outdated=outdated),
            *(f"not read: {path}" for path in evidence.unread),
        ),
        undecided=tuple(evidence.undecided),
        contents=tuple((table, tuple(rows)) for table, rows in contents.items()),
        changes=max(salvaged.changes, least or 0) + CHANGES_JUMP,
    )


def catalog_problem(files: Files, path: Path, identity: Identity) -> str | None:
    """What is wrong with the catalogue, checked in full."""
    try:
        with catalog_errors(path / CATALOG_NAME):
            refuse_missing_catalog(path, identity)
            if not (path / CATALOG_NAME).exists():
                return None  # of an earlier version, and never used
            with closing(connect(path / CATALOG_NAME)) as connection:
                if identity.catalogue < CHECKED_FORMAT:
                    unchecked_rows(connection)
                    return None
                check_catalog(files, path, connection, identity)
                with read_snapshot(connection):
                    check_total(connection, "transactions")
    except DamagedError as error:
        return error.message
    return None


def carry_out_repair(path: Path, repair: Repair, *, pending: str | None = None, files: Files | None = None) -> Path:
    """Step 4. `pending` says what becomes of undecided rows, 'keep' or 'cut'. Returns where the old files are."""
    files = files or Disk()
    if repair.undecided and pending not in ("keep", "cut"):
        raise DeclarationError(
            f"{path}: {len(repair.undecided)} partitions end with rows of which it is not known whether they were "
            "committed",
            hint="say what becomes of them: keep, or cut",
        )
    contents = {table: list(rows) for table, rows in repair.contents}
    if pending == "keep":
        known = {row[0] for row in contents["transactions"]}
        contents["transactions"] += [
            (transaction,) for transaction in sorted({rows.transaction for rows in repair.undecided} - known)
        ]
    with disk_errors(str(path)), ExitStack() as locks:
        for lock_path in (path / LOCK_NAME, *sorted((path / TOPICS_DIRECTORY).glob(f"*/*/{LOCK_NAME}"))):
            locks.enter_context(closing(lock := files.lock(lock_path)))
            lock.acquire(timeout=LOCK_SECONDS)
        identity = load_identity(files, path)
        log_id = identity.id or new_id()
        aside = path / f"{CATALOG_NAME}.replaced-{int(time.time())}"
        for suffix in ("-wal", "-shm", ""):
            if files.exists(path / (CATALOG_NAME + suffix)):
                files.replace(path / (CATALOG_NAME + suffix), aside.with_name(aside.name + suffix))
        with catalog_errors(path / CATALOG_NAME):
            create_catalog(files, path, log_id, contents, changes=repair.changes)
        store_identity(files, path, Identity(log_id, CATALOG_FORMAT))
    return aside


def _least_changes(files: Files, path: Path, identity: Identity) -> int | None:
    try:
        return load_mark(files, path, identity.id)
    except PenstockError:
        return None


def _producers(salvaged: Salvaged, evidence: Evidence, *, outdated: bool) -> tuple[list[Row], list[str]]:
    """A row for every producer id that was ever handed out, so that none is given to another name."""
    known = {number_of(row[0]): row for row in salvaged.rows["producers"]}
    found: list[Row] = []
    lost = []
    for producer in sorted({*known, *evidence.epochs, *evidence.names}):
        seen = evidence.epochs.get(producer, 0)
        _, name, epoch, sequence = known.get(producer, (producer, evidence.names.get(producer), 0, NO_SEQUENCE))
        if name is None:
            name = f"#{producer}"  # no name that can be asked for
            lost.append(f"producer {producer}: its name; a producer of that name starts over, and repeats are stored")
        if producer not in known:
            lost.append(f"producer '{name}': the sequence of its last transaction; a repeat of it is stored again")
        elif outdated:
            lost.append(f"producer '{name}': transactions after sequence {sequence}; a repeat of one is stored again")
        exact = producer in known and not outdated
        raised = number_of(epoch) if exact else max(number_of(epoch), seen) + EPOCH_JUMP
        found.append((producer, name, raised, sequence))
    return found, lost


def _positions(salvaged: Salvaged, producers: list[Row], *, outdated: bool) -> tuple[list[Row], list[str]]:
    """The positions of writers that are still known, and what is to be said about the others.

    Nothing but the catalogue knows a position. A writer that has none, or an older one, reads its source again from
    there, and what it had written after it is stored a second time.
    """
    names = {row[0]: row[1] for row in producers}
    found = [row for row in salvaged.rows["positions"] if row[0] in names]
    if not salvaged.found:
        return found, ["the positions of all writers; they start over, and rows that they had written are stored again"]
    count = salvaged.missing.get("positions", 0)
    lost = []
    if count:
        who = "some writers" if count < 0 else f"{count} writers"
        lost.append(f"the positions of {who}; they start over, and rows that they had written are stored again")
    if outdated:
        lost += [
            f"writer '{names[producer]}': its positions after {position}; rows that it wrote since are stored again"
            for producer, position in found
        ]
    return found, lost


def _lost_groups(salvaged: Salvaged, *, outdated: bool) -> list[str]:
    if not salvaged.found:
        return ["all groups: what they read, and their offsets; they start over", "all promises of producers"]
    lost = []
    for table, count in salvaged.missing.items():
        if table in ("subscriptions", "offsets", "promises"):
            lost.append(f"{'some' if count < 0 else count} rows of {table}")
    if outdated:
        lost += [
            f"group '{group}': commits in topic '{topic}' partition {partition} after offset {offset}"
            for group, topic, partition, offset in salvaged.rows["offsets"]
        ]
        lost.append("groups and promises that are newer than this copy of the catalogue")
    return lost
