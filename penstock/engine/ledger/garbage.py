"""Removing files that no commit, no savepoint and no recent change needs any more. In doubt, a file stays.

After every commit there is a cheap collection: it knows from the commits which files are obsolete, and lists only small
folders. Files that no commit ever named, of a failed task or a replaced instance, are found by a rare sweep that lists
everything.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from penstock.engine.ledger.erasure import OutputVersions, erased_versions, load_erasures, output_versions
from penstock.engine.ledger.ledger import CHANGES_DIRECTORY, EPOCHS_DIRECTORY, SAVEPOINTS_DIRECTORY, Ledger
from penstock.engine.ledger.records import (
    STAGED_DIRECTORY,
    STATE_DIRECTORY,
    VIEWS_DIRECTORY,
    EpochChanges,
    epoch_that_wrote,
    padded_epoch,
)
from penstock.engine.ledger.savepoints import DOCUMENT_SUFFIX, load_savepoint, lock_savepoints, savepoint_names
from penstock.errors import DamagedError, UnavailableError
from penstock.flow.settings import ChangeRetention

# A reader that has opened a commit still finds its files until this many commits have followed.
KEPT_COMMITS = 8
COLLECTIONS_BETWEEN_SWEEPS = 1_000


@dataclass(frozen=True, slots=True)
class Removal:
    """What was removed: `files` of states and views, and `epochs` with their plan and commit."""

    files: int = 0
    epochs: int = 0

    def __add__(self, other: Removal) -> Removal:
        return Removal(self.files + other.files, self.epochs + other.epochs)


NO_REMOVAL = Removal()


class Garbage:
    """The garbage of one app, as one of its instances sees it. What always holds:

    1. A file is removed only if no recent commit, no savepoint and no changes that are kept name it.
    2. A file of an epoch that is not committed stays: a task may be writing it. Only the instance whose own attempt at
       the epoch has failed removes the files of that attempt.
    3. What was built before rows were erased from a topic goes as soon as the last commit has nothing of it.
    4. Files are removed before the commits that named them, and changes before their files. After a crash in between
       a few files may be named by nothing; the next sweep finds them.

    `keep` is at least 2: the commit before the last is certainly on disk, whoever wrote the last one. Without a
    `retention` all changes stay: only the app itself knows how long it wants to keep them.
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
        self._versions: dict[int, OutputVersions] = {}

    def collect(self, now: int) -> Removal:
        """Collect garbage after a commit, at `now` in microseconds since 1970.

        Does nothing while somebody makes or restores a savepoint: the next call does the rest.

        The first call sweeps: an epoch that a crash had interrupted, and that has been committed now, has left files.
        An error is no reason to stop the app: the commit is valid, and the garbage is still there.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(lock_savepoints(self._ledger, timeout=0))
            except UnavailableError:
                return NO_REMOVAL
            removal = self._remove_obsolete(now)
            if self._until_sweep == 0:
                removal += self._sweep()
                self._until_sweep = COLLECTIONS_BETWEEN_SWEEPS
            self._until_sweep -= 1
            return removal

    def sweep(self, now: int) -> Removal:
        """Collect garbage, including files that no commit ever named."""
        with lock_savepoints(self._ledger):
            return self._remove_obsolete(now) + self._sweep()

    def remove_attempt(self, epoch: int, token: int) -> None:
        """Remove the files of a failed attempt at an epoch: tried again and again, it would fill the disk.

        Files that its last tasks write after this are found by a sweep after the next commit.
        """
        self._until_sweep = 0
        prefix = f"{padded_epoch(epoch)}-{token}-"
        for path in self._run_files():
            if path.name.startswith(prefix):
                self._remove(self._ledger.directory / path)
        staging = self._ledger.directory / STAGED_DIRECTORY / padded_epoch(epoch)
        for name in self._names(staging):
            if name.startswith(f"{token}-"):
                shutil.rmtree(staging / name, ignore_errors=True)

    # -- what is obsolete ---------------------------------------------------------------------------------------------

    def _remove_obsolete(self, now: int) -> Removal:
        commits = self._ledger.epochs_with("commit")
        if not commits:
            return NO_REMOVAL
        self._remove_staged(commits[-1])
        recent = self._without_erased(commits[-self._keep :])
        old = commits[: -len(recent)]
        self._paths = {epoch: paths for epoch, paths in self._paths.items() if epoch in commits}
        erased = len(recent) < min(self._keep, len(commits))
        obsolete = self._changes.expire(commits[-1], now, before=recent[0] if erased else 0)
        if old or obsolete:
            obsolete = (obsolete | self._paths_named_by(old)) - self._paths_named_by(recent) - self._changes.paths()
        if obsolete:
            obsolete -= self._paths_named_by_savepoints()
        for path in obsolete:
            self._remove(self._ledger.directory / path)
        self._forget(before=recent[0])
        return Removal(files=len(obsolete), epochs=len(old))

    def _without_erased(self, commits: list[int]) -> list[int]:
        """The newest commits, up to the one that may have rows which were erased from a topic; all if the last has."""
        erased = erased_versions(load_erasures(self._ledger))
        if not erased:
            return commits
        self._versions = {epoch: self._versions_of(epoch) for epoch in commits}
        kept = list(takewhile(lambda epoch: not self._versions[epoch] & erased, reversed(commits)))
        return sorted(kept) or commits

    def _versions_of(self, epoch: int) -> OutputVersions:
        if epoch in self._versions:
            return self._versions[epoch]
        try:
            commit = self._ledger.commit_of(epoch)
        except DamagedError:
            return frozenset()
        return output_versions(commit) if commit else frozenset()

    def _forget(self, *, before: int) -> None:
        """Remove the plans and commits of the epochs before this one."""
        for kind in ("plan", "commit"):
            for epoch in self._ledger.epochs_with(kind):
                if epoch < before:
                    self._remove(self._ledger.path_of(epoch, kind))

    def _remove_staged(self, last: int) -> None:
        directory = self._ledger.directory / STAGED_DIRECTORY
        for name in self._names(directory):
            if name.isdecimal() and int(name) <= last:
                shutil.rmtree(directory / name, ignore_errors=True)

    # -- what nobody named --------------------------------------------------------------------------------------------

    def _sweep(self) -> Removal:
        last = self._ledger.last_epoch()
        self._changes.reload()  # the app may run in another process, and have committed since
        by_commits = self._paths_named_by(self._ledger.epochs_with("commit"))
        needed_paths = by_commits | self._paths_named_by_savepoints() | self._changes.paths()
        count = 0
        for path in self._run_files():
            epoch = epoch_that_wrote(path.name)
            if epoch is not None and epoch <= last and path.as_posix() not in needed_paths:
                self._remove(self._ledger.directory / path)
                count += 1
        self._remove_drafts(last)
        return Removal(files=count)

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

    def _paths_named_by(self, commits: Sequence[int]) -> frozenset[str]:
        for epoch in commits:
            if epoch not in self._paths:
                self._paths[epoch] = self._paths_of(epoch)
        return frozenset().union(*[self._paths[epoch] for epoch in commits])

    def _paths_of(self, epoch: int) -> frozenset[str]:
        try:
            commit = self._ledger.commit_of(epoch)
        except DamagedError:
            # Nobody can go back to it, so nothing is kept for it. Damage to the last commit is an error.
            if epoch == self._ledger.last_epoch():
                raise
            return frozenset()
        return commit.paths() if commit else frozenset()

    def _paths_named_by_savepoints(self) -> frozenset[str]:
        """Read every time, since other processes make and drop savepoints; decoded only if they have changed."""
        directory = self._ledger.directory / SAVEPOINTS_DIRECTORY
        by_name = {}
        for name in savepoint_names(self._ledger):
            content = self._files.read(directory / (name + DOCUMENT_SUFFIX))
            entry = self._savepoints.get(name)
            if entry is None or entry[0] != content:
                entry = content, load_savepoint(self._ledger, name).commit.paths()
            by_name[name] = entry
        self._savepoints = by_name
        return frozenset().union(*[paths for _, paths in by_name.values()])

    def _names(self, directory: Path) -> list[str]:
        try:
            return self._files.names(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _remove(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._files.remove(path)


class ChangeHistory:
    """The changes of recent epochs that are kept for those who follow a view, and when they expire."""

    def __init__(self, ledger: Ledger, retention: ChangeRetention | None) -> None:
        self._ledger = ledger
        self._retention = retention
        self._changes_by_epoch: dict[int, EpochChanges] | None = None

    def reload(self) -> None:
        """Read the changes from disk again, on next use."""
        self._changes_by_epoch = None

    def paths(self) -> frozenset[str]:
        """The files that the kept changes name."""
        return frozenset().union(*[changes.paths() for changes in self._load().values()])

    def expire(self, last: int, now: int, *, before: int = 0) -> frozenset[str]:
        """Remove changes that are too old, too many epochs ago or too large; returns the files that they named.

        Those of epochs `before` some epoch go in any case: they may have rows that were erased. The newest changes are
        always kept: a follower that is never further behind misses nothing.
        """
        changes_by_epoch = self._load()
        if last not in changes_by_epoch and (changes := self._ledger.changes_of(last)) is not None:
            changes_by_epoch[last] = changes
        first = max(before, self._first_epoch_to_keep(changes_by_epoch, last, now))
        expired_epochs = [epoch for epoch in changes_by_epoch if epoch < first]
        paths = frozenset().union(*[changes_by_epoch[epoch].paths() for epoch in expired_epochs])
        for epoch in expired_epochs:
            with suppress(FileNotFoundError):
                self._ledger.files.remove(self._ledger.changes_path(epoch))
            del changes_by_epoch[epoch]
        if expired_epochs:  # or a power loss would bring back changes whose files are gone
            self._ledger.files.sync_directory(self._ledger.directory / CHANGES_DIRECTORY)
        return paths

    def _first_epoch_to_keep(self, changes_by_epoch: Mapping[int, EpochChanges], last: int, now: int) -> int:
        size, first = 0, last
        if (retention := self._retention) is None:
            return min(changes_by_epoch, default=last)
        for epoch in sorted(changes_by_epoch, reverse=True):
            changes = changes_by_epoch[epoch]
            size += sum(file.bytes for view in changes.views.values() for file in view.files)
            too_old = changes.committed_at < now - retention.microseconds or epoch <= last - retention.epochs
            if epoch < last and (too_old or size > retention.bytes):
                break
            first = epoch
        return first

    def _load(self) -> dict[int, EpochChanges]:
        """What is on disk, read once: this instance alone adds to it and removes from it."""
        if self._changes_by_epoch is None:
            by_epoch: dict[int, EpochChanges] = {}
            for epoch in self._ledger.epochs_with_changes():
                if epoch <= self._ledger.last_epoch() and (changes := self._ledger.changes_of(epoch)) is not None:
                    by_epoch[epoch] = changes
            self._changes_by_epoch = by_epoch
        return self._changes_by_epoch
