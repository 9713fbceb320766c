"""What the log keeps for an app: delete markers that it has not read, and the rows of the epoch it has planned.

An app has one hold in the log, `app:NAME`, which says how far its last commit has read; each savepoint has its own,
`savepoint:APP:NAME`. The ledger is the truth and holds follow it: a position moves back before the commit, and forward
after it. So a crash leaves at worst a hold that keeps too much, which the next start repairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from penstock.contracts import KeepsHolds, Log, ReadOffset
from penstock.engine.ledger.ledger import Ledger, instance_name
from penstock.engine.ledger.records import Commit, EpochPlan
from penstock.engine.plan.cut import Cut
from penstock.errors import DamagedError

APP_KIND = "app"
SAVEPOINT_KIND = "savepoint"
# Longer names of holds do not fit into the name of a file.
_MOST_CHARACTERS = 230

HeldRows = Mapping[str, Mapping[int, tuple[int, int]]]
"""By topic and partition: rows from a start up to an end."""


class Registration:
    """The holds of one app. A log that removes nothing has none, and then there is nothing to register."""

    def __init__(self, log: Log | KeepsHolds, app: str) -> None:
        self._log = log if isinstance(log, KeepsHolds) else None
        self._app = app

    def move(self, token: int, read: Sequence[ReadOffset], rows: HeldRows | None = None) -> None:
        """Register how far the app has read, and hold the rows of a plan. On disk when this returns.

        FencedError if an instance with a higher token has done so.
        """
        if self._log is not None:
            self._log.hold(app_hold(self._app), rows or {}, read=read, token=token)

    def add_savepoint(self, savepoint: str, commit: Commit) -> None:
        if self._log is not None:
            self._log.hold(savepoint_hold(self._app, savepoint), {}, read=positions_of(commit))

    def drop_savepoint(self, savepoint: str) -> None:
        self._release(savepoint_hold(self._app, savepoint))

    def drop_app(self) -> None:
        self._release(app_hold(self._app))

    def has_savepoint(self, savepoint: str) -> bool:
        """Whether a savepoint is registered. If its hold cannot be read it is not, and must be registered again."""
        try:
            return self._log is None or savepoint_hold(self._app, savepoint) in self._names()
        except DamagedError:
            return False

    def drop_savepoints_except(self, savepoints: Iterable[str]) -> None:
        """Release what is held for savepoints that are not among these."""
        known = {savepoint_hold(self._app, savepoint) for savepoint in savepoints}
        for name in self._names():
            if name.startswith(f"{SAVEPOINT_KIND}:{self._app}:") and name not in known:
                self._release(name)

    def drop_holds_of_tokens(self, before: int) -> None:
        """Release the holds of instances of earlier versions, each of which has a token in its name."""
        prefix = f"{instance_name(self._app)}."
        for name in self._names():
            token = name.removeprefix(prefix)
            if name.startswith(prefix) and token.isdecimal() and int(token) < before:
                self._release(name)

    def _names(self) -> list[str]:
        return [] if self._log is None else [hold.name for hold in self._log.holds()]

    def _release(self, name: str) -> None:
        if self._log is not None:
            self._log.release(name)


def app_hold(app: str) -> str:
    return f"{APP_KIND}:{app}"


def savepoint_hold(app: str, savepoint: str) -> str:
    name = f"{SAVEPOINT_KIND}:{app}:{savepoint}"
    if len(name) <= _MOST_CHARACTERS:
        return name
    return f"{SAVEPOINT_KIND}:{app}:{hashlib.sha256(savepoint.encode()).hexdigest()[:16]}"


def positions_of(commit: Commit) -> list[ReadOffset]:
    """How far all tracks of a commit have read at least."""
    return lowest_positions(cuts_of(commit))


def cuts_of(commit: Commit) -> list[Cut]:
    """How far the live track has read, and the backfill if there is one."""
    return [commit.live.cut, *([commit.backfill.track.cut] if commit.backfill else [])]


def lowest_positions(cuts: Iterable[Cut]) -> list[ReadOffset]:
    """For each partition the position of the cut that has read the least. Topics are identified by their ids."""
    lowest: dict[tuple[str, int], ReadOffset] = {}
    for source in (source for cut in cuts for source in cut.sources.values()):
        for partition, end in source.ends.items():
            current = lowest.get((source.topic_id, partition))
            if current is None or end < current.offset:
                lowest[source.topic_id, partition] = ReadOffset(source.topic, source.topic_id, partition, end)
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
    2. Record that the app is forgotten: it can be started again only with `--rebuild`.
    3. Release its hold.
    """
    token = log.writer(instance_name(app)).token  # 1
    if ledger is not None:
        ledger.take_over(token)
        ledger.forget()  # 2
    Registration(log, app).drop_app()  # 3
