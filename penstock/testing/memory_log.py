"""A log in memory, for tests: what `contracts.Log` asks for, and no power beside it.

Other processes, such as tasks of Spark, can read it by its URL, and not write to it. For them its rows are copied into
files of a temporary folder, from the moment on at which somebody asks for the URL.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from penstock.contracts import DELETED, Batch, DeleteMarks, Offsets, Position, Rows, Start, TopicRows, TopicSettings
from penstock.errors import DeclarationError, FencedError, RangeError, RowError
from penstock.log import check_topic, parse_moment
from penstock.positions import decode_position, encode_position
from penstock.schema.arrow import conform, evolve, parse_schema
from penstock.schema.ddl import to_ddl
from penstock.schema.frames import frame_to_batch
from penstock.schema.hashing import hash_keys, partition_of
from penstock.schema.rows import rows_to_batch
from penstock.suggest import closest

SCHEME = "memory"
_DESCRIPTION = "topic.json"
_APPS = "apps"
_TOPICS = "topics"

CheckedRows: TypeAlias = "tuple[MemoryTopic, pa.RecordBatch, pa.BooleanArray | None]"


@dataclass(frozen=True, slots=True)
class Origin:
    """When rows were stored, by which writer, and in which write; 0 for rows that were appended."""

    append_time: int
    producer: int = 0
    transaction: int = 0


class MemoryLog:
    """A log that lives as long as its object. Implements `contracts.Log`."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._guard = threading.RLock()
        self._topics: dict[str, MemoryTopic] = {}
        self._producers: dict[str, int] = {}  # ids of writers, by their names
        self._tokens: dict[str, int] = {}
        self._positions: dict[str, str] = {}
        self._transactions = count(1)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        """What `open_log` opens it by, in this process and in tasks."""
        return f"{SCHEME}:{self._folder()}"

    @property
    def apps_folder(self) -> Path:
        """Where apps keep their state: a temporary folder."""
        return self._folder() / _APPS

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return sorted(self._topics)

    def topic(self, name: str) -> MemoryTopic:
        """The topic of this name."""
        if name not in self._topics:
            raise _unknown_topic(name, self.topics())
        return self._topics[name]

    def create_topic(self, name: str, schema: str | pa.Schema, *, settings: TopicSettings | None = None) -> MemoryTopic:
        """Create a topic. Its rows are kept in memory."""
        chosen, parsed = settings or TopicSettings(), parse_schema(schema)
        check_topic(name, parsed, chosen)
        with self._guard:
            if name in self._topics:
                raise DeclarationError(f"topic '{name}': it exists already", hint="open it with log.topic(name)")
            self._topics[name] = MemoryTopic(name, uuid.uuid4().hex, parsed, chosen, self)
            self.describe_for_tasks(self._topics[name])
        return self._topics[name]

    def writer(self, name: str) -> MemoryWriter:
        """Take over the writer of this name: an older one is refused from now on."""
        with self._guard:
            self._producers.setdefault(name, len(self._producers) + 1)
            self._tokens[name] = self._tokens.get(name, 0) + 1
            return MemoryWriter(self, name, self._tokens[name])

    def position(self, writer: str) -> Position | None:
        """The position that a writer stored with its last rows; None if it has stored none."""
        stored = self._positions.get(writer)
        return None if stored is None else decode_position(stored)

    def close(self) -> None:
        """Remove the copies for other processes. What is in memory can still be read."""
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, writer: MemoryWriter, rows: Sequence[TopicRows], position: Position) -> bool:
        """What `MemoryWriter.write` does: check everything, then store all of it, behind what was staged."""
        where = f"writer '{writer.name}'"
        text = encode_position(position, where=where)
        with self._guard:
            if self._tokens[writer.name] != writer.token:
                raise FencedError(f"{where}: token {writer.token} was replaced by token {self._tokens[writer.name]}")
            if self._positions.get(writer.name) == text:
                return False
            now, transaction = int(self._clock() * 1_000_000), next(self._transactions)
            for topic, batch, marks in [*writer.staged, *self.checked_parts(rows)]:
                self._store(topic, batch, marks, Origin(now, self._producers[writer.name], transaction))
            self._positions[writer.name] = text
            return True

    def checked_parts(self, rows: Sequence[TopicRows]) -> list[CheckedRows]:
        """The rows with the columns of their topics. RowError if one does not fit."""
        parts = [(self.topic(part.topic), part) for part in rows]
        return [(topic, *topic.checked_rows(part.rows, part.deleted)) for topic, part in parts]

    def append(self, topic: MemoryTopic, rows: Rows | pa.Table, deleted: DeleteMarks | None) -> None:
        """What `MemoryTopic.append` does."""
        with self._guard:
            self._store(topic, *topic.checked_rows(rows, deleted), Origin(int(self._clock() * 1_000_000)))

    def _store(self, topic: MemoryTopic, rows: pa.RecordBatch, marks: pa.BooleanArray | None, origin: Origin) -> None:
        for batch in topic.add(rows, marks, origin):
            self._copy_for_tasks(topic, batch)

    # -- copies for other processes -----------------------------------------------------------------------------------

    def _folder(self) -> Path:
        with self._guard:
            if self._temporary is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="penstock-memory-")
                for topic in self._topics.values():
                    self.describe_for_tasks(topic)
                    for batch in topic.stored_batches():
                        self._copy_for_tasks(topic, batch)
            return Path(self._temporary.name)

    def describe_for_tasks(self, topic: MemoryTopic) -> None:
        """Write down what tasks in other processes must know of a topic, for a log that has a folder."""
        if self._temporary is not None:
            path = Path(self._temporary.name) / _TOPICS / topic.name / _DESCRIPTION
            path.parent.mkdir(parents=True, exist_ok=True)
            settings = asdict(topic.settings)
            document = {"id": topic.id, "schema": to_ddl(topic.schema), "settings": settings}
            _replace(path, json.dumps(document).encode())

    def _copy_for_tasks(self, topic: MemoryTopic, batch: Batch) -> None:
        if self._temporary is None:
            return
        path = Path(self._temporary.name) / _TOPICS / topic.name / f"{batch.partition}-{int(batch.offsets[0])}.arrow"
        rows = batch.rows if batch.deleted is None else batch.rows.append_column(DELETED, batch.deleted)
        rows = rows.replace_schema_metadata({"append_time": str(batch.append_time), "producer": str(batch.producer)})
        copy = pa.BufferOutputStream()
        with pa.ipc.new_file(copy, rows.schema) as writer:
            writer.write_batch(rows)
        _replace(path, copy.getvalue())


class MemoryWriter:
    """Made by `MemoryLog.writer`; implements `contracts.Writer` and `contracts.StagesRows`."""

    def __init__(self, log: MemoryLog, name: str, token: int) -> None:
        self._log = log
        self.name = name
        self.token = token
        self.staged: list[CheckedRows] = []
        self._closed = False

    @property
    def position(self) -> Position | None:
        self._refuse_if_closed()
        return self._log.position(self.name)

    def write(self, rows: Sequence[TopicRows], position: Position) -> bool:
        self._refuse_if_closed()
        stored = self._log.write(self, rows, position)
        self.discard()
        return stored

    def stage(self, rows: Sequence[TopicRows]) -> None:
        self._refuse_if_closed()
        self.staged += self._log.checked_parts(rows)

    def discard(self) -> None:
        self.staged = []

    def close(self) -> None:
        self._closed = True
        self.discard()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise DeclarationError(f"writer '{self.name}': it is closed", hint="open it again with log.writer(name)")


class MemoryTopic:
    """Made by `MemoryLog.topic` and `create_topic`; implements `contracts.Topic`."""

    def __init__(self, name: str, id_: str, schema: pa.Schema, settings: TopicSettings, log: MemoryLog | None) -> None:
        """Without a log it can only be read."""
        self.name = name
        self.id = id_
        self.settings = settings
        self._schemas = [schema]
        self._log = log
        self._batches: list[list[Batch]] = [[] for _ in range(settings.partitions)]
        self._next_partition = 0

    @property
    def schema(self) -> pa.Schema:
        return self._schemas[-1]

    @property
    def schema_version(self) -> int:
        return len(self._schemas)

    def evolve(self, schema: str | pa.Schema) -> pa.Schema:
        log = self._writable_log()
        evolved = evolve(self.schema, parse_schema(schema), keys=self.settings.key)
        if evolved != self.schema:
            self._schemas.append(evolved)
            log.describe_for_tasks(self)
        return self.schema

    def append(self, rows: Rows | pa.Table, *, deleted: DeleteMarks | None = None) -> None:
        self._writable_log().append(self, rows, deleted)

    def _writable_log(self) -> MemoryLog:
        if self._log is None:
            raise DeclarationError(f"topic '{self.name}': only the process that has its log in memory can write to it")
        return self._log

    # -- reading ------------------------------------------------------------------------------------------------------

    def starts(self) -> dict[int, int]:
        return dict.fromkeys(range(self.settings.partitions), 0)

    def ends(self) -> dict[int, int]:
        return {number: batches[-1].next_offset if batches else 0 for number, batches in enumerate(self._batches)}

    def positions(self, start: Start) -> dict[int, int]:
        if isinstance(start, Mapping):
            return {number: self._checked_offset(number, offset) for number, offset in start.items()}
        if isinstance(start, int):
            return {number: self._checked_offset(number, start) for number in self.starts()}
        if start in ("start", "end"):
            return self.starts() if start == "start" else self.ends()
        moment = parse_moment(start, where=f"topic '{self.name}'")
        return {number: self._offset_at(number, moment) for number in self.starts()}

    def batches(
        self, start: Start = "start", *, until: Offsets | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[Batch]:
        positions = self.positions(start)
        ends = self.ends() if until is None else until
        names = self.schema.names if columns is None else list(columns)
        for name in names:
            if name not in self.schema.names:
                raise DeclarationError(
                    f"topic '{self.name}': there is no column '{name}'; it has {', '.join(self.schema.names)}",
                    hint=closest(name, self.schema.names),
                )
        schema = pa.schema([self.schema.field(name).with_nullable(True) for name in names])
        for number, offset in positions.items():
            for batch in self._batches[number]:
                first, last = np.searchsorted(batch.offsets, [offset, ends.get(number, 0)])
                if first < last:
                    yield _with_schema(batch.slice(int(first), int(last - first)), schema)

    def stored_batches(self) -> Iterator[Batch]:
        """All batches as they were stored."""
        for batches in self._batches:
            yield from batches

    def _checked_offset(self, number: int, offset: int) -> int:
        count = self.settings.partitions
        if not 0 <= number < count:
            raise RangeError(f"topic '{self.name}': partition {number} does not exist; it has {count} (0-{count - 1})")
        if not 0 <= offset <= self.ends()[number]:
            raise RangeError(
                f"topic '{self.name}' partition {number}: offset {offset} is not there; "
                f"it has 0 to {self.ends()[number]}"
            )
        return offset

    def _offset_at(self, number: int, moment: int) -> int:
        for batch in self._batches[number]:
            times = np.full(len(batch), batch.append_time)
            if self.settings.time is not None:
                times = batch.rows.column(self.settings.time).cast(pa.int64()).fill_null(moment - 1).to_numpy()
            if (times >= moment).any():
                return int(batch.offsets[np.argmax(times >= moment)])
        return self.ends()[number]

    # -- writing ------------------------------------------------------------------------------------------------------

    def checked_rows(
        self, rows: Rows | pa.Table, deleted: DeleteMarks | None
    ) -> tuple[pa.RecordBatch, pa.BooleanArray | None]:
        """The rows with the topic's columns, and which of them delete their key. RowError if one does not fit."""
        where, key = f"topic '{self.name}'", self.settings.key
        marks = None if deleted is None else pa.array(deleted, pa.bool_())
        if marks is not None and not key:
            raise RowError(f"{where}: rows cannot be deleted; the topic has no key")
        fields = [field if marks is None or field.name in key else field.with_nullable(True) for field in self.schema]
        batch = frame_to_batch(rows, pa.schema(fields), where=where)
        if batch is None:
            batch = rows_to_batch(rows, pa.schema(fields), where=where)  # type: ignore[arg-type]
        if marks is not None and len(marks) != batch.num_rows:
            raise RowError(f"{where}: {len(marks)} delete marks were given for {batch.num_rows} rows")
        for name in key:
            if batch.column(name).null_count:
                raise RowError(f"{where}: the key column '{name}' is null in a row")
        return batch, marks

    def add(self, rows: pa.RecordBatch, marks: pa.BooleanArray | None, origin: Origin) -> list[Batch]:
        """Store rows, each in the partition of its key; the batches that they have become."""
        if not rows.num_rows:
            return []
        if self.settings.key:
            columns = [rows.column(name) for name in self.settings.key]
            numbers = partition_of(hash_keys(columns), self.settings.partitions)
        else:
            numbers = np.full(rows.num_rows, self._next_partition)
            self._next_partition = (self._next_partition + 1) % self.settings.partitions
        added = []
        for number in np.unique(numbers).tolist():
            chosen = pa.array(numbers == number)
            part, start = rows.filter(chosen), self.ends()[number]
            offsets = np.arange(start, start + part.num_rows)
            gone = None if marks is None else marks.filter(chosen)
            added.append(Batch(number, part, offsets, gone, None, origin.append_time, origin.producer))
            self._batches[number].append(added[-1])
        return added


# -- other processes --------------------------------------------------------------------------------------------------


def check_url(url: str) -> None:
    if not url.startswith(f"{SCHEME}:/"):
        raise DeclarationError(
            f"log: '{url}' names no log in memory",
            hint="make one with penstock.testing.MemoryLog(), and open it in other processes by its url",
        )


def log_exists(url: str) -> bool:
    check_url(url)
    return _folder_of(url).is_dir()


def open_log(url: str, *, create: bool) -> CopiedLog:
    """The log of another process, to read it."""
    check_url(url)
    if not log_exists(url):
        raise DeclarationError(f"log: there is none at '{url}'", hint="a log in memory ends with its process")
    return CopiedLog(url)


def apps_folder(url: str) -> Path:
    check_url(url)
    return _folder_of(url) / _APPS


def _folder_of(url: str) -> Path:
    return Path(url.removeprefix(f"{SCHEME}:"))


class CopiedLog:
    """A log in the memory of another process, as its copies show it. Implements what `contracts.Log` needs to read."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._folder = _folder_of(url)

    @property
    def apps_folder(self) -> Path:
        return apps_folder(self.url)

    def topics(self) -> list[str]:
        return sorted(path.parent.name for path in (self._folder / _TOPICS).glob(f"*/{_DESCRIPTION}"))

    def topic(self, name: str) -> CopiedTopic:
        if name not in self.topics():
            raise _unknown_topic(name, self.topics())
        return CopiedTopic(self._folder / _TOPICS / name)

    def create_topic(self, name: str, schema: str | pa.Schema, *, settings: TopicSettings | None = None) -> CopiedTopic:
        raise self._refused()

    def writer(self, name: str) -> MemoryWriter:
        raise self._refused()

    def position(self, writer: str) -> Position | None:
        raise self._refused()

    def close(self) -> None:
        """Nothing is open."""

    def _refused(self) -> DeclarationError:
        return DeclarationError(f"log '{self.url}': only the process that has this log in memory can write to it")


class CopiedTopic(MemoryTopic):
    """A topic of a `CopiedLog`. It looks for new copies before it is read."""

    def __init__(self, folder: Path) -> None:
        description = json.loads((folder / _DESCRIPTION).read_text())
        settings = description["settings"]
        settings["key"] = tuple(settings["key"])
        schema = parse_schema(description["schema"])
        super().__init__(folder.name, description["id"], schema, TopicSettings(**settings), None)
        self._folder = folder

    def ends(self) -> dict[int, int]:
        self._load_copies()
        return super().ends()

    def batches(
        self, start: Start = "start", *, until: Offsets | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[Batch]:
        self._load_copies()
        return super().batches(start, until=until, columns=columns)

    def _load_copies(self) -> None:
        for number, batches in enumerate(self._batches):
            while (path := self._folder / f"{number}-{batches[-1].next_offset if batches else 0}.arrow").exists():
                batches.append(_load_copy(path))


def _load_copy(path: Path) -> Batch:
    with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
        rows = reader.get_batch(0)
    number, _, first = path.stem.partition("-")
    deleted = rows.column(DELETED) if DELETED in rows.schema.names else None
    told = {name.decode(): int(value) for name, value in (rows.schema.metadata or {}).items()}
    kept = rows if deleted is None else rows.drop_columns([DELETED])
    offsets = np.arange(int(first), int(first) + rows.num_rows)
    return Batch(int(number), kept, offsets, deleted, None, told["append_time"], told["producer"])


def _replace(path: Path, content: bytes | pa.Buffer) -> None:
    """Whoever looks meanwhile sees the whole file, or what was there before."""
    draft = path.with_suffix(".tmp")
    draft.write_bytes(content)
    draft.replace(path)


def _with_schema(batch: Batch, schema: pa.Schema) -> Batch:
    own = [name for name in schema.names if name in batch.rows.schema.names]
    rows = conform(batch.rows.select(own), schema)
    return Batch(batch.partition, rows, batch.offsets, batch.deleted, None, batch.append_time, batch.producer)


def _unknown_topic(name: str, known: list[str]) -> DeclarationError:
    hint = closest(name, known) or (f"there are {', '.join(known)}" if known else "this log has no topics yet")
    return DeclarationError(f"topic '{name}': it does not exist", hint=hint)
