"""Where to read from, as users write it: `start`, `end`, an offset, a time, or '10 minutes ago'."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.errors import DeclarationError
from penstock.units import parse_duration

if TYPE_CHECKING:
    from penstock.log import Topic

POSITION_HELP = "start, end, an offset, a time (2026-01-31T12:00:00Z; UTC without a zone), or '10 minutes ago'"


def parse_position(text: str, *, now: datetime | None = None) -> int | str | datetime:
    """What the text means; whether it fits a topic is for the topic to say."""
    if text in ("start", "end"):
        return text
    if re.fullmatch(r"\d+", text):
        return int(text)
    if text.endswith(" ago"):
        return (now or datetime.now(UTC)) - timedelta(seconds=parse_duration(text.removesuffix(" ago")))
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise DeclarationError(f"'{text}' is not a position", hint=f"give {POSITION_HELP}") from None


def positions_in(topic: Topic, text: str, partition: int | None = None) -> dict[int, int]:
    """The offset that the text means in every partition, or in the one that is given."""
    start = parse_position(text)
    if partition is None:
        return topic.positions(start)
    reader = topic.reader({partition: start} if isinstance(start, int) else start, partitions=[partition])
    try:
        return reader.positions
    finally:
        reader.close()
