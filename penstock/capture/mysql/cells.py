"""Cells: where the values of one column are in a buffer. They are gathered by numpy, never value by value.

Both the rows of the binary log and the rows of a query become cells; `values.py` makes Arrow arrays of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
if TYPE_CHECKING:
    Array: TypeAlias = pa.Array[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """One value per row: `lengths` bytes of `buffer` from `starts` on. Where `valid` is False, the value is null."""

    buffer: Bytes
    starts: Ints
    lengths: Ints
    valid: Bools

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Ints | Bools) -> Cells:
        return Cells(self.buffer, self.starts[rows], self.lengths[rows], self.valid[rows])

    def without(self, nulls: Bools) -> Cells:
        """The same with null where `nulls` is True."""
        return Cells(self.buffer, self.starts, self.lengths, self.valid & ~nulls)

    def matrix(self, width: int) -> Bytes:
        """The first `width` bytes of each value as a row; zeros where it is null. All valid values are that long."""
        starts = np.where(self.valid, self.starts, 0)
        if not width or not self.valid.any():
            return np.zeros((len(starts), width), np.uint8)
        gathered = self.buffer[starts[:, None] + np.arange(width)]
        gathered[~self.valid] = 0
        return gathered

    def padded(self, width: int) -> Bytes:
        """Each value as a row of `width` bytes, filled up with zeros on the right."""
        places = np.arange(width)
        inside = (places < self.lengths[:, None]) & self.valid[:, None]
        indices = np.where(inside, self.starts[:, None] + places, 0)
        return np.where(inside, self.buffer[indices] if len(self.buffer) else np.uint8(0), np.uint8(0))

    def little_endian(self, width: int, *, signed: bool = False) -> Ints | npt.NDArray[np.uint64]:
        """Each value as a whole number; 0 where it is null."""
        wide = np.zeros((len(self), 8), np.uint8)
        wide[:, :width] = self.matrix(width)
        if signed and width < 8:
            wide[:, width:] = np.where(wide[:, width - 1 : width] & 0x80, np.uint8(0xFF), np.uint8(0))
        flat = wide.reshape(-1)
        return flat.view(np.int64) if signed else flat.view(np.uint64)

    def big_endian(self, width: int) -> npt.NDArray[np.uint64]:
        wide = np.zeros((len(self), 8), np.uint8)
        wide[:, 8 - width :] = self.matrix(width)
        return wide.reshape(-1).view(">u8").astype(np.uint64)

    def joined(self) -> tuple[Ints, Bytes]:
        """The offsets and the bytes of all values one behind the other; nulls are empty."""
        lengths = np.where(self.valid, self.lengths, 0)
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        # For each byte of the answer, where it is in the buffer: its place in the answer, moved by where its value is.
        indices = np.repeat(self.starts - offsets[:-1], lengths)
        indices += np.arange(int(offsets[-1]))
        return offsets, self.buffer[indices]

    def binary(self) -> Array:
        return binary_array(*self.joined(), self.valid)


def binary_array(offsets: Ints, data: Bytes, valid: Bools) -> Array:
    """A binary array from its offsets and bytes."""
    return _array(pa.binary(), len(valid), [_validity(valid), _buffer(offsets.astype(np.int32)), _buffer(data)])


def text_array(offsets: Ints, data: Bytes, valid: Bools) -> pa.StringArray:
    """A string array from its offsets and UTF-8."""
    array = binary_array(offsets, data, valid).cast(pa.string())
    assert isinstance(array, pa.StringArray)
    return array


def number_array(values: npt.NDArray[np.generic], type_: pa.DataType, valid: Bools) -> Array:
    """An array of numbers whose memory is that of `type_`."""
    return _array(type_, len(valid), [_validity(valid), _buffer(values)])


def _array(type_: pa.DataType, length: int, buffers: list[pa.Buffer | None]) -> Array:
    array = pa.Array.from_buffers(type_, length, buffers)
    array.validate()
    return array


def _buffer(values: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(values).view(np.uint8).reshape(-1).data)


def _validity(valid: Bools) -> pa.Buffer | None:
    return None if valid.all() else _buffer(np.packbits(valid, bitorder="little"))


def rows_at(array: Array, rows: Ints) -> Array:
    """The values of these rows."""
    return array.take(pa.array(rows, pa.int64()))


def result_cells(rows: list[bytes], columns: int) -> list[Cells]:
    """The columns of a query's rows, each of them as the text protocol sends it: values with their lengths before."""
    buffer = np.frombuffer(b"".join(rows) + bytes(9), np.uint8)
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    places = np.zeros(len(rows), np.int64)
    np.cumsum(sizes[:-1], out=places[1:])
    cells = []
    for _ in range(columns):
        first = buffer[places].astype(np.int64)
        valid = first != 251
        lengths, prefix = np.where(valid, first, 0), np.ones(len(rows), np.int64)
        for mark, width in ((252, 2), (253, 3), (254, 8)):
            where = np.flatnonzero(first == mark)
            if len(where):
                at = Cells(buffer, places[where] + 1, np.full(len(where), width), np.ones(len(where), bool))
                lengths[where] = at.little_endian(width).astype(np.int64)
                prefix[where] = 1 + width
        cells.append(Cells(buffer, places + prefix, lengths, valid))
        places = places + prefix + lengths
    return cells
