"""The ledger of an app: what each epoch reads and what it wrote, on disk before anybody relies on it.

It is in `<log>/apps/<app>/`, which may be shared storage, and knows nothing of Spark. The mechanism: one small file per
plan and per commit, written atomically under one lock, and the token of the instance that may do so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from penstock.engine.ledger.codec import LEDGER_FORMAT, READABLE_FORMATS, Record, UnfitError, decode, encode
from penstock.engine.ledger.records import (
    STAGED_DIRECTORY,
    STATE_DIRECTORY,
    VIEWS_DIRECTORY,
    Commit,
    EpochChanges,
    EpochPlan,
    RestorePlan,
    check_run_paths,
    padded_epoch,
)
from penstock.errors import ConflictError, DamagedError, DeclarationError, FencedError, UnknownOutcomeError
from penstock.names import NAME_PATTERN, NAME_RULE
from penstock.storage.document import Content, load_document, store_document
from penstock.storage.files import Disk, Files, disk_errors

APP_NAME = "app.json"
INSTANCE_NAME = "instance.json"
FORGOTTEN_NAME = "forgotten.json"
LOCK_NAME = "lock"
EPOCHS_DIRECTORY = "epochs"
SAVEPOINTS_DIRECTORY = "savepoints"
CHANGES_DIRECTORY = "changes"
_EPOCH_NAME = re.compile(r"(\d{12})\.(plan|commit)\.json")
_CHANGES_NAME = re.compile(r"(\d{12})\.json")
DIRECTORIES = (
    EPOCHS_DIRECTORY,
    STATE_DIRECTORY,
    VIEWS_DIRECTORY,
    CHANGES_DIRECTORY,
    STAGED_DIRECTORY,
    SAVEPOINTS_DIRECTORY,
)

StoredPlan = EpochPlan | RestorePlan


class Ledger:
    """The ledger of an existing app; `open_ledger` makes a new one. What always holds:

    1. After a crash at any time it opens, and the last commit is N-1 or N. What the instance that has taken over has
       read from it is on disk.
    2. After `take_over` has returned, nothing of an instance with a lower token is stored any more.
    3. Epochs are committed one after the other, each after its plan, each once: the first commit of an epoch stays.
    4. A plan is replaced only by a plan of the same epoch, and the plan of a restore only by that of another restore.
    5. Recovery only reads: doing it twice changes nothing.

    An instance calls `take_over`, then `Savepoints.finish_restore`, then runs `pending_plan` if there is one, and from
    then on `write_plan` and `commit` in turn.
    """

    def __init__(self, directory: Path, *, files: Files | None = None) -> None:
        self.directory = directory
        self.files: Files = files or Disk()
        content = self._read(directory / APP_NAME, "description of the app")
        if content is None:
            raise DeclarationError(
                f"app '{directory.name}': there is no app of this name in this log, or it has not run yet; "
                f"found no folder {directory}",
                hint="start it with app.run(), or with: penstock run FILE",
            )
        _refuse_other_format(directory, content["ledger"])
        self.app: str = content["app"]
        self.state_partitions: int = content["state_partitions"]
        self.created: int = content["created"]
        self._newest: Commit | None = None
        # A file that another process or a failed call has created may not be on disk yet.
        self._unsynced = True

    # -- reading ------------------------------------------------------------------------------------------------------

    def token(self) -> int:
        """The instance that may plan and commit; 0 before the first."""
        content = self._read(self.directory / INSTANCE_NAME, "number of the running instance")
        return 0 if content is None else int(content["token"])

    def is_forgotten(self) -> bool:
        """Whether the log no longer keeps what the last commit needs: delete markers may be missing."""
        content = self._read(self.directory / FORGOTTEN_NAME, "note that the app was forgotten")
        return content is not None and self.last_epoch() <= int(content["epoch"])

    def last_commit(self) -> Commit | None:
        while (epoch := self.last_epoch()) > 0:
            # None: so many epochs were committed meanwhile that this one was collected.
            if (commit := self.commit_of(epoch)) is not None:
                return commit
        return None

    def last_epoch(self) -> int:
        """The epoch of the last commit, from the names of files alone; 0 before the first."""
        return max(self.epochs_with("commit"), default=0)

    def commit_of(self, epoch: int) -> Commit | None:
        """The commit of an epoch; None if it is not committed, or so long ago that it was collected."""
        if self._newest is None or self._newest.epoch != epoch:
            commit = self._read_record(Commit, self.path_of(epoch, "commit"), f"commit of epoch {epoch}")
            if commit is None:
                return None
            if self._newest is not None and epoch < self._newest.epoch:
                return commit
            self._newest = commit
        return self._newest

    def pending_plan(self) -> StoredPlan | None:
        """The plan that has no commit yet: it must be run, unchanged, before any other."""
        return self.plan_of(self.last_epoch() + 1)

    def plan_of(self, epoch: int) -> StoredPlan | None:
        """The plan of an epoch; None if there is none, or so long ago that it was collected."""
        path, title = self.path_of(epoch, "plan"), f"plan of epoch {epoch}"
        content = self._read(path, title)
        if content is None:
            return None
        if "restores" in content:
            return self._decode(RestorePlan, content, path, title)
        return self._decode(EpochPlan, content, path, title)

    def epochs_with(self, kind: str) -> list[int]:
        """The epochs with a file of this kind ('plan' or 'commit'), in order; all of them are on disk."""
        directory = self.directory / EPOCHS_DIRECTORY
        with disk_errors(self._label):
            if self._unsynced:
                self.files.sync_directory(directory)
                self._unsynced = False
            matches = [_EPOCH_NAME.fullmatch(name) for name in self.files.names(directory)]
        return [int(match[1]) for match in matches if match and match[2] == kind]

    def path_of(self, epoch: int, kind: str) -> Path:
        return self.directory / EPOCHS_DIRECTORY / f"{padded_epoch(epoch)}.{kind}.json"

    def epochs_with_changes(self) -> list[int]:
        """The epochs whose changes are kept, in order; perhaps one that is not committed yet."""
        with disk_errors(self._label):
            matches = [_CHANGES_NAME.fullmatch(name) for name in self.files.names(self.directory / CHANGES_DIRECTORY)]
        return [int(match[1]) for match in matches if match]

    def changes_of(self, epoch: int) -> EpochChanges | None:
        """What a committed epoch changed in the views; None if its changes are not kept, or no longer."""
        return self._read_record(EpochChanges, self.changes_path(epoch), f"changes of epoch {epoch}")

    def changes_path(self, epoch: int) -> Path:
        return self.directory / CHANGES_DIRECTORY / f"{padded_epoch(epoch)}.json"

    # -- writing ------------------------------------------------------------------------------------------------------

    def take_over(self, token: int) -> None:
        """Become the instance of this app. From now on earlier instances are refused."""
        with self._lock():
            stored_token = self.token()
            if token < stored_token:
                raise self._fenced_error(token, stored_token)
            if token > stored_token:
                store_document(self.files, self.directory / INSTANCE_NAME, {"token": token})
            else:
                self.files.sync_directory(self.directory)  # a failed attempt may have left the file unsynced
            self._unsynced = True

    def forget(self, *, epoch: int | None = None) -> None:
        """Record that the log no longer keeps what the last commit needs, or that of `epoch`.

        It is valid until a later epoch is committed.
        """
        with self._lock():
            content = {"epoch": self.last_epoch() if epoch is None else epoch}
            store_document(self.files, self.directory / FORGOTTEN_NAME, content)

    def write_plan(self, plan: StoredPlan) -> None:
        """Store what the next epoch reads, before it runs. A second plan of the same epoch replaces the first."""
        content = encode(plan)
        with self._lock():
            self._refuse_replaced(plan.token)
            self._refuse_unless_next(plan.epoch)
            if isinstance(plan, EpochPlan):
                self._refuse_unfinished_restore(self.plan_of(plan.epoch))
            self._unsynced = True
            store_document(self.files, self.path_of(plan.epoch, "plan"), content)
            self._unsynced = False

    def commit(self, commit: Commit, changes: EpochChanges | None = None) -> None:
        """Store what the planned epoch wrote: from now on it is done. A repeat by the same instance changes nothing.

        `changes` are stored just before: they count once the commit is stored, and a later attempt at the epoch
        replaces or removes them. After UnknownOutcomeError it may be called again with the same commit.
        """
        check_run_paths(commit)
        content = encode(commit)
        with self._lock():
            self._refuse_replaced(commit.token)
            if commit.epoch == self.last_epoch():
                self._refuse_unless_same(content)
                return
            self._refuse_unless_next(commit.epoch)
            self._refuse_unless_planned(commit)
            self._store_changes(commit.epoch, changes)
            self._store_commit(self.path_of(commit.epoch, "commit"), content)
            self._newest = commit

    def _store_changes(self, epoch: int, changes: EpochChanges | None) -> None:
        path = self.changes_path(epoch)
        if changes is not None:
            store_document(self.files, path, encode(changes))
        elif self.files.exists(path):  # of an attempt that crashed before its commit
            self.files.remove(path)
            self.files.sync_directory(path.parent)

    def _store_commit(self, path: Path, content: Content) -> None:
        self._unsynced = True
        try:
            store_document(self.files, path, content)
        except OSError as error:
            if not self.files.exists(path):
                raise
            raise UnknownOutcomeError(
                f"{self._label}: epoch {content['epoch']} may or may not be committed; {error.strerror}",
                hint="commit it again, or open the ledger again and check",
            ) from error
        self._unsynced = False

    # -- refusing -----------------------------------------------------------------------------------------------------

    def _refuse_replaced(self, token: int) -> None:
        stored_token = self.token()
        if token < stored_token:
            raise self._fenced_error(token, stored_token)
        if token > stored_token:
            raise DeclarationError(
                f"{self._label}: instance {token} has not taken over; the last to do so was {stored_token}",
                hint="call take_over before the first epoch",
            )

    def _fenced_error(self, token: int, stored_token: int) -> FencedError:
        return FencedError(
            f"{self._label}: instance {token} was replaced by instance {stored_token}",
            hint="another instance of this app has started, or a savepoint was restored; stop this one",
        )

    def _refuse_unless_next(self, epoch: int) -> None:
        next_epoch = self.last_epoch() + 1
        if epoch != next_epoch:
            raise ConflictError(
                f"{self._label}: epoch {epoch} is not the next one; the last commit is {next_epoch - 1}",
                expected=next_epoch,
                actual=epoch,
                hint="read the last commit and plan the epoch after it",
            )

    def _refuse_unless_planned(self, commit: Commit) -> None:
        plan = self.plan_of(commit.epoch)
        if plan is None:
            raise ConflictError(
                f"{self._label}: epoch {commit.epoch} cannot be committed; it has no plan",
                expected=commit.epoch - 1,
                actual=commit.epoch,
                hint="write the plan before the epoch runs",
            )
        if (plan.restores if isinstance(plan, RestorePlan) else None) != commit.restored_from:
            self._refuse_unfinished_restore(plan)
            raise DeclarationError(f"{self._label}: epoch {commit.epoch} is no restore, by its plan")

    def _refuse_unless_same(self, content: Content) -> None:
        stored_content = self._read(self.path_of(content["epoch"], "commit"), f"commit of epoch {content['epoch']}")
        if stored_content != content:
            raise ConflictError(
                f"{self._label}: epoch {content['epoch']} was committed before, with other content",
                expected=content["epoch"] + 1,
                actual=content["epoch"],
                hint="read the last commit and continue from there",
            )

    def _refuse_unfinished_restore(self, plan: StoredPlan | None) -> None:
        if isinstance(plan, RestorePlan):
            raise DeclarationError(
                f"{self._label}: savepoint '{plan.restores}' is being restored as epoch {plan.epoch}, unfinished",
                hint=f"start the app again, or: penstock savepoint restore {plan.restores} --app {self.app}",
            )

    # -- files --------------------------------------------------------------------------------------------------------

    @property
    def _label(self) -> str:
        return f"app '{self.app}'"

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with disk_errors(self._label), closing(self.files.lock(self.directory / LOCK_NAME)) as lock:
            lock.acquire()
            yield

    def _read_record(self, kind: type[Record], path: Path, title: str) -> Record | None:
        content = self._read(path, title)
        return None if content is None else self._decode(kind, content, path, title)

    def _decode(self, kind: type[Record], content: Content, path: Path, title: str) -> Record:
        try:
            return decode(kind, content)
        except UnfitError as error:
            raise DamagedError(f"{path}: this is not the {title}; {error}", hint=_repair_hint(path)) from None

    def _read(self, path: Path, title: str) -> Content | None:
        """The content of a file; None if it does not exist."""
        with disk_errors(str(self.directory), but=FileNotFoundError):
            try:
                return load_document(self.files, path, what=title)
            except FileNotFoundError:
                return None
            except DamagedError:
                raise DamagedError(f"{path}: the {title} is damaged", hint=_repair_hint(path)) from None


def open_ledger(
    directory: Path, app: str, *, state_partitions: int, created: int, files: Files | None = None
) -> Ledger:
    """Open the ledger of an app that is being started, or make a new one."""
    check_app_name(app)
    files = files or Disk()
    with disk_errors(f"app '{app}'"):
        for folder in (directory.parent, directory):
            files.make_directory(folder)
            files.sync_directory(folder.parent)
        with closing(files.lock(directory / LOCK_NAME)) as lock:
            lock.acquire()
            if not files.exists(directory / APP_NAME):
                for name in DIRECTORIES:
                    files.make_directory(directory / name)
                content = {"ledger": LEDGER_FORMAT, "app": app, "state_partitions": state_partitions}
                store_document(files, directory / APP_NAME, {**content, "created": created})
            _declare_format(files, directory)
    ledger = Ledger(directory, files=files)
    if ledger.state_partitions != state_partitions:
        raise DeclarationError(
            f"app '{app}': its state has {ledger.state_partitions} partitions, for good; found {state_partitions}",
            hint=f"set state_partitions to {ledger.state_partitions}, or start the app under another name",
        )
    return ledger


def _declare_format(files: Files, directory: Path) -> None:
    """Have earlier versions refuse the folder before something is stored that they could not read."""
    content = load_document(files, directory / APP_NAME, what="description of the app")
    if content["ledger"] != LEDGER_FORMAT and content["ledger"] in READABLE_FORMATS:
        store_document(files, directory / APP_NAME, {**content, "ledger": LEDGER_FORMAT})


def topics_read_before(directory: Path) -> frozenset[str]:
    """The topics that the last epoch of an app has read; none if it has not run."""
    last = Ledger(directory).last_commit() if (directory / APP_NAME).exists() else None
    return frozenset() if last is None else frozenset(last.live.cut.sources)


def stored_state_partitions(directory: Path) -> int | None:
    """How many state partitions the app has, forever; None for an app that has never been started."""
    if not (directory / APP_NAME).exists():
        return None
    # Folders of earlier formats have it too.
    return int(load_document(Disk(), directory / APP_NAME, what="description of the app")["state_partitions"])


def instance_name(app: str) -> str:
    """The log's producer whose epochs are the tokens of the app's instances."""
    return f"penstock.app.{app}"


def check_app_name(app: str) -> None:
    if not NAME_PATTERN.fullmatch(app) or not NAME_PATTERN.fullmatch(instance_name(app)):
        raise DeclarationError(f"app '{app}': this is not a name for an app", hint=NAME_RULE)


def _refuse_other_format(directory: Path, version: object) -> None:
    if version not in READABLE_FORMATS:
        older = isinstance(version, int) and version < LEDGER_FORMAT
        raise DeclarationError(
            f"{directory}: the app has format {version}; this version of Penstock reads format {LEDGER_FORMAT}",
            hint="start the app with this version: it builds its views again from the log"
            if older
            else "open it with the version of Penstock that wrote it",
        )


def _repair_hint(path: Path) -> str:
    if path.name == INSTANCE_NAME:
        return "stop every instance of the app, remove the file, and start the app: it writes a new one"
    if path.parent.name == EPOCHS_DIRECTORY:
        return (
            "restore the file from a copy, or go back to a savepoint: penstock savepoint list; "
            "without one, move the app's folder away and start the app: it builds everything again from the log"
        )
    return "restore the file from a copy"
