"""Random texts as Arrow arrays, put together from their buffers: there is no Python object for any of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

_SHORTEST = 3
_SPACE_EVERY = 13


def words(count: int, up_to: int, random: np.random.Generator) -> pa.Array:
    """So many texts of letters alone, each at least 3 and less than `up_to` long."""
    return letters(random.integers(_SHORTEST, up_to, count), random)


def sentences(count: int, up_to: int, random: np.random.Generator) -> pa.Array:
    """As `words`, with a space for every 13th character or so, but not at the ends."""
    lengths = random.integers(_SHORTEST, up_to, count)
    characters = _characters(lengths, random)
    spaces = random.integers(0, _SPACE_EVERY, len(characters), dtype=np.uint8) == 0
    ends = np.cumsum(lengths)
    spaces[ends - 1] = spaces[ends - lengths] = False
    characters[spaces] = ord(" ")
    return _texts(characters, lengths)


def letters(lengths: Numbers, random: np.random.Generator) -> pa.Array:
    """Texts of exactly these lengths."""
    return _texts(_characters(lengths, random), lengths)


def padding(sizes: Numbers, target: int, random: np.random.Generator) -> pa.Array:
    """Letters that bring rows of these sizes to `target` on the average, give or take a fifth of what is missing."""
    missing = np.maximum(target - sizes, 0)
    spread = np.rint(missing / 5).astype(np.int64)
    return letters(random.integers(missing - spread, missing + spread, endpoint=True), random)


def picked(choices: pa.Array, count: int, random: np.random.Generator) -> pa.Array:
    """So many of the choices, each equally likely."""
    return choices.take(pa.array(random.integers(0, len(choices), count)))


def sizes(*columns: pa.Array) -> Numbers:
    """How many bytes these texts have, row by row."""
    return sum((pc.binary_length(column).to_numpy().astype(np.int64) for column in columns), np.int64(0))


def joined(*parts: pa.Array | str) -> pa.Array:
    """The parts of each row, one after the other."""
    return pc.binary_join_element_wise(*parts, "")


def _characters(lengths: Numbers, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    return random.integers(ord("a"), ord("z"), int(lengths.sum()), dtype=np.uint8, endpoint=True)


def _texts(characters: npt.NDArray[np.uint8], lengths: Numbers) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(characters)])
