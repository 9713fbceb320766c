"""One flipped bit anywhere in a stored topic: never wrong rows, never a strange error, and `verify` names it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import ConflictError, DamagedError, PenstockError
from penstock.log import Log, TopicSettings
from penstock.log.topic import Topic

FLIPS = 300
LONG_FLIPS = 3_000
SCHEMA = "k long, v long, t timestamp, note string"
PARTITIONS = 2
START = 1_700_000_000_000_000
INDEX_ENTRY_BYTES = 40
INDEX_CHECKED_BYTES = 36
# Where single bits are worth most: the small files decide over everything.
WEIGHTS = {".segment": 60, ".index": 15, "manifest.json": 10, "tail": 10, "tail.copy": 5, "topic.json": 5}

Rows = list[tuple[int, int, int, int, str]]


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    times = pa.array([START + 1_000 * number for number in numbers], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    notes = [f"{number} bottles of beer on the wall. " * 6 for number in numbers]
    return pa.record_batch({"k": [number % 97 for number in numbers], "v": numbers, "t": times, "note": notes})


def read_partition(topic: Topic, number: int) -> Rows:
    found: Rows = []
    for batch in topic.batches({number: topic.files.partition(number).manifest().start_offset}):
        columns = [batch.rows.column(name).to_pylist() for name in ("k", "v", "note")]
        times = batch.rows.column("t").cast(pa.int64()).to_pylist()
        found += zip(batch.offsets.tolist(), times, *columns, strict=True)
    return found


@dataclass
class Stored:
    """A log on disk that can be put back to what it was."""

    path: Path
    files: dict[Path, bytes]
    expected: list[Rows]

    def restore(self) -> None:
        folder = self.path / "topics"
        for path in folder.rglob("*"):
            if path.is_file() and path not in self.files:
                path.unlink()
        for path, content in self.files.items():
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)

    def of_kind(self, ending: str) -> list[Path]:
        return [path for path in self.files if path.name.endswith(ending)]


def stored(path: Path, expected: list[Rows]) -> Stored:
    files = {file: file.read_bytes() for file in (path / "topics").rglob("*") if file.is_file()}
    return Stored(path, {file: content for file, content in files.items() if "lock" not in file.name}, expected)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Two partitions with a compacted, some closed and an active segment each, and the marks of a producer."""
    path = tmp_path_factory.mktemp("flips") / "log"
    with Log(path) as log:
        topic = log.create_topic(
            "orders", SCHEMA, key="k", time="t", settings=TopicSettings(partitions=PARTITIONS, segment_bytes=140_000)
        )
        for step in range(5):
            topic.append(rows(97 * step, 97))
        log.topic("orders").compact()
        producer = log.producer("till")
        for step in range(5, 32):
            producer.append(topic, rows(97 * step, 97), sequence=step)
        expected = [read_partition(topic, number) for number in range(PARTITIONS)]
        segments = [statistics.segments for statistics in topic.statistics()]
    assert min(segments) >= 4
    found = stored(path, expected)
    assert max(len(found.files[index]) for index in found.of_kind(".index")) > INDEX_ENTRY_BYTES
    return found


def flipped(rng: random.Random, content: bytes) -> tuple[bytes, int]:
    bit = rng.randrange(8 * len(content))
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged), bit // 8


def check_flip(stored: Stored, seed: int) -> None:
    rng = random.Random(seed)
    kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    path = rng.choice([path for path in stored.of_kind(kind) if stored.files[path]])
    damaged, byte = flipped(rng, stored.files[path])
    path.write_bytes(damaged)
    victim = int(path.parent.name) if path.parent.name.isdigit() else None
    try:
        with Log(stored.path) as log:
            try:
                topic = log.topic("orders")
            except PenstockError:
                assert path.name == "topic.json"
                return
            assert path.name != "topic.json", "a damaged description was believed"
            check_verify(topic, path, byte, victim)  # first: readers put indexes right
            check_reading(topic, stored, victim)
            check_times(topic, stored, rng, victim)
            check_writing(log, topic, victim)
    finally:
        stored.restore()


def check_reading(topic: Topic, stored: Stored, victim: int | None) -> None:
    for number in range(PARTITIONS):
        try:
            assert read_partition(topic, number) == stored.expected[number]
        except DamagedError:
            assert number == victim, "a sound partition does not serve"


def check_times(topic: Topic, stored: Stored, rng: random.Random, victim: int | None) -> None:
    """A flip in an index may cost time; it must not move the place where a time begins."""
    for _ in range(3):
        time = START + 1_000 * rng.randint(-10, 3_300)
        wanted = {
            number: min((offset for offset, at, *_ in stored.expected[number] if at >= time), default=None)
            for number in range(PARTITIONS)
        }
        try:
            found = topic.positions(datetime.fromtimestamp(time / 1_000_000, UTC))
        except DamagedError:
            assert victim is not None
            continue
        ends = topic.ends()
        assert found == {number: ends[number] if wanted[number] is None else wanted[number] for number in wanted}


def check_verify(topic: Topic, path: Path, byte: int, victim: int | None) -> None:
    problems = {verified.partition: verified.problems for verified in topic.verify()}
    for number in range(PARTITIONS):
        assert number == victim or problems[number] == []
    assert victim is not None
    named = [problem for problem in problems[victim] if path.name in problem]
    if path.name in ("tail", "tail.copy") or path.name.endswith(".index"):
        # The tail, and the index of the active segment, are made again when they are not whole; four bytes of an entry
        # have no meaning.
        active = (
            path.name in ("tail", "tail.copy")
            or path.name == topic.files.partition(victim).manifest().active.index_name
        )
        if active or byte % INDEX_ENTRY_BYTES >= INDEX_CHECKED_BYTES:
            return
    assert named, f"byte {byte} of {path.name} was not named: {problems[victim]}"


def check_writing(log: Log, topic: Topic, victim: int | None) -> None:
    """A repeat is recognised or refused, never stored; a new row gets the next offset or an error."""
    for number in range(PARTITIONS):
        try:
            end = topic.ends()[number] if victim is None else topic.files.partition(number).tail().end_offset
            mark = topic.files.writer(number).mark_of(log.producer("till").id)
            assert mark is not None
            assert mark.sequence == 31
            assert topic.files.partition(number).tail().end_offset == end
        except DamagedError:
            assert number == victim


def check_flips(stored: Stored, seeds: range) -> None:
    for seed in seeds:
        try:
            check_flip(stored, seed)
        except BaseException as error:
            error.add_note(f"play it again with: check_flip(orders, {seed})")
            raise


def test_a_flipped_bit_anywhere_is_detected_or_harmless(orders: Stored) -> None:
    check_flips(orders, range(FLIPS))


@pytest.mark.long
def test_three_thousand_flipped_bits_are_detected_or_harmless(orders: Stored) -> None:
    check_flips(orders, range(FLIPS, FLIPS + LONG_FLIPS))


def test_every_byte_of_a_tail_may_be_wrong(orders: Stored) -> None:
    (path, *_) = orders.of_kind("tail")
    content = orders.files[path]
    for byte in range(len(content)):
        path.write_bytes(content[:byte] + bytes([content[byte] ^ 0x40]) + content[byte + 1 :])
        with Log(orders.path) as log:
            check_reading(log.topic("orders"), orders, victim=None)
        orders.restore()


@pytest.mark.parametrize("length", [0, 1, 127])
def test_a_short_tail_is_made_again(orders: Stored, length: int) -> None:
    for path in orders.of_kind("tail"):
        path.write_bytes(orders.files[path][:length])
    with Log(orders.path) as log:
        check_reading(log.topic("orders"), orders, victim=None)
    orders.restore()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"content": 3}', b"\xff\xfe", b'{"content": {}, "crc32c": 0}']
)
def test_a_strange_manifest_is_damage_and_stops_only_its_partition(orders: Stored, content: bytes) -> None:
    (path, *_) = sorted(orders.of_kind("manifest.json"))
    path.write_bytes(content)
    with Log(orders.path) as log:
        topic = log.topic("orders")
        with pytest.raises(DamagedError, match=r"manifest\.json"):
            read_partition(topic, 0)
        assert read_partition(topic, 1) == orders.expected[1]
    orders.restore()


def test_indexes_that_are_missing_or_nonsense_change_no_result(orders: Stored) -> None:
    rng = random.Random(5)
    for ruin in (lambda content: b"", lambda content: content[:-7], lambda content: rng.randbytes(len(content)), None):
        for path in orders.of_kind(".index"):
            if ruin is None:
                path.unlink()
            else:
                path.write_bytes(ruin(orders.files[path]))
        with Log(orders.path) as log:
            topic = log.topic("orders")
            check_reading(topic, orders, victim=None)
            check_times(topic, orders, rng, victim=None)
        orders.restore()


def test_an_index_of_another_segment_changes_no_result(orders: Stored) -> None:
    """Its entries are whole and true, but of other frames."""
    rng = random.Random(6)
    indexes = orders.of_kind(".index")
    for path in indexes:
        path.write_bytes(orders.files[rng.choice(indexes)])
        with Log(orders.path) as log:
            topic = log.topic("orders")
            check_reading(topic, orders, victim=None)
            check_times(topic, orders, rng, victim=None)
        orders.restore()


# -- versions of keys -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    path = tmp_path_factory.mktemp("flips") / "versioned"
    with Log(path) as log:
        settings = TopicSettings(versioned=True)
        topic = log.create_topic("events", SCHEMA, key="k", settings=settings)
        for step in range(5):
            topic.append(rows(97 * step, 97))
        expected = [read_partition(topic, 0)]
    found = stored(path, expected)
    assert found.of_kind("versions")
    return found


def check_versions(events: Stored) -> None:
    with Log(events.path) as log:
        topic = log.topic("events")
        for wrong in (0, 4, 6):
            with pytest.raises(ConflictError, match="at version 5"):
                topic.append(rows(1, 1), expect=wrong)
        topic.append(rows(1, 1), expect=5)


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_in_the_versions_never_lets_a_conflict_through(events: Stored, seed: int) -> None:
    rng = random.Random(seed)
    (path,) = events.of_kind("versions")
    content = events.files[path]
    head, _ = flipped(rng, content[:40])
    path.write_bytes(head + content[40:] if seed % 2 else flipped(rng, content)[0])
    try:
        check_versions(events)
    finally:
        events.restore()


@pytest.mark.parametrize("length", [0, 7, 39, 40, 41, 500])
def test_short_versions_are_counted_again(events: Stored, length: int) -> None:
    (path,) = events.of_kind("versions")
    path.write_bytes(events.files[path][:length])
    try:
        check_versions(events)
    finally:
        events.restore()
