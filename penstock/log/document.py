"""Small JSON files with a checksum: the descriptions of logs, topics and partitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crc32c import crc32c

from penstock.errors import DamagedError, DeclarationError
from penstock.log.files import Files, write_durably
from penstock.log.segment import FORMAT

# JSON from our own files, checked by its checksum: the one place where values have no static type.
Content = dict[str, Any]


def store_document(files: Files, path: Path, content: Content) -> None:
    """Replace the file as a whole, on disk when this returns."""
    content = {"format": FORMAT, **content}
    document = {"content": content, "crc32c": _checksum(content)}
    write_durably(files, path, json.dumps(document, indent=1).encode())


def load_document(files: Files, path: Path, *, what: str) -> Content:
    """The content, if the file is undamaged and of a format this version reads; FileNotFoundError if there is none."""
    try:
        document = json.loads(files.read(path))
        content: Content = document["content"]
        whole = document["crc32c"] == _checksum(content)
        version = content["format"]
    except (ValueError, KeyError, TypeError):
        raise _damaged(path, what) from None
    if not whole:
        raise _damaged(path, what)
    if version != FORMAT:
        raise DeclarationError(
            f"{path}: the {what} has format {version}; this version of Penstock reads format {FORMAT}",
            hint="open it with the version of Penstock that wrote it",
        )
    del content["format"]
    return content


def _damaged(path: Path, what: str) -> DamagedError:
    return DamagedError(f"{path}: the {what}'s description is damaged", hint="restore the file from a copy")


def _checksum(content: Content) -> int:
    return int(crc32c(json.dumps(content, sort_keys=True).encode()))
