"""What a capture has stored about itself, whichever process runs it: how far its copies are, and whether it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.contracts import TableCopy
from penstock.logs import apps_folder
from penstock.paths import captures_folder

STATUS_NAME = "status.json"


@dataclass(frozen=True, slots=True)
class CaptureState:
    """The last status of a capture. `copies` are by topic. `process`: who captures or has captured."""

    name: str
    state: str
    copies: Mapping[str, TableCopy]
    process: int | None
    is_alive: bool


def capture_folder(log: str | Path, name: str) -> Path:
    """Where a capture keeps its declaration, its status and its output."""
    return captures_folder(apps_folder(log)) / name


def capture_state(log: str | Path, name: str) -> CaptureState | None:
    """The status of a capture; None if it has never run on this log."""
    try:
        document = json.loads((capture_folder(log, name) / STATUS_NAME).read_bytes())
    except FileNotFoundError:
        return None
    raise NotImplementedError(document)


def running_process(log: str | Path, name: str) -> int | None:
    """The process that captures under this name now; None if nobody does."""
    state = capture_state(log, name)
    return state.process if state is not None and state.is_alive else None
