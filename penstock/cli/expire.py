"""`penstock expire`."""

from __future__ import annotations

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, open_log
from penstock.cli.output import counted, print_json, say


@command
def expire(name: TopicName, log: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Apply a topic's retention now. Whole files go, never the newest one; so a little more is kept than asked for."""
    with open_log(log) as opened:
        topic = opened.topic(name)
        before = sum(one.rows for one in topic.statistics())
        expired = topic.expire()
        rows = before - sum(one.rows for one in topic.statistics())
        kept_for_ever = topic.settings.retention_seconds is None and topic.settings.retention_bytes is None
        starts = topic.starts()
    if as_json:
        offsets = [{"partition": number, "start_offset": offset} for number, offset in starts.items()]
        print_json(
            {"topic": name, "segments_removed": expired.segments, "rows_removed": rows, "partitions": offsets}
            | {"segments_held": expired.held_segments, "held_by": expired.held_by}
        )
    elif kept_for_ever:
        say(f"topic '{name}' has no retention: everything is kept")
    else:
        say(f"expired '{name}': {counted(expired.segments, 'segment')} with {counted(rows, 'row')} removed")
        if expired.held_segments:
            say(f"{counted(expired.held_segments, 'segment')} left, held by {', '.join(expired.held_by)}")
