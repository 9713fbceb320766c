"""What `compact` and `erase` print: the rows and bytes of each partition before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.output import count_text, print_json, print_line, print_table
from penstock.units import format_size

if TYPE_CHECKING:
    from penstock.log import Rewritten


def rewrite_document(topic: str, parts: Sequence[Rewritten]) -> dict[str, object]:
    """What was removed from a topic, for JSON."""
    removed = sum(part.rows_before - part.rows_after for part in parts)
    return {"topic": topic, "rows_removed": removed, "partitions": [asdict(part) for part in parts]}


def print_rewrite_report(done: str, topic: str, parts: Sequence[Rewritten], *, as_json: bool) -> None:
    """Print what was removed. `done` is the verb for it, such as 'compacted'."""
    removed = sum(part.rows_before - part.rows_after for part in parts)
    freed = sum(part.bytes_before - part.bytes_after for part in parts)
    if as_json:
        print_json(rewrite_document(topic, parts))
        return
    held_rows = sum(part.held_rows for part in parts)
    held_by = sorted({owner for part in parts for owner in part.held_by})
    columns = ("partition", "rows before", "rows after", "size before", "size after")
    print_table(
        columns,
        [
            (
                part.partition,
                part.rows_before,
                part.rows_after,
                format_size(part.bytes_before),
                format_size(part.bytes_after),
            )
            for part in parts
        ],
    )
    print_line(f"{done} '{topic}': {count_text(removed, 'row')} removed, {format_size(max(0, freed))} freed")
    if held_by:
        print_line(f"{count_text(held_rows, 'row')} left, held by {', '.join(held_by)}; see `penstock holds`")
    if unread := sum(part.unread_markers for part in parts):
        readers = sorted({reader for part in parts for reader in part.unread_by})
        print_line(
            f"{count_text(unread, 'delete marker')} left, not read yet by {', '.join(readers)}; see `penstock holds`"
        )
