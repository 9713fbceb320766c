"""App folders of an earlier version: recognised, and upgraded so that their views are built again from the log.

In format 2 the views of an app were in a SQLite file, and its states belonged to that. Neither is used any more. Of
such a folder only three things count: how far the app has read, where it began, and what its sinks have written. These
become a commit without outputs, so that every view is built from the log and no sink writes anything twice.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from penstock.contracts import Log
from penstock.engine.ledger.codec import LEDGER_FORMAT, encode
from penstock.engine.ledger.ledger import (
    APP_NAME,
    DIRECTORIES,
    EPOCHS_DIRECTORY,
    INSTANCE_NAME,
    LOCK_NAME,
    SAVEPOINTS_DIRECTORY,
    instance_name,
)
from penstock.engine.ledger.records import (
    STAGED_DIRECTORY,
    STATE_DIRECTORY,
    Commit,
    SinkRecord,
    TrackRecord,
    padded_epoch,
)
from penstock.engine.plan.cut import Cut, SourceCut
from penstock.engine.plan.watermark import Clock, SourceTime
from penstock.errors import DamagedError, DeclarationError
from penstock.storage.document import Content, load_document, store_document
from penstock.storage.files import Disk, Files, disk_errors

OLD_FORMAT = 2
# The folder to which unused files are moved.
OLD_DIRECTORY = "format-2"
_DRAFT_NAME = "upgrade.json"
_LOGGER = logging.getLogger(__name__)


def is_old_folder(directory: Path) -> bool:
    """Whether an earlier version wrote the folder of this app."""
    files = Disk()
    if not files.exists(directory / APP_NAME):
        return False
    return bool(load_document(files, directory / APP_NAME, what="description of the app")["ledger"] == OLD_FORMAT)


def read_old_commit(directory: Path, log: Log) -> Commit | None:
    """The last commit in a folder of an earlier version, converted; None if nothing was committed."""
    files = Disk()
    epochs = directory / EPOCHS_DIRECTORY
    numbers = [int(name[:12]) for name in files.names(epochs) if name.endswith(".commit.json")]
    last = max(numbers, default=0)
    app = load_document(files, directory / APP_NAME, what="description of the app")
    _refuse_unfinished(app, last, log)
    if not last:
        return None
    path = epochs / f"{padded_epoch(last)}.commit.json"
    content = load_document(files, path, what=f"commit of epoch {last}")
    try:
        return _convert_commit(content)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(
            f"{path}: this is no commit of format {OLD_FORMAT}; {error!r}",
            hint="move the app's folder away and start the app: it builds everything again from the log",
        ) from None


def upgrade_folder(directory: Path, log: Log, token: int) -> None:
    """Upgrade a folder of an earlier version to this one. Called again after a crash, it continues.

    1. Take over: the instance with this token replaces whoever runs the app.
    2. Store a draft of the new commit, from what the old one knows.
    3. Move everything away that is no longer used.
    4. Store the new commit.
    5. Declare the folder to be of this format: from here on it is.
    """
    files = Disk()
    with disk_errors(str(directory)), closing(files.lock(directory / LOCK_NAME)) as lock:
        lock.acquire()
        if not is_old_folder(directory):
            return
        store_document(files, directory / INSTANCE_NAME, {"token": token})  # 1
        draft = directory / _DRAFT_NAME
        if not files.exists(draft):
            commit = read_old_commit(directory, log)
            store_document(files, draft, {"commit": commit and encode(commit)})  # 2
        _move_away(directory, files)  # 3
        content = load_document(files, draft, what="draft of the upgrade")["commit"]
        if content is not None:  # 4
            path = directory / EPOCHS_DIRECTORY / f"{padded_epoch(content['epoch'])}.commit.json"
            store_document(files, path, content)
        app = load_document(files, directory / APP_NAME, what="description of the app")
        store_document(files, directory / APP_NAME, {**app, "ledger": LEDGER_FORMAT})  # 5
        files.remove(draft)
    _LOGGER.warning(
        "app '%s': an earlier version wrote its folder; its views are built again from the log; old files are in %s",
        app["app"],
        directory / OLD_DIRECTORY,
    )


def _move_away(directory: Path, files: Files) -> None:
    old = directory / OLD_DIRECTORY
    files.make_directory(old)
    names = [EPOCHS_DIRECTORY, STATE_DIRECTORY, STAGED_DIRECTORY, SAVEPOINTS_DIRECTORY]
    names += ["views.sqlite", "views.sqlite-wal", "views.sqlite-shm"]
    for name in names:
        if files.exists(directory / name) and not files.exists(old / name):
            files.replace(directory / name, old / name)
    for name in DIRECTORIES:
        files.make_directory(directory / name)
    files.sync_directory(old)
    files.sync_directory(directory)


def _refuse_unfinished(app: Content, last: int, log: Log) -> None:
    """Sinks may have written the epoch after the last commit. Only states that are no longer used could finish it."""
    if epoch_in_topics_before(log, app["app"], app["created"]) > last:
        raise DeclarationError(
            f"app '{app['app']}': an earlier version wrote its folder, and did not finish epoch {last + 1}",
            hint="run it once more with that version (penstock run --once), then start it with this one",
        )


@runtime_checkable
class _CountsTransactions(Protocol):
    """A log in which sinks used to be a producer of their own, whose transactions were numbered by epochs."""

    def last_transaction(self, producer: str) -> int: ...


def epoch_in_topics_before(log: Log, app: str, created: int) -> int:
    """The last epoch that topics have of an earlier version, in which the app's writer did not count; 0 for none."""
    if not isinstance(log, _CountsTransactions):
        return 0
    return max(0, log.last_transaction(f"{instance_name(app)}.sinks.{created}"))


def _convert_commit(content: Content) -> Commit:
    document = content["document"]
    cut = _convert_cut(document["cut"])
    return Commit(
        content["epoch"],
        content["token"],
        content["committed_at"],
        TrackRecord(replace(cut, epoch=content["epoch"]), document["times"]),
        written={name: SinkRecord(**item) for name, item in document["written"].items()},
        origins={topic: _convert_offsets(item) for topic, item in document["origins"].items()},
    )


def _convert_cut(content: Content) -> Cut:
    return Cut(
        content["epoch"],
        content["wall"],
        {name: _convert_source(source) for name, source in content["sources"].items()},
    )


def _convert_source(content: Content) -> SourceCut:
    time = content["time"]
    return SourceCut(
        content["topic"],
        content["topic_id"],
        _convert_offsets(content["starts"]),
        _convert_offsets(content["ends"]),
        None if time is None else _convert_time(time),
    )


def _convert_time(content: Content) -> SourceTime:
    producers = {int(producer): Clock(*times) for producer, times in content["producers"].items()}
    return SourceTime(content["watermark"], producers, content["quiet_until"])


def _convert_offsets(content: Content) -> dict[int, int]:
    return {int(number): offset for number, offset in content.items()}
