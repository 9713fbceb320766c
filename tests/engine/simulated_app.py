"""An app without Spark on the simulated disk: it plans, writes runs, publishes and commits, and can be crashed.

Its state is a number. Every epoch adds to it what its plan says, and its views show it, so that whatever was lost,
doubled or mixed up shows as a wrong sum.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from penstock.engine.ledger.garbage import Garbage
from penstock.engine.ledger.ledger import Ledger, open_ledger
from penstock.engine.ledger.records import Commit, EpochPlan
from penstock.engine.ledger.savepoints import Savepoints
from penstock.engine.state.run import RunFile
from penstock.errors import FencedError
from penstock.log.files import write_durably
from tests.log.simulated import SimulatedDisk

APP = Path("log/apps/shop")
STATE = "sum-1"


class FolderDisk(SimulatedDisk):
    """The simulated disk, with folders among the names in a folder."""

    def names(self, directory: Path) -> list[str]:
        folders = {path.name for path in self._machine.folders if path.parent == directory}
        return sorted({*super().names(directory), *folders})

    def another_process(self) -> FolderDisk:
        return FolderDisk(self._machine)

    def crash(self, rng: random.Random) -> FolderDisk:
        return FolderDisk(super().crash(rng)._machine)


def new_disk() -> FolderDisk:
    disk = FolderDisk()
    for folder in (Path("."), APP.parent.parent):
        disk.make_directory(folder)
    return disk


def opened(disk: SimulatedDisk, *, state_partitions: int = 2) -> Ledger:
    return open_ledger(APP, "shop", state_partitions=state_partitions, created=1, files=disk)


class SimulatedViews:
    """A view store in one file that changes as a whole."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._path = APP / "views.sqlite"

    def content(self) -> dict[str, int]:
        if not self._disk.exists(self._path):
            return {"epoch": 0, "token": 0, "sum": 0}
        content: dict[str, int] = json.loads(self._disk.read(self._path))
        return content

    def take_over(self, token: int) -> int:
        content = self.content()
        if content["token"] >= token:
            raise FencedError("replaced")
        self._write({**content, "token": token})
        return content["epoch"]

    def apply(self, epoch: int, token: int, total: int) -> None:
        content = self.content()
        if content["token"] != token:
            raise FencedError("replaced")
        if content["epoch"] != epoch:
            assert content["epoch"] == epoch - 1, "an epoch was left out"
            self._write({"epoch": epoch, "token": token, "sum": total})

    def epoch(self) -> int | None:
        return self.content()["epoch"] if self._disk.exists(self._path) else None

    def copy_out(self, target: Path) -> int | None:
        if not self._disk.exists(self._path):
            return None
        content = self.content()
        file = self._disk.open(target, create=True)
        file.truncate(0)
        file.write_at(0, [json.dumps(content).encode()])
        return content["epoch"]

    def put_back(self, source: Path, *, epoch: int, token: int) -> None:
        self._write({**json.loads(self._disk.read(source)), "epoch": epoch, "token": token})

    def _write(self, content: dict[str, int]) -> None:
        write_durably(self._disk, self._path, json.dumps(content).encode())


class Instance:
    """One running instance of the app, in a process of its own."""

    def __init__(self, disk: SimulatedDisk, token: int, rng: random.Random) -> None:
        self.disk = disk
        self.token = token
        self._rng = rng
        self.ledger = opened(disk)
        self.views = SimulatedViews(disk)
        self.savepoints = Savepoints(self.ledger, self.views, pause=lambda: None)
        self.garbage = Garbage(self.ledger, keep=2)

    def life(self) -> Iterator[str]:
        """What it does, step by step, for ever; the name of each step that it has just done."""
        self.ledger.take_over(self.token)
        yield "taken over"
        self.savepoints.finish_restore(self.token, restored_at=0)
        yield "restore finished"
        self.views.take_over(self.token)
        yield "views taken over"
        pending = self.ledger.pending_plan()
        while True:
            plan = pending or EpochPlan(self.ledger.last_epoch() + 1, self.token, {"add": self._rng.randint(1, 1000)})
            if pending is None:
                self.ledger.write_plan(plan)
                yield "planned"
            runs = self._run(plan)
            yield "run"
            before = total_of(self.ledger.last_commit())
            total = before + plan.document["add"]
            self.views.apply(plan.epoch, self.token, total)
            yield "published"
            document = {"before": before, "add": plan.document["add"], "sum": total}
            self.ledger.commit(Commit(plan.epoch, self.token, {STATE: {0: runs}}, document, committed_at=7))
            yield "committed"
            self.garbage.collect()
            yield "collected"
            pending = None

    def steps(self, count: int) -> list[str]:
        life = self.life()
        return [next(life) for _ in range(count)]

    def until(self, step: str, *, times: int = 1) -> None:
        life = self.life()
        for _ in range(times):
            while next(life) != step:
                pass

    def _run(self, plan: EpochPlan) -> tuple[RunFile, ...]:
        """The runs of before, of which the newest may have been merged into a new one."""
        last = self.ledger.last_commit()
        runs = last.states[STATE][0] if last else ()
        kept = runs[: self._rng.randint(0, len(runs))]
        return (*kept, store_run(self.disk, plan.epoch, self.token, self._rng.getrandbits(32)))


def store_run(disk: SimulatedDisk, epoch: int, token: int, number: int, *, partition: int = 0) -> RunFile:
    """Write a run as a task does: on disk when this returns."""
    path = f"state/{STATE}/{partition}/{epoch:012d}-{token}-{number:08x}.arrow"
    content = f"the run {number} of epoch {epoch}".encode()
    for folder in ((APP / path).parent.parent, (APP / path).parent):
        disk.make_directory(folder)
    file = disk.open(APP / path, create=True)
    file.write_at(0, [content])
    file.sync()
    disk.sync_directory((APP / path).parent)
    return RunFile(path, rows=1, bytes=len(content), crc=crc32c(content))


def total_of(commit: Commit | None) -> int:
    return commit.document["sum"] if commit else 0


def state_files(disk: SimulatedDisk) -> set[str]:
    """Every file of state, relative to the app's folder."""
    found = set()
    for folder, content in disk._machine.folders.items():
        if folder.is_relative_to(APP / "state"):
            found |= {(folder / name).relative_to(APP).as_posix() for name in content.live}
    return found


def refuse_inconsistent(disk: SimulatedDisk) -> None:
    """What must hold at every moment: runs are there, undamaged; the views are those of the last epoch or the next."""
    ledger = opened(disk)
    savepoints = Savepoints(ledger, SimulatedViews(disk))
    commit = ledger.last_commit()
    saved = [savepoints.savepoint(name).commit for name in savepoints.names()]
    for needed in [commit, *saved]:
        for run in needed.runs() if needed else ():
            assert crc32c(disk.read(APP / run.path)) == run.crc
    views = SimulatedViews(disk).content()
    last = ledger.last_epoch()
    plan = ledger.pending_plan()
    if views["epoch"] == last:
        assert views["sum"] == total_of(commit)
        return
    assert plan is not None
    assert views["epoch"] == plan.epoch == last + 1
    if plan.restores is None:
        assert views["sum"] == total_of(commit) + plan.document["add"]
