"""`penstock compact`."""

from __future__ import annotations

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, open_log
from penstock.cli.progress_bar import progress_bar
from penstock.cli.rewrite_report import print_rewrite_report


@command
def compact(name: TopicName, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Keep only the last row of each key, while others read and write. Offsets stay as they are.

    A delete marker goes once every group, app and savepoint that reads the topic has passed it.
    """
    with open_log(log_path) as log:
        topic = log.topic(name)
        rows = sum(partition.rows for partition in topic.statistics())
        # Every row is read twice: to find the last one of each key, and to write it.
        with progress_bar(f"Compacting {name}", 2 * rows) as advance:
            parts = topic.compact(progress=advance)
    print_rewrite_report("compacted", name, parts, as_json=as_json)
