"""The log against a plain in-memory model: any sequence of operations leaves both with the same content."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.contracts import TopicRows
from penstock.errors import ConflictError, DeclarationError, FencedError
from penstock.log import Log, Producer, Topic, TopicSettings
from penstock.schema.hashing import hash_keys, partition_of

PARTITIONS = 3
KEYS = st.integers(0, 7)
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 99), st.booleans()), min_size=1, max_size=12)
# So small that a few appends fill a segment.
SMALL_SEGMENTS = 2_000


@dataclass
class Row:
    offset: int
    key: int
    value: int | None
    deleted: bool
    version: int | None = None


@dataclass
class ModelTopic:
    rows: dict[int, list[Row]] = field(default_factory=lambda: {number: [] for number in range(PARTITIONS)})
    ends: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    last: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))

    def append(self, rows: list[tuple[int, int, bool]], *, only: set[int] | None = None) -> None:
        for key, value, deleted in rows:
            number = home(key)
            if only is None or number in only:
                self.rows[number].append(Row(self.ends[number], key, value, deleted))
                self.ends[number] += 1

    def compact(self, slowest: dict[int, int] | None) -> None:
        for number, rows in self.rows.items():
            newest = {row.key: row.offset for row in rows}
            passed = self.ends[number] if slowest is None else slowest.get(number, 0)
            self.rows[number] = [
                row for row in rows if newest[row.key] == row.offset and not (row.deleted and row.offset < passed)
            ]


def home(key: int) -> int:
    return int(partition_of(hash_keys([pa.array([key], pa.int64())]), PARTITIONS)[0])


def touched(rows: list[tuple[int, int, bool]]) -> set[int]:
    return {home(key) for key, _, _ in rows}


def as_dicts(rows: list[tuple[int, int, bool]]) -> list[dict[str, object]]:
    return [{"key": key, "value": value} for key, value, _ in rows]


def marks(rows: list[tuple[int, int, bool]]) -> list[bool]:
    return [deleted for _, _, deleted in rows]


class LogMachine(RuleBasedStateMachine):
    """Two keyed topics and a versioned one, producers, transactions, a group, rewrites, and reopening in between."""

    producers = Bundle("producers")

    @initialize()
    def open(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-model-"))
        self.log = Log(self.directory / "log")
        self.openings = 0
        self.positions = 0
        self.models: dict[str, ModelTopic] = {}
        # Nothing crashes here, so there is no need to wait for the disk.
        settings = TopicSettings(partitions=PARTITIONS, segment_bytes=SMALL_SEGMENTS, durability="os")
        for name in ("one", "two"):
            self.log.create_topic(name, "key long, value long", key="key", settings=settings)
            self.models[name] = ModelTopic()
        self.log.create_topic(
            "counted", "key long, value long", key="key", settings=TopicSettings(versioned=True, segment_bytes=4_000)
        )
        self.versions: dict[int, int] = defaultdict(int)
        self.counted: list[tuple[int, int]] = []
        self.epochs: dict[str, int] = defaultdict(int)
        self.sequences: dict[tuple[str, str, int], int] = {}
        self.committed: dict[int, int] | None = None

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            shutil.rmtree(self.directory)

    def topic(self, name: str) -> Topic:
        return self.log.topic(name)

    # -- appends ------------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(["one", "two"]), rows=ROWS)
    def append(self, name: str, rows: list[tuple[int, int, bool]]) -> None:
        self.topic(name).append(as_dicts(rows), deleted=marks(rows))
        self.models[name].append(rows)

    @rule(target=producers, name=st.sampled_from(["p", "q"]))
    def open_producer(self, name: str) -> tuple[Producer, int]:
        producer = self.log.producer(name)
        self.epochs[name] += 1
        assert producer.epoch == self.epochs[name]
        return producer, self.openings

    @rule(opened=producers, name=st.sampled_from(["one", "two"]), rows=ROWS, sequence=st.integers(0, 15))
    def append_as_producer(
        self, opened: tuple[Producer, int], name: str, rows: list[tuple[int, int, bool]], sequence: int
    ) -> None:
        producer, opening = opened
        if opening != self.openings:
            with pytest.raises(DeclarationError, match="closed"):
                producer.append(self.topic(name), as_dicts(rows))
            return
        if producer.epoch < self.epochs[producer.name]:
            with pytest.raises(FencedError):
                producer.append(self.topic(name), as_dicts(rows), deleted=marks(rows), sequence=sequence)
            return
        fresh = {number for number in touched(rows) if sequence > self.sequences.get((producer.name, name, number), -1)}
        answers = producer.append(self.topic(name), as_dicts(rows), deleted=marks(rows), sequence=sequence)
        assert {answer.partition for answer in answers if not answer.repeated} == fresh
        self.models[name].append(rows, only=fresh)
        self.sequences |= {(producer.name, name, number): sequence for number in fresh}

    @rule(key=KEYS, expect=st.integers(0, 3), count=st.integers(1, 3))
    def append_on_condition(self, key: int, expect: int, count: int) -> None:
        rows = [{"key": key, "value": value} for value in range(count)]
        if expect != self.versions[key]:
            with pytest.raises(ConflictError) as conflict:
                self.topic("counted").append(rows, expect=expect)
            assert conflict.value.actual == self.versions[key]
            return
        self.topic("counted").append(rows, expect=expect)
        for _ in rows:
            self.versions[key] += 1
            self.counted.append((key, self.versions[key]))

    @rule(keys=st.lists(KEYS, min_size=1, max_size=80))
    def append_many_counted(self, keys: list[int]) -> None:
        self.topic("counted").append([{"key": key, "value": 0} for key in keys])
        for key in keys:
            self.versions[key] += 1
            self.counted.append((key, self.versions[key]))

    # -- transactions and groups --------------------------------------------------------------------------------------

    @rule(first=ROWS, second=ROWS, commit=st.booleans(), offsets=st.booleans())
    def transact(
        self, first: list[tuple[int, int, bool]], second: list[tuple[int, int, bool]], commit: bool, offsets: bool
    ) -> None:
        transaction = self.log.transaction()
        transaction.append(self.topic("one"), as_dicts(first), deleted=marks(first))
        transaction.append(self.topic("two"), as_dicts(second), deleted=marks(second))
        positions = dict(self.models["one"].ends)
        if offsets:
            transaction.commit_offsets("group", "one", positions)
        if not commit:
            transaction.abort()
            return
        transaction.commit()
        self.models["one"].append(first)
        self.models["two"].append(second)
        if offsets:
            self.committed = positions

    @rule(
        staged=st.lists(st.tuples(st.sampled_from(["one", "two"]), ROWS), max_size=3),
        last=ROWS,
        end=st.sampled_from(["write", "write", "repeat", "discard"]),
        in_memory=st.booleans(),
    )
    def write_in_parts(
        self,
        staged: list[tuple[str, list[tuple[int, int, bool]]]],
        last: list[tuple[int, int, bool]],
        end: str,
        in_memory: bool,
    ) -> None:
        """A write whose first rows are staged, in memory or in a file; a repeat or a discard forgets them."""
        writer = self.log.writer("capture")
        with pytest.MonkeyPatch.context() as patch:
            if not in_memory:
                patch.setattr("penstock.log.set_aside.MOST_WAITING_BYTES", 300)
                patch.setattr("penstock.log.writer.PIECE_BYTES", 1)
            for name, rows in staged:
                writer.stage([TopicRows(name, as_dicts(rows), marks(rows))])
            if end == "discard":
                writer.discard()
            if end == "repeat" and writer.position is not None:
                assert writer.write([TopicRows("one", as_dicts(last))], writer.position) is False
                return
            self.positions += 1
            assert writer.write([TopicRows("one", as_dicts(last), marks(last))], self.positions) is True
        for name, rows in [] if end == "discard" else staged:
            self.models[name].append(rows)
        self.models["one"].append(last)

    @rule()
    def consume_as_a_member(self) -> None:
        """A member gets just what lies behind the committed offsets."""
        model, member = self.models["one"], self.log.group("group").join(["one"])
        received: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        while deliveries := member.poll():
            for delivery in deliveries:
                received[delivery.batch.partition] += delivery.batch.offsets.tolist()
        start = self.committed or {}
        for number, rows in model.rows.items():
            assert received[number] == [row.offset for row in rows if row.offset >= start.get(number, 0)]
        member.commit()
        member.close()
        self.committed = dict(model.ends)

    @precondition(lambda self: self.committed is not None)
    @rule(to=st.sampled_from(["start", "end"]))
    def reset_the_group(self, to: str) -> None:
        group = self.log.group("group")
        moves = group.plan_reset("one", to)
        assert {move.partition: move.committed for move in moves} == self.committed
        group.reset(moves)
        self.committed = dict.fromkeys(range(PARTITIONS), 0) if to == "start" else dict(self.models["one"].ends)

    # -- rewrites -----------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(["one", "two"]))
    def compact(self, name: str) -> None:
        self.log.topic(name).compact()
        self.models[name].compact(self.committed if name == "one" else None)

    @rule(name=st.sampled_from(["one", "two"]), key=KEYS)
    def erase(self, name: str, key: int) -> None:
        self.topic(name).erase({"key": key})
        rows = self.models[name].rows[home(key)]
        self.models[name].rows[home(key)] = [row for row in rows if row.key != key]

    @rule()
    def compact_counted(self) -> None:
        self.log.topic("counted").compact()
        self.counted = [(key, version) for key, version in self.counted if version == self.versions[key]]

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = Log(self.directory / "log")
        self.openings += 1

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def every_topic_reads_as_the_model(self) -> None:
        for name, model in getattr(self, "models", {}).items():
            assert self.topic(name).ends() == model.ends
            found: dict[int, list[Row]] = {number: [] for number in range(PARTITIONS)}
            for batch in self.topic(name).batches():
                deleted = batch.deleted.to_pylist() if batch.deleted is not None else [False] * len(batch)
                columns = batch.offsets.tolist(), *(column.to_pylist() for column in batch.rows.columns), deleted
                found[batch.partition] += [Row(*values) for values in zip(*columns, strict=True)]
            assert found == model.rows

    @invariant()
    def versions_are_counted_as_in_the_model(self) -> None:
        if hasattr(self, "counted"):
            batches = list(self.topic("counted").batches())
            found = [
                (key, version)
                for batch in batches
                for key, version in zip(batch.rows.column("key").to_pylist(), batch.versions.to_pylist(), strict=True)
            ]
            assert found == self.counted

    @rule(name=st.sampled_from(["one", "two"]), number=st.integers(0, PARTITIONS - 1), data=st.data())
    def read_from_an_offset(self, name: str, number: int, data: st.DataObject) -> None:
        model = self.models[name]
        start = data.draw(st.integers(0, model.ends[number]), label="start")
        batches = self.topic(name).batches({number: start})
        found = [offset for batch in batches for offset in batch.offsets.tolist()]
        assert found == [row.offset for row in model.rows[number] if row.offset >= start]

    @rule()
    def verify(self) -> None:
        for name in self.log.topics():
            for verified in self.topic(name).verify():
                assert verified.problems == []


TestLogMachine = LogMachine.TestCase
