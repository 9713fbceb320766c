"""What a power loss leaves behind the last safe byte is cut and reported; what it did to safe bytes is refused."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import DamagedError
from penstock.log.frame import Stamp, encode, parse_header, place
from penstock.log.partition import Partition, create_partition
from penstock.log.pending_write import Request
from penstock.log.reader import FrameReader, read_batches
from penstock.log.recovery import Outcome
from penstock.log.segment import FIRST_FRAME
from penstock.log.tail import Tail, TailFile
from penstock.log.writer import PartitionWriter, WriterSettings
from penstock.storage.files import Disk

SCHEMA = pa.schema([("v", pa.int64())])
TOPIC_ID = bytes(16)
ROWS_PER_FRAME = 3


class RestartedDisk(Disk):
    """The real disk, on a machine that has been started `boots` times."""

    def __init__(self, boots: int = 1) -> None:
        self.boots = boots

    def boot(self) -> bytes:
        return self.boots.to_bytes(16, "big")


class OneSchema:
    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def version(self, schema_id: int) -> pa.Schema:
        return SCHEMA


class Written:
    """A partition with six frames, the tail as it was after the third, and the places of all frames."""

    def __init__(self, root: Path, *, number: int = 0) -> None:
        self.directory = root / str(number)
        self.number = number
        create_partition(RestartedDisk(), self.directory, topic_id=TOPIC_ID, number=number)
        self.ends: list[int] = []
        partition = self.open(boots=1)
        writer = PartitionWriter(partition, OneSchema(), WriterSettings())
        for frame in range(6):
            append(writer, list(range(frame * ROWS_PER_FRAME, (frame + 1) * ROWS_PER_FRAME)))
            tail = partition.tail()
            self.ends.append(tail.end_position)
            if frame == 2:
                self.old_tail = tail
        self.last_tail = partition.tail()
        writer.close()
        partition.close()
        self.segment = self.directory / partition.manifest().active.name
        self.whole = self.segment.read_bytes()

    def open(self, *, boots: int) -> Partition:
        return Partition(
            RestartedDisk(boots),
            self.directory,
            topic="orders",
            topic_id=TOPIC_ID,
            number=self.number,
            outcomes=lambda transaction: Outcome.UNRECORDED,
        )

    def leave(self, content: bytes, tail: Tail) -> None:
        """Put these bytes where a power loss would have left them."""
        self.segment.write_bytes(content)
        file = TailFile(Disk(), self.directory)
        file.write(tail)
        file.close()


def append(writer: PartitionWriter, values: list[int]) -> int:
    return writer.append(Request(pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA), 1)).base_offset


def values(partition: Partition) -> list[int]:
    tail = partition.tail()
    reader = FrameReader(partition, 0)
    found: list[int] = []
    while frames := reader.read(tail):
        for batch in read_batches(partition, OneSchema(), frames):
            assert batch.offsets.tolist() == list(range(len(found), len(found) + len(batch)))
            found += batch.rows.column("v").to_pylist()
    reader.close()
    return found


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """The lines the log writes, as its users see them."""
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Collect(logging.WARNING)
    logger = logging.getLogger("penstock.log")
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


def check_cut(written: Written, warnings: list[str], *, frames: int, cut: int) -> None:
    """After the restart exactly `frames` frames are there, one line tells of the `cut` bytes, and appending goes on."""
    warnings.clear()
    rows = frames * ROWS_PER_FRAME
    partition = written.open(boots=2)
    assert values(partition) == list(range(rows))
    assert written.segment.stat().st_size == written.ends[frames - 1]
    if cut:
        (line,) = warnings
        assert f"cut {cut} bytes" in line
        assert f"after offset {rows - 1} " in line
        assert written.segment.name in line
        assert f"byte {written.ends[frames - 1]}" in line
    else:
        assert warnings == []
    writer = PartitionWriter(partition, OneSchema(), WriterSettings(durability="os"))
    assert append(writer, [rows]) == rows
    assert values(partition) == list(range(rows + 1))
    writer.close()
    partition.close()


def test_the_last_three_frames_are_torn_at_every_byte(written: Written, warnings: list[str]) -> None:
    for size in range(written.ends[2], len(written.whole) + 1):
        frames = sum(end <= size for end in written.ends)
        written.leave(written.whole[:size], written.old_tail)
        check_cut(written, warnings, frames=frames, cut=size - written.ends[frames - 1])


@pytest.mark.parametrize("frames", [3, 4, 5])
def test_a_torn_frame_filled_with_garbage_is_cut(written: Written, warnings: list[str], frames: int) -> None:
    rng = random.Random(frames)
    start, end = written.ends[frames - 1], written.ends[frames]
    for kept in range(start, end, 61):
        for filling in (bytes(end - kept), rng.randbytes(end - kept)):
            if filling != written.whole[kept:end]:  # a frame ends with zeros
                written.leave(written.whole[:kept] + filling, written.old_tail)
                check_cut(written, warnings, frames=frames, cut=end - start)


@pytest.mark.parametrize("length", [1, 63, 64, 127, 128, 4096, 10_000])
def test_zeros_and_noise_after_the_end_are_cut(written: Written, warnings: list[str], length: int) -> None:
    for filling in (bytes(length), random.Random(length).randbytes(length)):
        written.leave(written.whole + filling, written.old_tail)
        check_cut(written, warnings, frames=6, cut=length)


@pytest.mark.parametrize("base_offset", [0, 17, 19, 10_000])
def test_a_whole_frame_with_a_wrong_offset_after_the_end_is_cut(
    written: Written, warnings: list[str], base_offset: int
) -> None:
    body = encode(pa.record_batch([pa.array([666], pa.int64())], schema=SCHEMA), schema_id=1)
    synced = written.old_tail.durable_position
    frame = b"".join(
        bytes(memoryview(part)) for part in place(body, base_offset=base_offset, append_time=0, synced=synced)
    )
    written.leave(written.whole + frame, written.old_tail)
    check_cut(written, warnings, frames=6, cut=len(frame))


def test_a_lost_frame_takes_the_unacknowledged_ones_behind_it_along(written: Written, warnings: list[str]) -> None:
    """Frames of one sync may reach the disk out of order; none of them was acknowledged."""
    start = written.ends[-1]
    content = written.whole + bytes(640) + _frame(offset=20, synced=start)
    written.leave(content, written.old_tail)
    check_cut(written, warnings, frames=6, cut=len(content) - start)


def test_a_frame_of_a_transaction_that_never_committed_is_cut(written: Written, warnings: list[str]) -> None:
    frame = _frame(offset=18, synced=written.ends[-1], stamp=Stamp(transaction=99))
    written.leave(written.whole + frame, written.old_tail)
    check_cut(written, warnings, frames=6, cut=len(frame))


def test_while_the_machine_stays_up_the_tail_is_exact_and_the_rest_is_cut(
    written: Written, warnings: list[str]
) -> None:
    """A process that was killed before it published leaves whole frames that nobody was told about."""
    frames = _frame(offset=18, synced=written.ends[-1]) + _frame(offset=21, synced=written.ends[-1])
    written.leave(written.whole + frames, written.last_tail)
    partition = written.open(boots=1)
    assert values(partition) == list(range(18))
    assert warnings == []  # readers only look
    writer = PartitionWriter(partition, OneSchema(), WriterSettings())
    assert append(writer, [18]) == 18
    assert len(warnings) == 1
    assert f"cut {len(frames)} bytes" in warnings[0]
    assert values(partition) == list(range(19))
    writer.close()
    partition.close()


# -- below the durable point ------------------------------------------------------------------------------------------


def check_refused(written: Written, *, byte: int, offset: int) -> None:
    before = written.segment.read_bytes()
    for _ in range(2):
        partition = written.open(boots=2)
        writer = PartitionWriter(partition, OneSchema(), WriterSettings())
        for reading in (True, False):
            with pytest.raises(DamagedError) as refused:
                values(partition) if reading else append(writer, [1])
            assert written.segment.name in refused.value.message
            assert re.search(rf"(byte {byte}\b|has {byte} bytes)", refused.value.message)
            assert re.search(rf"offsets? {offset}\b", refused.value.message)
        writer.close()
        partition.close()
    assert written.segment.read_bytes() == before, "damage must never be cut away"


@pytest.mark.parametrize("frame", [3, 4])
def test_damage_that_a_later_frame_proves_synced_is_refused(written: Written, frame: int) -> None:
    start = written.ends[frame - 1]
    for at in (start, start + 20, start + 130, written.ends[frame] - 1):
        damaged = bytearray(written.whole)
        damaged[at] ^= 0x10
        written.leave(bytes(damaged), written.old_tail)
        check_refused(written, byte=start, offset=frame * ROWS_PER_FRAME)


def test_a_file_shorter_than_what_was_synced_is_refused(written: Written) -> None:
    for size in (written.ends[2] - 1, written.ends[1], FIRST_FRAME + 1):
        written.leave(written.whole[:size], written.old_tail)
        check_refused(written, byte=size, offset=8)


def test_damage_before_the_tail_is_found_by_whoever_reads_it(written: Written) -> None:
    damaged = bytearray(written.whole)
    damaged[written.ends[0] + 200] ^= 1
    written.leave(bytes(damaged), written.last_tail)
    partition = written.open(boots=2)
    reader = FrameReader(partition, 0)
    tail = partition.tail()
    assert [header.base_offset for header, _ in reader.read(tail)] == [0]  # what is good comes first
    with pytest.raises(DamagedError, match=f"damaged at byte {written.ends[0]}.*offsets 3 to 5 are at risk") as damage:
        reader.read(tail)
    assert "reading from offset 6" in (damage.value.hint or "")
    beyond = FrameReader(partition, 6)
    assert [header.base_offset for header, _ in beyond.read(tail)] == [6, 9, 12, 15]
    reader.close()
    beyond.close()
    partition.close()


def test_a_damaged_start_of_the_segment_is_refused(written: Written) -> None:
    damaged = bytearray(written.whole)
    damaged[FIRST_FRAME + 3] ^= 1
    written.leave(bytes(damaged), replace(written.old_tail, active_base=-1))
    check_refused(written, byte=FIRST_FRAME, offset=0)


def test_other_partitions_keep_serving_beside_a_damaged_one(tmp_path: Path) -> None:
    bad, good = Written(tmp_path, number=0), Written(tmp_path, number=1)
    damaged = bytearray(bad.whole)
    damaged[bad.ends[3] + 1] ^= 1
    bad.leave(bytes(damaged), bad.old_tail)
    check_refused(bad, byte=bad.ends[3], offset=12)
    partition = good.open(boots=2)
    writer = PartitionWriter(partition, OneSchema(), WriterSettings())
    assert append(writer, [18]) == 18
    assert values(partition) == list(range(19))
    writer.close()
    partition.close()


def _frame(*, offset: int, synced: int, stamp: Stamp | None = None) -> bytes:
    body = encode(pa.record_batch([pa.array([666], pa.int64())], schema=SCHEMA), schema_id=1)
    parts = place(body, base_offset=offset, append_time=0, synced=synced, stamp=stamp or Stamp())
    assert parse_header(parts[0]).base_offset == offset
    return b"".join(bytes(memoryview(part)) for part in parts)
