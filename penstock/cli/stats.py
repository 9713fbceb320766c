"""`penstock stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, open_log
from penstock.cli.output import instant_text, print_json, print_line, print_table
from penstock.units import format_size

if TYPE_CHECKING:
    from penstock.log import Statistics


@command
def stats(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="All topics without one.")] = None,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Show sizes and ranges: of the partitions of one topic, or of all topics."""
    from penstock.cli.topic.describe import partition_document, print_partitions

    with open_log(log_path) as log:
        names = [topic] if topic else log.topics()
        found = {name: log.topic(name).statistics() for name in names}
    if as_json:
        print_json(
            {
                "topics": [
                    {"topic": name, "partitions": [partition_document(partition) for partition in parts]}
                    for name, parts in found.items()
                ]
            }
        )
    elif topic:
        print_partitions(found[topic])
    elif not found:
        print_line(f"no topics in {log_path}")
    else:
        columns = ("topic", "partitions", "rows", "size", "segments", "last event", "last append")
        print_table(columns, [(name, *_totals(parts)) for name, parts in found.items()])


def _totals(parts: list[Statistics]) -> tuple[int, int, str, int, str | None, str | None]:
    """The totals of a topic over its partitions."""
    last_event = max((partition.max_time for partition in parts if partition.max_time is not None), default=None)
    last_append = max((partition.append_time for partition in parts if partition.append_time is not None), default=None)
    return (
        len(parts),
        sum(partition.rows for partition in parts),
        format_size(sum(partition.bytes for partition in parts)),
        sum(partition.segments for partition in parts),
        None if last_event is None else instant_text(last_event),
        None if last_append is None else instant_text(last_append),
    )
