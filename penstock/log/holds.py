"""Holds: who still needs which rows as they are, and who has read how far.

Compaction, retention and erasure leave held rows alone. Of what a reader has not read yet, compaction leaves the delete
markers: the reader may have a row of their key. Only names with a colon, such as `app:shop`, tell who the owner is; the
log does not look into them.

A hold is one small file that its owner overwrites in place, so that moving it costs a single sync. The file has two
slots of equal size; a new record goes into the slot of the older one, so the last record that was placed survives a
crash in the middle of a write. A slot that is not whole is an error: it may have been the newer one.

One lock for the whole log orders holds and removals. Whoever places a hold takes it for the moment of the write;
whoever removes rows takes it while it looks for holds and puts its new manifest in place. So either the removal sees
the hold, or the hold is placed on what the removal has left. Appends do not take it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.contracts import HeldRange, Hold, ReadOffset
from penstock.errors import DamagedError, FencedError
from penstock.storage.document import Content, decode_document, encode_document
from penstock.storage.files import Files, disk_errors, write_durably

HOLDS_DIRECTORY = "holds"
HOLDS_LOCK = "holds.lock"
HOLD_SUFFIX = ".json"
SLOT_BYTES = 4096  # the least; a hold with many partitions has larger slots
# A name, or several with colons between them; with its suffix it must fit into the name of a file.
HOLD_NAME_PATTERN = re.compile(r"(?=.{1,230}$)[A-Za-z0-9][A-Za-z0-9._-]{0,199}(:[A-Za-z0-9][A-Za-z0-9._-]{0,199}){0,2}")
# Behind every offset.
FOREVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of a given partition that somebody holds; with `only_markers`, the delete markers among them."""

    owner: str
    start: int
    end: int
    only_markers: bool = False

    def overlaps(self, start: int, end: int) -> bool:
        return max(self.start, start) < min(self.end, end)

    def __str__(self) -> str:
        return f"'{self.owner}' holds offsets {self.start} to {self.end - 1}"


@dataclass(frozen=True, slots=True)
class _Written:
    """A hold's file as this process has left it."""

    number: int
    raw: bytes
    token: int


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

    def place(self, name: str, ranges: Sequence[HeldRange], *, read: Sequence[ReadOffset] = (), token: int = 0) -> None:
        """Replace what `name` holds, under `locked`. On disk when this returns. FencedError if a higher token did so.

        The file is written in place if it is as this process left it, which costs one sync; otherwise as a whole.
        """
        path = self._path(name)
        written = self._written.pop(name, None)
        if written is None or not self._files.exists(path) or self._files.read(path) != written.raw:
            self._refuse_replaced(name, token, self._stored_token(path))
            self._files.make_directory(self._directory)
            self._files.sync_directory(self._root)
            self._written[name] = self._store_anew(path, _hold(name, ranges, read, token, number=1))
            return
        self._refuse_replaced(name, token, written.token)
        hold = _hold(name, ranges, read, token, number=written.number + 1)
        size = len(written.raw) // 2
        slot = _encode(hold, self._log_id).ljust(size)
        if len(slot) > size:
            self._written[name] = self._store_anew(path, hold)
            return
        start = size * (hold.number % 2)
        with closing(self._files.open(path)) as file:
            file.write_at(start, [slot])
            file.sync()
        self._written[name] = _Written(hold.number, written.raw[:start] + slot + written.raw[start + size :], token)

    def _stored_token(self, path: Path) -> int:
        """The highest token that is known of a hold. What is damaged is about to be replaced, and says nothing."""
        if not self._files.exists(path):
            return 0
        tokens = [0]
        for slot in self._slots(self._files.read(path)):
            with suppress(DamagedError):
                tokens.append(_decode(slot, path, self._log_id).token)
        return max(tokens)

    @staticmethod
    def _refuse_replaced(name: str, token: int, stored: int) -> None:
        if token < stored:
            raise FencedError(
                f"hold '{name}': owner {token} was replaced by owner {stored}",
                hint="another process does the same work now; stop this one",
            )

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
        return _Written(hold.number, raw, hold.token)

    def _newest(self, path: Path) -> Hold:
        """The newer record. DamagedError unless both are whole: the other one may have been the newer."""
        slots = [_decode(slot, path, self._log_id) for slot in self._slots(self._files.read(path))]
        return max(slots, key=lambda hold: hold.number)

    @staticmethod
    def _slots(raw: bytes) -> tuple[bytes, bytes]:
        size = len(raw) // 2 if len(raw) % (2 * SLOT_BYTES) == 0 else 0
        return raw[:size], raw[size:]


GroupPositions = Callable[[], Mapping[str, Mapping[int, int]]]
"""By group and partition: the offsets that the groups which read a topic have committed."""


class PartitionHolds:
    """The holds on one partition, as those see them who remove rows."""

    def __init__(self, holds: Holds, topic_id: str, partition: int, *, groups: GroupPositions) -> None:
        self._holds = holds
        self._topic_id = topic_id
        self._partition = partition
        self._groups = groups

    @contextmanager
    def locked(self, *, markers: bool) -> Iterator[tuple[Held, ...]]:
        """Which rows are held, and with `markers`, which delete markers readers and groups still need.

        Nobody can place another hold in this block.
        """
        with self._holds.locked():
            holds = self._holds.all()
            yield (*self._held_rows(holds), *(self._held_markers(holds) if markers else ()))

    def _held_rows(self, holds: Sequence[Hold]) -> Iterator[Held]:
        for hold in holds:
            for held in hold.ranges:
                if self._is_here(held) and held.start < held.end:
                    yield Held(hold.name, held.start, held.end)

    def _held_markers(self, holds: Sequence[Hold]) -> Iterator[Held]:
        for hold in holds:
            for position in hold.read:
                if self._is_here(position):
                    yield Held(hold.name, position.offset, FOREVER, only_markers=True)
        for group, committed in self._groups().items():
            yield Held(f"group:{group}", committed.get(self._partition, 0), FOREVER, only_markers=True)

    def _is_here(self, found: HeldRange | ReadOffset) -> bool:
        return (found.topic_id, found.partition) == (self._topic_id, self._partition)


def overlapping_holds(held: Sequence[Held], start: int, end: int) -> tuple[Held, ...]:
    return tuple(hold for hold in held if hold.overlaps(start, end))


def owners(held: Sequence[Held]) -> tuple[str, ...]:
    return tuple(sorted({hold.owner for hold in held}))


def _hold(name: str, ranges: Sequence[HeldRange], read: Sequence[ReadOffset], token: int, *, number: int) -> Hold:
    placed = datetime.now(UTC).isoformat(timespec="seconds")
    return Hold(name, tuple(ranges), placed, number, tuple(read), token)


def _encode(hold: Hold, log_id: str) -> bytes:
    topics: dict[str, Content] = {}
    for held in hold.ranges:
        topic = topics.setdefault(held.topic_id, {"name": held.topic, "partitions": []})
        topic["partitions"].append([held.partition, held.start, held.end])
    read: dict[str, Content] = {}
    for position in hold.read:
        topic = read.setdefault(position.topic_id, {"name": position.topic, "partitions": []})
        topic["partitions"].append([position.partition, position.offset])
    content = {"name": hold.name, "log": log_id, "number": hold.number, "placed": hold.placed, "topics": topics}
    return encode_document(content | {"read": read, "token": hold.token})


def _decode(raw: bytes, path: Path, log_id: str) -> Hold:
    hint = (
        "let its owner place it again, or, if nobody needs the rows any more, drop it with "
        f"`penstock holds release {path.name.removesuffix(HOLD_SUFFIX)}`"
    )
    try:
        content = decode_document(raw, path, what="hold")
        owner = content["log"] or log_id
        # Holds of earlier versions have neither positions nor a token.
        read, token = tuple(_positions(content.get("read", {}))), content.get("token", 0)
        ranges = tuple(_ranges(content["topics"]))
        hold = Hold(content["name"], ranges, content["placed"], content["number"], read, token)
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


def _positions(topics: Mapping[str, Content]) -> Iterator[ReadOffset]:
    for topic_id, topic in topics.items():
        for partition, offset in topic["partitions"]:
            yield ReadOffset(topic["name"], topic_id, partition, offset)
