"""The file operations that the log is built on, as one small contract.

Everything durable goes through `Files` and `File`, so that the tests can put a simulated disk under the real code and
cut the power between any two calls. SQLite is the exception: it has its own file handling.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock.errors import DeclarationError, UnavailableError

# Below this a pread is cheaper than setting up a mapping and faulting its pages in.
MAP_FROM_BYTES = 64 * 1024
# IOV_MAX on Linux.
MOST_BUFFERS = 1024

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)

Buffer = bytes | memoryview | pa.Buffer


class File(Protocol):
    """One open file. A write is on disk only after `sync` has returned. After a failed `sync`, it may or may not be."""

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers one after the other, from `position` on. On an error, any part may have been written."""

    def check_writable(self) -> None:
        """Raise PermissionError, which names the file, if this process may only read it."""

    def sync(self) -> None:
        """Return once everything written to this file is on disk."""

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def view(self, start: int, length: int) -> pa.Buffer:
        """The bytes as they are now, memory-mapped where that pays off. The caller guarantees that they exist."""

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive or shared lock. It ends with its process, however the process ends."""

    def acquire(self, *, shared: bool = False, timeout: float = 30.0) -> None:
        """Wait up to `timeout` seconds for the lock; then raise an UnavailableError that names the holder."""

    def release(self) -> None: ...

    def is_removed(self) -> bool:
        """Whether the lock's file was removed, together with what it protects."""

    def close(self) -> None: ...


class Files(Protocol):
    """A directory tree. A name is on disk only after `sync_directory` of its folder has returned."""

    def open(self, path: Path, *, create: bool = False) -> File: ...

    def read(self, path: Path) -> bytes: ...

    def exists(self, path: Path) -> bool: ...

    def names(self, directory: Path) -> list[str]: ...

    def make_directory(self, path: Path) -> None: ...

    def replace(self, source: Path, target: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None: ...

    def lock(self, path: Path) -> Lock: ...

    def boot(self) -> bytes:
        """Sixteen bytes that change when the machine restarts. After that, unsynced files are not trusted."""


def draft_of(path: Path) -> Path:
    """Where the new content of a file is written before it replaces the file."""
    return path.with_name(path.name + ".tmp")


def write_durably(files: Files, path: Path, content: bytes) -> None:
    """Replace the whole file: after a crash it holds either the old content or the new, never a mixture."""
    draft = draft_of(path)
    try:
        with closing(files.open(draft, create=True)) as file:
            file.truncate(0)
            file.write_at(0, [content])
            file.sync()
        files.replace(draft, path)
    except OSError:
        with suppress(OSError):
            files.remove(draft)
        raise
    files.sync_directory(path.parent)


@contextmanager
def disk_errors(where: str, *, but: type[OSError] | tuple[()] = ()) -> Iterator[None]:
    """Raise what the operating system refuses in this block as UnavailableError. Errors of type `but` pass through."""
    try:
        yield
    except OSError as error:
        if isinstance(error, but):
            raise
        raise disk_error(where, error) from error


def disk_error(where: str, error: OSError) -> UnavailableError:
    """An error of the operating system in the user's words."""
    if error.errno in NO_SPACE:
        return UnavailableError(
            f"{where}: the disk is full. Nothing that was acknowledged is lost", hint="make space and try again"
        )
    place = f" ({error.filename})" if error.filename else ""
    if error.errno in NO_PERMISSION:
        return UnavailableError(
            f"{where}: no permission{place}", hint="check who owns the log's folder, and as whom this process runs"
        )
    return UnavailableError(f"{where}: {error.strerror}{place}", hint="check the disk, then open the log again")


def refuse_in_a_fork(process: int, what: Path) -> None:
    """Raise DeclarationError in a fork: it shares the locks of its parent, so they would exclude neither of the two."""
    if os.getpid() != process:
        raise DeclarationError(
            f"{what}: this was opened by process {process} and cannot be used in a fork of it",
            hint="open the log again in this process",
        )


class DiskFile:
    """A file of the operating system. One that this process may only read can be opened, but not written."""

    def __init__(self, path: Path, *, create: bool) -> None:
        self._read_only: PermissionError | None
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            self._descriptor = os.open(path, flags, 0o644)
            self._read_only = None
        except OSError as error:
            if create or error.errno not in NO_PERMISSION:
                raise
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._read_only = PermissionError(error.errno, error.strerror, str(path))

    def check_writable(self) -> None:
        if self._read_only is not None:
            raise self._read_only

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        self.check_writable()
        pending = [memoryview(buffer).cast("B") for buffer in buffers if len(memoryview(buffer))]
        while pending:
            written = os.pwritev(self._descriptor, pending[:MOST_BUFFERS], position)
            if written == 0:
                raise OSError(errno.EIO, "the disk took no bytes")
            position += written
            while pending and written >= len(pending[0]):
                written -= len(pending.pop(0))
            if written:
                pending[0] = pending[0][written:]

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        self.check_writable()
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def view(self, start: int, length: int) -> pa.Buffer:
        if length < MAP_FROM_BYTES:
            return pa.py_buffer(os.pread(self._descriptor, length, start))
        page_start = start - start % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(self._descriptor, start - page_start + length, offset=page_start, access=mmap.ACCESS_READ)
        return pa.py_buffer(mapped).slice(start - page_start, length)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class DiskLock:
    """`flock` on a file that holds the id of the last process that took the lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = os.getpid()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def acquire(self, *, shared: bool = False, timeout: float = 30.0) -> None:
        refuse_in_a_fork(self._process, self._path)
        operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        deadline = time.monotonic() + timeout
        pause = 0.00005
        while True:
            try:
                fcntl.flock(self._descriptor, operation | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise self._held_too_long(timeout) from None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.002)
        with suppress(OSError):  # the id only helps those who wait
            if self._holder() != str(os.getpid()):
                os.pwrite(self._descriptor, f"{os.getpid():<20}".encode(), 0)

    def release(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def is_removed(self) -> bool:
        return os.fstat(self._descriptor).st_nlink == 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _holder(self) -> str:
        return os.pread(self._descriptor, 20, 0).decode(errors="replace").strip() or "unknown"

    def _held_too_long(self, timeout: float) -> UnavailableError:
        return UnavailableError(
            f"{self._path}: still locked after {timeout:g} seconds; the last to take it was process {self._holder()}",
            hint="if that process is stopped, continue or end it; the lock ends with the process",
        )


class Disk:
    """The real file system."""

    def open(self, path: Path, *, create: bool = False) -> File:
        return DiskFile(path, create=create)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def exists(self, path: Path) -> bool:
        return path.exists()

    def names(self, directory: Path) -> list[str]:
        return sorted(os.listdir(directory))

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> Lock:
        return DiskLock(path)

    def boot(self) -> bytes:
        return boot_id()


def boot_id() -> bytes:
    """The id of this boot, as Linux reports it. Elsewhere it is random: every start is treated as one after a power
    loss."""
    try:
        return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))
    except OSError:
        return os.urandom(16)
