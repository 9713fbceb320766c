"""The active segment as a writer holds it: the open file, where it ends, and what its frames add up to."""

from __future__ import annotations

from penstock.log.files import write_durably
from penstock.log.frame import BadFrameError, Header
from penstock.log.index import Entry, IndexBuilder, IndexFile, encode_entries, load_index
from penstock.log.manifest import Manifest
from penstock.log.partition import Partition, read_state
from penstock.log.reader import damage_at
from penstock.log.segment import FIRST_FRAME, scan
from penstock.log.tail import Tail


class ActiveSegment:
    """Opened under the partition's lock, and true as long as `tail` is what the tail file says."""

    def __init__(self, partition: Partition, tail: Tail) -> None:
        self._partition = partition
        manifest = partition.manifest(tail.generation)
        partition.remove_garbage(manifest)
        self.tail = tail
        self.file = partition.open_segment(manifest.active)
        try:
            self.state, position = read_state(self.file)
            frames = self._frames(position, manifest.active.base_offset, tail)
            for _, header in frames:
                self.state.add(header)
            self._index, self._builder = self._open_index(manifest, frames)
        except BadFrameError as bad:
            offset = manifest.active.base_offset
            raise damage_at(
                partition, manifest.active, self.file, position=FIRST_FRAME, offset=offset, reason=str(bad)
            ) from None

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
        self._partition.tail_file.write(tail)
        self.tail = tail

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

    def _open_index(self, manifest: Manifest, frames: list[tuple[int, Header]]) -> tuple[IndexFile, IndexBuilder]:
        """Continue the index, or write it again where it is not what the frames say."""
        files = self._partition.files
        path = self._partition.directory / manifest.active.index_name
        builder = IndexBuilder(max_time=manifest.active.max_time)
        wanted: list[Entry] = builder.entries_for(frames)
        if load_index(files, path) == wanted:
            return IndexFile(files, path, entries=len(wanted)), builder
        # Durably, or a power loss might bring back an index that speaks of frames which are gone.
        write_durably(files, path, encode_entries(wanted))
        return IndexFile(files, path, entries=len(wanted)), builder
