"""`penstock expire`."""

from __future__ import annotations

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, open_log
from penstock.cli.output import count_text, print_json, print_line


@command
def expire(name: TopicName, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Apply a topic's retention now. Whole files go, never the newest one; so a little more is kept than asked for."""
    with open_log(log_path) as log:
        topic = log.topic(name)
        before = sum(partition.rows for partition in topic.statistics())
        expired = topic.expire()
        rows = before - sum(partition.rows for partition in topic.statistics())
        kept_forever = topic.settings.retention_seconds is None and topic.settings.retention_bytes is None
        starts = topic.starts()
    if as_json:
        offsets = [{"partition": number, "start_offset": offset} for number, offset in starts.items()]
        print_json(
            {"topic": name, "segments_removed": expired.segments, "rows_removed": rows, "partitions": offsets}
            | {"segments_held": expired.held_segments, "held_by": expired.held_by}
        )
    elif kept_forever:
        print_line(f"topic '{name}' has no retention: everything is kept")
    else:
        print_line(
            f"expired '{name}': {count_text(expired.segments, 'segment')} with {count_text(rows, 'row')} removed"
        )
        if expired.held_segments:
            print_line(f"{count_text(expired.held_segments, 'segment')} left, held by {', '.join(expired.held_by)}")
