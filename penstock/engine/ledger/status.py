"""The status of apps: which run, how far behind they are, what holds them back, what they missed. Only reads.

Everything is found on disk and in the log, so it is the same from any process, whether the app runs or not. What cannot
be read of one app is said for that app, as its `problem`. Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.contracts import Log, NamesProducers, SummarisesRows, Topic
from penstock.engine.ledger.instances import RunningInstance, running_instances
from penstock.engine.ledger.ledger import APP_NAME, Ledger, StoredPlan
from penstock.engine.ledger.records import Account, BackfillRecord, Commit, EpochPlan, Gap, TrackName
from penstock.engine.ledger.registration import SAVEPOINT_KIND, app_hold
from penstock.engine.ledger.savepoints import load_savepoint, savepoint_names
from penstock.engine.plan.cut import Cut, Ends, SourceCut
from penstock.engine.plan.watermark import SourceTime
from penstock.errors import DeclarationError, PenstockError
from penstock.log import Log as EmbeddedLog
from penstock.units import NO_TIME, now_microseconds

OutputState = Literal["live", "waiting", "being built", "replaced"]


@dataclass(frozen=True, slots=True)
class ProducerStatus:
    """A producer: its name (None for rows without one), its newest event time, and when it last stored an event.

    `silent`: it has stored nothing for longer than `idle` since the last epoch, so the next epoch does not wait for it.
    """

    name: str | None
    newest: int | None
    last_append: int | None
    silent: bool = False


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """How far an app has read a topic.

    `lag` is how many offsets are unread, `oldest_unread` when the first of them was stored. `lost` are offsets that
    retention removed before they were read. `held_by` is the producer that the watermark waits for, as of the
    last epoch. `finished`: the watermark is where a run with --finish moved it. `dropped`: the topic was dropped, or
    created again under its name.
    """

    topic: str
    lag: int = 0
    oldest_unread: int | None = None
    lost: int = 0
    watermark: int | None = None
    held_by: ProducerStatus | None = None
    finished: bool = False
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class OutputStatus:
    """A view or a sink, and what happened to the events that were read for it.

    During a backfill, outputs are *being built*, or *waiting* for those until it is done. *Replaced* ones belong to the
    previous program: readers see them until the backfill is done.
    """

    name: str
    kind: Literal["view", "sink"]
    state: OutputState
    account: Account


@dataclass(frozen=True, slots=True)
class EpochStatus:
    """A committed epoch. `seconds` are from its plan to its commit, with a restart in between if there was one.

    `late` and `dead` are the most that any view or sink missed in it; None if the commit before is no longer kept.
    """

    epoch: int
    track: TrackName | None  # None for a restore
    rows: int
    committed_at: int
    seconds: float
    late: int | None
    dead: int | None
    restored_from: str | None = None


@dataclass(frozen=True, slots=True)
class BackfillStatus:
    """Outputs that are being built from the log: how many of the offsets up to the live ones they have read."""

    outputs: tuple[str, ...]
    read: int
    total: int

    @property
    def share(self) -> float:
        return self.read / self.total if self.total else 1.0


@dataclass(frozen=True, slots=True)
class SavepointStatus:
    """A savepoint. `bytes` are of all files it needs, including those it shares. `problem`: why it cannot be read."""

    name: str
    created: int | None
    epoch: int | None
    bytes: int | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class HoldStatus:
    """What the log keeps for an app or one of its savepoints, over all topics, and about how much that takes."""

    holder: str
    keeps: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class AppStatus:
    """The status of one app, all from the same commit. `running` is the instance that can commit, if there is one.

    `planned` is an epoch that is planned and not committed, and `planned_at` since when: it is being run, or if the app
    does not run, the next start runs it. `gaps` are offsets that outputs were built without, by choice. `problem` and
    `hint` say what cannot be read of the app.
    """

    app: str
    running: RunningInstance | None = None
    epoch: int = 0
    committed_at: int | None = None
    planned: int | None = None
    planned_at: int | None = None
    topics: tuple[TopicStatus, ...] = ()
    outputs: tuple[OutputStatus, ...] = ()
    epochs: tuple[EpochStatus, ...] = ()
    backfill: BackfillStatus | None = None
    savepoints: tuple[SavepointStatus, ...] = ()
    holds: tuple[HoldStatus, ...] = ()
    forgotten: bool = False
    gaps: tuple[Gap, ...] = ()
    problem: str | None = None
    hint: str | None = None

    @property
    def lag(self) -> int:
        return sum(topic.lag for topic in self.topics)

    @property
    def oldest_unread(self) -> int | None:
        return min((topic.oldest_unread for topic in self.topics if topic.oldest_unread is not None), default=None)

    @property
    def watermark(self) -> int | None:
        """That of the topic furthest behind."""
        return min((topic.watermark for topic in self.topics if topic.watermark is not None), default=None)

    @property
    def late(self) -> int:
        """The most events that any view or sink found late."""
        return max((output.account.late for output in self.outputs), default=0)

    @property
    def dead(self) -> int:
        """The most events that were dead for any view or sink."""
        return max((output.account.dead for output in self.outputs), default=0)


def app_statuses(log: Log) -> list[AppStatus]:
    """All apps that have run on a log, by name, without their last epochs, savepoints and holds."""
    try:
        names = sorted(path.name for path in log.apps_folder.iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
    return [app_status(log, name, detailed=False) for name in names]


def app_status(log: Log, app: str, *, detailed: bool = True) -> AppStatus:
    """One app. With `detailed`, also its last epochs, its savepoints and its holds, which takes longer."""
    directory = log.apps_folder / app
    running = _running(directory)
    try:
        ledger = _open_ledger(directory)
        commit, pending = ledger.last_commit(), ledger.pending_plan()
        return AppStatus(
            app,
            running,
            epoch=commit.epoch if commit else 0,
            committed_at=commit.committed_at if commit else None,
            planned=pending.epoch if pending else None,
            planned_at=pending.cut.wall if isinstance(pending, EpochPlan) else None,
            topics=tuple(_topic_statuses(log, commit)) if commit else (),
            outputs=tuple(_output_statuses(commit)) if commit else (),
            epochs=tuple(_epoch_statuses(ledger)) if detailed else (),
            backfill=_backfill_status(commit, commit.backfill) if commit and commit.backfill else None,
            savepoints=tuple(_savepoint_statuses(ledger)) if detailed else (),
            holds=tuple(_hold_statuses(log, app)) if detailed else (),
            forgotten=ledger.is_forgotten(),
            gaps=commit.gaps if commit else (),
        )
    except PenstockError as error:
        return AppStatus(app, running, problem=error.message, hint=error.hint)


def _running(directory: Path) -> RunningInstance | None:
    """The newest running instance. One that was replaced and has not noticed does not count if a newer one runs."""
    try:
        return max(running_instances(directory), key=lambda instance: instance.token, default=None)
    except (PenstockError, OSError):
        return None


def _open_ledger(directory: Path) -> Ledger:
    if not (directory / APP_NAME).exists():
        raise DeclarationError(
            f"{directory}: this app has no {APP_NAME}, so its first start did not get far enough",
            hint=f"start the app; if it does not start, {directory / 'spark.log'} may say why",
        )
    return Ledger(directory)


# -- topics -----------------------------------------------------------------------------------------------------------


def _topic_statuses(log: Log, commit: Commit) -> Iterator[TopicStatus]:
    names = log.producers() if isinstance(log, NamesProducers) else {}
    known = set(log.topics())
    for name, source in sorted(commit.live.cut.sources.items()):
        topic = log.topic(name) if name in known else None
        if topic is None or topic.id != source.topic_id:
            yield TopicStatus(name, dropped=True)
        else:
            yield _topic_status(topic, source, names)


def _topic_status(topic: Topic, source: SourceCut, names: Mapping[int, str]) -> TopicStatus:
    starts, ends = topic.starts(), topic.ends()
    read = {number: source.ends.get(number, start) for number, start in starts.items()}
    time = source.time or SourceTime()
    lag = sum(max(0, end - read[number]) for number, end in ends.items())
    return TopicStatus(
        topic.name,
        lag,
        _oldest_unread(topic, {number: max(read[number], starts[number]) for number in starts}, ends),
        sum(max(0, starts[number] - offset) for number, offset in read.items()),
        _time_or_none(time.watermark),
        _producer_status(time, names, now=None if lag else now_microseconds()),
        time.watermark != NO_TIME and time.watermark == time.finished_at,
    )


def _oldest_unread(topic: Topic, read: Ends, ends: Ends) -> int | None:
    """When the first unread row was stored. Looks at one group of rows in each partition that has any."""
    unread = (number for number, end in ends.items() if end > read[number])
    times = (_append_time(topic, number, read[number], ends[number]) for number in unread)
    return min((time for time in times if time is not None), default=None)


def _append_time(topic: Topic, number: int, start: int, end: int) -> int | None:
    if isinstance(topic, SummarisesRows):
        return next((int(found["append_time"][0]) for found in topic.summaries(number, start, end)), None)
    batch = next(topic.batches({number: start}, until={number: end}, columns=[]), None)
    return None if batch is None else batch.append_time


def _producer_status(time: SourceTime, names: Mapping[int, str], *, now: int | None) -> ProducerStatus | None:
    """`now` is None while rows are unread: they may be of this producer."""
    clock = None if time.held_by is None else time.producers.get(time.held_by)
    if time.held_by is None or clock is None:
        return None
    return ProducerStatus(
        names.get(time.held_by),
        _time_or_none(clock.max_time),
        _time_or_none(clock.last_append),
        silent=now is not None and time.held_until != NO_TIME and now > time.held_until,
    )


def _time_or_none(time: int) -> int | None:
    return None if time == NO_TIME else time


# -- outputs ----------------------------------------------------------------------------------------------------------


def _output_statuses(commit: Commit) -> Iterator[OutputStatus]:
    """By name. An output that is being built again shows once, with what readers see until then."""
    building = commit.backfill.track if commit.backfill else None
    built = building.outputs if building else {}
    views = {*commit.views, *(building.views if building else ())}
    accounts = {
        **(building.accounts if building else {}),
        **commit.replaced.accounts,
        **commit.live.accounts,
    }
    for name in sorted({*commit.live.outputs, *commit.replaced.outputs, *commit.views, *built}):
        state: OutputState = "live"
        if name in built:
            state = "being built"
        elif name not in commit.live.outputs:
            state = "replaced"
        elif building is not None:
            state = "waiting"
        yield OutputStatus(name, "view" if name in views else "sink", state, accounts.get(name, Account()))


def _backfill_status(commit: Commit, backfill: BackfillRecord) -> BackfillStatus:
    read = total = 0
    for name, source in backfill.track.cut.sources.items():
        live, origins = commit.live.cut.sources.get(name), commit.origins.get(name, {})
        for number, offset in source.ends.items():
            end = live.ends.get(number, offset) if live else offset
            first = min(origins.get(number, 0), offset)
            read += offset - first
            total += max(end, offset) - first
    return BackfillStatus(tuple(sorted(backfill.track.outputs)), read, total)


# -- epochs -----------------------------------------------------------------------------------------------------------


def _epoch_statuses(ledger: Ledger) -> Iterator[EpochStatus]:
    """The commits that are kept, the oldest first. Some may be collected while this looks: they are left out."""
    before: Commit | None = None
    for epoch in ledger.epochs_with("commit"):
        commit, plan = ledger.commit_of(epoch), ledger.plan_of(epoch)
        if commit is not None:
            yield _epoch_status(commit, plan, before)
        before = commit


def _epoch_status(commit: Commit, plan: StoredPlan | None, before: Commit | None) -> EpochStatus:
    cut = plan.cut if isinstance(plan, EpochPlan) else None
    known = before is not None or commit.epoch == 1
    return EpochStatus(
        commit.epoch,
        plan.track if isinstance(plan, EpochPlan) else None,
        0 if cut is None else _rows_in(cut),
        commit.committed_at,
        0.0 if cut is None else max(0, commit.committed_at - cut.wall) / 1_000_000,
        _growth(commit, before, "late") if known else None,
        _growth(commit, before, "dead") if known else None,
        commit.restored_from,
    )


def _rows_in(cut: Cut) -> int:
    sources = cut.sources.values()
    return sum(end - source.starts.get(number, end) for source in sources for number, end in source.ends.items())


def _growth(commit: Commit, before: Commit | None, what: Literal["late", "dead"]) -> int:
    """By how much the most grew that any output missed. An output of which the commit before knows nothing is new."""
    old, new = {} if before is None else _accounts(before), _accounts(commit)
    known = [name for name in new if before is None or name in old]
    return max((getattr(new[name], what) - getattr(old.get(name, Account()), what) for name in known), default=0)


def _accounts(commit: Commit) -> Mapping[str, Account]:
    return commit.backfill.track.accounts if commit.backfill else commit.live.accounts


# -- savepoints and holds ---------------------------------------------------------------------------------------------


def _savepoint_statuses(ledger: Ledger) -> Iterator[SavepointStatus]:
    for name in savepoint_names(ledger):
        try:
            savepoint = load_savepoint(ledger, name)
        except PenstockError as error:
            yield SavepointStatus(name, None, None, None, error.message)
        else:
            size = sum(run.bytes for run in savepoint.commit.runs())
            yield SavepointStatus(name, savepoint.created, savepoint.commit.epoch, size)


def _hold_statuses(log: Log, app: str) -> Iterator[HoldStatus]:
    """Only the embedded log tells what it keeps."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for kept in log.kept() if isinstance(log, EmbeddedLog) else ():
        if kept.rows and (kept.holder == app_hold(app) or kept.holder.startswith(f"{SAVEPOINT_KIND}:{app}:")):
            rows, size = sums.get((kept.holder, kept.keeps), (0, 0))
            sums[kept.holder, kept.keeps] = rows + kept.rows, size + kept.bytes
    for (holder, keeps), (rows, size) in sums.items():
        yield HoldStatus(holder, keeps, rows, size)
