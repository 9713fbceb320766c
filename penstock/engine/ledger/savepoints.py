"""Savepoints: an app as it was after one epoch, to go back to.

A savepoint is a copy of that epoch's commit: the runs of states and views that it names are then never garbage. Topics
are not part of it: a restore does not take back what the app has written to a topic since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from crc32c import crc32c

from penstock.engine.ledger.codec import UnfitError, decode, encode
from penstock.engine.ledger.ledger import SAVEPOINTS_DIRECTORY, Ledger
from penstock.engine.ledger.records import Commit, EpochChanges, RestorePlan
from penstock.engine.ledger.registration import Registration, positions_of
from penstock.engine.state.run import RunFile
from penstock.errors import DamagedError, DeclarationError, UnavailableError, UnknownOutcomeError
from penstock.names import NAME_PATTERN, NAME_RULE
from penstock.storage.document import load_document, store_document
from penstock.storage.files import File, disk_errors
from penstock.suggest import closest

LOCK_NAME = "lock"
DOCUMENT_SUFFIX = ".json"
READ_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Savepoint:
    """An app after one epoch. `created` is in microseconds since 1970."""

    name: str
    created: int
    commit: Commit


class Savepoints:
    """The savepoints of one app. Making, restoring, dropping and collecting garbage exclude one another.

    A restore is an epoch like any other, the next one, planned before anything changes. So numbers only go up, and
    a crash leaves either the app as it was or a plan that says what is to be finished:

    1. Take over with a new token: a running instance is refused from now on.
    2. Write the plan of the next epoch: "restore this savepoint". It replaces the plan of an unfinished epoch.
    3. Register in the log that the app has read no further than the savepoint.
    4. Commit the epoch with what the savepoint's commit names. Readers see its views, and the next instance continues
       from there.

    After a crash that follows step 2, the next instance (`finish_restore`) or another restore does the rest.

    The log keeps the delete markers that a savepoint has not read: they are registered before the savepoint exists, and
    released after it is dropped. The next start (`settle_holds`) or drop repairs what a crash leaves.
    """

    def __init__(self, ledger: Ledger, registration: Registration) -> None:
        self._ledger = ledger
        self._registration = registration
        self._files = ledger.files
        self._directory = ledger.directory / SAVEPOINTS_DIRECTORY

    # -- looking ------------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return savepoint_names(self._ledger)

    def savepoint(self, name: str) -> Savepoint:
        self._refuse_unknown(name)
        return load_savepoint(self._ledger, name)

    def _refuse_unknown(self, name: str) -> None:
        names = self.names()
        if name not in names:
            listing = f"there are {', '.join(names)}" if names else "this app has no savepoints yet"
            raise DeclarationError(
                f"savepoint '{name}': app '{self._ledger.app}' has none of this name",
                hint=closest(name, names) or listing,
            )

    # -- making -------------------------------------------------------------------------------------------------------

    def create(self, name: str, *, created: int) -> Savepoint:
        """Make a savepoint of the app as it is now, whether it runs or not. It exists once its document does."""
        if not NAME_PATTERN.fullmatch(name):
            raise DeclarationError(f"savepoint '{name}': this is not a name for a savepoint", hint=NAME_RULE)
        with lock_savepoints(self._ledger):
            if name in self.names():
                raise DeclarationError(
                    f"savepoint '{name}': it exists already", hint="choose another name, or drop the old one first"
                )
            # Garbage is not collected meanwhile, so everything that the last commit names still exists.
            commit = self._register_last_commit(name)
            content = {"created": created, "commit": encode(commit)}
            try:
                store_document(self._files, self._document_path(name), content)
            except OSError as error:
                if not self._files.exists(self._document_path(name)):
                    raise
                raise UnknownOutcomeError(
                    f"savepoint '{name}': it may or may not survive a power loss; {error}",
                    hint="drop it and make it again",
                ) from error
        return self.savepoint(name)

    def _register_last_commit(self, name: str) -> Commit:
        """Have the log keep what the last commit has not read.

        If the app runs, it may commit the next epoch meanwhile and release that. Then register the next one.
        """
        while True:
            commit = self._ledger.last_commit()
            if commit is None:
                raise DeclarationError(f"app '{self._ledger.app}': it has committed no epoch yet", hint="run it first")
            self._registration.add_savepoint(name, commit)
            if self._ledger.last_epoch() == commit.epoch:
                return commit

    def settle_holds(self) -> None:
        """Register savepoints that are not, such as those of earlier versions, and release what no savepoint needs."""
        with lock_savepoints(self._ledger):
            names = self.names()
            for name in names:
                if not self._registration.has_savepoint(name):
                    with suppress(DamagedError):  # it cannot be restored, and needs nothing
                        self._registration.add_savepoint(name, load_savepoint(self._ledger, name).commit)
            self._registration.drop_savepoints_except(names)

    # -- restoring ----------------------------------------------------------------------------------------------------

    def restore(self, name: str, new_token: Callable[[], int], *, restored_at: int) -> Commit:
        """Go back to a savepoint, in the steps above. `new_token` is called once, after all checks have passed."""
        with lock_savepoints(self._ledger):
            savepoint = self.savepoint(name)
            self._refuse_damaged(savepoint)
            # 1. A running instance is refused from now on.
            token = new_token()
            self._ledger.take_over(token)
            # 2. From here on the restore will be finished.
            plan = RestorePlan(self._ledger.last_epoch() + 1, token, name)
            self._ledger.write_plan(plan)
            return self._commit_restore(plan, savepoint, token, restored_at)

    def finish_restore(self, token: int, *, restored_at: int) -> Commit | None:
        """Finish a restore that a crash interrupted, if there is one. Call it after taking over the ledger."""
        if not isinstance(self._ledger.pending_plan(), RestorePlan):
            return None
        with lock_savepoints(self._ledger):
            plan = self._ledger.pending_plan()
            if not isinstance(plan, RestorePlan):
                return None
            savepoint = self.savepoint(plan.restores)
            self._refuse_damaged(savepoint)
            return self._commit_restore(plan, savepoint, token, restored_at)

    def _commit_restore(self, plan: RestorePlan, savepoint: Savepoint, token: int, restored_at: int) -> Commit:
        self._registration.move(token, positions_of(savepoint.commit))  # 3
        commit = replace(
            savepoint.commit, epoch=plan.epoch, token=token, committed_at=restored_at, restored_from=savepoint.name
        )
        # 4. Followers of views begin again.
        self._ledger.commit(commit, EpochChanges(plan.epoch, restored_at, reset=tuple(sorted(commit.views))))
        return commit

    def _refuse_damaged(self, savepoint: Savepoint) -> None:
        """Check every run before anything changes."""
        for run in savepoint.commit.runs():
            self._refuse_unless_whole(savepoint, run)

    def _refuse_unless_whole(self, savepoint: Savepoint, run: RunFile) -> None:
        path, problem = self._ledger.directory / run.path, "the file is missing"
        if self._files.exists(path):
            with closing(self._files.open(path)) as file:
                if (file.size(), _checksum(file)) == (run.bytes, run.crc):
                    return
                problem = f"{file.size()} bytes with another checksum, where {run.bytes} were written"
        raise DamagedError(
            f"savepoint '{savepoint.name}': {path} is damaged, and nothing was restored; {problem}",
            hint="restore the file from a copy, or use another savepoint: penstock savepoint list",
        )

    # -- dropping -----------------------------------------------------------------------------------------------------

    def drop(self, name: str) -> None:
        """Drop a savepoint, even a damaged one. The next sweep removes what only it needed."""
        with lock_savepoints(self._ledger):
            if name not in self.names() and self._registration.has_savepoint(name):
                self._registration.drop_savepoint(name)  # a crash has left it
                return
            self._refuse_unknown(name)
            plan = self._ledger.pending_plan()
            if isinstance(plan, RestorePlan) and plan.restores == name:
                raise UnavailableError(
                    f"savepoint '{name}': it is being restored, unfinished", hint="start the app, which finishes it"
                )
            self._files.remove(self._document_path(name))
            self._files.sync_directory(self._directory)
            self._registration.drop_savepoint(name)

    def _document_path(self, name: str) -> Path:
        return self._directory / (name + DOCUMENT_SUFFIX)


@contextmanager
def lock_savepoints(ledger: Ledger, *, timeout: float = 30.0) -> Iterator[None]:
    """Keep others from making, restoring or dropping savepoints, and from collecting garbage, in this block."""
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
            return decode(Savepoint, {"name": name, **content})
        except DamagedError:
            raise _damaged_error(path, name) from None
        except UnfitError as error:
            raise _damaged_error(path, name, f"; {error}") from None


def _damaged_error(path: Path, name: str, detail: str = "") -> DamagedError:
    return DamagedError(
        f"{path}: savepoint '{name}' is damaged{detail}",
        hint=f"restore the file from a copy, or drop it: penstock savepoint drop {name}",
    )


def _checksum(file: File) -> int:
    size, checksum = file.size(), 0
    for start in range(0, size, READ_BYTES):
        checksum = crc32c(file.view(start, min(READ_BYTES, size - start)), checksum)
    return checksum
