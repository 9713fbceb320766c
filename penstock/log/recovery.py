"""Finding the true end of a partition after a crash. Pure but for looking at the active segment.

Three things are told apart: an unfinished append (cut, and reported), garbage after the end (the same), and damage to
what was already safe (never cut: an error that names segment, byte and offsets).

While the machine has stayed up the tail record is exact: what lies behind it was never visible to anyone and is cut.
After a restart of the machine the tail is a lower bound: whole frames behind it may have been acknowledged and are
kept, up to the first bad one. A bad frame is damage when a later frame proves that it had been synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum

from penstock.errors import DamagedError
from penstock.log.frame import HEADER_BYTES, Header
from penstock.log.manifest import Manifest
from penstock.log.segment import FIRST_FRAME, Problem, later_frames, offsets_at_risk, scan
from penstock.log.tail import Tail
from penstock.storage.files import File
from penstock.units import NO_TIME


class Outcome(Enum):
    """What became of a transaction. UNRECORDED: never committed, or so long ago that the record is gone."""

    COMMITTED = "committed"
    UNRECORDED = "unrecorded"


# A record with it is a lower bound, as one of an earlier boot is.
NO_BOOT = bytes(16)


def trusted_tail(
    tail: Tail | None, copy: Tail | None, manifest: Manifest, active: File, *, boot: bytes, where: str
) -> Tail | None:
    """The record to go by: the tail itself, unless it proves to be an older copy, which then is a lower bound only.

    1. A manifest is put in place before the tail moves to its active segment, and at most one generation behind it.
       One that is further behind is an older copy.
    2. A record with a higher number is newer. Where it is not the tail itself, it is a lower bound.
    3. The tail moves to a generation before its manifest is put in place. One that is behind is an older copy.
    4. A frame that was written when more was on disk than the tail tells of came after it.
    """
    newest = max(
        (record for record in (tail, copy) if record is not None), key=lambda record: record.number, default=None
    )
    if newest is None:
        return None
    base = manifest.active.base_offset
    if newest.active_base > base or newest.generation > manifest.generation + 1:  # 1
        raise DamagedError(
            f"{where}: its manifest is an older copy; it has generation {manifest.generation}, and "
            f"{newest.generation} was stored",
            hint="restore manifest.json from a newer copy; other partitions keep working",
        )
    if newest is not tail and newest != tail:  # 2
        return replace(newest, boot=NO_BOOT)
    if newest.boot != boot:
        return newest
    if newest.generation < manifest.generation or _is_outrun(newest, base, active):  # 3, 4
        return replace(newest, boot=NO_BOOT)
    return newest


def _is_outrun(tail: Tail, base: int, active: File) -> bool:
    end = max(tail.end_position, tail.pending_position) if tail.active_base == base else FIRST_FRAME
    size = active.size()
    if size <= end:
        return False
    rest = active.view(end, size - end)
    proof = end if tail.active_base == base else FIRST_FRAME + HEADER_BYTES
    return any(header.synced > proof for _, header in later_frames(rest, after=end - 1, data_start=end))


def settled_tail(
    tail: Tail | None,
    manifest: Manifest,
    active: File,
    *,
    boot: bytes,
    outcomes: Callable[[int], Outcome],
    where: str,
) -> tuple[Tail, str | None]:
    """The tail as it should be, and what has to be cut from the active segment, in words, if anything has."""
    if tail is not None and tail.boot == boot:
        settled = _decide_pending(_on_manifest(tail, manifest, active, where=where), outcomes)
        problem = None
    else:
        settled, problem = _scan_tail(tail, manifest, active, boot=boot, outcomes=outcomes, where=where)
    size = active.size()
    if size < settled.end_position:
        raise DamagedError(
            f"{where}: segment {manifest.active.name} has {size} bytes; {settled.end_position} were stored, "
            f"up to offset {settled.end_offset - 1}",
            hint="the file was cut by something else; restore it from a copy",
        )
    if size == settled.end_position:
        return settled, None
    why = f" ({problem.reason})" if problem else ""
    return settled, (
        f"cut {size - settled.end_position} bytes of an unfinished append after offset {settled.end_offset - 1} "
        f"(segment {manifest.active.name}, byte {settled.end_position}){why}"
    )


def _on_manifest(tail: Tail, manifest: Manifest, active: File, *, where: str) -> Tail:
    """The same tail for the manifest as it is, which may be one step ahead of it or, after a crash, behind."""
    base = manifest.active.base_offset
    if tail.active_base == base:
        return replace(tail, generation=manifest.generation)
    # A roll got as far as its manifest. The new segment's first frame, its state, was on disk before that.
    found = scan(active.view(0, active.size()), start=FIRST_FRAME, next_offset=base, bodies=False)
    if not found.frames:
        raise _damage_error(Problem(FIRST_FRAME, base, "its first frame is missing"), manifest, where=where)
    position = FIRST_FRAME + found.frames[0][1].length
    return replace(
        tail,
        generation=manifest.generation,
        active_base=base,
        end_position=position,
        end_offset=base,
        durable_position=position,
        durable_offset=base,
    )


def _decide_pending(tail: Tail, outcomes: Callable[[int], Outcome]) -> Tail:
    """Under the lock nobody can still commit: a pending transaction is committed, or it never will be."""
    if not tail.pending_transaction:
        return tail
    plain = replace(tail, pending_transaction=0, pending_position=0, pending_offset=0)
    if outcomes(tail.pending_transaction) is not Outcome.COMMITTED:
        return plain
    return replace(
        plain,
        end_position=tail.pending_position,
        end_offset=tail.pending_offset,
        durable_position=tail.pending_position,
        durable_offset=tail.pending_offset,
    )


def _scan_tail(
    tail: Tail | None,
    manifest: Manifest,
    active: File,
    *,
    boot: bytes,
    outcomes: Callable[[int], Outcome],
    where: str,
) -> tuple[Tail, Problem | None]:
    base = manifest.active.base_offset
    start, offset = FIRST_FRAME, base
    if tail is not None and tail.active_base == base:
        start, offset = tail.durable_position, tail.durable_offset
    size = active.size()
    if size < start:
        raise DamagedError(
            f"{where}: segment {manifest.active.name} has {size} bytes; {start} had been synced, "
            f"up to offset {offset - 1}",
            hint="restore the file from a copy",
        )
    data = active.view(0, size)
    found = scan(data, start=start, next_offset=offset)
    if found.problem:
        _refuse_damage(found.problem, manifest, later_frames(data, after=found.problem.position), where=where)
    frames = _without_unfinished(found.frames, tail, outcomes, where=where)
    end_position, end_offset = start, offset
    append_time = max([segment.append_time for segment in manifest.closed] + [tail.append_time if tail else 0])
    max_time = max([segment.max_time for segment in manifest.segments] + [tail.max_time if tail else NO_TIME])
    for position, header in frames:
        end_position, end_offset = position + header.length, header.next_offset
        append_time, max_time = max(append_time, header.append_time), max(max_time, header.max_time)
    settled = Tail(
        boot=boot,
        generation=manifest.generation,
        active_base=base,
        end_position=end_position,
        end_offset=end_offset,
        durable_position=end_position,
        durable_offset=end_offset,
        append_time=append_time,
        max_time=max_time,
    )
    return settled, found.problem


def _refuse_damage(problem: Problem, manifest: Manifest, later: Iterable[tuple[int, Header]], *, where: str) -> None:
    """Raise if a later frame proves that what stands here had been synced, or if it is the state, which always is."""
    proof = next((header for _, header in later if header.synced > problem.position), None)
    if proof is not None:
        raise _damage_error(problem, manifest, until=proof.base_offset, where=where)
    if problem.position == FIRST_FRAME:
        raise _damage_error(problem, manifest, where=where)


def _damage_error(problem: Problem, manifest: Manifest, *, until: int = 0, where: str) -> DamagedError:
    return DamagedError(
        f"{where}: segment {manifest.active.name} is damaged at byte {problem.position}: {problem.reason}; "
        f"{offsets_at_risk(problem.offset, until)}",
        hint="restore the segment from a copy; other partitions keep working",
    )


def _without_unfinished(
    frames: list[tuple[int, Header]], tail: Tail | None, outcomes: Callable[[int], Outcome], *, where: str
) -> list[tuple[int, Header]]:
    """The frames before the first one of a transaction that never committed.

    With a tail, every transaction behind its durable end is still on record: the catalogue forgets one only after the
    tails have been synced. Without it only the last transaction is in doubt: others wrote after the earlier ones.
    """
    if tail is None:
        last = frames[-1][1].transaction if frames else 0
        if last and outcomes(last) is not Outcome.COMMITTED:
            raise DamagedError(
                f"{where}: its tail record is damaged, and the outcome of its last transaction is not on record",
                hint="restore the file `tail` of this partition from a copy",
            )
        return frames
    for index, (_, header) in enumerate(frames):
        if header.transaction and outcomes(header.transaction) is not Outcome.COMMITTED:
            return frames[:index]
    return frames
