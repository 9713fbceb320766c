"""`penstock stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, open_log
from penstock.cli.output import instant, print_json, print_table, say
from penstock.units import format_size

if TYPE_CHECKING:
    from penstock.log import Statistics


@command
def stats(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="All topics without one.")] = None,
    log: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Show sizes and ranges: of the partitions of one topic, or of all topics."""
    from penstock.cli.topic.describe import partition_document, print_partitions

    with open_log(log) as opened:
        names = [topic] if topic else opened.topics()
        found = {name: opened.topic(name).statistics() for name in names}
    if as_json:
        print_json(
            {
                "topics": [
                    {"topic": name, "partitions": [partition_document(one) for one in parts]}
                    for name, parts in found.items()
                ]
            }
        )
    elif topic:
        print_partitions(found[topic])
    elif not found:
        say(f"no topics in {log}")
    else:
        columns = ("topic", "partitions", "rows", "size", "segments", "last event", "last append")
        print_table(columns, [(name, *_sums(parts)) for name, parts in found.items()])


def _sums(parts: list[Statistics]) -> tuple[int, int, str, int, str | None, str | None]:
    """The partitions of a topic taken together."""
    last_event = max((one.max_time for one in parts if one.max_time is not None), default=None)
    last_append = max((one.append_time for one in parts if one.append_time is not None), default=None)
    return (
        len(parts),
        sum(one.rows for one in parts),
        format_size(sum(one.bytes for one in parts)),
        sum(one.segments for one in parts),
        None if last_event is None else instant(last_event),
        None if last_append is None else instant(last_append),
    )
