"""The formats of inputs, and how the name of a file tells them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path


class Format(StrEnum):
    """How rows are written in an input."""

    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"


_BY_SUFFIX = {
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".tab": Format.TSV,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
}
_COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz")


def file_format(path: Path) -> Format | None:
    """The format that the name of a file says, also where it is compressed: `orders.csv.gz`. None if it says none."""
    name = Path(path.stem) if path.suffix.lower() in _COMPRESSED_SUFFIXES else path
    return _BY_SUFFIX.get(name.suffix.lower())
