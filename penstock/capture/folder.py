"""The folder of a capture: who runs it, its status, and what is requested of it while it runs or before it starts."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.contracts import Log
from penstock.logs import apps_folder
from penstock.paths import captures_folder
from penstock.storage.document import load_document, store_document
from penstock.storage.files import Disk, disk_errors, draft_of

_STATUS, _REQUESTS, _LOCK, _IDENTITY = "status.json", "requests", "running.lock", "identity.json"
COPY_FILES = "copy"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """How far a table has come. `state` is that of its copy: waiting, copying or complete."""

    table: str
    topic: str
    state: str = "waiting"
    rows: int = 0
    estimated_rows: int | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class CaptureStatus:
    """What a capture has last said about itself, about once a second. Times are seconds since 1970.

    `state`: starting, copying, following, waiting (for the database or the log), stopped or failed. `rows` were written
    by this run; `delay_seconds` is how long after its commit the last row was in the log. No password is in it.
    """

    name: str
    url: str
    state: str = "starting"
    process: int = 0
    host: str = ""
    started: float = 0.0
    updated: float = 0.0
    tables: tuple[TableStatus, ...] = ()
    rows: int = 0
    rows_per_second: float = 0.0
    delay_seconds: float | None = None
    waiting_since: float | None = None
    error: str | None = None
    hint: str | None = None

    @classmethod
    def from_json(cls, content: dict[str, object]) -> CaptureStatus:
        tables = [TableStatus(**table) for table in content.pop("tables")]  # type: ignore[attr-defined]
        return cls(**content, tables=tuple(tables))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Request:
    """What a capture is to do: copy tables again, do without columns ("table.column") that were dropped, forget rows.

    To forget means to remove the files of the copy: rows that were erased from a topic may be in them.
    """

    snapshot: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    forget: bool = False


class CaptureFolder:
    """The files of one capture, `<folder of the log>/captures/<name>`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._where = f"capture '{path.name}'"

    @classmethod
    def of(cls, log: Log, name: str) -> CaptureFolder:
        return cls(captures_folder(log.apps_folder) / name)

    @classmethod
    def at(cls, log: str | Path, name: str) -> CaptureFolder:
        """That of a log by its URL or path, which is not opened."""
        return cls(captures_folder(apps_folder(log)) / name)

    @property
    def copy_files(self) -> Path:
        """What the copy may put aside there. It can be deleted while nobody captures."""
        return self.path / COPY_FILES

    def identity(self) -> str:
        """What distinguishes this capture from one of the same name in another log. Made when first asked for."""
        path = self.path / _IDENTITY
        with disk_errors(self._where):
            if not path.exists():
                self.path.mkdir(parents=True, exist_ok=True)
                store_document(Disk(), path, {"identity": uuid.uuid4().hex[:8]})
            return str(load_document(Disk(), path, what="identity of a capture")["identity"])

    # -- who runs it --------------------------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[None]:
        """Show that this process captures, until the block or the process ends."""
        with disk_errors(self._where):
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_SH)  # shared: one that was replaced runs until it notices
        try:
            yield
        finally:
            os.close(descriptor)

    def is_running(self) -> bool:
        """Whether a process captures. The kernel knows it, however the process has ended."""
        try:
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def running_process(self) -> int | None:
        """The process that captures now, if it is one of this machine that has begun to."""
        status = self.load_status()
        if status is None or status.state in ("stopped", "failed") or status.host != socket.gethostname():
            return None
        return status.process if Path(f"/proc/{status.process}").exists() else None

    # -- status -------------------------------------------------------------------------------------------------------

    def store_status(self, status: CaptureStatus) -> None:
        """Replace the status. It is not synced: after a crash of the machine, nobody runs."""
        path = self.path / _STATUS
        with disk_errors(self._where):
            draft_of(path).write_text(json.dumps(asdict(status), indent=1))
            draft_of(path).replace(path)

    def load_status(self) -> CaptureStatus | None:
        """The last status; None if there is none. It is 'stopped' if its process was killed."""
        try:
            status = CaptureStatus.from_json(json.loads((self.path / _STATUS).read_text()))
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None
        if status.state in ("stopped", "failed") or self.is_running():
            return status
        return replace(status, state="stopped", error=f"its process {status.process} has died", hint="start it again")

    # -- requests -----------------------------------------------------------------------------------------------------

    def request(self, request: Request) -> None:
        """Ask for something. It is on disk when this returns; whoever captures next, or now, does it."""
        folder = self.path / _REQUESTS
        with disk_errors(self._where):
            folder.mkdir(parents=True, exist_ok=True)
            store_document(Disk(), folder / f"{uuid.uuid4().hex}.json", asdict(request))

    def requests(self) -> dict[Path, Request]:
        """What is requested and not done."""
        found = {}
        for path in sorted((self.path / _REQUESTS).glob("*.json")):
            content = load_document(Disk(), path, what="request")
            found[path] = Request(tuple(content["snapshot"]), tuple(content["dropped"]), bool(content["forget"]))
        return found

    def settle(self, requests: Sequence[Path]) -> None:
        """These requests are done."""
        for path in requests:
            path.unlink(missing_ok=True)

    def has_requests(self) -> bool:
        return any((self.path / _REQUESTS).glob("*.json"))

    def remove_copy_files(self) -> None:
        """Remove what the copy has put aside, while nobody captures."""
        with disk_errors(self._where, but=FileNotFoundError), suppress(FileNotFoundError):
            shutil.rmtree(self.copy_files)

    def remove(self) -> None:
        """Remove the folder with everything in it."""
        with disk_errors(self._where):
            shutil.rmtree(self.path, ignore_errors=False)


def this_process(status: CaptureStatus) -> CaptureStatus:
    return replace(status, process=os.getpid(), host=socket.gethostname())
