"""Files by URL: `file:orders.csv`, `file:///data/orders.jsonl.gz`, `file:orders.txt?format=json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from penstock.capture.files.formats import Format, file_format
from penstock.capture.files.options import CsvOptions, FileOptions
from penstock.capture.files.parquet import ParquetSource
from penstock.capture.files.source import FileSource
from penstock.capture.files.streams import open_file
from penstock.contracts import Source, SourceTable
from penstock.errors import DeclarationError

_EXAMPLE = "as in file:orders.csv, file:///data/orders.jsonl or file:orders.txt?format=json"


def check_url(url: str) -> None:
    """Raise DeclarationError unless the URL names a file and a format. Whether the file exists is not checked."""
    _parse_url(url)


def open_source(url: str, tables: Sequence[SourceTable]) -> Source:
    """Open the file. It has one table, whose schema decides how values are read."""
    path, format_ = _parse_url(url)
    if len(tables) != 1:
        raise DeclarationError(f"source: {url!r} has one table; {len(tables)} were asked for")
    if format_ is Format.PARQUET:
        return ParquetSource(path, tables[0])
    csv = None if format_ is Format.JSON else CsvOptions(delimiter="\t" if format_ is Format.TSV else ",")
    return FileSource(open_file(path), tables[0], FileOptions(csv=csv))


def _parse_url(url: str) -> tuple[Path, Format]:
    parts = urlsplit(url)
    options = parse_qs(parts.query, keep_blank_values=True)
    path = Path(unquote(parts.path))
    if parts.netloc or not parts.path:
        raise DeclarationError(f"source: {url!r} does not name a file on this machine", hint=_EXAMPLE)
    if set(options) - {"format"}:
        unknown = ", ".join(sorted(set(options) - {"format"}))
        raise DeclarationError(f"source: {url!r} has an option that files do not have; found {unknown}", hint=_EXAMPLE)
    given = options.get("format", [""])[-1]
    format_ = (Format(given) if given in list(Format) else None) if given else file_format(path)
    if format_ is None:
        raise DeclarationError(
            f"source: the format of {url!r} is not known; found {given or path.suffix or 'none'!r}",
            hint=f"add ?format= and one of {', '.join(Format)}",
        )
    return path, format_
