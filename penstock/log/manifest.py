"""The manifest of a partition: which segment files it consists of, in order.

It is replaced as a whole, so rolling, removing and rewriting segments are each one atomic step, however many files they
touch. A file the manifest does not name is garbage from an unfinished step.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.errors import DamagedError
from penstock.storage.document import load_document, store_document
from penstock.storage.files import Files
from penstock.units import NO_TIME

MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment file. The last of a manifest is the active one; its end is told by the tail, not here."""

    name: str
    base_offset: int
    end_offset: int = 0  # exclusive
    bytes: int = 0
    rows: int = 0
    max_time: int = NO_TIME  # the largest event time in this segment and before it
    append_time: int = 0  # of its last frame
    rewritten: bool = False  # rows were removed, so offsets have gaps

    @property
    def index_name(self) -> str:
        return self.name.removesuffix(".segment") + ".index"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The segments of a partition. `rewrites` counts compactions and erasures: what was derived before is void."""

    generation: int
    start_offset: int
    segments: tuple[Segment, ...]
    rewrites: int = 0
    topic: str = ""  # the topic's id; none in manifests of earlier versions
    partition: int = -1

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def closed(self) -> tuple[Segment, ...]:
        return self.segments[:-1]

    def segment_of(self, offset: int) -> int:
        """The index of the segment in which reading from `offset` begins."""
        found = 0
        for index, segment in enumerate(self.segments):
            if segment.base_offset <= offset:
                found = index
        return found

    def with_segments(
        self, segments: tuple[Segment, ...], *, start_offset: int | None = None, rewritten: bool = False
    ) -> Manifest:
        return replace(
            self,
            generation=self.generation + 1,
            segments=segments,
            start_offset=self.start_offset if start_offset is None else start_offset,
            rewrites=self.rewrites + rewritten,
        )


def segment_name(base_offset: int, generation: int) -> str:
    """Unique for ever: a rewrite of the same offsets belongs to a later generation."""
    return f"{base_offset:020d}-{generation:06d}.segment"


def load_manifest(files: Files, directory: Path) -> Manifest:
    path = directory / MANIFEST_NAME
    try:
        content = load_document(files, path, what="partition")
    except FileNotFoundError:
        raise DamagedError(f"{path}: the partition's description is missing", hint="restore it from a copy") from None
    try:
        segments = tuple(Segment(**segment) for segment in content.pop("segments"))
        manifest = Manifest(**{**content, "segments": segments})
        manifest.active  # noqa: B018 - there is one
    except (KeyError, TypeError, AttributeError, IndexError):
        raise DamagedError(
            f"{path}: this is not the description of a partition", hint="restore the file from a copy"
        ) from None
    return manifest


def refuse_foreign_manifest(manifest: Manifest, directory: Path, topic: str, partition: int) -> None:
    if manifest.topic and (manifest.topic, manifest.partition) != (topic, partition):
        raise DamagedError(
            f"{directory / MANIFEST_NAME}: the description of another partition; found partition {manifest.partition} "
            f"of the topic with id {manifest.topic}, expected partition {partition} of {topic}",
            hint="restore the file from a copy",
        )


def store_manifest(files: Files, directory: Path, manifest: Manifest) -> None:
    store_document(files, directory / MANIFEST_NAME, asdict(manifest))
