"""Changes of whole transactions, gathered by table so that each table is decoded at once. No I/O.

Row messages are only appended to lists. At each commit, every list notes where it ends: that gives the rows their
commit time, and tells which transaction they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from struct import Struct

import numpy as np
import pyarrow as pa

from penstock.capture.postgres.catalog import CapturedTable
from penstock.capture.postgres.pgoutput import Relation
from penstock.capture.postgres.rows import RowChanges, decode_rows

_OID = Struct(">I")
_INSERT = ord("I")

Verdict = tuple[bool, ...]
JudgeTransaction = Callable[[int], Verdict]
"""Which copies of a table already contain a transaction. Rows with different verdicts are kept apart."""

FindJudge = Callable[[str], JudgeTransaction | None]
"""By the name of a table. None: no copy matters now, and the verdict of each transaction would be empty."""


@dataclass(slots=True)
class _TableRows:
    """Row messages of one relation, and where transactions end among them: an index, a commit time and an id."""

    table: CapturedTable
    relation: Relation
    streaming: bool
    messages: list[bytes] = field(default_factory=list)
    ends: list[tuple[int, int, int]] = field(default_factory=list)
    ended: int = 0  # messages up to the last end

    def clear(self) -> None:
        self.messages.clear()
        self.ends.clear()
        self.ended = 0


@dataclass(frozen=True, slots=True)
class GroupPart:
    """Decoded changes of one table, all of transactions with the same verdict."""

    table: CapturedTable
    changes: RowChanges
    verdict: Verdict


class RowGroup:
    """Gathers messages of the stream, or with `streaming` those of transactions that were streamed in blocks.

    `rows` is what the stream appends to: a function for each relation, by the four bytes of its id.
    """

    def __init__(self, *, streaming: bool) -> None:
        self._streaming = streaming
        self._tables: dict[int, _TableRows] = {}
        self.rows: dict[bytes, Callable[[bytes], None]] = {}

    def describe(self, relation: Relation, table: CapturedTable | None) -> None:
        """From here on, messages of this relation look like that. None: it is not captured."""
        key = _OID.pack(relation.relation_id)
        if table is None:
            self.rows[key] = _ignore
            return
        rows = _TableRows(table, relation, self._streaming)
        self._tables[relation.relation_id] = rows
        self.rows[key] = rows.messages.append

    def relation(self, relation_id: int) -> Relation | None:
        rows = self._tables.get(relation_id)
        return None if rows is None else rows.relation

    def end_transaction(self, commit_time: int, xid: int) -> None:
        for rows in self._tables.values():
            count = len(rows.messages)
            if count > rows.ended:
                rows.ends.append((count, commit_time, xid))
                rows.ended = count

    @property
    def is_empty(self) -> bool:
        return not any(rows.messages for rows in self._tables.values())

    def take(self, find_judge: FindJudge) -> Iterator[GroupPart]:
        """Remove and decode all rows. Those of a table stay in order."""
        for rows in self._tables.values():
            if rows.messages:
                yield from _decode(rows, find_judge(rows.table.name))
                rows.clear()


def _decode(rows: _TableRows, judge: JudgeTransaction | None) -> Iterator[GroupPart]:
    if judge is None:
        if rows.ends:
            yield GroupPart(rows.table, _decode_part(rows, 0, rows.ends), ())
        return
    start = 0
    part: list[tuple[int, int, int]] = []
    verdict: Verdict = ()
    for end in rows.ends:
        judged = judge(end[2])
        if part and judged != verdict:
            yield GroupPart(rows.table, _decode_part(rows, start, part), verdict)
            start, part = part[-1][0], []
        verdict = judged
        part.append(end)
    if part:
        yield GroupPart(rows.table, _decode_part(rows, start, part), verdict)


def _decode_part(rows: _TableRows, start: int, ends: list[tuple[int, int, int]]) -> RowChanges:
    """Decode the messages from `start` on, up to the last of these ends."""
    counts = np.diff([start, *(end for end, _, _ in ends)]).astype(np.int64)
    times = np.repeat(np.array([time for _, time, _ in ends], np.int64), counts)
    messages = rows.messages[start : ends[-1][0]]
    if rows.table.inserts_only:
        is_insert = np.array([message[0] == _INSERT for message in messages], np.bool_)
        times = times[is_insert]
        messages = [message for message in messages if message[0] == _INSERT]
    return decode_rows(messages, rows.relation, rows.table.layout, times, streaming=rows.streaming)


def without(changes: RowChanges, mask: pa.BooleanArray) -> RowChanges:
    """The changes without the rows that are marked."""
    import pyarrow.compute as pc

    rest = pc.invert(mask)
    return replace(
        changes,
        batch=changes.batch.filter(rest),
        deleted=None if changes.deleted is None else changes.deleted.filter(rest),
        unchanged={name: marks.filter(rest) for name, marks in changes.unchanged.items()},
        moved=None if changes.moved is None else changes.moved.filter(rest),
    )


def _ignore(message: bytes) -> None:
    """Where messages of tables go that are not captured."""
