"""Where to read from, as users write it: `start`, `end`, an offset, a time, or '10 minutes ago'."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.errors import DeclarationError, RangeError
from penstock.units import parse_duration

if TYPE_CHECKING:
    from penstock.log import Topic

POSITION_HELP = "start, end, an offset, a time (2026-01-31T12:00:00Z; UTC without a zone), or '10 minutes ago'"


def parse_position(text: str, *, now: datetime | None = None) -> int | str | datetime:
    """A number as an offset, and '... ago' as a time. Any other text is returned unchanged, for the topic to read."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    if not text.endswith(" ago"):
        return text
    try:
        return (now or datetime.now(UTC)) - timedelta(seconds=parse_duration(text.removesuffix(" ago")))
    except OverflowError:
        raise DeclarationError(
            f"'{text}' is before the earliest time", hint="give 'start' to begin at the first row"
        ) from None


def positions_in(topic: Topic, text: str, partitions: Sequence[int] | None = None) -> dict[int, int]:
    """The offsets that a position means, in all partitions or in the given ones."""
    start = parse_position(text)
    try:
        return topic.positions(start, partitions=partitions)
    except RangeError as error:
        count = topic.settings.partitions if partitions is None else len(partitions)
        if count == 1:
            raise
        raise RangeError(error.message, hint="offsets count per partition; choose one with --partition") from None
    except DeclarationError as error:
        raise DeclarationError(error.message, hint=f"give {POSITION_HELP}") from None
