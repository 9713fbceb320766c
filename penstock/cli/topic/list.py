"""`penstock topic list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, open_log
from penstock.cli.output import print_json, print_line, print_table
from penstock.units import format_size

if TYPE_CHECKING:
    from penstock.log import Topic


@command
def list_topics(log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """List the topics with their sizes."""
    with open_log(log_path) as log:
        topics = [log.topic(name) for name in log.topics()]
        sizes = [_rows_and_bytes(topic) for topic in topics]
    if as_json:
        print_json({"topics": [_document(*pair) for pair in zip(topics, sizes, strict=True)]})
    elif not topics:
        print_line(f"no topics in {log_path}")
    else:
        print_table(
            ("topic", "partitions", "rows", "size", "key", "time"),
            [
                (
                    topic.name,
                    topic.settings.partitions,
                    rows,
                    format_size(size),
                    ",".join(topic.settings.key) or None,
                    topic.settings.time,
                )
                for topic, (rows, size) in zip(topics, sizes, strict=True)
            ],
        )


def _rows_and_bytes(topic: Topic) -> tuple[int, int]:
    parts = topic.statistics()
    return sum(partition.rows for partition in parts), sum(partition.bytes for partition in parts)


def _document(topic: Topic, size: tuple[int, int]) -> dict[str, object]:
    return {
        "topic": topic.name,
        "partitions": topic.settings.partitions,
        "rows": size[0],
        "bytes": size[1],
        "key": topic.settings.key,
        "time": topic.settings.time,
    }
