"""Where a partition ends after a crash: every case of `settled_tail`, on bytes in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import DamagedError
from penstock.log.frame import Stamp, encode, encode_state, place
from penstock.log.manifest import Manifest, Segment
from penstock.log.recovery import Outcome, settled_tail
from penstock.log.segment import FIRST_FRAME
from penstock.log.tail import Tail
from penstock.units import NO_TIME
from tests.log.simulated import SimulatedDisk

BOOT, NEXT_BOOT = bytes(15) + b"1", bytes(15) + b"2"
SCHEMA = pa.schema([("t", pa.timestamp("us", tz="UTC"))])
BASE = 100
COMMITTED, UNRECORDED = 7, 8


def outcomes(transaction: int) -> Outcome:
    return Outcome.COMMITTED if transaction == COMMITTED else Outcome.UNRECORDED


class Bytes:
    """The bytes of an active segment whose first offset is 100, and what the tail and the manifest say of it."""

    def __init__(self) -> None:
        self.content = bytes(FIRST_FRAME) + _joined(
            place(encode_state(b"{}"), base_offset=BASE, append_time=0, synced=0)
        )
        self.offset = BASE
        self.tail = Tail(BOOT, 3, BASE, self.end, BASE, self.end, BASE, append_time=5, max_time=50)
        self.manifest = Manifest(
            3, 0, (Segment("a.segment", 0, BASE, 900, BASE, 50, 5), Segment("b.segment", BASE, max_time=50))
        )

    @property
    def end(self) -> int:
        return len(self.content)

    def add(self, rows: int = 2, *, time: int = 60, transaction: int = 0, synced: int = 0) -> Bytes:
        """Write a frame; the tail does not move."""
        values = pa.array([time] * rows, SCHEMA.field("t").type)
        body = encode(pa.record_batch([values], schema=SCHEMA), schema_id=1, time_column="t")
        self.content += _joined(
            place(
                body,
                base_offset=self.offset,
                append_time=time,
                synced=synced,
                stamp=Stamp(transaction=transaction),
            )
        )
        self.offset += rows
        return self

    def sync_and_publish(self) -> Bytes:
        self.tail = replace(
            self.tail,
            end_position=self.end,
            end_offset=self.offset,
            durable_position=self.end,
            durable_offset=self.offset,
        )
        return self

    def settle(self, *, boot: bytes = BOOT, tail: Tail | str | None = "") -> tuple[Tail, str | None]:
        disk = SimulatedDisk()
        disk.make_directory(Path("p"))
        file = disk.open(Path("p/b.segment"), create=True)
        file.write_at(0, [self.content])
        chosen = self.tail if isinstance(tail, str) else tail
        return settled_tail(chosen, self.manifest, file, boot=boot, outcomes=outcomes, where="here")


def _joined(parts: list[bytes | pa.Buffer]) -> bytes:
    return b"".join(bytes(memoryview(part)) for part in parts)


# -- the machine stayed up --------------------------------------------------------------------------------------------


def test_an_exact_tail_stays_as_it_is() -> None:
    segment = Bytes().add().sync_and_publish()
    assert segment.settle() == (segment.tail, None)


def test_a_whole_frame_behind_an_exact_tail_is_cut() -> None:
    segment = Bytes().add().sync_and_publish()
    end = segment.end
    tail, cut = segment.add().settle()
    assert tail == segment.tail
    assert cut is not None
    assert f"cut {segment.end - end} bytes" in cut
    assert "after offset 101 " in cut
    assert f"byte {end}" in cut


@pytest.mark.parametrize("generation", [4, 9])
def test_the_generation_is_that_of_the_manifest_on_disk(generation: int) -> None:
    segment = Bytes().add().sync_and_publish()
    segment.manifest = replace(segment.manifest, generation=generation)
    assert segment.settle() == (replace(segment.tail, generation=generation), None)


def test_an_unfinished_roll_is_finished() -> None:
    """The manifest names the new segment; the tail still speaks of the old one."""
    segment = Bytes()
    old = replace(segment.tail, active_base=40, end_position=900, end_offset=BASE, durable_position=900)
    tail, cut = segment.settle(tail=old)
    assert (tail.active_base, tail.end_position, tail.end_offset) == (BASE, segment.end, BASE)
    assert (tail.durable_position, tail.durable_offset) == (segment.end, BASE)
    assert (tail.append_time, tail.max_time, cut) == (5, 50, None)


def test_an_unfinished_roll_into_a_damaged_segment_is_refused() -> None:
    segment = Bytes()
    segment.content = segment.content[: FIRST_FRAME + 20]
    with pytest.raises(DamagedError, match=r"b\.segment is damaged at byte 64.*offsets 100"):
        segment.settle(tail=replace(segment.tail, active_base=40))


def pending(segment: Bytes, transaction: int) -> Tail:
    return replace(
        segment.tail, pending_transaction=transaction, pending_position=segment.end, pending_offset=segment.offset
    )


def test_a_pending_transaction_that_committed_becomes_the_end() -> None:
    segment = Bytes().add().sync_and_publish().add(transaction=COMMITTED)
    tail, cut = segment.settle(tail=pending(segment, COMMITTED))
    assert (tail.end_position, tail.end_offset, tail.durable_position) == (segment.end, 104, segment.end)
    assert (tail.pending_transaction, tail.pending_position, tail.pending_offset) == (0, 0, 0)
    assert cut is None


def test_a_pending_transaction_that_did_not_commit_is_cut() -> None:
    segment = Bytes().add().sync_and_publish().add(transaction=UNRECORDED)
    tail, cut = segment.settle(tail=pending(segment, UNRECORDED))
    assert tail == segment.tail
    assert cut is not None


def test_a_file_shorter_than_its_exact_tail_is_damage() -> None:
    segment = Bytes().add().sync_and_publish()
    segment.content = segment.content[:-64]
    with pytest.raises(DamagedError, match=r"b\.segment has \d+ bytes; \d+ were stored, up to offset 101"):
        segment.settle()


# -- the machine was restarted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", range(4))
def test_whole_frames_behind_an_old_tail_are_kept(behind: int) -> None:
    segment = Bytes().add().sync_and_publish()
    for step in range(behind):
        segment.add(time=100 + step)
    tail, cut = segment.settle(boot=NEXT_BOOT)
    assert tail.boot == NEXT_BOOT
    assert (tail.end_position, tail.end_offset) == (segment.end, segment.offset)
    assert (tail.durable_position, tail.durable_offset) == (segment.end, segment.offset)
    assert tail.max_time == (99 + behind if behind else 50)
    assert tail.append_time == (99 + behind if behind else 5)
    assert cut is None


def test_a_tail_of_an_earlier_segment_means_the_whole_segment_is_looked_at() -> None:
    segment = Bytes().add().add(time=70)
    old = replace(segment.tail, active_base=0, end_position=64, end_offset=3, durable_position=64, max_time=1)
    tail, cut = segment.settle(boot=NEXT_BOOT, tail=old)
    assert (tail.end_position, tail.end_offset, tail.max_time, cut) == (segment.end, 104, 70, None)


def test_times_of_closed_segments_are_not_forgotten_with_an_old_tail() -> None:
    segment = Bytes()
    old = replace(segment.tail, active_base=0, append_time=0, max_time=NO_TIME)
    tail, _ = segment.settle(boot=NEXT_BOOT, tail=old)
    assert (tail.append_time, tail.max_time) == (5, 50)


def test_without_a_tail_the_whole_segment_is_looked_at() -> None:
    segment = Bytes().add().add(time=70)
    for boot in (BOOT, NEXT_BOOT):
        tail, cut = segment.settle(boot=boot, tail=None)
        assert (tail.end_position, tail.end_offset, tail.max_time, cut) == (segment.end, 104, 70, None)


def test_a_torn_frame_is_cut() -> None:
    segment = Bytes().add().sync_and_publish().add()
    end, offset = segment.end, segment.offset
    segment.add()
    segment.content = segment.content[:-1]
    tail, cut = segment.settle(boot=NEXT_BOOT)
    assert (tail.end_position, tail.end_offset) == (end, offset)
    assert cut is not None
    assert f"cut {segment.end - end} bytes" in cut
    assert "body bytes" in cut


def test_a_lost_frame_before_a_whole_one_of_the_same_sync_is_cut_with_it() -> None:
    segment = Bytes().add().sync_and_publish()
    end = segment.end
    segment.add(synced=end)
    lost = range(end, segment.end)
    segment.add(synced=end)
    segment.content = segment.content[: lost.start] + bytes(len(lost)) + segment.content[lost.stop :]
    tail, cut = segment.settle(boot=NEXT_BOOT)
    assert tail.end_position == end
    assert cut is not None


def test_a_bad_frame_that_a_later_one_proves_synced_is_damage() -> None:
    segment = Bytes().add().sync_and_publish()
    bad = segment.end
    segment.add()
    segment.add(synced=segment.end)
    segment.content = segment.content[: bad + 10] + b"?" + segment.content[bad + 11 :]
    with pytest.raises(DamagedError, match=rf"b\.segment is damaged at byte {bad}: .*; offsets 102 to 103 are at risk"):
        segment.settle(boot=NEXT_BOOT)


def test_damage_before_the_durable_end_is_not_looked_for() -> None:
    """Reading finds it; recovery after a restart must not cost a scan of everything."""
    segment = Bytes().add()
    segment.content = segment.content[:-200] + b"?" + segment.content[-199:]
    segment.sync_and_publish().add()
    tail, cut = segment.settle(boot=NEXT_BOOT)
    assert (tail.end_position, cut) == (segment.end, None)


def test_a_segment_whose_first_frame_is_bad_is_damage() -> None:
    """It was on disk before the manifest named the segment."""
    segment = Bytes()
    segment.content = segment.content[:FIRST_FRAME] + bytes(128)
    for tail in (None, replace(segment.tail, active_base=0)):
        with pytest.raises(DamagedError, match=r"damaged at byte 64.*offsets 100 and on are at risk"):
            segment.settle(boot=NEXT_BOOT, tail=tail)


def test_a_file_shorter_than_what_was_synced_is_damage() -> None:
    segment = Bytes().add().sync_and_publish()
    segment.content = segment.content[:-1]
    with pytest.raises(DamagedError, match=r"b\.segment has \d+ bytes; \d+ had been synced, up to offset 101"):
        segment.settle(boot=NEXT_BOOT)


def test_a_committed_transaction_behind_an_old_tail_is_kept() -> None:
    segment = Bytes().add().sync_and_publish().add(transaction=COMMITTED).add()
    tail, cut = segment.settle(boot=NEXT_BOOT)
    assert (tail.end_position, cut) == (segment.end, None)


@pytest.mark.parametrize("behind", [0, 1])
def test_an_uncommitted_transaction_is_cut_with_all_that_stands_behind_it(behind: int) -> None:
    """Nothing behind it can have been acknowledged: it would have been written in its place."""
    segment = Bytes().add().sync_and_publish().add(transaction=COMMITTED)
    end = segment.end
    segment.add(transaction=UNRECORDED).add(transaction=UNRECORDED)
    for _ in range(behind):
        segment.add()
    tail, cut = segment.settle(boot=NEXT_BOOT)
    assert (tail.end_position, tail.end_offset) == (end, 104)
    assert cut is not None


def test_a_pending_mark_of_an_earlier_boot_is_forgotten() -> None:
    segment = Bytes().add().sync_and_publish().add(transaction=COMMITTED)
    tail, _ = segment.settle(boot=NEXT_BOOT, tail=pending(segment, COMMITTED))
    assert (tail.end_position, tail.pending_transaction) == (segment.end, 0)


def test_without_a_tail_a_last_transaction_of_unknown_outcome_is_not_guessed() -> None:
    segment = Bytes().add(transaction=UNRECORDED)
    with pytest.raises(DamagedError, match="tail record is damaged, and the outcome of its last transaction"):
        segment.settle(tail=None)


def test_without_a_tail_an_earlier_transaction_must_have_committed() -> None:
    """The catalogue forgets in time; whoever wrote behind it knew that it was committed."""
    segment = Bytes().add(transaction=UNRECORDED).add()
    tail, cut = segment.settle(tail=None)
    assert (tail.end_position, cut) == (segment.end, None)


def test_settling_twice_changes_nothing() -> None:
    segment = Bytes().add().sync_and_publish().add().add(transaction=UNRECORDED)
    first, cut = segment.settle(boot=NEXT_BOOT)
    assert cut is not None
    segment.content = segment.content[: first.end_position]
    assert segment.settle(boot=NEXT_BOOT, tail=first) == (first, None)
    third = bytes(15) + b"3"
    assert segment.settle(boot=third) == (replace(first, boot=third), None)
