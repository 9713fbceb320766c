"""`penstock topic list`."""

from __future__ import annotations

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, open_log
from penstock.cli.output import print_json, print_table, say
from penstock.units import format_size


@command
def list_topics(log: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """List the topics with their sizes."""
    with open_log(log) as opened:
        topics = [opened.topic(name) for name in opened.topics()]
        rows = [
            {
                "topic": topic.name,
                "partitions": topic.settings.partitions,
                "rows": sum(one.rows for one in topic.statistics()),
                "bytes": sum(one.bytes for one in topic.statistics()),
                "key": list(topic.settings.key),
                "time": topic.settings.time,
            }
            for topic in topics
        ]
    if as_json:
        print_json({"topics": rows})
    elif not rows:
        say(f"no topics in {log}")
    else:
        columns = ("topic", "partitions", "rows", "size", "key", "time")
        print_table(
            columns,
            [
                (*list(row.values())[:3], format_size(int(str(row["bytes"]))), _joined(row["key"]), row["time"])
                for row in rows
            ],
        )


def _joined(names: object) -> str | None:
    return ",".join(names) if isinstance(names, list) and names else None
