"""Removing what no commit, no savepoint and no recent change needs any more. What is in doubt stays.

The cheap way, after every commit, knows from the commits which files have left; it lists only small folders. Files that
no commit ever named (of a task that failed, of an instance that was replaced) are found by listing everything, rarely.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.ledger.ledger import CHANGES_DIRECTORY, EPOCHS_DIRECTORY, SAVEPOINTS_DIRECTORY, Ledger
from penstock.engine.ledger.records import (
    STAGED_DIRECTORY,
    STATE_DIRECTORY,
    VIEWS_DIRECTORY,
    EpochChanges,
    epoch_that_wrote,
    numbered,
)
from penstock.engine.ledger.savepoints import DOCUMENT_SUFFIX, alone_with_savepoints, load_savepoint, savepoint_names
from penstock.errors import DamagedError, UnavailableError
from penstock.flow.settings import ChangeRetention

# A reader that has opened a commit still finds its files while so many follow.
KEPT_COMMITS = 8
COLLECTIONS_BETWEEN_SWEEPS = 1_000


@dataclass(frozen=True, slots=True)
class Removed:
    """What went: `files` of states and views, and `epochs` whose plan and commit are forgotten."""

    files: int = 0
    epochs: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.files + other.files, self.epochs + other.epochs)


NOTHING = Removed()


class Garbage:
    """The garbage of one app, as one of its instances sees it. What always holds:

    1. A file goes only if neither one of the last commits, nor a savepoint, nor changes that are kept name it.
    2. A file of an epoch that is not committed stays: a task may be writing it. Only an instance whose own attempt
       at the epoch has failed removes what that attempt left.
    3. Files go before the commits that named them. Changes go before their files. A crash in between loses at most the
       trace of a few files, which the next sweep finds.

    `keep` is at least 2: the commit before the last is on disk for certain, whoever wrote the last. Without a
    `retention` all changes stay: only the app itself knows for how long it wants to keep them.
    """

    def __init__(self, ledger: Ledger, *, keep: int = KEPT_COMMITS, retention: ChangeRetention | None = None) -> None:
        assert keep >= 2
        self._ledger = ledger
        self._changes = ChangeHistory(ledger, retention)
        self._files = ledger.files
        self._keep = keep
        self._until_sweep = 0
        self._paths: dict[int, frozenset[str]] = {}
        self._savepoints: dict[str, tuple[bytes, frozenset[str]]] = {}

    def collect(self, now: int) -> Removed:
        """For after a commit, at `now` in microseconds since 1970.

        Nothing is done while somebody makes or restores a savepoint: the next call does it.

        The first call sweeps: an epoch that a crash interrupted, and that has been committed now, left files. An error
        is no reason to stop the app: the commit stands, and what should have gone is still there.
        """
        with ExitStack() as held:
            try:
                held.enter_context(alone_with_savepoints(self._ledger, timeout=0))
            except UnavailableError:
                return NOTHING
            removed = self._collect_left(now)
            if self._until_sweep == 0:
                removed += self._sweep()
                self._until_sweep = COLLECTIONS_BETWEEN_SWEEPS
            self._until_sweep -= 1
            return removed

    def sweep(self, now: int) -> Removed:
        """The same, and list everything for what no commit knows of."""
        with alone_with_savepoints(self._ledger):
            return self._collect_left(now) + self._sweep()

    def remove_attempt(self, epoch: int, token: int) -> None:
        """Remove what an attempt at an epoch left that has failed: tried again and again, it would fill the disk.

        What its last tasks still leave after this is found by a sweep after the next commit.
        """
        self._until_sweep = 0
        prefix = f"{numbered(epoch)}-{token}-"
        for path in self._run_files():
            if path.name.startswith(prefix):
                self._remove(self._ledger.directory / path)
        staged = self._ledger.directory / STAGED_DIRECTORY / numbered(epoch)
        for name in self._names(staged):
            if name.startswith(f"{token}-"):
                shutil.rmtree(staged / name, ignore_errors=True)

    # -- what has left ------------------------------------------------------------------------------------------------

    def _collect_left(self, now: int) -> Removed:
        commits = self._ledger.numbers("commit")
        if not commits:
            return NOTHING
        self._remove_staged(commits[-1])
        old, kept = commits[: -self._keep], commits[-self._keep :]
        self._paths = {epoch: paths for epoch, paths in self._paths.items() if epoch in commits}
        left = self._changes.expire(commits[-1], now)
        if old or left:
            left = (left | self._named_by(old)) - self._named_by(kept) - self._changes.paths()
        if left:
            left -= self._named_by_savepoints()
        for path in left:
            self._remove(self._ledger.directory / path)
        self._forget(before=kept[0])
        return Removed(files=len(left), epochs=len(old))

    def _forget(self, *, before: int) -> None:
        """Remove the plans and commits of the epochs before this one."""
        for kind in ("plan", "commit"):
            for epoch in self._ledger.numbers(kind):
                if epoch < before:
                    self._remove(self._ledger.path_of(epoch, kind))

    def _remove_staged(self, last: int) -> None:
        directory = self._ledger.directory / STAGED_DIRECTORY
        for name in self._names(directory):
            if name.isdecimal() and int(name) <= last:
                shutil.rmtree(directory / name, ignore_errors=True)

    # -- what nobody named --------------------------------------------------------------------------------------------

    def _sweep(self) -> Removed:
        last = self._ledger.last_epoch()
        self._changes.reload()  # an app that runs beside us may have committed since
        needed = self._named_by(self._ledger.numbers("commit")) | self._named_by_savepoints() | self._changes.paths()
        removed = 0
        for path in self._run_files():
            epoch = epoch_that_wrote(path.name)
            if epoch is not None and epoch <= last and path.as_posix() not in needed:
                self._remove(self._ledger.directory / path)
                removed += 1
        self._remove_drafts(last)
        return Removed(files=removed)

    def _run_files(self) -> Iterator[Path]:
        """Every file of states and views, relative to the app's folder."""
        root = self._ledger.directory
        for kind in (STATE_DIRECTORY, VIEWS_DIRECTORY):
            for name in self._names(root / kind):
                for partition in self._names(root / kind / name):
                    folder = Path(kind, name, partition)
                    for file in self._names(root / folder):
                        yield folder / file

    def _remove_drafts(self, last: int) -> None:
        directory = self._ledger.directory / EPOCHS_DIRECTORY
        for name in self._names(directory):
            if name.endswith(".tmp") and int(name.partition(".")[0]) <= last:
                self._remove(directory / name)

    # -- what is needed -----------------------------------------------------------------------------------------------

    def _named_by(self, commits: Sequence[int]) -> frozenset[str]:
        for epoch in commits:
            if epoch not in self._paths:
                self._paths[epoch] = self._paths_of(epoch)
        return frozenset().union(*[self._paths[epoch] for epoch in commits])

    def _paths_of(self, epoch: int) -> frozenset[str]:
        try:
            commit = self._ledger.commit_of(epoch)
        except DamagedError:
            # Nobody can go back to it, so nothing is kept for it; the last one is another matter.
            if epoch == self._ledger.last_epoch():
                raise
            return frozenset()
        return commit.paths() if commit else frozenset()

    def _named_by_savepoints(self) -> frozenset[str]:
        """Read again every time, for others make and drop them; parsed only if they have changed."""
        directory = self._ledger.directory / SAVEPOINTS_DIRECTORY
        found = {}
        for name in savepoint_names(self._ledger):
            stored = self._files.read(directory / (name + DOCUMENT_SUFFIX))
            known = self._savepoints.get(name)
            if known is None or known[0] != stored:
                known = stored, load_savepoint(self._ledger, name).commit.paths()
            found[name] = known
        self._savepoints = found
        return frozenset().union(*[paths for _, paths in found.values()])

    def _names(self, directory: Path) -> list[str]:
        try:
            return self._files.names(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _remove(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._files.remove(path)


class ChangeHistory:
    """The changes of recent epochs that are kept for whoever follows a view, and when they go."""

    def __init__(self, ledger: Ledger, retention: ChangeRetention | None) -> None:
        self._ledger = ledger
        self._retention = retention
        self._kept: dict[int, EpochChanges] | None = None

    def reload(self) -> None:
        """Look again at what is on disk."""
        self._kept = None

    def paths(self) -> frozenset[str]:
        """The files that the changes which are kept name."""
        return frozenset().union(*[changes.paths() for changes in self._load().values()])

    def expire(self, last: int, now: int) -> frozenset[str]:
        """Forget what is too old, too many epochs ago or too large; the files that it named.

        The newest changes are always kept: a follower that is never further behind loses nothing.
        """
        kept = self._load()
        if last not in kept and (changes := self._ledger.changes_of(last)) is not None:
            kept[last] = changes
        first = self._first_kept(kept, last, now)
        expired = [epoch for epoch in kept if epoch < first]
        paths = frozenset().union(*[kept[epoch].paths() for epoch in expired])
        for epoch in expired:
            with suppress(FileNotFoundError):
                self._ledger.files.remove(self._ledger.changes_path(epoch))
            del kept[epoch]
        if expired:  # or a power loss would bring changes back whose files are gone
            self._ledger.files.sync_directory(self._ledger.directory / CHANGES_DIRECTORY)
        return paths

    def _first_kept(self, kept: Mapping[int, EpochChanges], last: int, now: int) -> int:
        size, first = 0, last
        if (retention := self._retention) is None:
            return min(kept, default=last)
        for epoch in sorted(kept, reverse=True):
            changes = kept[epoch]
            size += sum(file.bytes for view in changes.views.values() for file in view.files)
            too_old = changes.committed_at < now - retention.microseconds or epoch <= last - retention.epochs
            if epoch < last and (too_old or size > retention.bytes):
                break
            first = epoch
        return first

    def _load(self) -> dict[int, EpochChanges]:
        """What is on disk, read once: this instance alone adds to it and removes from it."""
        if self._kept is None:
            numbers = self._ledger.changes_numbers()
            found = {epoch: self._ledger.changes_of(epoch) for epoch in numbers if epoch <= self._ledger.last_epoch()}
            self._kept = {epoch: changes for epoch, changes in found.items() if changes is not None}
        return self._kept
