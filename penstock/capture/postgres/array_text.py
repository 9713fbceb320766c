"""Arrays as PostgreSQL shows them: `{1,NULL,"two words"}`. One dimension that begins at 1; others do not fit a list.

Items that are numbers, times and the like never need their quotes, so whole columns are split at the delimiter.
Items that are texts are split that way if none has quotes, and else parsed one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.postgres.types import Column


def split_arrays(texts: Column, delimiter: str, *, items_are_texts: bool) -> tuple[pa.Int32Array, Column]:
    """The offsets and the items of all arrays, as for a ListArray. A null in the texts is an empty array.

    ArrowInvalid: a text is no array of one dimension that begins at 1.
    """
    texts = pc.if_else(pc.is_valid(texts), texts, "{}")
    if items_are_texts and pc.any(pc.match_substring(texts, '"')).as_py():
        return _parse_all(texts, delimiter)
    if not items_are_texts:
        texts = pc.replace_substring(pc.replace_substring(texts, '"', ""), "\\\\", "\\")
    inner = pc.utf8_slice_codeunits(texts, 1, -1)
    braces = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    if not pc.all(braces, min_count=0).as_py() or pc.any(pc.match_substring_regex(inner, "[{}]")).as_py():
        raise pa.ArrowInvalid("not an array of one dimension that begins at 1")
    is_empty: Column = pc.equal(inner, pa.scalar(""))
    split = pc.split_pattern(inner, delimiter)
    lengths = np.where(is_empty.to_numpy(zero_copy_only=False), 0, pc.list_value_length(split).to_numpy())
    items = split.filter(pc.invert(is_empty)).flatten()
    return _offsets(lengths), pc.if_else(pc.equal(items, pa.scalar("NULL")), pa.scalar(None, pa.string()), items)


def _parse_all(texts: Column, delimiter: str) -> tuple[pa.Int32Array, Column]:
    parse = _parser(delimiter)
    arrays = [parse(str(text)) for text in texts.to_pylist()]
    lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
    return _offsets(lengths), pa.array([item for items in arrays for item in items], pa.string())


def _offsets(lengths: npt.NDArray[np.int64]) -> pa.Int32Array:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    array: pa.Int32Array = pa.array(offsets, pa.int32())
    return array


def parse_array(text: str, delimiter: str = ",") -> list[str | None]:
    """The items of one array. ArrowInvalid: it is no array of one dimension that begins at 1."""
    return _parser(delimiter)(text)


@lru_cache
def _parser(delimiter: str) -> Callable[[str], list[str | None]]:
    item = re.compile(rf'(?:"((?:[^"\\]|\\.)*)"|([^"\\{{}}{re.escape(delimiter)}]+))(.)', re.DOTALL)
    escape = re.compile(r"\\(.)", re.DOTALL)

    def parse(text: str) -> list[str | None]:
        if text == "{}":
            return []
        items: list[str | None] = []
        at, end = 1, delimiter
        while end == delimiter and text[:1] == "{":
            match = item.match(text, at)
            if match is None:
                break
            quoted, plain, end = match.groups()
            items.append(escape.sub(r"\1", quoted) if plain is None else None if plain == "NULL" else plain)
            at = match.end()
        if end != "}" or at != len(text):
            raise pa.ArrowInvalid("not an array of one dimension that begins at 1")
        return items

    return parse
