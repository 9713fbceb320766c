"""Files by URL: `file:orders.csv`, `file:///data/orders.jsonl`, `file:orders.txt?format=json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from penstock.capture.files.source import FileOptions, FileSource
from penstock.contracts import SourceTable
from penstock.errors import DeclarationError

_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_EXAMPLE = "as in file:orders.csv, file:///data/orders.jsonl or file:orders.txt?format=json"


def check_url(url: str) -> None:
    """Raise DeclarationError unless the URL names a file and a format. Whether the file exists is not checked."""
    _parse_url(url)


def open_source(url: str, tables: Sequence[SourceTable]) -> FileSource:
    """Open the file. It has one table, whose schema decides how values are read."""
    path, format_ = _parse_url(url)
    if len(tables) != 1:
        raise DeclarationError(f"source: {url!r} has one table; {len(tables)} were asked for")
    try:
        stream = path.open("rb")
    except OSError as error:
        raise DeclarationError(f"{path}: it cannot be read ({error.strerror})") from error
    return FileSource(stream, tables[0], FileOptions(csv=format_ == "csv"))


def _parse_url(url: str) -> tuple[Path, str]:
    parts = urlsplit(url)
    options = parse_qs(parts.query, keep_blank_values=True)
    path = Path(unquote(parts.path))
    if parts.netloc or not parts.path:
        raise DeclarationError(f"source: {url!r} does not name a file on this machine", hint=_EXAMPLE)
    if set(options) - {"format"}:
        unknown = ", ".join(sorted(set(options) - {"format"}))
        raise DeclarationError(f"source: {url!r} has an option that files do not have; found {unknown}", hint=_EXAMPLE)
    format_ = options.get("format", [_FORMATS.get(path.suffix.lower(), "")])[-1]
    if format_ not in _FORMATS.values():
        raise DeclarationError(
            f"source: the format of {url!r} is not known; found {format_ or path.suffix or 'none'!r}",
            hint="add ?format=json (one object per line) or ?format=csv",
        )
    return path, format_
