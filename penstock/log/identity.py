"""The identity of a log: the id that its catalogue and its holds carry too, so that a foreign one is noticed.

It is stored in the file that marks a folder as a log. Logs of earlier versions have none until their catalogue is
brought up to date.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.errors import DamagedError
from penstock.storage.document import load_document, store_document
from penstock.storage.files import Files

LOG_NAME = "penstock.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """`catalogue` is the format in which the catalogue is stored for certain; 0 where that is not known."""

    id: str = ""
    catalogue: int = 0


def new_id() -> str:
    return uuid.uuid4().hex


def load_identity(files: Files, root: Path) -> Identity:
    content = load_document(files, root / LOG_NAME, what="log")
    try:
        identity = Identity(**content)
        if content:
            bytes.fromhex(identity.id)
    except (TypeError, ValueError):
        raise DamagedError(
            f"{root / LOG_NAME}: this is not the description of a log", hint="restore the file from a copy"
        ) from None
    return identity


def store_identity(files: Files, root: Path, identity: Identity) -> None:
    store_document(files, root / LOG_NAME, asdict(identity))
