"""Where the values of many Insert, Update and Delete messages are: all messages at once, column by column. No I/O.

The messages are joined into one buffer. Each step of the walk reads the head of one value in every tuple, and so knows
where the next column begins. A tuple is a row in a message, as pgoutput calls it: an update may have two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.capture.postgres.pgoutput import Delete, Insert, Update, decode
from penstock.capture.postgres.types import Column
from penstock.errors import DamagedError, TooMuchError

Mask: TypeAlias = npt.NDArray[np.bool_]
_Positions: TypeAlias = npt.NDArray[np.int64]
_Letters: TypeAlias = npt.NDArray[np.uint8]

TEXT, NULL, UNCHANGED = b"tnu"
_INSERT, _UPDATE, _DELETE = b"IUD"
_NEW, _KEY, _OLD = b"NKO"
_PADDING = bytes(24)  # more than the head of a message, so that reading one never leaves the buffer
_MOST_BYTES = 2**31 - 1 - len(_PADDING)


@dataclass(frozen=True, slots=True, eq=False)
class Tuples:
    """All tuples of some messages, in order. Of each column, the kind of each value and where its text is.

    `message` is the number of the message of each tuple. `is_old` marks old rows and old keys, `has_old` marks new rows
    that come right after theirs.
    """

    content: bytes
    has_inserts_only: bool
    message: _Positions
    is_old: Mask
    has_old: Mask
    kinds: npt.NDArray[np.uint8]  # by column and tuple
    starts: _Positions
    ends: _Positions

    def __len__(self) -> int:
        return len(self.message)

    def texts(self, column: int) -> Column:
        """The texts of a column as binaries, at 2 * tuple + 1. Between them is what lies between them in the buffer.

        That is one array without a copy, from which Arrow can take what is needed.
        """
        offsets = np.zeros(2 * len(self) + 2, np.int32)
        offsets[1:-1:2] = self.starts[column]
        offsets[2::2] = self.ends[column]
        buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(self.content)]
        return pa.Array.from_buffers(pa.binary(), 2 * len(self), buffers)


def find_tuples(messages: Sequence[bytes], relation_id: int, columns: int, *, streaming: bool) -> Tuples:
    """The tuples of messages about one relation with so many columns.

    DamagedError: a message is not complete, or is no change of this relation.
    """
    return _Walk(messages, relation_id, columns, streaming).tuples()


class _DamagedMessageError(Exception):
    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class _Walk:
    """One walk through the joined messages."""

    def __init__(self, messages: Sequence[bytes], relation_id: int, columns: int, streaming: bool) -> None:
        self._messages, self._relation_id, self._columns, self._streaming = messages, relation_id, columns, streaming
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        if lengths.sum() > _MOST_BYTES:
            raise TooMuchError(
                f"pgoutput: {lengths.sum()} bytes of messages at once; at most {_MOST_BYTES} can be decoded together"
            )
        self._ends = np.cumsum(lengths)
        self._begins = self._ends - lengths
        self._content = b"".join((*messages, _PADDING))
        self._bytes = np.frombuffer(self._content, np.uint8)
        self._words = self._numbers(8)

    def tuples(self) -> Tuples:
        try:
            return self._tuples()
        except _DamagedMessageError as damaged:
            raise self._damage(self._messages[damaged.index]) from None

    def _numbers(self, size: int) -> npt.NDArray[np.unsignedinteger]:
        """The big-endian number that begins at each byte of the buffer."""
        return np.ndarray((len(self._content) - size + 1,), f">u{size}", self._content, strides=(1,))

    def _tuples(self) -> Tuples:
        everything = np.arange(len(self._messages))
        tags = self._tags(everything)
        at = self._begins + (10 if self._streaming else 6)
        kinds, starts, ends, at = self._values(everything, at)
        is_pair = (self._bytes[self._begins] == _UPDATE) & (tags != _NEW)
        pairs = np.flatnonzero(is_pair)
        if not len(pairs):
            self._require(at == self._ends, everything)
            has_inserts_only = bool((self._bytes[self._begins] == _INSERT).all())
            has_old = np.zeros(len(tags), np.bool_)
            return Tuples(self._content, has_inserts_only, everything, tags != _NEW, has_old, kinds, starts, ends)
        self._require((at == self._ends) | is_pair, everything)
        self._require((self._bytes[at[pairs]] == _NEW) & (at[pairs] < self._ends[pairs]), pairs)
        new_kinds, new_starts, new_ends, at = self._values(pairs, at[pairs] + 1)
        self._require(at == self._ends[pairs], pairs)
        return self._with_pairs(tags, is_pair, (kinds, starts, ends), (new_kinds, new_starts, new_ends))

    def _tags(self, everything: _Positions) -> _Letters:
        """The letter that says what the first tuple of each message is; what stands before it is checked."""
        head = 9 if self._streaming else 5
        self._require(self._ends - self._begins > head, everything)
        letters = self._bytes[self._begins]
        tags: _Letters = self._bytes[self._begins + head]
        is_change = (letters == _INSERT) & (tags == _NEW)
        is_change |= (letters == _UPDATE) & ((tags == _NEW) | (tags == _KEY) | (tags == _OLD))
        is_change |= (letters == _DELETE) & ((tags == _KEY) | (tags == _OLD))
        self._require(is_change & (self._numbers(4)[self._begins + head - 4] == self._relation_id), everything)
        return tags

    def _values(
        self, messages: _Positions, at: _Positions
    ) -> tuple[npt.NDArray[np.uint8], _Positions, _Positions, _Positions]:
        """Walk the tuples that begin at these places: kinds, starts and ends of their values, and where they end."""
        shape, limits = (self._columns, len(at)), self._ends[messages]
        kinds, starts, ends = np.empty(shape, np.uint8), np.empty(shape, np.int64), np.empty(shape, np.int64)
        self._require((at + 2 <= limits) & (self._numbers(2)[at] == self._columns), messages)
        at = at + 2
        for column in range(self._columns):
            heads = self._words[at].astype(np.uint64)
            kinds[column] = kind = (heads >> np.uint64(56)).astype(np.uint8)
            is_text = kind == TEXT
            self._require((is_text | (kind == NULL) | (kind == UNCHANGED)) & (at < limits), messages)
            lengths = (heads >> np.uint64(24) & np.uint64(0xFFFFFFFF)).astype(np.int64)
            starts[column] = np.where(is_text, at + 5, at + 1)
            ends[column] = at = np.where(is_text, at + 5 + lengths, at + 1)
            self._require(at <= limits, messages)
        return kinds, starts, ends, at

    def _with_pairs(
        self,
        tags: _Letters,
        is_pair: Mask,
        first: tuple[npt.NDArray[np.uint8], _Positions, _Positions],
        second: tuple[npt.NDArray[np.uint8], _Positions, _Positions],
    ) -> Tuples:
        """Put the new row of each pair right after its old row."""
        first_slot = np.arange(len(tags)) + np.cumsum(is_pair) - is_pair
        second_slot = first_slot[is_pair] + 1
        count = len(tags) + len(second_slot)
        message, is_old = np.empty(count, np.int64), np.zeros(count, np.bool_)
        has_old = np.zeros(count, np.bool_)
        message[first_slot], message[second_slot] = np.arange(len(tags)), np.flatnonzero(is_pair)
        is_old[first_slot], has_old[second_slot] = tags != _NEW, True
        values = [np.empty((self._columns, count), array.dtype) for array in first]
        for merged, firsts, seconds in zip(values, first, second, strict=True):
            merged[:, first_slot], merged[:, second_slot] = firsts, seconds
        return Tuples(self._content, False, message, is_old, has_old, values[0], values[1], values[2])

    def _require(self, holds: Mask, messages: _Positions) -> None:
        if not holds.all():
            raise _DamagedMessageError(int(messages[np.argmin(holds)]))

    def _damage(self, message: bytes) -> DamagedError:
        """What is wrong with a message, as `decode` says it, or that it does not belong here."""
        try:
            found = decode(message, streaming=self._streaming)
        except DamagedError as error:
            return error
        what = type(found).__name__
        if isinstance(found, Insert | Update | Delete):
            what = f"{what} of relation {found.relation_id}, or with another number of columns"
        return DamagedError(
            f"pgoutput: expected changes of relation {self._relation_id} with {self._columns} columns; found {what}",
            hint="the connection or a proxy in between has lost a message: start the capture again",
        )
