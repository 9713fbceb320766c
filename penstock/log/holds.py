"""Holds: who still needs which rows as they are. Compaction, retention and erasure leave held rows alone.

A hold is one small file that its owner overwrites in place, so that moving it costs a single sync. The file has two
slots of equal size; a new record goes into the slot of the older one, so the last record that was placed survives a
crash in the middle of a write. A slot that is not whole is an error: it may have been the newer one.

One lock for the whole log orders holds and removals. Whoever places a hold takes it for the moment of the write;
whoever removes rows takes it while it looks for holds and puts its new manifest in place. So either the removal sees
the hold, or the hold is placed on what the removal has left. Appends do not take it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.errors import DamagedError
from penstock.log.document import Content, decode_document, encode_document
from penstock.log.files import Files, disk_errors, write_durably

HOLDS_DIRECTORY = "holds"
HOLDS_LOCK = "holds.lock"
HOLD_SUFFIX = ".json"
SLOT_BYTES = 4096  # the least; a hold with many partitions has larger slots


@dataclass(frozen=True, slots=True)
class HeldRange:
    """Rows of one partition, from `start` up to `end` (exclusive). The id tells topics of one name apart."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Hold:
    """What one owner holds, and since when (ISO 8601)."""

    name: str
    ranges: tuple[HeldRange, ...]
    placed: str
    number: int = 0  # grows with every change of this hold


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of a given partition that somebody holds."""

    owner: str
    start: int
    end: int

    def overlaps(self, start: int, end: int) -> bool:
        return max(self.start, start) < min(self.end, end)

    def __str__(self) -> str:
        return f"'{self.owner}' holds offsets {self.start} to {self.end - 1}"


@dataclass(frozen=True, slots=True)
class _Written:
    """A hold's file as this process has left it."""

    number: int
    raw: bytes


class Holds:
    """All holds of a log."""

    def __init__(self, files: Files, root: Path, log_id: str = "") -> None:
        self._files = files
        self._root = root
        self._log_id = log_id  # none in a log of an earlier version
        self._directory = root / HOLDS_DIRECTORY
        self._written: dict[str, _Written] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else places a hold, or removes rows, in this block. Keep it short."""
        with disk_errors(str(self._directory)):
            lock = self._files.lock(self._root / HOLDS_LOCK)
        with closing(lock):
            lock.acquire()
            yield

    def place(self, name: str, ranges: Sequence[HeldRange]) -> None:
        """Replace what `name` holds, under `locked`. On disk when this returns.

        The file is written in place if it is as this process left it, which saves reading it; otherwise as a whole.
        """
        path = self._path(name)
        written = self._written.pop(name, None)
        if written is None or not self._files.exists(path) or self._files.read(path) != written.raw:
            self._files.make_directory(self._directory)
            self._files.sync_directory(self._root)
            self._written[name] = self._store_anew(path, _hold(name, ranges, number=1))
            return
        hold = _hold(name, ranges, number=written.number + 1)
        size = len(written.raw) // 2
        slot = _encode(hold, self._log_id).ljust(size)
        if len(slot) > size:
            self._written[name] = self._store_anew(path, hold)
            return
        start = size * (hold.number % 2)
        with closing(self._files.open(path)) as file:
            file.write_at(start, [slot])
            file.sync()
        self._written[name] = _Written(hold.number, written.raw[:start] + slot + written.raw[start + size :])

    def release(self, name: str) -> None:
        """Drop a hold, if there is one. A power loss may bring it back, which is safe."""
        with suppress(FileNotFoundError):
            self._files.remove(self._path(name))

    def all(self) -> list[Hold]:
        """Every hold, under `locked`; DamagedError if one of them cannot be read."""
        holds = []
        for file_name in self._file_names():
            path = self._directory / file_name
            if file_name.endswith(HOLD_SUFFIX + ".tmp"):
                continue  # of a process that died before its hold was placed
            if not file_name.endswith(HOLD_SUFFIX):
                raise DamagedError(f"{path}: this is not a hold", hint="move the file elsewhere")
            try:
                with disk_errors(str(path), but=FileNotFoundError):
                    holds.append(self._newest(path))
            except FileNotFoundError:
                continue  # released in this moment
        return holds

    def _file_names(self) -> list[str]:
        try:
            with disk_errors(str(self._directory), but=FileNotFoundError):
                return self._files.names(self._directory)
        except FileNotFoundError:
            return []

    def _path(self, name: str) -> Path:
        return self._directory / (name + HOLD_SUFFIX)

    def _store_anew(self, path: Path, hold: Hold) -> _Written:
        encoded = _encode(hold, self._log_id)
        size = -(-len(encoded) // SLOT_BYTES) * SLOT_BYTES
        raw = 2 * encoded.ljust(size)
        write_durably(self._files, path, raw)
        return _Written(hold.number, raw)

    def _newest(self, path: Path) -> Hold:
        """The newer record. DamagedError unless both are whole: the other one may have been the newer."""
        raw = self._files.read(path)
        size = len(raw) // 2 if len(raw) % (2 * SLOT_BYTES) == 0 else 0
        slots = (_decode(raw[:size], path, self._log_id), _decode(raw[size:], path, self._log_id))
        return max(slots, key=lambda hold: hold.number)


class PartitionHolds:
    """The holds on one partition, as those see them who remove rows."""

    def __init__(self, holds: Holds, topic_id: str, partition: int) -> None:
        self._holds = holds
        self._topic_id = topic_id
        self._partition = partition

    @contextmanager
    def fixed(self) -> Iterator[tuple[Held, ...]]:
        """What is held. Nobody can place another hold in this block."""
        with self._holds.locked():
            yield self._found()

    def now(self) -> tuple[Held, ...]:
        with self.fixed() as held:
            return held

    def _found(self) -> tuple[Held, ...]:
        return tuple(
            Held(hold.name, held.start, held.end)
            for hold in self._holds.all()
            for held in hold.ranges
            if (held.topic_id, held.partition) == (self._topic_id, self._partition) and held.start < held.end
        )


def overlapping(held: Sequence[Held], start: int, end: int) -> tuple[Held, ...]:
    return tuple(one for one in held if one.overlaps(start, end))


def owners(held: Sequence[Held]) -> tuple[str, ...]:
    return tuple(sorted({one.owner for one in held}))


def _hold(name: str, ranges: Sequence[HeldRange], *, number: int) -> Hold:
    return Hold(name, tuple(ranges), datetime.now(UTC).isoformat(timespec="seconds"), number)


def _encode(hold: Hold, log_id: str) -> bytes:
    topics: dict[str, Content] = {}
    for held in hold.ranges:
        topic = topics.setdefault(held.topic_id, {"name": held.topic, "partitions": []})
        topic["partitions"].append([held.partition, held.start, held.end])
    content = {"name": hold.name, "log": log_id, "number": hold.number, "placed": hold.placed, "topics": topics}
    return encode_document(content)


def _decode(raw: bytes, path: Path, log_id: str) -> Hold:
    hint = (
        "let its owner place it again, or, if nobody needs the rows any more, drop it with "
        f"`penstock holds release {path.name.removesuffix(HOLD_SUFFIX)}`"
    )
    try:
        content = decode_document(raw, path, what="hold")
        owner = content["log"] or log_id
        hold = Hold(content["name"], tuple(_ranges(content["topics"])), content["placed"], content["number"])
    except (DamagedError, KeyError, TypeError, ValueError, AttributeError):
        raise DamagedError(f"{path}: the hold is damaged; which rows it holds is not known", hint=hint) from None
    if hold.name + HOLD_SUFFIX != path.name:
        raise DamagedError(f"{path}: this is the hold of '{hold.name}'", hint=hint)
    if log_id and owner != log_id:
        raise DamagedError(f"{path}: this is a hold of another log", hint=hint)
    return hold


def _ranges(topics: Mapping[str, Content]) -> Iterator[HeldRange]:
    for topic_id, topic in topics.items():
        for partition, start, end in topic["partitions"]:
            yield HeldRange(topic["name"], topic_id, partition, start, end)
