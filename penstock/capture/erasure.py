"""What captures keep of erased rows: the values of earlier rows that they look up, in files that can be made again.

A capture that runs removes its files when it is asked to, and reads the topic again; those of others are removed here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from penstock.capture.declaration import load_declaration
from penstock.capture.folder import CaptureFolder, Request
from penstock.contracts import Log
from penstock.paths import capture_names, captures_folder

_LOOK_SECONDS = 0.05


def forget_earlier_rows(log: Log, topic: str, *, wait: float) -> None:
    """Let the captures that write a topic forget its rows; wait so many seconds for those that run."""
    until = time.monotonic() + wait
    asked = list(_captures_of(log, topic))
    for folder in asked:
        if folder.is_running():
            folder.request(Request(forget=True))
        else:
            folder.remove_copy_files()
    while any(_is_asked(folder) for folder in asked) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)


def captures_that_remember(log: Log, topic: str) -> list[str]:
    """The captures of a topic that were asked to forget its rows and have not done so yet."""
    return [folder.path.name for folder in _captures_of(log, topic) if _is_asked(folder)]


def _captures_of(log: Log, topic: str) -> Iterator[CaptureFolder]:
    for name in capture_names(captures_folder(log.apps_folder)):
        folder = CaptureFolder.of(log, name)
        declaration = load_declaration(folder.path)
        if declaration is not None and topic in declaration.topics.values():
            yield folder


def _is_asked(folder: CaptureFolder) -> bool:
    return any(request.forget for request in folder.requests().values())
