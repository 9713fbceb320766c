"""Power loss, kills and failing disks against a model: what was acknowledged is there, and nothing that must not be.

A world is two partitions on a simulated disk, one or two processes that write to them, and a model that knows what was
promised. Every run is a seed; a failure prints it, and `run(seed)` plays it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import ConflictError, PenstockError, UnavailableError, UnknownOutcomeError
from penstock.log.frame import ANONYMOUS, DELETED_COLUMN, DELETES, Stamp, encode
from penstock.log.manifest import load_manifest
from penstock.log.partition import Partition, create_partition
from penstock.log.pending_write import Appended, Request, Staged
from penstock.log.reader import FrameReader, offset_at_time, read_batches
from penstock.log.recovery import Outcome
from penstock.log.retention import Retention
from penstock.log.rewrite import last_of_each_key, rewrite
from penstock.log.verify import verify_partition
from penstock.log.versions import Keys
from penstock.log.writer import PartitionWriter, WriterSettings
from penstock.schema.hashing import hash_keys
from tests.log.simulated import SECTOR, Fault, SimulatedCrash, SimulatedDisk

RUNS = 240
LONG_RUNS = 20_000
LONG_CHUNKS = 20
PARTITIONS = 2
TOPIC_ID = bytes(range(16))
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))])
ROOT = Path("topic")
POWER_LOSS, KILL, KILL_AND_GO_ON = "power loss", "kill", "kill and a later power loss"
CHANGED_ITS_MIND = "changed its mind"
# So small that each frame that was set aside is written, and most of them synced, by itself.
PIECE_BYTES, SYNC_EVERY_BYTES = 1, 500
PLACES = {"manifest.json", "tail", "tail.copy", "versions"}

# A crash after one operation is nearly one before the next, so the short run does without it.
FAULTS = [Fault.CRASH_BEFORE, pytest.param(Fault.CRASH_AFTER, marks=pytest.mark.long)]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.writer.PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr("penstock.log.writer.SYNC_EVERY_BYTES", SYNC_EVERY_BYTES)


class OneSchema:
    """A topic that never changed its schema."""

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def version(self, schema_id: int) -> pa.Schema:
        assert schema_id == 1
        return SCHEMA


SCHEMAS = OneSchema()


def keys_of(batch: pa.RecordBatch) -> Keys:
    columns = [batch.column("k")]
    return Keys(hash_keys(columns).view(np.uint64), hash_keys(columns, seed=7).view(np.uint64))


@dataclass(frozen=True)
class Row:
    key: int
    value: int
    time: int
    deleted: bool = False
    version: int = 0


@dataclass
class Sent:
    """One request as the model knows it."""

    rows: list[Row]
    stamp: Stamp = ANONYMOUS
    transaction: int = 0


@dataclass
class Model:
    """What one partition may hold: `sent` in order, of which at least the first `safe` must survive a power loss."""

    sent: list[Sent] = field(default_factory=list)
    safe: int = 0
    unknown: list[Sent] = field(default_factory=list)  # of the call in flight: any prefix of these may be there
    hidden: set[int] = field(default_factory=set)  # offsets that were compacted away
    hiding: set[int] | None = None  # the same, if the compaction in flight took effect
    start: int = 0

    def rows(self) -> list[Row]:
        return [row for sent in self.sent for row in sent.rows]

    def visible(self, hidden: set[int] | None = None) -> dict[int, Row]:
        gone = self.hidden if hidden is None else hidden
        return {offset: row for offset, row in enumerate(self.rows()) if offset >= self.start and offset not in gone}

    def marks(self) -> dict[int, tuple[int, int]]:
        return {one.stamp.producer: (one.stamp.epoch, one.stamp.sequence) for one in self.sent if one.stamp.producer}

    def version_of(self, key: int) -> int:
        return max((row.version for row in self.visible().values() if row.key == key), default=0)

    def numbered(self, rows: list[Row]) -> list[Row]:
        last: dict[int, int] = {}
        numbered = []
        for row in rows:
            last[row.key] = last.get(row.key, self.version_of(row.key)) + 1
            numbered.append(replace(row, version=last[row.key]))
        return numbered

    def compacted(self, *, keep_deletes: bool) -> set[int]:
        visible = self.visible()
        last = {row.key: offset for offset, row in visible.items()}
        gone = {
            offset for offset, row in visible.items() if last[row.key] != offset or (row.deleted and not keep_deletes)
        }
        return self.hidden | gone


class Process:
    """One process: its files, its partitions, its writers."""

    def __init__(self, world: World, disk: SimulatedDisk, durability: str) -> None:
        self.disk = disk
        self.durability = durability
        self.partitions = [
            Partition(
                disk,
                ROOT / str(number),
                topic="orders",
                topic_id=TOPIC_ID,
                number=number,
                outcomes=world.outcome,
            )
            for number in range(PARTITIONS)
        ]
        self.writers = [
            PartitionWriter(
                partition,
                SCHEMAS,
                WriterSettings(
                    durability=durability,
                    segment_bytes=world.segment_bytes,
                    time_column="t",
                    retention=lambda: world.retention,
                    keys_of=keys_of if world.versioned else None,
                ),
                clock=lambda: world.now,
            )
            for partition in self.partitions
        ]

    def close(self) -> None:
        for writer in self.writers:
            writer.close()
        for partition in self.partitions:
            partition.close()


class World:
    """The disk, the catalogue's transactions, the processes, and the model of each partition."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.committed: set[int] = set()
        self.forgettable: list[int] = []
        self.now = 1_000.0
        self.values = count(1)
        self.transactions = count(1)
        self.sequences = {7: count(1), 8: count(10, 3)}
        self.versioned = rng.random() < 0.3
        self.segment_bytes = rng.choice([1_000, 2_500, 6_000, 100_000])
        kept = None if self.versioned else rng.choice([None, None, 3_000])
        self.retention = Retention(bytes=kept)
        self.durabilities = rng.choice([("fsync",), ("fsync",), ("os",), ("fsync", "os"), ("fsync", "fsync")])
        self.models = [Model() for _ in range(PARTITIONS)]
        disk = SimulatedDisk()
        for number in range(PARTITIONS):
            create_partition(disk, ROOT / str(number), topic_id=TOPIC_ID, number=number)
        self.processes: list[Process] = []
        self.start(disk)

    def outcome(self, transaction: int) -> Outcome:
        return Outcome.COMMITTED if transaction in self.committed else Outcome.UNRECORDED

    def start(self, disk: SimulatedDisk) -> None:
        self.processes = []
        for number, durability in enumerate(self.durabilities):
            self.processes.append(Process(self, disk if number == 0 else disk.another_process(), durability))

    @property
    def disk(self) -> SimulatedDisk:
        return self.processes[0].disk

    # -- what can be done ---------------------------------------------------------------------------------------------

    def some_rows(self, most: int = 4) -> list[Row]:
        rng = self.rng
        return [
            Row(
                rng.randint(0, 5),
                next(self.values),
                int(self.now) * 1_000_000 + rng.randint(-60_000_000, 0),
                deleted=rng.random() < 0.1,
            )
            for _ in range(rng.randint(1, most))
        ]

    def request(self, sent: Sent) -> Request:
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([row.key for row in sent.rows], pa.int64()),
                pa.array([row.value for row in sent.rows], pa.int64()),
                pa.array([row.time for row in sent.rows], pa.int64()).cast(SCHEMA.field("t").type),
            ],
            schema=SCHEMA,
        )
        flags = 0
        if any(row.deleted for row in sent.rows):
            flags = DELETES
            batch = batch.append_column(DELETED_COLUMN, pa.array([row.deleted for row in sent.rows]))
        return Request(batch, 1, flags, sent.stamp)

    def new_sent(self, number: int, *, most: int = 4, stamp: Stamp = ANONYMOUS) -> Sent:
        rows = self.some_rows(most)
        if self.versioned:
            rows = self.models[number].numbered(rows)
        return Sent(rows, stamp)

    def acknowledge(self, process: Process, number: int, sent: list[Sent], *, durable: bool = False) -> None:
        model = self.models[number]
        model.sent += sent
        model.unknown = []
        if durable or process.durability == "fsync":
            model.safe = len(model.sent)

    def append(self, process: Process) -> None:
        number = self.rng.randrange(PARTITIONS)
        self.append_to(process, number, self.new_sent(number))

    def append_to(self, process: Process, number: int, sent: Sent) -> Appended:
        model = self.models[number]
        end = len(model.rows())
        model.unknown = [sent]
        try:
            answer = process.writers[number].append(self.request(sent))
        except UnavailableError:
            model.unknown = []
            raise
        assert answer == Appended(number, end, len(sent.rows))
        self.acknowledge(process, number, [sent])
        return answer

    def append_as_producer(self, process: Process) -> None:
        number = self.rng.randrange(PARTITIONS)
        producer = self.rng.choice([7, 8])
        sequence = next(self.sequences[producer])
        self.append_to(process, number, self.new_sent(number, stamp=Stamp(producer, 1, sequence)))
        if self.rng.random() < 0.3:
            self.repeat(process, number)

    def repeat(self, process: Process, number: int) -> None:
        """Send the last sequence of every producer again: it is recognised, and nothing is stored."""
        for producer, (epoch, sequence) in self.models[number].marks().items():
            again = Sent(self.some_rows(), Stamp(producer, epoch, sequence))
            answer = process.writers[number].append(self.request(again))
            assert answer.repeated, f"sequence {sequence} of producer {producer} was stored twice"

    def append_group(self, process: Process) -> None:
        """Several requests with one sync, as threads that wait for one another would."""
        number = self.rng.randrange(PARTITIONS)
        group: list[Sent] = []
        model = self.models[number]
        before = len(model.sent)
        for _ in range(self.rng.randint(2, 4)):
            group.append(self.new_sent(number, most=2))
            model.sent.append(group[-1])  # for the versions of the next one
        del model.sent[before:]
        model.unknown = group
        requests = [self.request(sent) for sent in group]
        writer = process.writers[number]
        try:
            with writer.exclusive():
                writer.publish(writer.stage(requests))
        except UnavailableError:
            model.unknown = []
            raise
        assert all(request.result is not None for request in requests)
        self.acknowledge(process, number, group)

    def conditional_append(self, process: Process) -> None:
        if not self.versioned:
            return
        number = self.rng.randrange(PARTITIONS)
        model = self.models[number]
        key = self.rng.randint(0, 5)
        sent = Sent(model.numbered([Row(key, next(self.values), int(self.now) * 1_000_000)]))
        expected = model.version_of(key)
        wrong = self.request(sent)
        wrong.expect = expected + 1
        with pytest.raises(ConflictError, match=f"version {expected};"):
            process.writers[number].append(wrong)
        right = self.request(sent)
        right.expect = expected
        model.unknown = [sent]
        process.writers[number].append(right)
        self.acknowledge(process, number, [sent])

    def roll(self, process: Process) -> None:
        number = self.rng.randrange(PARTITIONS)
        with process.writers[number].exclusive():
            process.writers[number].roll()
        self.models[number].safe = len(self.models[number].sent)

    def expire(self, process: Process) -> None:
        number = self.rng.randrange(PARTITIONS)
        process.writers[number].expire()
        if self.retention.bytes is not None:
            manifest = load_manifest(process.disk, ROOT / str(number))
            assert sum(segment.bytes for segment in manifest.closed) <= self.retention.bytes

    def compact(self, process: Process) -> None:
        number = self.rng.randrange(PARTITIONS)
        self.sync_start(number)
        model = self.models[number]
        keep_deletes = self.rng.random() < 0.5
        model.hiding = model.compacted(keep_deletes=keep_deletes)
        rewrite(
            process.writers[number],
            SCHEMAS,
            last_of_each_key(keys_of, drops_markers=not keep_deletes),
            segment_bytes=self.segment_bytes,
            time_column="t",
        )
        # Retention may have let go a key's last row with its segment, so what the rolling inside removed counts too.
        before = model.start
        self.sync_start(number)
        if model.start == before:
            model.hidden, model.hiding = model.hiding, None
        else:
            model.hidden, model.hiding = self.hidden_now(number), None
        model.safe = len(model.sent)

    def hidden_now(self, number: int) -> set[int]:
        """After a compaction that also expired: every row it kept must have been one to keep."""
        model = self.models[number]
        seen = self.seen(self.processes[0], number)
        assert seen.items() <= model.visible().items()
        hidden = {offset for offset in range(len(model.rows())) if offset not in seen}
        last = {row.key: offset for offset, row in model.visible().items()}
        for offset in hidden:
            row = model.visible().get(offset)
            assert row is None or row.deleted or last[row.key] != offset
        return hidden

    def sync_start(self, number: int) -> None:
        """Take over how far retention has come; it may go at any roll."""
        model = self.models[number]
        manifest = load_manifest(self.disk, ROOT / str(number))
        assert manifest.start_offset >= model.start
        assert self.retention.bytes is not None or manifest.start_offset == 0
        model.start = manifest.start_offset

    def transaction(self, process: Process) -> None:
        """The steps of Transaction.commit, over a catalogue that is a set. Sometimes it changes its mind."""
        transaction = next(self.transactions)
        parts = [
            [Sent(rows, transaction=transaction) for rows in self.rows_in_parts(number, self.rng.choice([1, 1, 3]))]
            for number in range(PARTITIONS)
        ]
        change_mind = self.rng.choice(["", "", "", "after staging", "after pending"])
        for model, sent in zip(self.models, parts, strict=True):
            model.unknown = list(sent)
        with ExitStack() as held:
            for writer in process.writers:
                held.enter_context(writer.exclusive())
            touched = []
            staged = []
            try:
                for writer, sent in zip(process.writers, parts, strict=True):
                    touched.append(writer)
                    staged.append(self.write_in_parts(writer, sent, transaction))
                for writer in process.writers:
                    writer.sync()
                if change_mind == "after staging":
                    raise UnavailableError(CHANGED_ITS_MIND)
                for writer, one in zip(process.writers, staged, strict=True):
                    writer.publish_pending(one, transaction)
                if change_mind == "after pending":
                    raise UnavailableError(CHANGED_ITS_MIND)
            except PenstockError as error:
                for model in self.models:
                    model.unknown = []
                for writer in touched:
                    writer.roll_back()
                if error.message != CHANGED_ITS_MIND:
                    raise
                return
            self.committed.add(transaction)
            for writer, one in zip(process.writers, staged, strict=True):
                writer.publish(one)
        for number, sent in enumerate(parts):
            self.acknowledge(process, number, sent, durable=True)
        self.forgettable.append(transaction)

    def rows_in_parts(self, number: int, parts: int) -> list[list[Row]]:
        """What a transaction stores in a partition, in as many frames; all but the last are set aside before."""
        rows = self.new_sent(number, most=4 * parts).rows
        most = -(-len(rows) // parts)
        return [rows[start : start + most] for start in range(0, len(rows), most)]

    def write_in_parts(self, writer: PartitionWriter, sent: list[Sent], transaction: int) -> Staged:
        """Frames that were set aside are written one by one, each with a sync."""
        aside = (self.request(part) for part in sent[:-1])
        return writer.write([self.request(sent[-1])], transaction=transaction, set_aside=aside)

    def forget(self, process: Process) -> None:
        """Sync the tails, and let the catalogue forget the transactions before them."""
        for partition in process.partitions:
            try:
                partition.tail_file.sync()
            except OSError:
                return
        self.committed -= set(self.forgettable)
        self.forgettable = []

    def look(self, process: Process) -> None:
        self.check(process)

    def reopen(self, process: Process) -> None:
        process.close()
        self.processes[self.processes.index(process)] = Process(self, process.disk, process.durability)

    def step(self, process: Process) -> None:
        self.now += self.rng.choice([0.001, 1.0, 30.0, -20.0])
        actions: list[tuple[Callable[[Process], None], int]] = [
            (self.append, 30),
            (self.append_as_producer, 15),
            (self.append_group, 15),
            (self.conditional_append, 5),
            (self.transaction, 12),
            (self.roll, 6),
            (self.compact, 4),
            (self.expire, 3),
            (self.forget, 3),
            (self.look, 3),
            (self.reopen, 3),
        ]
        action = self.rng.choices([act for act, _ in actions], [weight for _, weight in actions])[0]
        action(process)

    # -- what must be true --------------------------------------------------------------------------------------------

    def seen(self, process: Process, number: int) -> dict[int, Row]:
        """Everything a reader finds, read in pieces of a random size."""
        partition = process.partitions[number]
        tail = partition.tail()
        reader = FrameReader(partition, partition.manifest(tail.generation).start_offset)
        seen: dict[int, Row] = {}
        piece = self.rng.choice([200, 2_000, 1_000_000])
        while frames := reader.read(tail, max_bytes=piece):
            for batch in read_batches(partition, SCHEMAS, frames):
                table = batch.rows.to_pydict()
                times = batch.rows.column("t").cast(pa.int64()).to_pylist()
                deleted = batch.deleted.to_pylist() if batch.deleted is not None else [False] * len(batch)
                versions = batch.versions.to_pylist() if batch.versions is not None else [0] * len(batch)
                for at, offset in enumerate(batch.offsets.tolist()):
                    assert offset not in seen, f"offset {offset} came twice"
                    assert not seen or offset > max(seen), f"offset {offset} came out of order"
                    seen[offset] = Row(table["k"][at], table["v"][at], times[at], deleted[at], versions[at])
        reader.close()
        return seen

    def reconcile(self, process: Process, *, power_lost: bool) -> None:
        """After a crash: find out what became of the call in flight, and that nothing else happened."""
        for number, model in enumerate(self.models):
            self.settle_unknown(model)
            end = process.partitions[number].tail().end_offset
            fewest = model.safe if power_lost else len(model.sent)
            possible = model.sent + model.unknown
            ends = np.cumsum([0] + [len(sent.rows) for sent in possible]).tolist()
            assert end in ends[fewest:], f"partition {number} ends at {end}; possible: {ends[fewest:]}"
            model.sent, model.unknown = possible[: ends.index(end)], []
            model.safe = len(model.sent) if power_lost else min(model.safe, len(model.sent))
            self.sync_start(number)
            if model.hiding is not None:
                seen = self.seen(process, number)
                if seen != model.visible():
                    model.hidden = self.hidden_now(number)
                model.hiding = None
        self.check(process, indexes=False)

    def settle_unknown(self, model: Model) -> None:
        """A transaction in flight is decided by the catalogue."""
        if model.unknown and model.unknown[0].transaction:
            if model.unknown[0].transaction in self.committed:
                model.sent += model.unknown
                model.safe = len(model.sent)
            model.unknown = []

    def check(self, process: Process, *, indexes: bool = True) -> None:
        """`indexes`: they may describe lost rows, harmlessly, until the next writer puts them right."""
        for number, model in enumerate(self.models):
            self.sync_start(number)
            partition = process.partitions[number]
            tail = partition.tail()
            assert tail.end_offset == len(model.rows())
            seen = self.seen(process, number)
            assert seen == model.visible()
            self.check_times(partition, seen)
            verified = verify_partition(partition)
            assert [problem for problem in verified.problems if indexes or ".index" not in problem] == []
            assert verified.rows >= len(seen)

    def check_times(self, partition: Partition, seen: dict[int, Row]) -> None:
        tail = partition.tail()
        for _ in range(2):
            time = int(self.now) * 1_000_000 - self.rng.randint(-1_000_000, 200_000_000)
            if seen and self.rng.random() < 0.5:
                time = self.rng.choice(list(seen.values())).time
            found = offset_at_time(partition, SCHEMAS, "t", time)
            wanted = min((offset for offset, row in seen.items() if row.time >= time), default=tail.end_offset)
            assert found == wanted, f"event time {time}: offset {found} instead of {wanted}"

    def check_writers(self) -> None:
        """Every process can go on: the next offset, the producers' marks, no garbage."""
        for process in self.processes:
            for number in range(PARTITIONS):
                self.append_to(process, number, self.new_sent(number))
                self.repeat(process, number)
                for producer, mark in self.models[number].marks().items():
                    found = process.writers[number].mark_of(producer)
                    assert found is not None
                    assert (found.epoch, found.sequence) == mark
        for number in range(PARTITIONS):
            manifest = load_manifest(self.disk, ROOT / str(number))
            known = PLACES | {name for one in manifest.segments for name in (one.name, one.index_name)}
            left = {name for name in self.disk.names(ROOT / str(number)) if not name.endswith(".draft")}
            assert left - known == set()


def crash_and_recover(world: World) -> None:
    """Lose the power, also during the recovery, and again after it: the end is the same each time."""
    rng = world.rng
    disk = world.disk.crash(rng)
    for _ in range(rng.choice([0, 0, 1, 2])):
        disk.fail(rng.randint(0, 6), rng.choice([Fault.CRASH_BEFORE, Fault.CRASH_AFTER]))
        try:
            world.start(disk)
            for partition in world.processes[0].partitions:
                partition.tail()
        except SimulatedCrash:
            pass
        disk = disk.crash(rng)
    world.start(disk)
    world.reconcile(world.processes[0], power_lost=True)
    before = [segment_contents(disk, number) for number in range(PARTITIONS)]
    disk = disk.crash(rng)
    world.start(disk)
    world.check(world.processes[0], indexes=False)
    assert [segment_contents(disk, number) for number in range(PARTITIONS)] == before


def segment_contents(disk: SimulatedDisk, number: int) -> dict[str, bytes]:
    manifest = load_manifest(disk, ROOT / str(number))
    contents = disk.contents(ROOT / str(number))
    return {segment.name: contents[segment.name] for segment in manifest.segments}


def kill_one(world: World, unlucky: int) -> None:
    """One process is gone; another takes its place, and a second one that was there all the time goes on."""
    process = world.processes[unlucky]
    process.disk.kill()
    survivors = [one for one in world.processes if one is not process]
    fresh = Process(world, process.disk.another_process(), process.durability)
    if survivors and world.rng.random() < 0.5:
        # The survivor may be the next to write, with all it keeps in memory.
        number = world.rng.randrange(PARTITIONS)
        with survivors[0].writers[number].exclusive():
            pass
    world.processes[unlucky] = fresh
    world.reconcile(world.rng.choice(world.processes), power_lost=False)


def run(seed: int) -> None:
    """One life of a world: some steps, a crash in the middle of one, recovery; and that again."""
    rng = random.Random(seed)
    world = World(rng)
    for _ in range(rng.randint(1, 4)):
        for _ in range(rng.randint(0, 12)):
            world.step(rng.choice(world.processes))
        unlucky = rng.randrange(len(world.processes))
        disk = world.processes[unlucky].disk
        disk.fail(rng.randint(0, 12), rng.choice([Fault.CRASH_BEFORE, Fault.CRASH_AFTER]), seed=seed)
        try:
            for _ in range(20):
                world.step(world.processes[unlucky])
        except SimulatedCrash:
            pass
        for one in world.processes:
            one.disk.heal()
        if rng.random() < 0.65:
            crash_and_recover(world)
        else:
            kill_one(world, unlucky)
        world.check_writers()
        world.check(rng.choice(world.processes))


def run_all(seeds: Iterator[int] | range) -> None:
    for seed in seeds:
        try:
            run(seed)
        except BaseException as error:
            error.add_note(f"play it again with: run({seed})")
            raise


@pytest.mark.parametrize("chunk", range(4))
def test_a_power_loss_or_a_kill_anywhere_keeps_every_promise(chunk: int) -> None:
    size = RUNS // 4
    run_all(range(chunk * size, (chunk + 1) * size))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("chunk", range(LONG_CHUNKS))
def test_twenty_thousand_power_losses_and_kills_keep_every_promise(chunk: int) -> None:
    size = LONG_RUNS // LONG_CHUNKS
    run_all(range(1_000_000 + chunk * size, 1_000_000 + (chunk + 1) * size))


# -- a fault at every operation of one script -------------------------------------------------------------------------


def script(world: World) -> list[Callable[[Process], None]]:
    """Everything a writer can do, in an order in which each thing has something to do."""
    return [
        world.append,
        world.append_as_producer,
        world.append_group,
        world.roll,
        world.transaction,
        world.append_group,
        world.compact,
        world.append_as_producer,
        world.roll,
        world.conditional_append,
        world.append,
        world.expire,
        world.forget,
        world.reopen,
        world.transaction,
        world.append,
        world.compact,
        world.append,
    ]


def small_world(*, versioned: bool) -> World:
    world = World(random.Random(3))
    world.versioned = versioned
    world.segment_bytes = 1_500
    world.retention = Retention(bytes=None if versioned else 2_500)
    world.durabilities = ("fsync",)
    world.start(world.disk)
    return world


def play(world: World, step: Callable[[Process], None]) -> None:
    """One step, as a user would take it who reads the errors: again when refused, a new process when unknown."""
    world.now += 1.0
    process = world.processes[0]
    try:
        step(process)
    except UnavailableError:
        world.reconcile(process, power_lost=False)
        step(process)
    except UnknownOutcomeError:
        world.reopen(process)
        world.reconcile(world.processes[0], power_lost=False)


def crash_at(k: int, fault: Fault, aftermath: str, *, versioned: bool) -> bool:
    """Whether the script was long enough to come to its k-th operation."""
    world = small_world(versioned=versioned)
    world.disk.fail(k, fault, seed=k)
    try:
        for step in script(world):
            play(world, step)
        return False
    except SimulatedCrash:
        pass
    world.rng.seed(k)
    if aftermath != POWER_LOSS:
        kill_one(world, 0)
    if aftermath == KILL_AND_GO_ON:
        for number in range(PARTITIONS):
            world.append_to(world.processes[0], number, world.new_sent(number))
    if aftermath != KILL:
        crash_and_recover(world)
    world.check_writers()
    world.check(world.processes[0])
    return True


def fail_at(k: int, fault: Fault, *, versioned: bool) -> bool:
    world = small_world(versioned=versioned)
    disk = world.disk
    disk.fail(k, fault, seed=k)
    for step in script(world):
        play(world, step)
    disk.heal()
    world.check_writers()
    world.check(world.processes[0])
    world.rng.seed(k)
    crash_and_recover(world)
    world.check_writers()
    return disk.fault_hit


def at_every_operation(run_to: Callable[[int], bool]) -> int:
    for k in count():
        try:
            if not run_to(k):
                return k
        except BaseException as error:
            error.add_note(f"the fault was at operation {k}")
            raise
    raise AssertionError("unreachable")


@pytest.mark.parametrize("versioned", [False, pytest.param(True, marks=pytest.mark.long)], ids=["plain", "versioned"])
@pytest.mark.parametrize("aftermath", [POWER_LOSS, KILL, KILL_AND_GO_ON])
@pytest.mark.parametrize("fault", FAULTS, ids=["crash before", "crash after"])
def test_a_crash_at_every_single_operation_keeps_every_promise(fault: Fault, aftermath: str, versioned: bool) -> None:
    operations = at_every_operation(lambda k: crash_at(k, fault, aftermath, versioned=versioned))
    assert operations > 80


@pytest.mark.parametrize("versioned", [False, pytest.param(True, marks=pytest.mark.long)], ids=["plain", "versioned"])
@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.BROKEN], ids=lambda fault: fault.value)
def test_a_failing_operation_gives_a_declared_error_and_loses_nothing(fault: Fault, versioned: bool) -> None:
    operations = at_every_operation(lambda k: fail_at(k, fault, versioned=versioned))
    assert operations > 60


# -- one process dies, another lives on -------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["roll", "compact", "expire", "transaction", "append_group"])
def test_a_writer_that_outlives_another_loses_nothing(last: str) -> None:
    """The survivor has the partition in memory as it was before the other began, and is the next to write."""

    def run_to(k: int) -> bool:
        world = small_world(versioned=False)
        world.retention = Retention()
        world.segment_bytes = 100_000  # so that the survivor has no reason of its own to roll
        world.start(world.disk)
        survivor = world.processes[0]
        for _ in range(2):
            for number, writer in enumerate(survivor.writers):
                with writer.exclusive():
                    writer.roll()
                world.append_to(survivor, number, world.new_sent(number))
                world.append_to(survivor, number, world.new_sent(number))
        if last == "expire":
            world.retention = Retention(bytes=100)
        unlucky = Process(world, world.disk.another_process(), "fsync")
        unlucky.disk.fail(k, Fault.CRASH_BEFORE, seed=k)
        try:
            getattr(world, last)(unlucky)
            return False
        except SimulatedCrash:
            pass
        world.rng.seed(k)
        sent = [world.new_sent(number) for number in range(PARTITIONS)]
        before = [writer.append(world.request(one)) for writer, one in zip(survivor.writers, sent, strict=True)]
        world.processes = [survivor, Process(world, world.disk.another_process(), "fsync")]
        for number, (model, one, answer) in enumerate(zip(world.models, sent, before, strict=True)):
            world.settle_unknown(model)
            # Whether the call in flight was stored shows in the offset that the survivor's rows got.
            for candidate in model.unknown:
                if len(model.rows()) < answer.base_offset:
                    model.sent.append(candidate)
            assert answer == Appended(number, len(model.rows()), len(one.rows))
            world.acknowledge(survivor, number, [one])
        for process in reversed(world.processes):
            world.reconcile(process, power_lost=False)
        crash_and_recover(world)
        world.check_writers()
        return True

    assert at_every_operation(run_to) > 2


def test_rows_refused_by_a_full_disk_do_not_come_back_after_a_power_loss() -> None:
    for seed in range(200):
        world = small_world(versioned=False)
        world.rng.seed(seed)
        process = world.processes[0]
        world.append_to(process, 0, world.new_sent(0))
        requests = [world.request(world.new_sent(0, stamp=Stamp(7, 1, sequence))) for sequence in range(1, 5)]
        process.disk.fail(0, Fault.NO_SPACE, seed=seed)
        writer = process.writers[0]
        with pytest.raises(UnavailableError, match="disk is full"), writer.exclusive():
            writer.publish(writer.stage(requests))
        crash_and_recover(world)


def test_rows_of_an_abandoned_transaction_do_not_come_back_between_the_sectors_of_others() -> None:
    """The frames written next are as long, and end where sectors end: old and new ones would fit together."""

    def sent(rows: int, **stamp: int) -> Sent:
        return Sent([Row(1, next(world.values), 1) for _ in range(rows)], Stamp(epoch=1, **stamp))

    def rows_for(end: int) -> int:
        """How many rows make a frame that, begun at `end`, ends with its sector."""
        lengths = {rows: encode(world.request(sent(rows)).batch, schema_id=1).length for rows in range(1, 80)}
        return next(rows for rows, length in lengths.items() if (end + length) % SECTOR == 0)

    for seed in range(200):
        world = small_world(versioned=False)
        process = world.processes[0]
        writer = process.writers[0]
        world.append_to(process, 0, sent(rows_for(process.partitions[0].tail().end_position)))
        aligned = rows_for(0)
        with writer.exclusive():
            abandoned = [sent(aligned, producer=8, sequence=at) for at in range(3)]
            writer.stage([world.request(one) for one in abandoned], transaction=5)
            writer.roll_back()
            later = [sent(aligned, producer=7, sequence=at) for at in range(3)]
            world.models[0].unknown = later
            process.disk.fail(1, Fault.CRASH_BEFORE)  # written, not synced
            with pytest.raises(SimulatedCrash):
                writer.stage([world.request(one) for one in later])
        world.rng.seed(seed)
        crash_and_recover(world)
