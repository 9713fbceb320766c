"""An app without Spark on the simulated disk: it plans, writes runs, and commits, and can be crashed.

Its state is a number. Every epoch adds to it as many as its cut reads, and leaves a run of its view that shows the sum,
so that whatever was lost, doubled or mixed up shows as a wrong sum.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from crc32c import crc32c

from penstock.contracts import Hold, ReadOffset
from penstock.engine.ledger.garbage import Garbage
from penstock.engine.ledger.ledger import Ledger, open_ledger
from penstock.engine.ledger.records import (
    Commit,
    EpochChanges,
    EpochPlan,
    StoredView,
    TrackRecord,
    ViewChangeFiles,
)
from penstock.engine.ledger.registration import HeldRows, Registration, cuts_of, lowest_positions, positions_of
from penstock.engine.ledger.savepoints import Savepoints
from penstock.engine.plan.cut import Cut, SourceCut
from penstock.engine.state.run import RunFile
from penstock.errors import DamagedError
from penstock.flow.settings import ChangeRetention
from penstock.log.holds import Holds
from tests.log.simulated import SimulatedDisk

APP = Path("log/apps/shop")
STATE = "sum-1"
VIEW = "totals"
VERSION = "said.0"
COLUMNS = "total bigint"
CHANGES_KEPT = ChangeRetention(epochs=3)


class SimulatedHolds:
    """The holds of a log on the simulated disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._holds = Holds(disk, APP.parent.parent)

    def hold(self, name: str, ranges: HeldRows, *, read: Sequence[ReadOffset] = (), token: int = 0) -> None:
        assert not ranges
        with self._holds.locked():
            self._holds.place(name, [], read=read, token=token)

    def release(self, name: str) -> None:
        self._holds.release(name)

    def holds(self) -> list[Hold]:
        with self._holds.locked():
            return self._holds.all()


def savepoints_of(ledger: Ledger, disk: SimulatedDisk) -> Savepoints:
    return Savepoints(ledger, Registration(SimulatedHolds(disk), "shop"))


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


# -- records ----------------------------------------------------------------------------------------------------------


def cut_of(epoch: int, start: int, end: int) -> Cut:
    return Cut(epoch, 7, {"numbers": SourceCut("numbers", "id-1", {0: start}, {0: end}, None)})


def plan_of(epoch: int, token: int, start: int = 0, end: int = 0) -> EpochPlan:
    """An epoch that reads these numbers."""
    return EpochPlan(epoch, token, "live", cut_of(epoch, start, end), {}, {VIEW: VERSION}, {})


def commit_of(plan: EpochPlan, token: int, runs: Mapping[int, tuple[RunFile, ...]], *views: RunFile) -> Commit:
    """What a planned epoch leaves: these runs of the state, and of the view."""
    view = StoredView(VERSION, COLUMNS, None, "appended", {0: views} if views else {})
    live = TrackRecord(plan.cut, plan.times, plan.outputs, {STATE: runs}, {VIEW: view})
    return Commit(plan.epoch, token, committed_at=7, live=live)


def total_of(commit: Commit | None) -> int:
    return commit.live.cut.sources["numbers"].ends[0] if commit else 0


def total_before(commit: Commit) -> int:
    return commit.live.cut.sources["numbers"].starts[0]


# -- running ----------------------------------------------------------------------------------------------------------


class Instance:
    """One running instance of the app, in a process of its own."""

    def __init__(self, disk: SimulatedDisk, token: int, rng: random.Random) -> None:
        self.disk = disk
        self.token = token
        self._rng = rng
        self._files = 0
        self.ledger = opened(disk)
        self.registration = Registration(SimulatedHolds(disk), "shop")
        self.savepoints = Savepoints(self.ledger, self.registration)
        self.garbage = Garbage(self.ledger, keep=2, retention=CHANGES_KEPT)

    def life(self) -> Iterator[str]:
        """What it does, step by step, for ever; the name of each step that it has just done."""
        self.ledger.take_over(self.token)
        yield "taken over"
        self.savepoints.finish_restore(self.token, restored_at=0)
        yield "restore finished"
        pending, last = self.ledger.pending_plan(), self.ledger.last_commit()
        self.registration.move(self.token, lowest_positions(cuts_of(last) if last else [cut_of(0, 0, 0)]))
        self.savepoints.settle_holds()
        yield "registered"
        while True:
            plan, pending = pending, None
            if plan is None:
                epoch, before = last.epoch if last else 0, total_of(last)
                plan = plan_of(epoch + 1, self.token, before, before + self._rng.randint(1, 1000))
                self.ledger.write_plan(plan)
                yield "planned"
            assert isinstance(plan, EpochPlan)
            last, changes = self._run(plan, last)
            yield "run"
            self.ledger.commit(last, changes)
            yield "committed"
            self.registration.move(self.token, positions_of(last))
            yield "position moved"
            self.garbage.collect(now=7)
            yield "collected"

    def steps(self, count: int) -> list[str]:
        life = self.life()
        return [next(life) for _ in range(count)]

    def until(self, step: str, *, times: int = 1) -> None:
        life = self.life()
        for _ in range(times):
            while next(life) != step:
                pass

    def _run(self, plan: EpochPlan, last: Commit | None) -> tuple[Commit, EpochChanges]:
        """The runs of before, of which the newest may have been merged into a new one, and a new one of the view."""
        runs = last.live.states[STATE][0] if last else ()
        kept = runs[: self._rng.randint(0, len(runs))]
        self._files += 2
        added = store_run(self.disk, plan.epoch, self.token, self._files)
        total = str(plan.cut.sources["numbers"].ends[0])
        view = store_view_run(self.disk, plan.epoch, self.token, self._files, total)
        changed = store_view_run(self.disk, plan.epoch, self.token, self._files + 1, "changes")
        files = ViewChangeFiles(VERSION, COLUMNS, None, (changed,))
        return commit_of(plan, self.token, {0: (*kept, added)}, view), EpochChanges(plan.epoch, 7, {VIEW: files})


def store_run(disk: SimulatedDisk, epoch: int, token: int, number: int, *, partition: int = 0) -> RunFile:
    """Write a run of the state as a task does: on disk when this returns."""
    path = f"state/{STATE}/{partition}/{epoch:012d}-{token}-{number:08x}.arrow"
    return _store(disk, path, f"the run {number} of epoch {epoch}")


def store_view_run(disk: SimulatedDisk, epoch: int, token: int, number: int, content: str) -> RunFile:
    """The same for a file of the view."""
    return _store(disk, f"views/{VIEW}/0/{epoch:012d}-{token}-{number:08x}.arrow", content)


def _store(disk: SimulatedDisk, path: str, text: str) -> RunFile:
    content = text.encode()
    for folder in ((APP / path).parent.parent, (APP / path).parent):
        disk.make_directory(folder)
    file = disk.open(APP / path, create=True)
    file.write_at(0, [content])
    file.sync()
    disk.sync_directory((APP / path).parent)
    return RunFile(path, rows=1, bytes=len(content), crc=crc32c(content))


# -- looking ----------------------------------------------------------------------------------------------------------


def shown_total(disk: SimulatedDisk, commit: Commit | None) -> int:
    """What a reader of the view sees."""
    if commit is None:
        return 0
    ((run,),) = commit.views[VIEW].runs.values()
    return int(disk.read(APP / run.path))


def run_files(disk: SimulatedDisk, kind: str = "state") -> set[str]:
    """Every file of states, or of views, relative to the app's folder."""
    found = set()
    for folder, content in disk._machine.folders.items():
        if folder.is_relative_to(APP / kind):
            found |= {(folder / name).relative_to(APP).as_posix() for name in content.live}
    return found


def refuse_inconsistent(disk: SimulatedDisk) -> None:
    """What must hold at every moment: all files are there, undamaged, and views show what the state is."""
    ledger = opened(disk)
    savepoints = savepoints_of(ledger, disk)
    commit = ledger.last_commit()
    saved = [savepoints.savepoint(name).commit for name in savepoints.names()]
    for needed in [commit, *saved]:
        for run in needed.runs() if needed else ():
            assert crc32c(disk.read(APP / run.path)) == run.crc
        assert shown_total(disk, needed) == total_of(needed)
        refuse_unregistered(disk, needed)
    for epoch in ledger.epochs_with_changes():
        changes = ledger.changes_of(epoch)
        for path in changes.paths() if changes else ():
            assert disk.exists(APP / path)


def refuse_unregistered(disk: SimulatedDisk, commit: Commit | None) -> None:
    """The log keeps at least what a commit, or a savepoint, has not read."""
    try:
        found = [position for hold in SimulatedHolds(disk).holds() for position in hold.read]
    except DamagedError:
        return  # then the log removes nothing at all
    for needed in positions_of(commit) if commit else ():
        place = needed.topic_id, needed.partition
        offsets = [position.offset for position in found if (position.topic_id, position.partition) == place]
        assert min(offsets, default=2**63) <= needed.offset, f"{needed} is not registered"
