"""The log against the raw machine: what appending, reading, waking, compacting and opening cost beside the least
that could be asked of the same disk and the same processor in the same run.

Rounds of both sides alternate, because the machine is not quiet. A throughput is the best round of each side. Every
event has 100 bytes: four columns of 8, and a text of 64 with its length. PENSTOCK_BENCH_SCALE=0.01 makes it smaller.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
import shutil
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from benchmarks.harness import Measurement, compared, percentile, seconds, temporary_directory
from penstock.log import Log, Reader, Topic, TopicSettings

SCALE = float(os.environ.get("PENSTOCK_BENCH_SCALE", "1"))
ROUNDS = 3


def scaled(count: int, *, least: int = 1) -> int:
    return max(least, int(count * SCALE))


EVENTS = scaled(5_000_000, least=100_000)
BATCH_EVENTS = 50_000
THREADS = 16
SINGLE_EVENTS = scaled(2_400, least=160)  # of each round, by all threads together
WOKEN = scaled(500, least=100)  # of each round
MANY_KEYS, FEW_KEYS = scaled(1_000_000, least=2_000), 1_000
# More than the versions that are kept loose in memory, so that the price of sorting them in is part of the number.
CONDITIONAL_EVENTS = scaled(18_000, least=300)
COMPACTED_EVENTS, COMPACTED_KEYS = scaled(2_000_000, least=100_000), scaled(200_000, least=10_000)
COMMITS = scaled(600, least=50)
OPENED_BYTES = scaled(110_000_000, least=2_000_000)

SCHEMA = "id BIGINT NOT NULL, customer BIGINT NOT NULL, amount DOUBLE, at TIMESTAMP, note STRING"
NOTE_BYTES = 64
SPAWN = multiprocessing.get_context("spawn")


def measurements() -> Iterator[Measurement]:
    with temporary_directory() as directory:
        yield from appending_batches(directory)
        yield from reading(directory)
        for measure in (
            appending_single_events,
            waking_a_reader,
            appending_on_condition,
            compacting,
            committing_transactions,
            opening,
        ):
            shutil.rmtree(directory)
            directory.mkdir()
            yield from measure(directory)


# -- 1. appending batches ---------------------------------------------------------------------------------------------


def appending_batches(directory: Path) -> Iterator[Measurement]:
    """Leaves the events in `directory`, in the log `one`, for `reading`."""
    batches = [event_batch(BATCH_EVENTS, seed=seed) for seed in range(4)]
    appends = [batches[number % len(batches)] for number in range(EVENTS // BATCH_EVENTS)]

    def ours(name: str, settings: TopicSettings) -> float:
        shutil.rmtree(directory / name, ignore_errors=True)
        with Log(directory / name) as log:
            topic = log.create_topic("events", SCHEMA, settings=settings)
            return seconds(lambda: [topic.append(batch) for batch in appends])

    def plain(name: str, files: int) -> float:
        stored = sum(path.stat().st_size for path in segment_paths(directory / name))
        return plain_append_seconds(directory, chunk=stored // len(appends) // files, appends=len(appends), files=files)

    one, raw_one, four, raw_four = best_of_rounds(
        lambda: ours("one", TopicSettings()),
        lambda: plain("one", 1),
        lambda: ours("four", TopicSettings(partitions=4, key=("customer",))),
        lambda: plain("four", 4),
    )
    shutil.rmtree(directory / "four")
    megabytes = sum(batch.nbytes for batch in appends) / 1e6
    for name, spent, raw, files in (
        ("append, 1 partition", one, raw_one, "one file, each"),
        ("append, 4 partitions by key", four, raw_four, "four files in turn, each"),
    ):
        yield compared(
            f"{name}, fsync",
            megabytes / spent,
            "MB/s",
            compared_with=f"write of the same bytes to {files} followed by fdatasync, as ours",
            reference=megabytes / raw,
            at_least=0.5,
            note=f"{EVENTS / spent / 1e6:.2f} million events/s, {BATCH_EVENTS:,} in an append",
        )


def plain_append_seconds(directory: Path, *, chunk: int, appends: int, files: int) -> float:
    """One fdatasync for each chunk, as the log does for each frame; no header, no checksum, no Arrow."""
    content = os.urandom(chunk)
    paths = [directory / f"plain-{number}" for number in range(files)]
    descriptors = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for path in paths]

    def append_all() -> None:
        for _ in range(appends):
            for descriptor in descriptors:
                os.write(descriptor, content)
                os.fdatasync(descriptor)

    try:
        return seconds(append_all)
    finally:
        for descriptor, path in zip(descriptors, paths, strict=True):
            os.close(descriptor)
            path.unlink()


# -- 2. reading -------------------------------------------------------------------------------------------------------


def reading(directory: Path) -> Iterator[Measurement]:
    """Reads what `appending_batches` left, from the page cache, which is where it still is."""
    paths = segment_paths(directory / "one")
    with Log(directory / "one") as log, one_core():
        topic = log.topic("events")
        whole, projected, raw = best_of_rounds(
            lambda: seconds(lambda: sum_of_customers(topic, columns=None)),
            lambda: seconds(lambda: sum_of_customers(topic, columns=["customer"])),
            lambda: seconds(lambda: [checksum_of_file(path) for path in paths]),
            rounds=5,
        )
    for name, spent in (("read, all columns", whole), ("read, 1 of 5 columns", projected)):
        rate = EVENTS / spent
        beside_crc = compared(
            f"{name}, 1 core",
            rate,
            "events/s",
            compared_with="CRC32C over the mapped files",
            reference=EVENTS / raw,
            note="checks every byte, sums one column; warm cache",
        )
        yield replace(beside_crc, aim=">= 3 million/s", met=rate >= 3e6)


def sum_of_customers(topic: Topic, *, columns: Sequence[str] | None) -> int:
    return sum(pc.sum(batch.rows.column("customer")).as_py() for batch in topic.batches(columns=columns))


def checksum_of_file(path: Path) -> int:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return crc32c(mapped)


# -- 3. single events -------------------------------------------------------------------------------------------------


def appending_single_events(directory: Path) -> Iterator[Measurement]:
    rows = single_events(SINGLE_EVENTS)
    with Log(directory / "log") as log:
        alone, together = log.create_topic("alone", SCHEMA), log.create_topic("together", SCHEMA)
        frame = bytes_of_one_append(directory / "log", alone)
        one, many, raw = best_of_rounds(
            lambda: append_from_threads(alone, rows, threads=1),
            lambda: append_from_threads(together, rows, threads=THREADS),
            lambda: plain_append_seconds(directory, chunk=frame, appends=SINGLE_EVENTS, files=1),
        )
        alone_syncs, together_syncs = alone.files.writer(0).syncs, together.files.writer(0).syncs
    for name, spent, syncs in (("1 thread", one, alone_syncs), (f"{THREADS} threads", many, together_syncs)):
        yield compared(
            f"append single events, {name}, fsync",
            SINGLE_EVENTS / spent,
            "events/s",
            compared_with=f"write and fdatasync of {frame} bytes each, 1 thread",
            reference=SINGLE_EVENTS / raw,
            note=f"{SINGLE_EVENTS * ROUNDS / syncs:.1f} events per sync, each a dict",
        )


def bytes_of_one_append(log: Path, topic: Topic) -> int:
    (segment,) = segment_paths(log, topic=topic.name)
    before = segment.stat().st_size
    topic.append(single_events(1))
    return segment.stat().st_size - before


def append_from_threads(topic: Topic, rows: Sequence[dict[str, object]], *, threads: int) -> float:
    """How long it takes until all rows are on disk, each appended by itself."""
    ready = threading.Barrier(threads + 1)
    shares = [rows[number::threads] for number in range(threads)]

    def append(share: Sequence[dict[str, object]]) -> None:
        ready.wait()
        for row in share:
            topic.append(row)

    running = [threading.Thread(target=append, args=(share,)) for share in shares]
    for thread in running:
        thread.start()
    ready.wait()
    return seconds(lambda: [thread.join() for thread in running])


# -- 4. waking a reader -----------------------------------------------------------------------------------------------


def waking_a_reader(directory: Path) -> Iterator[Measurement]:
    """From before the append to the row in the hands of a reader that slept in another process."""
    woken: list[int] = []
    raw: list[int] = []
    with Log(directory / "log") as log:
        topic = log.create_topic("events", "sent BIGINT NOT NULL, note STRING")
        for _ in range(ROUNDS):
            woken += wake_latencies(directory / "log", topic)
            raw += plain_wake_latencies(directory)
    for percent in (50, 99):
        value = percentile(woken, percent) / 1e6
        beside_pipe = compared(
            f"append to woken reader, p{percent}",
            value,
            "ms",
            compared_with="write, fdatasync, and the time through a pipe",
            reference=percentile(raw, percent) / 1e6,
            note=f"{len(woken):,} appends, one every ms or so, fsync",
        )
        yield replace(beside_pipe, aim="< 10 ms", met=value < 10) if percent == 99 else beside_pipe


def wake_latencies(log: Path, topic: Topic) -> list[int]:
    note = "x" * NOTE_BYTES
    topic.append({"sent": 0, "note": note})
    with child(read_and_time, log, WOKEN) as reader:
        reader.recv()
        for _ in range(WOKEN):
            topic.append({"sent": time.monotonic_ns(), "note": note})
            time.sleep(0.001)  # long enough for the reader to fall asleep again
        latencies: list[int] = reader.recv()
    return latencies


def read_and_time(connection: Connection, path: Path, count: int) -> None:
    """In a process of its own. The monotonic clock of Linux is the same in all processes."""
    latencies: list[int] = []
    with Log(path) as log:
        reader = log.topic("events").reader("end")
        reader.poll(0.01)
        connection.send("ready")
        while len(latencies) < count and (batches := reader.poll(10.0)):
            now = time.monotonic_ns()
            latencies += [now - sent for batch in batches for sent in batch.rows.column("sent").to_pylist()]
        reader.close()
    connection.send(latencies)


def plain_wake_latencies(directory: Path) -> list[int]:
    descriptor = os.open(directory / "plain", os.O_RDWR | os.O_CREAT)
    with child(receive_and_time, WOKEN) as receiver:
        receiver.recv()
        for _ in range(WOKEN):
            sent = time.monotonic_ns()
            os.write(descriptor, b"x" * 512)
            os.fdatasync(descriptor)
            receiver.send(sent)
            time.sleep(0.001)
        latencies: list[int] = receiver.recv()
    os.close(descriptor)
    return latencies


def receive_and_time(connection: Connection, count: int) -> None:
    connection.send("ready")
    latencies: list[int] = []
    for _ in range(count):
        sent = connection.recv()
        latencies.append(time.monotonic_ns() - sent)
    connection.send(latencies)


# -- 5. conditional appends -------------------------------------------------------------------------------------------


def appending_on_condition(directory: Path) -> Iterator[Measurement]:
    rows = single_events(CONDITIONAL_EVENTS)
    # Not fsync: the disk would hide what finding a version among many costs.
    versioned = TopicSettings(key=("customer",), versioned=True, durability="os")
    with Log(directory / "log") as log:
        plain = log.create_topic("plain", SCHEMA, settings=TopicSettings(durability="os"))
        few = ConditionalAppends(log.create_topic("few", SCHEMA, settings=versioned), keys=FEW_KEYS)
        many = ConditionalAppends(log.create_topic("many", SCHEMA, settings=versioned), keys=MANY_KEYS)
        spent = {"plain": 0.0, "few": 0.0, "many": 0.0}
        step = CONDITIONAL_EVENTS // 12
        for start in range(0, CONDITIONAL_EVENTS, step):
            part = rows[start : start + step]
            spent["plain"] += seconds(lambda part=part: [plain.append(row) for row in part])
            spent["few"] += seconds(lambda part=part: few.append(part))
            spent["many"] += seconds(lambda part=part: many.append(part))
    rate = {name: CONDITIONAL_EVENTS / each for name, each in spent.items()}
    yield compared(
        f"conditional append among {MANY_KEYS:,} keys",
        rate["many"],
        "events/s",
        compared_with=f"the same among {FEW_KEYS:,} keys",
        reference=rate["few"],
        at_least=1 / 1.5,
        note="single events, durability os; means of all rounds",
    )
    yield compared(
        f"conditional append among {FEW_KEYS:,} keys",
        rate["few"],
        "events/s",
        compared_with="plain append of single events, durability os",
        reference=rate["plain"],
    )


class ConditionalAppends:
    """A versioned topic with this many keys, and appends to it that each expect the version their key really has."""

    def __init__(self, topic: Topic, *, keys: int) -> None:
        self._topic = topic
        self._choice = random.Random(1)
        self._versions = dict.fromkeys(range(keys), 1)
        for start in range(0, keys, BATCH_EVENTS):
            customers = np.arange(start, min(start + BATCH_EVENTS, keys))
            topic.append(event_batch(len(customers), seed=start, customers=customers))

    def append(self, rows: Sequence[dict[str, object]]) -> None:
        for row in rows:
            key = self._choice.randrange(len(self._versions))
            self._topic.append(row | {"customer": key}, expect=self._versions[key])
            self._versions[key] += 1


# -- 6. compaction ----------------------------------------------------------------------------------------------------


def compacting(directory: Path) -> Iterator[Measurement]:
    """Compaction runs in a process of its own, alone and then while this one appends and reads."""
    alone: list[float] = []
    reads: list[float] = []
    idle, busy = Load(), Load()
    with Log(directory / "log") as log:
        topic = log.create_topic("events", SCHEMA, key="customer")
        for _ in range(ROUNDS):
            fill_for_compaction(topic)
            rows = topic.statistics()[0].rows
            reads.append(rows / seconds(lambda: sum_of_customers(topic, columns=None)))
            spent = compact_in_child(directory / "log")
            alone.append(rows / spent)
            fill_for_compaction(topic)
            end = time.monotonic() + spent
            while time.monotonic() < end:
                idle.one_step(topic)
            compact_in_child(directory / "log", meanwhile=lambda: busy.one_step(topic))
    yield compared(
        f"compact {COMPACTED_EVENTS:,} rows of {COMPACTED_KEYS:,} keys",
        max(alone),
        "rows/s",
        compared_with="reading them once",
        reference=max(reads),
        note="after the first round also what the round before had kept",
    )
    yield compared(
        "append during compaction, p99",
        percentile(busy.appends, 99) * 1e3,
        "ms",
        compared_with="without compaction",
        reference=percentile(idle.appends, 99) * 1e3,
        note=f"longest of {len(busy.appends)}: {max(busy.appends) * 1e3:.1f} ms; "
        f"of {len(idle.appends)} without: {max(idle.appends) * 1e3:.1f} ms",
    )
    yield compared(
        "read during compaction",
        busy.rows / busy.read_seconds,
        "rows/s",
        compared_with="without compaction",
        reference=idle.rows / idle.read_seconds,
        note="a poll and a single append in turn; compaction has the other core",
    )


class Load:
    """One append and one poll after the other, with what they took. At the end it reads from the start again."""

    def __init__(self) -> None:
        self.appends: list[float] = []
        self.rows = 0
        self.read_seconds = 0.0
        self._row = single_events(1)[0]
        self._reader: Reader | None = None

    def one_step(self, topic: Topic) -> None:
        self.appends.append(seconds(lambda: topic.append(self._row)))
        start = time.perf_counter()
        self._reader = self._reader or topic.reader()
        batches = self._reader.poll()
        self.rows += sum(pc.count(batch.rows.column("customer")).as_py() for batch in batches)
        if not batches:
            self._reader.close()
            self._reader = None
        self.read_seconds += time.perf_counter() - start


def fill_for_compaction(topic: Topic) -> None:
    for seed in range(COMPACTED_EVENTS // BATCH_EVENTS):
        topic.append(event_batch(BATCH_EVENTS, seed=seed, keys=COMPACTED_KEYS))


def compact_in_child(path: Path, *, meanwhile: Callable[[], None] | None = None) -> float:
    with child(compact_and_time, path) as compactor:
        compactor.recv()
        compactor.send("begin")
        while meanwhile is not None and not compactor.poll():
            meanwhile()
        spent: float = compactor.recv()
    return spent


def compact_and_time(connection: Connection, path: Path) -> None:
    with Log(path) as log:
        connection.send("ready")
        connection.recv()
        connection.send(seconds(lambda: log.topic("events").compact()))


# -- 7. transactions --------------------------------------------------------------------------------------------------


def committing_transactions(directory: Path) -> Iterator[Measurement]:
    row = single_events(1)[0]
    with Log(directory / "log") as log:
        topics = [log.create_topic(name, SCHEMA) for name in ("orders", "payments")]

        def commit_all() -> None:
            for _ in range(COMMITS):
                with log.transaction() as transaction:
                    for topic in topics:
                        transaction.append(topic, row)

        ours, raw = best_of_rounds(lambda: seconds(commit_all), lambda: plain_commit_seconds(directory))
    yield compared(
        "transaction, 1 row in each of 2 topics",
        COMMITS / ours,
        "commits/s",
        compared_with="2 writes with fdatasync and 1 SQLite commit (WAL, synchronous = FULL)",
        reference=COMMITS / raw,
    )


def plain_commit_seconds(directory: Path) -> float:
    descriptors = [os.open(directory / f"plain-{number}", os.O_RDWR | os.O_CREAT | os.O_TRUNC) for number in (1, 2)]
    connection = sqlite3.connect(directory / "plain.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS transactions (id INTEGER PRIMARY KEY)")

    def commit_all() -> None:
        for _ in range(COMMITS):
            for descriptor in descriptors:
                os.write(descriptor, b"x" * 512)
                os.fdatasync(descriptor)
            connection.execute("INSERT INTO transactions VALUES (?)", (random.getrandbits(62),))

    spent = seconds(commit_all)
    connection.close()
    for descriptor in descriptors:
        os.close(descriptor)
    return spent


# -- 8. opening -------------------------------------------------------------------------------------------------------


def opening(directory: Path) -> Iterator[Measurement]:
    for batch_events in (20_000, 50):
        path = directory / f"log-{batch_events}"
        fill_for_opening(path, batch_events)
        (segment,) = segment_paths(path)
        rounds: list[tuple[float, ...]] = []
        for _ in range(ROUNDS):
            with child(open_and_append, path, event_batch(1)) as process:
                rounds.append((*process.recv(), seconds(lambda segment=segment: checksum_of_file(segment))))
        opened, first, first_dict, raw = (statistics.median(column) * 1e3 for column in zip(*rounds, strict=True))
        size = f"{segment.stat().st_size / 1e6:.0f} MB in batches of {batch_events:,}"
        for name, value, note in (
            (f"open a log and a topic, {size}", opened, "a fresh process, after its imports"),
            (f"first append after opening, {size}", first, "one event as an Arrow batch"),
            (f"first append of a dict, {size}", first_dict, "the process's second append: Arrow now imports pandas"),
        ):
            reference = "CRC32C over the active segment"
            yield compared(name, value, "ms", compared_with=reference, reference=raw, note=note)


def fill_for_opening(path: Path, batch_events: int) -> None:
    batch = event_batch(batch_events)
    with Log(path) as log:
        topic = log.create_topic("events", SCHEMA, settings=TopicSettings(durability="os"))
        for _ in range(OPENED_BYTES // batch.nbytes):
            topic.append(batch)


def open_and_append(connection: Connection, path: Path, batch: pa.RecordBatch) -> None:
    """The batch comes ready made: building one here would import pandas before the clock starts."""
    row = single_events(1)[0]
    moments = [time.perf_counter()]
    log = Log(path)
    topic = log.topic("events")
    moments.append(time.perf_counter())
    for event in (batch, row):
        topic.append(event)
        moments.append(time.perf_counter())
    connection.send([later - earlier for earlier, later in pairwise(moments)])
    log.close()


# -- what they share --------------------------------------------------------------------------------------------------


def event_batch(
    rows: int, *, seed: int = 0, keys: int = 100_000, customers: np.ndarray | None = None
) -> pa.RecordBatch:
    """Events of 100 bytes, of random customers unless they are given."""
    chance = np.random.default_rng(seed)
    letters = chance.integers(ord("a"), ord("z") + 1, rows * NOTE_BYTES, dtype=np.uint8)
    ends = np.arange(0, (rows + 1) * NOTE_BYTES, NOTE_BYTES, dtype=np.int32)
    moments = 1_700_000_000_000_000 + np.arange(rows) * 1_000
    columns = [
        pa.array(np.arange(rows)),
        pa.array(chance.integers(0, keys, rows) if customers is None else customers),
        pa.array(chance.random(rows)),
        pa.array(moments).cast(pa.timestamp("us", "UTC")),
        pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(letters)),
    ]
    names = ("id", "customer", "amount", "at", "note")
    fields = [
        pa.field(name, column.type, nullable=name not in ("id", "customer"))
        for name, column in zip(names, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def single_events(count: int) -> list[dict[str, object]]:
    """Events as an application has them when it appends one at a time."""
    note = "x" * NOTE_BYTES
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    return [{"id": n, "customer": n % 1_000, "amount": n / 7, "at": at, "note": note} for n in range(count)]


def segment_paths(log: Path, *, topic: str = "events") -> list[Path]:
    return sorted((log / "topics" / topic).rglob("*.segment"))


def best_of_rounds(*works: Callable[[], float], rounds: int = ROUNDS) -> list[float]:
    """The shortest time of each work, all of them taking turns, so that a slow moment hits none alone.

    A work returns its own seconds, because what it prepares does not count.
    """
    times = [[work() for work in works] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


@contextmanager
def one_core() -> Iterator[None]:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def child(work: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """Run `work(connection, ...)` in a new process; it is over, or ended, when the block is."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=work, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        yield ours
        process.join(30)
    finally:
        ours.close()
        if process.is_alive():
            process.terminate()
        process.join()
