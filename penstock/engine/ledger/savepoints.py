"""Savepoints: an app as it was after one epoch, to go back to.

A savepoint is a copy of that epoch's commit, whose files are then never garbage, and of the views at the same epoch.
Topics are not part of it: what the app has written into a topic since is not taken back by a restore.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from crc32c import crc32c

from penstock.engine.ledger.ledger import SAVEPOINTS_DIRECTORY, Ledger
from penstock.engine.ledger.records import Commit, EpochPlan, commit_content, parse_commit
from penstock.engine.ledger.view_copies import Views
from penstock.errors import DamagedError, DeclarationError, UnavailableError, UnknownOutcomeError
from penstock.log.ddl import closest
from penstock.log.description import NAME_PATTERN, NAME_RULE
from penstock.log.document import load_document, store_document
from penstock.log.files import File, disk_errors

LOCK_NAME = "lock"
DOCUMENT_SUFFIX = ".json"
VIEWS_SUFFIX = ".views.sqlite"
# The views are published a moment before their epoch is committed; this is how often and how long we look.
LOOKS = 100
SECONDS_BETWEEN_LOOKS = 0.1
READ_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Seal:
    """The size and checksum of a file, by which damage is found before anything is restored."""

    bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Savepoint:
    """An app after one epoch. `created` is in microseconds since 1970; `views` is None for an app without views."""

    name: str
    created: int
    commit: Commit
    views: Seal | None


class Savepoints:
    """The savepoints of one app. Making, restoring, dropping and collecting garbage exclude one another.

    A restore is an epoch like any other, the next one, planned before anything changes. So numbers only go up, and
    a crash leaves either the app as it was or a plan that says what is to be finished:

    1. Take over with a new token: a running instance is refused from now on.
    2. Write the plan of the next epoch: "restore this savepoint". It replaces the plan of an unfinished epoch.
    3. Put the savepoint's views into the store, as of that epoch: one transaction, the same if repeated.
    4. Commit the epoch with the savepoint's states and document. The next instance goes on from there.

    After a crash behind step 2, the next instance (`finish_restore`) or another restore does steps 3 and 4.
    """

    def __init__(self, ledger: Ledger, views: Views, *, pause: Callable[[], None] | None = None) -> None:
        self._ledger = ledger
        self._files = ledger.files
        self._views = views
        self._pause = pause or (lambda: time.sleep(SECONDS_BETWEEN_LOOKS))
        self._directory = ledger.directory / SAVEPOINTS_DIRECTORY

    # -- looking ------------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return savepoint_names(self._ledger)

    def savepoint(self, name: str) -> Savepoint:
        self._refuse_unknown(name)
        return load_savepoint(self._ledger, name)

    def _refuse_unknown(self, name: str) -> None:
        known = self.names()
        if name not in known:
            there_are = f"there are {', '.join(known)}" if known else "this app has no savepoints yet"
            raise DeclarationError(
                f"savepoint '{name}': app '{self._ledger.app}' has none of this name",
                hint=closest(name, known) or there_are,
            )

    # -- making -------------------------------------------------------------------------------------------------------

    def create(self, name: str, *, created: int) -> Savepoint:
        """Keep the app as it is now, while it runs or not. The savepoint is there when its document is."""
        if not NAME_PATTERN.fullmatch(name):
            raise DeclarationError(f"savepoint '{name}': this is not a name for a savepoint", hint=NAME_RULE)
        with alone_with_savepoints(self._ledger):
            if name in self.names():
                raise DeclarationError(
                    f"savepoint '{name}': it exists already", hint="choose another name, or drop the old one first"
                )
            copy = self._views_path(name)
            try:
                epoch = self._views.copy_out(copy)
                commit = self._commit_of_views(epoch)
                views = None if epoch is None else self._sealed(copy)
                self._store(Savepoint(name, created, commit, views))
            except Exception as error:
                if self._files.exists(self._document_path(name)):
                    raise UnknownOutcomeError(
                        f"savepoint '{name}': it may or may not survive a power loss; {error}",
                        hint="drop it and make it again",
                    ) from error
                self._files.remove(copy)
                raise
        return self.savepoint(name)

    def _commit_of_views(self, epoch: int | None) -> Commit:
        """The commit of the copied epoch, for which the running instance may need a moment."""
        last = self._ledger.last_epoch()
        if last == 0:
            raise DeclarationError(
                f"app '{self._ledger.app}': it has committed no epoch yet",
                hint="run it first",
            )
        wanted = last if epoch is None else epoch
        for _ in range(LOOKS):
            commit = self._ledger.commit_of(wanted)
            if commit is not None:
                return commit
            last = self._ledger.last_epoch()
            if wanted != last + 1:
                break
            self._pause()
        raise UnavailableError(
            f"app '{self._ledger.app}': its views are at epoch {wanted}, its last commit is {last}",
            hint="start the app, so that it finishes that epoch, and try again",
        )

    def _sealed(self, copy: Path) -> Seal:
        """Have the copy on disk under its name before a document says that it is there."""
        with closing(self._files.open(copy)) as file:
            file.sync()
            seal = _seal(file)
        self._files.sync_directory(self._directory)
        return seal

    def _store(self, savepoint: Savepoint) -> None:
        views = savepoint.views and {"bytes": savepoint.views.bytes, "crc32c": savepoint.views.crc32c}
        content = {"created": savepoint.created, "commit": commit_content(savepoint.commit), "views": views}
        store_document(self._files, self._document_path(savepoint.name), content)

    # -- restoring ----------------------------------------------------------------------------------------------------

    def restore(self, name: str, new_token: Callable[[], int], *, restored_at: int) -> Commit:
        """Go back to a savepoint, in the steps above. `new_token` is called once, when nothing speaks against it."""
        with alone_with_savepoints(self._ledger):
            savepoint = self.savepoint(name)
            self._refuse_damaged(savepoint)
            self._refuse_views_without_copy(savepoint)
            # 1. A running instance is refused from now on.
            token = new_token()
            self._ledger.take_over(token)
            # 2. From here on the restore will be finished.
            plan = EpochPlan(self._ledger.last_epoch() + 1, token, restores=name)
            self._ledger.write_plan(plan)
            return self._finish(plan, savepoint, token, restored_at)

    def finish_restore(self, token: int, *, restored_at: int) -> Commit | None:
        """Finish what a crash interrupted, if there is such a thing. For an instance that has taken over the ledger,
        before it takes over the store: the views come back with the token of the restore, which is lower.
        """
        plan = self._ledger.pending_plan()
        if plan is None or plan.restores is None:
            return None
        with alone_with_savepoints(self._ledger):
            plan = self._ledger.pending_plan()
            if plan is None or plan.restores is None:
                return None
            savepoint = self.savepoint(plan.restores)
            self._refuse_damaged(savepoint)
            return self._finish(plan, savepoint, token, restored_at)

    def _finish(self, plan: EpochPlan, savepoint: Savepoint, token: int, restored_at: int) -> Commit:
        # 3. The token is that of the plan, so that the instance that finishes can still take over the store.
        if savepoint.views is not None:
            self._views.put_back(self._views_path(savepoint.name), epoch=plan.epoch, token=plan.token)
            self._files.sync_directory(self._ledger.directory)
        # 4. The next instance goes on from here.
        commit = replace(
            savepoint.commit, epoch=plan.epoch, token=token, committed_at=restored_at, restored_from=savepoint.name
        )
        self._ledger.commit(commit)
        return commit

    def _refuse_damaged(self, savepoint: Savepoint) -> None:
        for run in savepoint.commit.runs():
            self._refuse_unless_sealed(savepoint, self._ledger.directory / run.path, Seal(run.bytes, run.crc))
        if savepoint.views is not None:
            self._refuse_unless_sealed(savepoint, self._views_path(savepoint.name), savepoint.views)

    def _refuse_unless_sealed(self, savepoint: Savepoint, path: Path, seal: Seal) -> None:
        found = "the file is missing"
        if self._files.exists(path):
            with closing(self._files.open(path)) as file:
                if _seal(file) == seal:
                    return
                found = f"{file.size()} bytes with another checksum, where {seal.bytes} were written"
        raise DamagedError(
            f"savepoint '{savepoint.name}': {path} is damaged, and nothing was restored; {found}",
            hint="restore the file from a copy, or use another savepoint: penstock savepoint list",
        )

    def _refuse_views_without_copy(self, savepoint: Savepoint) -> None:
        if savepoint.views is None and self._views.epoch() is not None:
            raise DeclarationError(
                f"savepoint '{savepoint.name}': it has no views, and app '{self._ledger.app}' has some now",
                hint="move views.sqlite out of the app's folder, restore, and let the app build its views again",
            )

    # -- dropping -----------------------------------------------------------------------------------------------------

    def drop(self, name: str) -> None:
        """Forget a savepoint, also a damaged one. What only it needed goes with the next sweep."""
        with alone_with_savepoints(self._ledger):
            self._refuse_unknown(name)
            plan = self._ledger.pending_plan()
            if plan is not None and plan.restores == name:
                raise UnavailableError(
                    f"savepoint '{name}': it is being restored, unfinished", hint="start the app, which finishes it"
                )
            self._files.remove(self._document_path(name))
            self._files.sync_directory(self._directory)
            self._files.remove(self._views_path(name))

    def _document_path(self, name: str) -> Path:
        return self._directory / (name + DOCUMENT_SUFFIX)

    def _views_path(self, name: str) -> Path:
        return self._directory / (name + VIEWS_SUFFIX)


@contextmanager
def alone_with_savepoints(ledger: Ledger, *, timeout: float = 30.0) -> Iterator[None]:
    """Nobody else makes, restores or drops a savepoint, or removes garbage, in this block."""
    directory = ledger.directory / SAVEPOINTS_DIRECTORY
    with disk_errors(f"app '{ledger.app}'"), closing(ledger.files.lock(directory / LOCK_NAME)) as lock:
        lock.acquire(timeout=timeout)
        yield


def savepoint_names(ledger: Ledger) -> list[str]:
    with disk_errors(f"app '{ledger.app}'"):
        names = ledger.files.names(ledger.directory / SAVEPOINTS_DIRECTORY)
    return [name.removesuffix(DOCUMENT_SUFFIX) for name in names if name.endswith(DOCUMENT_SUFFIX)]


def load_savepoint(ledger: Ledger, name: str) -> Savepoint:
    path = ledger.directory / SAVEPOINTS_DIRECTORY / (name + DOCUMENT_SUFFIX)
    with disk_errors(f"savepoint '{name}'"):
        try:
            content = load_document(ledger.files, path, what="savepoint")
        except DamagedError:
            raise DamagedError(
                f"{path}: savepoint '{name}' is damaged",
                hint=f"restore the file from a copy, or drop it: penstock savepoint drop {name}",
            ) from None
    views = content["views"] and Seal(**content["views"])
    return Savepoint(name, content["created"], parse_commit(content["commit"]), views)


def _seal(file: File) -> Seal:
    size, checksum = file.size(), 0
    for start in range(0, size, READ_BYTES):
        checksum = crc32c(file.view(start, min(READ_BYTES, size - start)), checksum)
    return Seal(size, checksum)
