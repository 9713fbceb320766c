"""A capture as a process of its own: `python -m penstock.capture.child`, started by a `Supervisor`.

What it is to do comes as one line of JSON on stdin, so that no password is in the list of processes. The pipe stays
open as long as the parent lives: when it ends, however the parent ended, the capture stops. On stdout it writes its
status, a line of JSON each time, and at last the error with which it ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, UnavailableError

if TYPE_CHECKING:
    from penstock.capture.folder import CaptureStatus

ENDED, FAILED = 0, 10
"""How it exits: done or stopped; with an error that another attempt does not mend. Otherwise it has crashed."""

ONCE_SECONDS = 300.0
"""So long a capture that is to end waits for its database. One that is to follow it waits forever."""

STOP_SECONDS = 10.0
"""How long a capture may take to finish what it is writing, once it was told to stop."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a child is to do: capture this declaration into that log; with `once`, up to the present."""

    log: str
    declaration: dict[str, Any]
    once: bool

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def main() -> int:
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then says what happens
    signal.signal(signal.SIGTERM, lambda number, frame: _request_stop(stop, frame))
    line = sys.stdin.buffer.readline()
    if not line:
        return ENDED  # the parent has ended before it said anything
    threading.Thread(target=_stop_with_parent, args=(stop,), daemon=True).start()
    try:
        _capture(Work(**json.loads(line)), stop)
    except PenstockError as error:
        _say({"error": error.message, "hint": error.hint})
        return FAILED
    return ENDED


def _say(document: dict[str, Any]) -> None:
    with suppress(BrokenPipeError):  # the parent has ended, and so shall we
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()


def _request_stop(stop: threading.Event, frame: FrameType | None) -> None:
    stop.set()


def _stop_with_parent(stop: threading.Event) -> None:
    """Wait for the end of stdin, past its buffer, whose lock would be held when the interpreter ends."""
    while os.read(0, 4096):
        pass
    stop.set()
    threading.Event().wait(STOP_SECONDS)
    os._exit(ENDED)  # what was not written is captured again


def _capture(work: Work, stop: threading.Event) -> None:
    from penstock.capture.declaration import CaptureDeclaration
    from penstock.capture.run import run_capture
    from penstock.logs import open_log

    def report(status: CaptureStatus) -> None:
        _say({"state": status.state, "error": status.error, "hint": status.hint})
        if work.once and status.waiting_since is not None and time.time() - status.waiting_since > ONCE_SECONDS:
            raise UnavailableError(status.error or "the database cannot be reached", hint=status.hint)

    with closing(open_log(work.log)) as log:
        run_capture(CaptureDeclaration.from_json(work.declaration), log, once=work.once, stop=stop, report=report)


if __name__ == "__main__":
    sys.exit(main())
