"""The active segment as a writer holds it: the open file, where it ends, and what its frames add up to."""

from __future__ import annotations

from penstock.errors import UnavailableError
from penstock.log.frame import BadFrameError, Header
from penstock.log.index import IndexBuilder, IndexFile
from penstock.log.partition import Partition, read_state
from penstock.log.reader import damage_at
from penstock.log.segment import FIRST_FRAME, scan
from penstock.log.tail import Tail


class ActiveSegment:
    """Opened under the partition's lock, and true as long as `tail` is what the tail file says."""

    def __init__(self, partition: Partition, tail: Tail) -> None:
        self._partition = partition
        manifest = partition.manifest(tail.generation)
        # Whoever put this manifest here may have died before it was safe; what we append must not depend on luck.
        partition.files.sync_directory(partition.directory)
        partition.remove_garbage(manifest)
        self.tail = tail
        self.file = partition.open_segment(manifest.active)
        try:
            partition.check_writable(self.file)
        except UnavailableError:
            self.file.close()
            raise
        try:
            self.state, position = read_state(self.file)
            frames = self._frames(position, manifest.active.base_offset, tail)
            for _, header in frames:
                self.state.add(header)
        except BadFrameError as bad:
            offset = manifest.active.base_offset
            raise damage_at(
                partition, manifest.active, self.file, position=FIRST_FRAME, offset=offset, reason=str(bad)
            ) from None
        self._builder = IndexBuilder(max_time=manifest.active.max_time)
        index_path = partition.directory / manifest.active.index_name
        self._index = IndexFile(partition.files, index_path, self._builder.entries_for(frames))

    def matches(self, tail: Tail | None) -> bool:
        """Whether nobody has appended, and nobody has left unfinished bytes behind, since `tail` was set."""
        return tail == self.tail and self.file.size() == self.tail.end_position

    def follow(self, tail: Tail) -> bool:
        """Take in what other processes appended; False when the segment is not the active one any more."""
        if tail.generation != self.tail.generation or tail.end_offset < self.tail.end_offset:
            return False
        frames = self._frames(self.tail.end_position, self.tail.end_offset, tail)
        for _, header in frames:
            self.state.add(header)
        # Which frames get an entry follows from the frames alone, so the others have written just these.
        self._index.skip(len(self._builder.entries_for(frames)))
        self.tail = tail
        return True

    def publish(self, tail: Tail, frames: list[tuple[int, Header]]) -> None:
        """Move the end, for everybody, over frames that are on disk."""
        self.announce(tail)
        self._index.add(self._builder.entries_for(frames))

    def announce(self, tail: Tail) -> None:
        self.tail = self._partition.tail_file.write(tail)

    def sync(self) -> None:
        """Make everything of this segment durable, before it is closed for good."""
        self.file.sync()
        self._index.sync()

    def close(self) -> None:
        self.file.close()
        self._index.close()

    def _frames(self, position: int, next_offset: int, tail: Tail) -> list[tuple[int, Header]]:
        """The headers up to the end. A bad one is damage: what it said of its producer must not be forgotten."""
        data = self.file.view(position, tail.end_position - position)
        found = scan(data, start=position, next_offset=next_offset, bodies=False, data_start=position)
        if found.problem:
            segment = self._partition.manifest(tail.generation).active
            raise damage_at(
                self._partition,
                segment,
                self.file,
                position=found.problem.position,
                offset=found.problem.offset,
                reason=found.problem.reason,
            )
        return found.frames
