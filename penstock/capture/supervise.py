"""Runs captures beside an app, each in a process of its own, and starts those again that crash.

One thread looks after each capture. A capture that crashes (kill -9, no memory) is started again after a pause; one
that ends with an error that another attempt does not mend is reported once and not started again. A capture that
already runs in another process is left to it, until that process ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from penstock.capture.child import ENDED, FAILED, STOP_SECONDS, Work
from penstock.capture.declaration import CaptureDeclaration
from penstock.capture.folder import CaptureFolder
from penstock.errors import PenstockError
from penstock.logs import open_log

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
STEADY_SECONDS = 60.0
"""A capture that ran this long before it crashed is started again as if it had never crashed."""
LOOK_SECONDS = 1.0
OUTPUT = "output.log"


What = Literal["started", "copying", "following", "waiting", "restarting", "elsewhere", "failed", "ended"]


@dataclass(frozen=True, slots=True)
class CaptureNews:
    """What has happened to a capture, to be told once: a sentence without its name, and perhaps what to do."""

    capture: str
    what: What
    text: str
    hint: str | None = None
    process: int | None = None


Listen = Callable[[CaptureNews], None]


@dataclass(frozen=True, slots=True)
class _Exit:
    """How a child has ended."""

    status: int
    message: str = ""
    hint: str | None = None

    @property
    def text(self) -> str:
        return f"ended by signal {-self.status}" if self.status < 0 else f"ended with status {self.status}"


class Supervisor:
    """The captures of an app while it runs: `with Supervisor(...) as captures:`."""

    def __init__(
        self,
        log: str | Path,
        declarations: Sequence[CaptureDeclaration],
        *,
        once: bool = False,
        listen: Listen = lambda news: None,
    ) -> None:
        self._log = log
        self._captures = [_SupervisedCapture(log, declared, once, listen) for declared in declarations]

    @property
    def failures(self) -> dict[str, PenstockError]:
        """The captures that have ended with an error that needs the user, and the error."""
        return {capture.name: capture.failure for capture in self._captures if capture.failure is not None}

    @property
    def have_ended(self) -> bool:
        """Whether no capture runs or will be started again."""
        return not any(capture.is_alive for capture in self._captures)

    def start(self) -> None:
        """Start the processes. The log is created if it does not exist, so that they and the app find the same one."""
        if self._captures:
            open_log(self._log, create=True).close()
        for capture in self._captures:
            capture.start()

    def stop(self) -> None:
        """End all captures: each finishes what it is writing. One that takes too long is killed."""
        for capture in self._captures:
            capture.request_stop()
        for capture in self._captures:
            capture.join()

    def kill(self) -> None:
        """End all captures at once; they continue where they were. May be called in a signal handler."""
        for capture in self._captures:
            capture.kill()

    def __enter__(self) -> Supervisor:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None and not isinstance(error, Exception):
            self.kill()
        self.stop()


@dataclass(eq=False)
class _SupervisedCapture:
    log: str | Path
    declared: CaptureDeclaration
    once: bool
    listen: Listen
    failure: PenstockError | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # held while a process is started
    _process: subprocess.Popen[bytes] | None = None
    _thread: threading.Thread | None = None
    _told_elsewhere: int | None = None
    _told_state: tuple[str, str | None] = ("", None)

    @property
    def folder(self) -> CaptureFolder:
        return CaptureFolder.at(self.log, self.name)

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._supervise, name=f"capture {self.name}", daemon=True)
        self._thread.start()

    def request_stop(self) -> None:
        with self._lock:
            self._stop.set()
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        self._stop.set()
        if self._process is not None:
            self._process.kill()

    def join(self) -> None:
        if self._thread is None:
            return
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            self.kill()
            self._thread.join()

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            if self._runs_elsewhere():
                if self.once:
                    return
                self._stop.wait(LOOK_SECONDS)
                continue
            began = time.monotonic()
            ended = self._run_child()
            if ended is None or self._is_final(ended):
                return
            pause = FIRST_PAUSE if time.monotonic() - began > STEADY_SECONDS else pause
            self._tell("restarting", f"{ended.text}; it is started again in {pause:.0f} s")
            self._stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _runs_elsewhere(self) -> bool:
        process = self.folder.running_process()
        if process is not None and process != self._told_elsewhere:
            self._tell(
                "elsewhere",
                f"it already runs in process {process}, and is left to it",
                "if that one belongs to another app, give this one a name of its own: capture='...'",
                process,
            )
        self._told_elsewhere = process
        return process is not None

    def _run_child(self) -> _Exit | None:
        """Start the process and wait for its end; None if we were told to stop."""
        process = self._start_child()
        if process is None:
            return None
        self._tell("started", f"runs in process {process.pid}", process=process.pid)
        with process:
            assert process.stdout is not None
            document: dict[str, Any] = {}
            for line in process.stdout:
                document = json.loads(line)
                self._tell_state(document)
            status = process.wait()
        ended = _Exit(status) if status != FAILED else _Exit(status, document["error"], document["hint"])
        return None if self._stop.is_set() and not ended.message else ended

    def _tell_state(self, document: dict[str, Any]) -> None:
        """Tell what the capture does now, if that has changed."""
        state = document.get("state", "")
        news = (state, document["error"] if state == "waiting" else None)
        if news == self._told_state or state not in ("copying", "following", "waiting"):
            return
        self._told_state = news
        tables = f"{len(self.declared.tables)} table{'s' if len(self.declared.tables) > 1 else ''}"
        texts: dict[What, str] = {
            "copying": f"copies {tables} from {self.declared.shown_url}",
            "following": f"follows {tables} of {self.declared.shown_url}",
            "waiting": f"waits, and tries again: {document['error']}",
        }
        self._tell(state, texts[state], document["hint"])

    def _start_child(self) -> subprocess.Popen[bytes] | None:
        folder = self.folder.path
        folder.mkdir(parents=True, exist_ok=True)
        work = Work(str(self.log), self.declared.to_json(), self.once)
        with self._lock, (folder / OUTPUT).open("ab") as output:
            if self._stop.is_set():
                return None
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock.capture.child"],  # nothing of the current folder is imported
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                process_group=0,  # Ctrl-C in a terminal is for us: we tell the captures to stop
            )
            self._process = process
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already, and its status says why
            process.stdin.write(work.to_line())
            process.stdin.flush()
        return process

    def _is_final(self, ended: _Exit) -> bool:
        """Whether it is not to be started again; if that is because of an error, it is told."""
        if ended.status == ENDED:
            self._tell("ended", "ended")
            return True
        if ended.status == FAILED:
            where = f"capture '{self.name}': "
            message = ended.message.removeprefix(where)
            self.failure = PenstockError(where + message, hint=ended.hint)
            self._tell("failed", message, ended.hint)
            return True
        return False

    def _tell(self, what: What, text: str, hint: str | None = None, process: int | None = None) -> None:
        self.listen(CaptureNews(self.name, what, text, hint, process))
