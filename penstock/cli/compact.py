"""`penstock compact`."""

from __future__ import annotations

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, open_log
from penstock.cli.progress import progress
from penstock.cli.rewritten import print_rewritten


@command
def compact(name: TopicName, log: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Keep only the last row of each key, while others read and write. Offsets stay as they are.

    A delete marker goes once every group, app and savepoint that reads the topic has passed it.
    """
    with open_log(log) as opened:
        topic = opened.topic(name)
        rows = sum(one.rows for one in topic.statistics())
        # Every row is looked at twice: to find the last one of each key, and to keep it.
        with progress(f"Compacting {name}", 2 * rows) as advance:
            parts = topic.compact(progress=advance)
    print_rewritten("compacted", name, parts, as_json=as_json)
