"""How the conformance suite opens each target, and reads what is in it. To test another target, add it to WORLDS."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.contracts import CannotTakeBack, Changes, KeepsTables, Target, TargetTable
from penstock.derive.sqlite.target import SqliteTarget
from penstock.engine.build.sources import DEAD_SCHEMA
from penstock.engine.publish import topics
from penstock.engine.publish.app_writer import AppWriter, open_app_writer, written_by
from penstock.engine.publish.measured import Measured
from penstock.engine.publish.side_topics import SideTopics
from penstock.engine.publish.topics import TopicSink, TopicTarget
from penstock.log import Log, TopicSettings
from tests.derive.sqlite.queries import query
from tests.targets.changes import additions, target_table
from tests.targets.memory import Memory, MemoryTarget

TOTALS = target_table("totals", "country string, total bigint", ("country",))
SEEN = target_table("seen", "id bigint, name string")
MORE = target_table("more", "id bigint, name string")
Rows = list[tuple[object, ...]]


class World(ABC):
    """Where one target stores its data, at first empty. Its sinks are 'seen' and 'more', without a key, and perhaps
    'totals', with one."""

    kind: type  # of the target; it decides which powers are tested
    counts_epochs = True  # it stores the number of the last epoch, and not only rows
    has_keys = True  # there is a sink 'totals'
    older_tokens: Sequence[int] = (1, 2)  # these cannot take over from instance 2

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def open(self, token: int) -> Target:
        """Open the target, without taking over. Every call opens the same data."""

    @abstractmethod
    def rows(self, name: str) -> Rows:
        """The rows of a sink as a reader sees them, sorted."""

    def take_over(self, token: int) -> tuple[Target, int]:
        """An instance that has taken over, and the last epoch before it."""
        target = self.open(token)
        last = target.take_over("shop", token)
        if isinstance(target, KeepsTables):
            target.declare([TOTALS, SEEN, MORE])
        if isinstance(target, CannotTakeBack):
            target.prepare(["totals", "seen", "more"] if self.has_keys else ["seen", "more"])
        return target, last

    def instance(self, token: int = 1) -> Target:
        return self.take_over(token)[0]

    def limit_epochs(self, monkeypatch: pytest.MonkeyPatch, most_bytes: int) -> None:
        """Set the target's limit."""
        raise AssertionError(f"{self.kind.__name__} does not limit epochs")

    def additions(self, *numbers: int, name: str = "seen") -> list[Changes]:
        """The changes that add rows with these ids."""
        return additions(SEEN, *({"id": number, "name": name} for number in numbers))

    def stored_ids(self, name: str = "seen") -> list[object]:
        """The ids of the rows of a sink."""
        return [row[0] for row in self.rows(name)]


class SqliteWorld(World):
    kind = SqliteTarget

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.file = self.path / "views.sqlite"

    def open(self, token: int) -> Target:
        return SqliteTarget(self.file)

    def rows(self, name: str) -> Rows:
        with query(self.file, f"select * from {name}") as answer:
            return sorted(answer, key=repr)


class MeasuredWorld(SqliteWorld):
    """The same contract in a wrapper, which has no powers."""

    kind = Measured

    def take_over(self, token: int) -> tuple[Target, int]:
        target = SqliteTarget(self.file)
        measured = Measured(target)
        last = measured.take_over("shop", token)
        target.declare([TOTALS, SEEN, MORE])
        return measured, last


class MemoryWorld(World):
    kind = MemoryTarget
    has_keys = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.memory = Memory()

    def open(self, token: int) -> Target:
        return MemoryTarget(self.memory)

    def rows(self, name: str) -> Rows:
        return sorted((tuple(row.values()) for row in self.memory.sent[name]), key=repr)


class LogWorld(World):
    """The log gives each token once, so none can be used twice."""

    older_tokens = (1,)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.log = Log(self.path / "log")
        self._writers: dict[int, AppWriter] = {}

    def writer(self, token: int) -> AppWriter:
        while token not in self._writers:
            writer = open_app_writer(self.log, "shop")
            writer.begin(written_by(self.log, "shop", created=1))
            self._writers[writer.token] = writer
        return self._writers[token]


class TopicsWorld(LogWorld):
    kind = TopicTarget

    def open(self, token: int) -> Target:
        sinks = {
            table.name: TopicSink(table.name, table.schema, TopicSettings(key=table.key or ()))
            for table in (TOTALS, SEEN, MORE)
        }
        return TopicTarget(self.log, self.writer(token), sinks)

    def limit_epochs(self, monkeypatch: pytest.MonkeyPatch, most_bytes: int) -> None:
        monkeypatch.setattr(topics, "MOST_BYTES", most_bytes)

    def rows(self, name: str) -> Rows:
        """The last row of each key, without those that are deleted."""
        topic, found = self.log.topic(name), []
        newest: dict[object, tuple[object, ...] | None] = {}
        for batch in topic.batches(topic.starts(), until=topic.ends()):
            rows = [tuple(row.values()) for row in batch.rows.to_pylist()]
            deleted = [False] * len(rows) if batch.deleted is None else list(batch.deleted)
            for row, gone in zip(rows, deleted, strict=True):
                if topic.settings.key:
                    newest[row[0]] = None if gone else row
                else:
                    found.append(row)
        return sorted([*found, *(row for row in newest.values() if row is not None)], key=repr)


class SideTopicsWorld(LogWorld):
    """The rows are those that could not be evaluated; their ids are offsets."""

    kind = SideTopics
    counts_epochs = False
    has_keys = False

    def open(self, token: int) -> Target:
        return SideTopics(self.log, self.writer(token))

    def additions(self, *numbers: int, name: str = "seen") -> list[Changes]:
        rows = [{"topic": name, "partition": 0, "offset": number, "error": "bad", "row": "{}"} for number in numbers]
        return additions(TargetTable(name, DEAD_SCHEMA), *rows)

    def rows(self, name: str) -> Rows:
        if name not in self.log.topics():
            return []
        return sorted((row["offset"],) for row in self.log.topic(name).read())


WORLDS: list[type[World]] = [SqliteWorld, MeasuredWorld, TopicsWorld, SideTopicsWorld, MemoryWorld]


def worlds(chosen: Callable[[type[World]], bool]) -> list[type[World]]:
    return [world for world in WORLDS if chosen(world)]


def arrow_bytes(changes: list[Changes]) -> int:
    return pa.Table.from_batches([part.rows for part in changes]).nbytes
