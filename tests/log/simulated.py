"""A disk made of dicts that can lose its power, fill up, and fail; the log's real code runs on it unchanged.

A file is what the processes see (`live`), what the platter holds (`platter`), and the operations in between that no
sync has covered. A power loss leaves every touched sector as it was at some moment since the last sync, each at a
moment of its own, under a size of yet another moment. Names are the same: a change of a folder that was not synced
may or may not have happened. The disk is on one machine; several processes may share it.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pyarrow as pa

from penstock.errors import UnavailableError
from penstock.storage.files import Buffer

SECTOR = 512


class SimulatedCrash(BaseException):
    """The process is dead. Not an Exception, so that no `except Exception` can go on after death."""


class Fault(Enum):
    """What goes wrong at a chosen operation."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    NO_SPACE = "no space"
    BROKEN = "input/output error"


@dataclass(slots=True)
class _Write:
    position: int
    content: bytes

    def apply(self, image: bytearray) -> None:
        if len(image) < self.position:
            image.extend(bytes(self.position - len(image)))
        image[self.position : self.position + len(self.content)] = self.content

    def sectors(self, size: int) -> range:
        # Writing behind the end also moves the bytes between.
        start = min(self.position, size)
        return range(start // SECTOR, -(-(self.position + len(self.content)) // SECTOR))


@dataclass(slots=True)
class _Truncate:
    size: int

    def apply(self, image: bytearray) -> None:
        if len(image) < self.size:
            image.extend(bytes(self.size - len(image)))
        del image[self.size :]

    def sectors(self, size: int) -> range:
        return range(min(size, self.size) // SECTOR, -(-max(size, self.size) // SECTOR))


@dataclass(slots=True)
class _Inode:
    live: bytearray = field(default_factory=bytearray)
    base: bytes = b""  # `live` at the last sync
    platter: bytes = b""  # the same, unless that sync failed
    unsynced: list[_Write | _Truncate] = field(default_factory=list)

    def do(self, operation: _Write | _Truncate) -> None:
        operation.apply(self.live)
        self.unsynced.append(operation)

    def sync(self) -> None:
        if self.base == self.platter:
            self.platter = bytes(self.live)
        else:
            # After a failed sync the lost pages count as clean: only what changed since is written.
            self.platter = self._mixture(lambda sector: len(self.unsynced), len(self.unsynced), lambda length: b"")
        self.base = bytes(self.live)
        self.unsynced = []

    def fail_to_sync(self, rng: random.Random) -> None:
        """What the disk refused is lost or not, and the operating system believes it written."""
        self.platter = self.after_power_loss(rng)
        self.base = bytes(self.live)
        self.unsynced = []

    def after_power_loss(self, rng: random.Random) -> bytes:
        count = len(self.unsynced)
        if not count:
            return self.platter
        style = rng.random()
        together = rng.randint(0, count)
        likely = rng.random()

        def moment(sector: int) -> int:
            if style < 0.25:
                return together
            if style < 0.6:
                return count if rng.random() < likely else together
            return rng.randint(0, count)

        def filling(length: int) -> bytes:
            return rng.randbytes(length) if rng.random() < 0.3 else bytes(length)

        size_moment = together if style < 0.25 else rng.choice([0, count, rng.randint(0, count)])
        return self._mixture(moment, size_moment, filling)

    def _mixture(self, moment, size_moment, filling) -> bytes:  # type: ignore[no-untyped-def]
        """The platter with every touched sector as of `moment(sector)`, cut or filled to the size of `size_moment`.

        Moment 0 is the platter as it was; moment n is after the n-th unsynced operation.
        """
        image = bytearray(self.base)
        touched: dict[int, int] = {}
        wanted: dict[int, list[int]] = {}
        steps: list[range] = []
        size = len(image)
        sizes = [len(self.platter)]
        for operation in self.unsynced:
            steps.append(operation.sectors(size))
            operation.apply(image)
            size = len(image)
            sizes.append(size)
        for sector in sorted({sector for step in steps for sector in step}):
            touched[sector] = moment(sector)
            wanted.setdefault(touched[sector], []).append(sector)
        chosen: dict[int, bytes] = {}
        image = bytearray(self.base)
        for number in range(len(self.unsynced) + 1):
            if number:
                self.unsynced[number - 1].apply(image)
            source = image if number else self.platter
            for sector in wanted.get(number, ()):
                chosen[sector] = bytes(source[sector * SECTOR : (sector + 1) * SECTOR])
        result = bytearray(sizes[size_moment])
        for sector in range(-(-len(result) // SECTOR)):
            start = sector * SECTOR
            length = min(SECTOR, len(result) - start)
            content = chosen.get(sector, self.platter[start : start + SECTOR])[:length]
            result[start : start + length] = content + filling(length - len(content)).ljust(
                length - len(content), b"\0"
            )
        return bytes(result)


@dataclass(slots=True)
class _Change:
    """One step in a folder: names that come to mean an inode, or nothing."""

    names: dict[str, _Inode | None]


@dataclass(slots=True)
class _Folder:
    live: dict[str, _Inode] = field(default_factory=dict)
    platter: dict[str, _Inode] = field(default_factory=dict)
    unsynced: list[_Change] = field(default_factory=list)

    def do(self, change: _Change) -> None:
        _apply(change, self.live)
        self.unsynced.append(change)

    def sync(self) -> None:
        self.platter = dict(self.live)
        self.unsynced = []

    def after_power_loss(self, rng: random.Random) -> dict[str, _Inode]:
        names = dict(self.platter)
        kept = rng.choice([0.0, 0.5, 1.0])
        for change in self.unsynced:
            if rng.random() < kept:
                _apply(change, names)
        return names


def _apply(change: _Change, names: dict[str, _Inode]) -> None:
    for name, inode in change.names.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


@dataclass(slots=True)
class _Machine:
    folders: dict[Path, _Folder] = field(default_factory=dict)
    locks: dict[Path, SimulatedLock] = field(default_factory=dict)
    boots: int = 1
    processes: list[SimulatedDisk] = field(default_factory=list)


class SimulatedDisk:
    """`Files` as one process sees them. `another_process` gives the same disk to a second one."""

    def __init__(self, machine: _Machine | None = None) -> None:
        self._machine = machine or _Machine()
        self._machine.processes.append(self)
        self.dead = False
        self.operations = 0
        self.fault_hit = False
        self._fault: Fault | None = None
        self._fault_at = 0
        self._rng = random.Random(0)

    def another_process(self) -> SimulatedDisk:
        return SimulatedDisk(self._machine)

    # -- Files --------------------------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False) -> SimulatedFile:
        self.refuse_if_dead()
        folder = self._folder(path.parent)
        if path.name not in folder.live:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            self.step("create", lambda: folder.do(_Change({path.name: _Inode()})))
        return SimulatedFile(self, folder.live[path.name])

    def read(self, path: Path) -> bytes:
        self.refuse_if_dead()
        return bytes(self._inode(path).live)

    def exists(self, path: Path) -> bool:
        self.refuse_if_dead()
        return path.parent in self._machine.folders and path.name in self._machine.folders[path.parent].live

    def names(self, directory: Path) -> list[str]:
        self.refuse_if_dead()
        return sorted(self._folder(directory).live)

    def make_directory(self, path: Path) -> None:
        self.refuse_if_dead()
        self._machine.folders.setdefault(path, _Folder())

    def replace(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "the log renames within one folder only"
        inode = self._inode(source)
        folder = self._folder(source.parent)
        self.step("replace", lambda: folder.do(_Change({source.name: None, target.name: inode})))

    def remove(self, path: Path) -> None:
        folder = self._folder(path.parent)
        if path.name in folder.live:
            self.step("remove", lambda: folder.do(_Change({path.name: None})))

    def sync_directory(self, path: Path) -> None:
        self.step("sync directory", self._folder(path).sync)

    def lock(self, path: Path) -> SimulatedLock:
        self.refuse_if_dead()
        return SimulatedLock(self, path)

    def boot(self) -> bytes:
        return self._machine.boots.to_bytes(16, "little")

    # -- what can happen to it ----------------------------------------------------------------------------------------

    def fail(self, at: int, fault: Fault, *, seed: int = 0) -> None:
        """At the `at`-th operation from now on (0: the next) that changes or syncs something, once."""
        self._fault, self._fault_at = fault, self.operations + at
        self.fault_hit = False
        self._rng = random.Random(seed)

    def heal(self) -> None:
        self._fault = None

    def kill(self) -> None:
        """This process dies. The operating system lives on: nothing is lost, its locks are free."""
        self.dead = True
        for path, lock in list(self._machine.locks.items()):
            if lock.disk is self:
                del self._machine.locks[path]

    def crash(self, rng: random.Random) -> SimulatedDisk:
        """The power goes, and comes back: all processes are dead, and what was not synced is a matter of luck."""
        machine = self._machine
        folders = {path: _Folder() for path in machine.folders}
        survivors: dict[int, _Inode] = {}
        for path, folder in machine.folders.items():
            names = folder.after_power_loss(rng)
            for inode in names.values():
                if id(inode) not in survivors:
                    content = inode.after_power_loss(rng)
                    survivors[id(inode)] = _Inode(bytearray(content), content, content)
            folders[path].platter = {name: survivors[id(inode)] for name, inode in names.items()}
            folders[path].live = dict(folders[path].platter)
        for process in machine.processes:
            process.dead = True
        return SimulatedDisk(_Machine(folders=folders, boots=machine.boots + 1))

    def contents(self, directory: Path) -> dict[str, bytes]:
        """Every file as the processes see it."""
        return {name: bytes(inode.live) for name, inode in self._folder(directory).live.items()}

    # -- for its files and locks --------------------------------------------------------------------------------------

    @property
    def locks(self) -> dict[Path, SimulatedLock]:
        return self._machine.locks

    def refuse_if_dead(self) -> None:
        if self.dead:
            raise SimulatedCrash

    def step(self, kind, act, partly=lambda rng: None) -> None:  # type: ignore[no-untyped-def]
        """Do one operation, or let it fail. `partly` is what may be left of one that failed."""
        self.refuse_if_dead()
        number = self.operations
        self.operations += 1
        fault = self._fault if self._fault is not None and number >= self._fault_at else None
        if fault is not None and not (kind in _UNFAILING and fault in (Fault.NO_SPACE, Fault.BROKEN)):
            self._fault = None
            self.fault_hit = True
            if fault is Fault.CRASH_BEFORE:
                if kind == "write":
                    partly(self._rng)
                self.kill()
                raise SimulatedCrash
            if fault is Fault.CRASH_AFTER:
                act()
                self.kill()
                raise SimulatedCrash
            partly(self._rng)
            code = errno.ENOSPC if fault is Fault.NO_SPACE else errno.EIO
            raise OSError(code, f"simulated: {fault.value} at {kind}")
        act()

    def _folder(self, path: Path) -> _Folder:
        self.refuse_if_dead()
        if path not in self._machine.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(path))
        return self._machine.folders[path]

    def _inode(self, path: Path) -> _Inode:
        folder = self._folder(path.parent)
        if path.name not in folder.live:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return folder.live[path.name]


# A full or failing disk still forgets names and shortens files.
_UNFAILING = ("remove", "truncate")


class SimulatedFile:
    """An open file of a simulated disk."""

    def __init__(self, disk: SimulatedDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        content = b"".join(bytes(memoryview(buffer)) for buffer in buffers)
        inode = self._inode

        def partly(rng: random.Random) -> None:
            # The operating system takes whole pages or nothing of a small write; half of a large one.
            done = rng.choice([0, len(content) // SECTOR * SECTOR, rng.randint(0, len(content))])
            if len(content) > SECTOR // 2 and done:
                inode.do(_Write(position, content[:done]))

        self._disk.step("write", lambda: inode.do(_Write(position, content)), partly)

    def check_writable(self) -> None:
        self._disk.refuse_if_dead()

    def sync(self) -> None:
        self._disk.step("sync", self._inode.sync, self._inode.fail_to_sync)

    def truncate(self, size: int) -> None:
        self._disk.refuse_if_dead()
        if size != len(self._inode.live):
            self._disk.step("truncate", lambda: self._inode.do(_Truncate(size)))

    def size(self) -> int:
        self._disk.refuse_if_dead()
        return len(self._inode.live)

    def view(self, start: int, length: int) -> pa.Buffer:
        self._disk.refuse_if_dead()
        return pa.py_buffer(bytes(self._inode.live[start : start + length]))

    def close(self) -> None:
        """Always possible, also for the dead."""


class SimulatedLock:
    """Checks that nobody enters twice. Nobody waits: the tests have one thread, so waiting would be for ever."""

    def __init__(self, disk: SimulatedDisk, path: Path) -> None:
        self.disk = disk
        self._path = path

    def acquire(self, *, shared: bool = False, timeout: float = 30.0) -> None:
        self.disk.refuse_if_dead()
        if self._path in self.disk.locks:
            raise UnavailableError(f"{self._path}: locked")
        self.disk.locks[self._path] = self

    def release(self) -> None:
        if self.disk.locks.get(self._path) is self:
            del self.disk.locks[self._path]

    def is_removed(self) -> bool:
        return False

    def close(self) -> None:
        self.release()
