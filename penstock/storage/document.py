"""Small JSON files with a checksum: the descriptions of logs, topics and partitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crc32c import crc32c

from penstock.errors import DamagedError, DeclarationError
from penstock.storage.files import Files, write_durably

FORMAT = 1
"""The format version of everything stored in a log."""
# JSON from our own files, verified by its checksum: the one place where values have no static type.
Content = dict[str, Any]


def store_document(files: Files, path: Path, content: Content) -> None:
    """Replace the whole file. It is on disk when this returns."""
    write_durably(files, path, encode_document(content, indent=1))


def encode_document(content: Content, *, indent: int | None = None) -> bytes:
    content = {"format": FORMAT, **content}
    return json.dumps({"content": content, "crc32c": _checksum(content)}, indent=indent).encode()


def load_document(files: Files, path: Path, *, what: str) -> Content:
    """The content of a document. FileNotFoundError if there is no file, DamagedError if its checksum is wrong,
    DeclarationError if this version does not read its format."""
    return decode_document(files.read(path), path, what=what)


def decode_document(raw: bytes, path: Path, *, what: str) -> Content:
    """The content of a document whose bytes were read from `path`. Raises as `load_document` does."""
    try:
        document = json.loads(raw)
        content: Content = document["content"]
        is_intact = document["crc32c"] == _checksum(content)
        version = content["format"]
    except (ValueError, KeyError, TypeError):
        raise _damaged_error(path, what) from None
    if not is_intact:
        raise _damaged_error(path, what)
    if version != FORMAT:
        raise DeclarationError(
            f"{path}: the {what} has format {version}; this version of Penstock reads format {FORMAT}",
            hint="open it with the version of Penstock that wrote it",
        )
    del content["format"]
    return content


def _damaged_error(path: Path, what: str) -> DamagedError:
    return DamagedError(f"{path}: the {what}'s description is damaged", hint="restore the file from a copy")


def _checksum(content: Content) -> int:
    return int(crc32c(json.dumps(content, sort_keys=True).encode()))
