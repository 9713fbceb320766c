"""What a user could see of a log, as plain values that can be compared and sent from process to process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.log import Log, Topic
from penstock.log.description import DESCRIPTION_NAME
from penstock.log.manifest import load_manifest

# What belongs into a partition's folder beside the segments that its manifest names.
PARTITION_FILES = {"lock", "rewrite.lock", "manifest.json", "tail", "tail.copy", "versions"}


def rows_of(topic: Topic) -> dict[str, list[list[Any]]]:
    """For every partition its rows: offset, whether the row is a delete marker, then the columns."""
    seen: dict[str, list[list[Any]]] = {str(number): [] for number in range(topic.settings.partitions)}
    for batch in topic.batches():
        deleted = [False] * len(batch) if batch.deleted is None else batch.deleted.to_pylist()
        columns = [column.to_pylist() for column in batch.rows.columns]
        rows = zip(batch.offsets.tolist(), deleted, *columns, strict=True)
        seen[str(batch.partition)] += [list(row) for row in rows]
    return seen


def sight_of(log: Log, *, group: str = "readers") -> dict[str, Any]:
    """All rows of all topics, and how far a group has come in them."""
    names = log.topics()
    return {
        "rows": {name: rows_of(log.topic(name)) for name in names},
        "columns": {name: log.topic(name).schema.names for name in names},
        "committed": {
            name: {str(number): offset for number, offset in log.group(group).committed(name).items()} for name in names
        },
    }


def problems_of(log: Log) -> list[str]:
    """What `verify` finds wrong, in all topics."""
    return [problem for name in log.topics() for one in log.topic(name).verify() for problem in one.problems]


def orphans(root: Path) -> Iterator[str]:
    """Files that nothing refers to: drafts, segments no manifest names, folders of topics that do not exist."""
    for draft in sorted([*root.rglob("*.tmp"), *root.rglob("*.draft")]):
        yield str(draft.relative_to(root))
    for folder in sorted((root / "topics").iterdir()):
        if not (folder / DESCRIPTION_NAME).exists():
            yield str(folder.relative_to(root))
            continue
        for partition in sorted(path for path in folder.iterdir() if path.is_dir()):
            yield from _unnamed(root, partition)


def _unnamed(root: Path, partition: Path) -> Iterator[str]:
    from penstock.storage.files import Disk

    segments = load_manifest(Disk(), partition).segments
    known = PARTITION_FILES | {name for segment in segments for name in (segment.name, segment.index_name)}
    for path in sorted(partition.iterdir()):
        if path.name not in known and path.suffix not in (".tmp", ".draft"):
            yield str(path.relative_to(root))
