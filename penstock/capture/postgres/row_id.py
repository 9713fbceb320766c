"""The key of tables that have none: a hash over the texts of a row."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5

import pyarrow as pa

from penstock.capture.postgres.types import Column


def row_ids(columns: Sequence[Column]) -> pa.StringArray:
    """A hash of 128 bits for each row, in hexadecimal, from the texts (as binaries) of all its columns in order.

    Each text goes in with its length, and null as something else, so rows with different values have different input.
    """
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    ids = [
        md5(
            b"".join([b"n" if text is None else b"%d:%b" % (len(text), text) for text in row]), usedforsecurity=False
        ).hexdigest()
        for row in rows
    ]
    array: pa.StringArray = pa.array(ids, pa.string())
    return array
