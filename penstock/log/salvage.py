"""What is still known when the catalogue is not: by its own sound rows, by frames and tails, by the files of producers.

Nothing here changes a file of the log.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import DamagedError, PenstockError
from penstock.log.catalog import CATALOG_FORMAT, CATALOG_NAME, CHECKED_FORMAT, TOPICS_DIRECTORY, UNREADABLE
from penstock.log.catalog_rows import COLUMNS, Row, changes_of, checksum, tables_of
from penstock.log.description import DESCRIPTION_NAME, load_description, partition_directory
from penstock.log.frame import BadFrameError, Header
from penstock.log.manifest import Manifest, Segment, load_manifest
from penstock.log.partition import read_state
from penstock.log.segment import FIRST_FRAME, scan
from penstock.log.tail import Tail, TailFile
from penstock.storage.document import load_document
from penstock.storage.files import Files

PRODUCERS_DIRECTORY = "producers"


@dataclass(slots=True)
class Salvaged:
    """The sound rows of a catalogue, by table, and how many more there were. Of one that is foreign: nothing."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {table: [] for table in COLUMNS})
    missing: dict[str, int] = field(default_factory=dict)  # None of a table could be counted: -1
    changes: int = 0
    found: bool = False


@dataclass(frozen=True, slots=True)
class Undecided:
    """Rows of a transaction of which no file tells whether it was committed."""

    transaction: int
    topic: str
    partition: int
    start: int
    end: int  # exclusive


@dataclass(slots=True)
class Evidence:
    """What frames, tails and the files of producers tell."""

    epochs: dict[int, int] = field(default_factory=dict)  # of producers, by id; 0 where only the id is known
    names: dict[int, str] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)  # transactions of which there are visible rows
    in_doubt: list[Undecided] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def saw_producer(self, producer: int, epoch: int) -> None:
        if producer:
            self.epochs[producer] = max(epoch, self.epochs.get(producer, 0))

    @property
    def undecided(self) -> list[Undecided]:
        return [rows for rows in self.in_doubt if rows.transaction not in self.committed]


def salvage_catalog(root: Path, log_id: str) -> Salvaged:
    """Read a copy of the catalogue, row by row, as far as that is possible."""
    salvaged = Salvaged()
    with tempfile.TemporaryDirectory() as folder:
        for path in root.glob(CATALOG_NAME + "*"):
            if path.name in (CATALOG_NAME, CATALOG_NAME + "-wal"):
                shutil.copy(path, folder)
        try:
            with closing(sqlite3.connect(Path(folder) / CATALOG_NAME)) as connection:
                found_id, changes = changes_of(connection)
                if found_id == log_id:
                    salvaged.changes, salvaged.found = changes, True
                    (version,) = connection.execute("PRAGMA user_version").fetchone()
                    for table in tables_of(CHECKED_FORMAT if version == CHECKED_FORMAT else CATALOG_FORMAT):
                        _salvage_table(connection, table, salvaged)
        except (*UNREADABLE, DamagedError):
            pass  # without its id nothing of it can be believed
    return salvaged


def _salvage_table(connection: sqlite3.Connection, table: str, salvaged: Salvaged) -> None:
    sound = salvaged.rows[table]
    try:
        found = connection.execute(f"SELECT {', '.join(COLUMNS[table])}, crc FROM {table}")
        while (row := found.fetchone()) is not None:
            if checksum(table, row[:-1]) == row[-1]:
                sound.append(tuple(row[:-1]))
    except UNREADABLE:
        pass
    try:
        (stored,) = connection.execute("SELECT count FROM totals WHERE name = ?", (table,)).fetchone()
        missing = max(0, int(stored) - len(sound))
    except (*UNREADABLE, TypeError, ValueError):
        missing = -1
    if missing:
        salvaged.missing[table] = missing


def gather_evidence(files: Files, root: Path) -> Evidence:
    evidence = Evidence()
    _read_producers(files, root / PRODUCERS_DIRECTORY, evidence)
    for name in files.names(root / TOPICS_DIRECTORY):
        directory = root / TOPICS_DIRECTORY / name
        if not files.exists(directory / DESCRIPTION_NAME):
            continue
        try:
            partitions = load_description(files, directory).settings.partitions
        except PenstockError as error:
            evidence.unread.append(error.message)
            continue
        for number in range(partitions):
            try:
                _read_partition(files, directory / partition_directory(number), name, number, evidence)
            except PenstockError as error:
                evidence.unread.append(error.message)
            except OSError as error:
                evidence.unread.append(f"topic '{name}' partition {number}: {error}")
    return evidence


def _read_producers(files: Files, directory: Path, evidence: Evidence) -> None:
    try:
        names = files.names(directory)
    except FileNotFoundError:
        return
    for name in names:
        number, _, ending = name.partition(".")
        if not number.isdigit():
            continue
        evidence.saw_producer(int(number), 0)
        if ending == "json":
            try:
                evidence.names[int(number)] = str(load_document(files, directory / name, what="producer")["name"])
            except (PenstockError, KeyError):
                evidence.unread.append(f"{directory / name} is damaged")


def _read_partition(files: Files, directory: Path, topic: str, number: int, evidence: Evidence) -> None:
    manifest = load_manifest(files, directory)
    with closing(TailFile(files, directory)) as tail_file:
        tail = tail_file.read()
    for segment in manifest.segments:
        for position, header in _frames(files, directory, segment, evidence):
            evidence.saw_producer(header.producer, header.epoch)
            if header.transaction and not _in_doubt(position, segment, manifest, tail):
                evidence.committed.add(header.transaction)
    doubtful = [
        header
        for position, header in _frames(files, directory, manifest.active, evidence)
        if _in_doubt(position, manifest.active, manifest, tail)
    ]
    last = doubtful[-1].transaction if doubtful else 0
    # Nobody appends behind a transaction that may still be cut, so only the last one can be undecided.
    evidence.committed.update(header.transaction for header in doubtful if header.transaction not in (0, last))
    rows = [header for header in doubtful if last and header.transaction == last]
    if rows:
        evidence.in_doubt.append(Undecided(last, topic, number, rows[0].base_offset, rows[-1].next_offset))


def _in_doubt(position: int, segment: Segment, manifest: Manifest, tail: Tail | None) -> bool:
    """Whether the tail leaves open if the frame is visible."""
    if segment is not manifest.active:
        return False
    known = tail.durable_position if tail and tail.active_base == segment.base_offset else FIRST_FRAME
    return position >= known


def _frames(files: Files, directory: Path, segment: Segment, evidence: Evidence) -> Iterator[tuple[int, Header]]:
    with closing(files.open(directory / segment.name)) as file:
        if not segment.rewritten:
            try:
                state, _ = read_state(file)
                for producer, mark in state.producers.items():
                    evidence.saw_producer(producer, mark.epoch)
            except BadFrameError:
                evidence.unread.append(f"{directory / segment.name}: its state is damaged")
        data = file.view(0, file.size())
        found = scan(data, start=FIRST_FRAME, next_offset=segment.base_offset, gaps=segment.rewritten, bodies=False)
        yield from found.frames
