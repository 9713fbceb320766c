"""Real processes for the fault tests: started quickly, heard over a pipe, killed, stopped and continued.

A nursery is one Python process that has imported what the tests need and opened nothing; each child is a fork of it,
which takes milliseconds instead of the half second of a new interpreter. A child runs a function of a test module and
tells its parent what it has achieved: what was told survives the child, whatever happens to the log.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0

Message = dict[str, Any]


class DeadError(AssertionError):
    """The child ended, or fell silent, before it told what the test waits for."""


class Parent:
    """What the function in a child gets first: the way to its parent."""

    def __init__(self, telling: int, hearing: int) -> None:
        self._telling = telling
        self._hearing = os.fdopen(hearing, "rb")

    def tell(self, what: str, **details: object) -> None:
        """One write of less than a pipe takes at once: told as a whole, or not at all."""
        line = json.dumps({"what": what, **details}).encode() + b"\n"
        assert len(line) <= 4096, "too long to be told at once"
        os.write(self._telling, line)

    def wait(self) -> str:
        """Block until the parent says something; the empty string when it will not any more."""
        return self._hearing.readline().decode().strip()


class Child:
    """A running function. Ended by `kill`, or by itself."""

    def __init__(self, pid: int, pidfd: int, hearing: int, telling: int) -> None:
        self.pid = pid
        self.told: list[Message] = []
        self._pidfd = pidfd
        self._hearing = hearing
        self._telling = telling
        self._rest = b""
        self._heard = 0  # how many of `told` were returned by `hear`
        self._silent = False

    def kill(self) -> None:
        """SIGKILL, and wait until nothing of the process is left."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """SIGSTOP, and wait until every thread stands still."""
        self.signal(signal.SIGSTOP)
        self.wait_until_stopped()

    def wait_until_stopped(self, timeout: float = PATIENCE) -> None:
        deadline = time.monotonic() + timeout
        while self._state() not in "TtXZ":
            assert time.monotonic() < deadline, f"process {self.pid} did not stop"
            os.sched_yield()

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            signal.pidfd_send_signal(self._pidfd, number)

    @property
    def alive(self) -> bool:
        return self._pidfd >= 0 and not _readable(self._pidfd, 0.0)

    def wait(self, timeout: float = PATIENCE) -> None:
        """Wait for the end of the process, then take in what it had told."""
        if self._pidfd >= 0 and not _readable(self._pidfd, timeout):
            raise DeadError(f"process {self.pid} still runs after {timeout:g} seconds; it told {self.told[-3:]}")
        self._take_in(block=False)

    def hear(self, what: str | None = None, *, timeout: float = PATIENCE) -> Message:
        """The next message (of this kind, leaving out others); DeadError when the child ends without it."""
        deadline = time.monotonic() + timeout
        while True:
            while self._heard < len(self.told):
                message = self.told[self._heard]
                self._heard += 1
                if message["what"] == "failed":
                    raise DeadError(f"process {self.pid} failed:\n{message['trace']}")
                if what is None or message["what"] == what:
                    return message
            if self._silent:
                raise DeadError(f"process {self.pid} ended without telling {what!r}; it told {self.told[-3:]}")
            left = deadline - time.monotonic()
            if left <= 0 or not _readable(self._hearing, left):
                raise DeadError(f"process {self.pid} did not tell {what!r} in {timeout:g} s; it told {self.told[-3:]}")
            self._take_in(block=True)

    def say(self, text: str = "go") -> None:
        os.write(self._telling, text.encode() + b"\n")

    def finish(self, *, timeout: float = PATIENCE) -> list[Message]:
        """Wait until the function has returned; everything it told."""
        self.hear("returned", timeout=timeout)
        self.wait(timeout)
        return self.told[:-1]

    def all_told(self, what: str) -> list[Message]:
        """The messages of one kind so far."""
        self._take_in(block=False)
        return [message for message in self.told if message["what"] == what]

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.kill()
        for descriptor in (self._pidfd, self._hearing, self._telling):
            os.close(descriptor)
        self._pidfd = self._hearing = self._telling = -1

    def _state(self) -> str:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return "X"

    def _take_in(self, *, block: bool) -> None:
        while not self._silent and (block or _readable(self._hearing, 0.0)):
            raw = os.read(self._hearing, 1 << 20)
            self._silent = not raw
            *lines, self._rest = (self._rest + raw).split(b"\n")
            self.told += [json.loads(line) for line in lines]
            block = False


class Nursery:
    """Starts children. A context manager; at its end no child is left."""

    def __init__(self, *, preload: Path | None = None) -> None:
        self.preload = preload
        self._children: list[Child] = []
        self._socket, theirs = socket.socketpair()
        environment = os.environ | ({"LD_PRELOAD": str(preload)} if preload else {})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.processes", str(theirs.fileno())],
            cwd=ROOT,
            env=environment | {"OPENBLAS_NUM_THREADS": "1"},
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def start(
        self, function: Callable[..., None], /, *, environment: dict[str, str] | None = None, **arguments: object
    ) -> Child:
        """Run `function(parent, **arguments)` in a process of its own; the arguments travel as JSON."""
        request = {
            "module": function.__module__,
            "function": function.__qualname__,
            "arguments": {name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()},
            "environment": environment or {},
        }
        hearing, their_telling = os.pipe()
        their_hearing, telling = os.pipe()
        socket.send_fds(self._socket, [json.dumps(request).encode()], [their_telling, their_hearing])
        os.close(their_telling)
        os.close(their_hearing)
        raw, (pidfd, *_), _, _ = socket.recv_fds(self._socket, 64, 1)
        child = Child(int(raw), pidfd, hearing, telling)
        self._children.append(child)
        return child

    def run(
        self, function: Callable[..., None], /, *, environment: dict[str, str] | None = None, **arguments: object
    ) -> list[Message]:
        """The same, waiting until it has returned."""
        child = self.start(function, environment=environment, **arguments)
        try:
            return child.finish()
        finally:
            child.close()
            self._children.remove(child)

    def end_children(self) -> None:
        """Kill whatever a test has left."""
        for child in self._children:
            if child._pidfd >= 0:
                child.close()
        self._children = []

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_children()
        self._socket.close()
        self._process.wait(PATIENCE)


def _readable(descriptor: int, timeout: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(timeout))


def serve(connection: socket.socket) -> None:
    """The nursery's own process: fork a child for every request, until the parent is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    while True:
        raw, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 2)
        if not raw:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            connection.close()
            _live(json.loads(raw), *descriptors)
        pidfd = os.pidfd_open(pid)
        socket.send_fds(connection, [str(pid).encode()], [pidfd])
        for descriptor in (*descriptors, pidfd):
            os.close(descriptor)


def _live(request: dict[str, Any], telling: int, hearing: int) -> None:
    """Run the requested function and end this process, without the clean-up that a crash would not do either."""
    parent = Parent(telling, hearing)
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        random.seed()
        function = getattr(importlib.import_module(request["module"]), request["function"])
        os.environ.update(request["environment"])
        logging.getLogger("penstock.log").addHandler(_Teller(parent))
        function(parent, **request["arguments"])
        parent.tell("returned")
    except BaseException:  # noqa: BLE001 - whatever it is, the parent must hear of it
        parent.tell("failed", trace=traceback.format_exc()[-3500:])
    finally:
        os._exit(0)


class _Teller(logging.Handler):
    """Passes the lines that the log writes on to the parent."""

    def __init__(self, parent: Parent) -> None:
        super().__init__()
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        self._parent.tell("line", text=record.getMessage())


if __name__ == "__main__":
    for name in ("pytest", "pandas", "penstock.log"):  # pyarrow imports pandas when the first rows are converted
        importlib.import_module(name)
    serve(socket.socket(fileno=int(sys.argv[1])))
