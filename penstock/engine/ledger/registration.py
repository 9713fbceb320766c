"""What the log keeps for an app: the delete markers that it has not read, and the rows of the epoch it has planned.

An app has one hold in the log, `app:NAME`, which says how far its last commit has read; each savepoint has one of its
own, `savepoint:APP:NAME`. The ledger is the truth and holds follow it: a position goes back before a commit does, and
forward after it. So a crash leaves at worst a hold that keeps too much, which the next start mends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from penstock.engine.ledger.ledger import Ledger, instance_name
from penstock.engine.ledger.records import Commit, EpochPlan
from penstock.engine.plan.cut import Cut
from penstock.errors import DamagedError
from penstock.log import Hold, Log, ReadPosition

APP_KIND = "app"
SAVEPOINT_KIND = "savepoint"
# Longer names of holds do not fit into the name of a file.
_MOST_CHARACTERS = 230

HeldRows = Mapping[str, Mapping[int, tuple[int, int]]]
"""By topic and partition: rows from start up to end."""


class Holder(Protocol):
    """A log, as far as its holds go: see `Log.hold`, `Log.release` and `Log.holds`."""

    def hold(self, name: str, ranges: HeldRows, *, read: Sequence[ReadPosition] = (), token: int = 0) -> None: ...

    def release(self, name: str) -> None: ...

    def holds(self) -> list[Hold]: ...


class Registration:
    """The holds of one app."""

    def __init__(self, log: Holder, app: str) -> None:
        self._log = log
        self._app = app

    def move(self, token: int, read: Sequence[ReadPosition], rows: HeldRows | None = None) -> None:
        """Register how far the app has read, and hold the rows of a plan. On disk when this returns.

        FencedError if an instance with a higher token has done so.
        """
        self._log.hold(app_hold(self._app), rows or {}, read=read, token=token)

    def add_savepoint(self, savepoint: str, commit: Commit) -> None:
        self._log.hold(savepoint_hold(self._app, savepoint), {}, read=positions_of(commit))

    def drop_savepoint(self, savepoint: str) -> None:
        self._log.release(savepoint_hold(self._app, savepoint))

    def has_savepoint(self, savepoint: str) -> bool:
        """Whether a savepoint is registered. One whose hold cannot be read is not: it is to be registered again."""
        name = savepoint_hold(self._app, savepoint)
        try:
            return name in {hold.name for hold in self._log.holds()}
        except DamagedError:
            return False

    def drop_savepoints_except(self, savepoints: Iterable[str]) -> None:
        """Release what is held for savepoints that are not among these."""
        known = {savepoint_hold(self._app, savepoint) for savepoint in savepoints}
        for hold in self._log.holds():
            if hold.name.startswith(f"{SAVEPOINT_KIND}:{self._app}:") and hold.name not in known:
                self._log.release(hold.name)

    def drop_holds_of_tokens(self, before: int) -> None:
        """Release what instances of earlier versions held, each under its token."""
        prefix = f"{instance_name(self._app)}."
        for hold in self._log.holds():
            token = hold.name.removeprefix(prefix)
            if hold.name.startswith(prefix) and token.isdecimal() and int(token) < before:
                self._log.release(hold.name)


def app_hold(app: str) -> str:
    return f"{APP_KIND}:{app}"


def savepoint_hold(app: str, savepoint: str) -> str:
    name = f"{SAVEPOINT_KIND}:{app}:{savepoint}"
    if len(name) <= _MOST_CHARACTERS:
        return name
    return f"{SAVEPOINT_KIND}:{app}:{hashlib.sha256(savepoint.encode()).hexdigest()[:16]}"


def positions_of(commit: Commit) -> list[ReadPosition]:
    """How far all tracks of a commit have read at least."""
    return lowest_positions(cuts_of(commit))


def cuts_of(commit: Commit) -> list[Cut]:
    """How far the live track has read, and the backfill if there is one."""
    return [commit.live.cut, *([commit.backfill.track.cut] if commit.backfill else [])]


def lowest_positions(cuts: Iterable[Cut]) -> list[ReadPosition]:
    """By partition the position of the cut that has read the least. Topics are distinguished by their ids."""
    lowest: dict[tuple[str, int], ReadPosition] = {}
    for source in (source for cut in cuts for source in cut.sources.values()):
        for partition, end in source.ends.items():
            known = lowest.get((source.topic_id, partition))
            if known is None or end < known.offset:
                lowest[source.topic_id, partition] = ReadPosition(source.topic, source.topic_id, partition, end)
    return list(lowest.values())


def rows_of(plan: EpochPlan) -> dict[str, dict[int, tuple[int, int]]]:
    """The rows that a plan reads."""
    return {
        name: {number: (start, cut.ends[number]) for number, start in cut.starts.items()}
        for name, cut in plan.cut.sources.items()
    }


def forget_app(log: Log, ledger: Ledger | None, app: str) -> None:
    """Let the log drop what it keeps for an app that will not come back. Its savepoints stay, with their holds.

    1. Take over with a new token: a running instance is refused from now on.
    2. Write down that the app is forgotten: it can be started again only with `--rebuild`.
    3. Release its hold.
    """
    token = log.producer(instance_name(app)).epoch  # 1
    if ledger is not None:
        ledger.take_over(token)
        ledger.forget()  # 2
    log.release(app_hold(app))  # 3
