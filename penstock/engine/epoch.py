"""A running instance of an app: one epoch after the other, each in four steps.

1. **Plan.** Choose the next cut and write it down. A retry reads the same rows at the same time.
2. **Run.** Spark runs the whole graph over the rows between the cuts. Tasks write only new files: the runs of states
   and of views.
3. **Publish.** What lies outside takes its changes together with the number of the epoch: a repeat changes nothing, and
   an instance that was replaced is refused.
4. **Commit.** Write down which files are the states and the views now: the one moment at which the app moves. Then what
   is no longer needed can go.

After a crash the next instance takes a higher token and runs the epoch that was planned and not committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.contracts import Changes, Log, ReadOffset
from penstock.engine.build.graph import NodeState
from penstock.engine.ledger.gaps import gaps_error, unknown_gaps
from penstock.engine.ledger.garbage import Garbage
from penstock.engine.ledger.instances import InstanceMark
from penstock.engine.ledger.records import (
    Account,
    Commit,
    Dead,
    EpochChanges,
    EpochPlan,
    Gap,
    GroupWatermarks,
    ViewChangeFiles,
)
from penstock.engine.ledger.registration import (
    HeldRows,
    Registration,
    cuts_of,
    lowest_positions,
    positions_of,
    rows_of,
)
from penstock.engine.ledger.savepoints import Savepoints
from penstock.engine.operators.contract import WEIGHT
from penstock.engine.plan.cut import Cut, Ends
from penstock.engine.plan.next_cut import next_cut, rows_in, times_after, topics_in
from penstock.engine.progress import Progress, Totals
from penstock.engine.publish.measured import Measured, Published
from penstock.engine.publish.side_topics import SIDE_TOPICS, as_added, dead_rows, late_rows
from penstock.engine.publish.targets import close_targets, drop_old_tables
from penstock.engine.resume.app_state import AppState, has_arrived
from penstock.engine.resume.decide import Found, decide_pending, replaced_inputs
from penstock.engine.resume.start import StartOptions, start
from penstock.engine.resume.track import Track
from penstock.engine.run.compiled import CompiledPlan, EpochInput, EpochResult, staged_batches
from penstock.engine.run.dead import MOST_ROUNDS, bad_row_error, find_dead, find_failing_output, merge_dead
from penstock.engine.run.failures import (
    FAILURES,
    EpochStoppedError,
    SparkLostError,
    is_evaluation,
    plain_failure,
    reason,
)
from penstock.engine.run.lost import Losses
from penstock.errors import FencedError, PenstockError, RangeError, TooMuchError, UnknownOutcomeError
from penstock.flow import plan as flow
from penstock.flow.names import dead_topic, late_topic
from penstock.flow.settings import AppSettings
from penstock.units import NO_TIME

_LOGGER = logging.getLogger(__name__)
ChangesByName = Mapping[str, Iterable[Changes]]
Clock = Callable[[], int]
"""Microseconds since 1970."""


def wall_clock() -> int:
    return time.time_ns() // 1000


class Instance:
    """One instance of an app. `step` runs an epoch; use it as a context manager, or call `close`.

    `rebuild` builds all views again from the log. With `from_oldest` it does without rows that the log no longer has,
    and records the gap. `compiled` is this plan as an earlier instance has built it.
    `reached` is called with the name of each step when it is done ('plan', 'run', 'publish', 'commit'): tests crash
    there. `stopping` says whether we were told to stop, and perhaps Spark's processes too: from then on no row is
    blamed for a failure.
    """

    def __init__(
        self,
        plan: flow.Plan,
        log: Log,
        settings: AppSettings,
        spark: SparkSession,
        *,
        clock: Clock = wall_clock,
        rebuild: bool = False,
        from_oldest: bool = False,
        reached: Callable[[str], None] = lambda step: None,
        stopping: Callable[[], bool] = lambda: False,
        compiled: CompiledPlan | None = None,
    ) -> None:
        self._log = log
        self._settings = settings
        self._clock = clock
        self._reached = reached
        self._stopping = stopping
        self._from_oldest = from_oldest
        options = StartOptions(rebuild, from_oldest)
        self._app: AppState = start(plan, log, settings, spark, now=clock(), options=options, compiled=compiled)
        self._garbage = Garbage(self._app.ledger, retention=settings.change_retention)
        self._losses = Losses()
        self.totals = Totals()
        # What has run and could not be published or committed yet: it is not run again for that.
        self._unpublished: tuple[EpochPlan, EpochInput, EpochResult] | None = None
        self._old_tables_dropped = False
        self._registration = Registration(log, plan.app)
        self._mark: InstanceMark | None = None
        try:
            self._mark = InstanceMark(self._app.ledger.directory, plan.app, self.token, since=clock())
            self._read = self._register()
        except BaseException:
            self.close()
            raise

    def _register(self) -> list[ReadOffset]:
        """Have the log keep what the app has not read, from now on under this instance's token.

        Also what the last commit has not read: if this program goes no further, another one may continue from there.
        """
        ledger, last = self._app.ledger, self._app.ledger.last_commit()
        read = lowest_positions([*self._app.cuts(), *(cuts_of(last) if last else [])])
        self._registration.move(self.token, read, self._pending_rows())
        try:
            Savepoints(ledger, self._registration).settle_holds()
            self._registration.drop_holds_of_tokens(self.token)
        except PenstockError as error:  # such as a damaged hold of somebody else: then nothing is removed anywhere
            _LOGGER.warning("app '%s': old holds could not be released: %s", ledger.app, error.message)
        return read

    def _pending_rows(self) -> HeldRows:
        """The rows of a plan without a commit. They have been held since it was made, unless the app was forgotten."""
        ledger, topics = self._app.ledger, self._log.topics()
        pending = ledger.pending_plan()
        if not isinstance(pending, EpochPlan) or ledger.is_forgotten():
            return {}
        return {
            name: rows
            for name, rows in rows_of(pending).items()
            if name in topics and self._log.topic(name).id == pending.cut.sources[name].topic_id
        }

    @property
    def token(self) -> int:
        return self._app.token

    @property
    def compiled(self) -> CompiledPlan:
        """The plan as it was built, for the next instance with the same plan."""
        return self._app.whole.engine

    def accounts(self) -> dict[str, Account]:
        """What became of all events so far, by view."""
        return dict(self._app.live.accounts)

    def topics(self) -> list[str]:
        """The names of the topics that it reads."""
        return list(self._app.whole.inputs)

    def present(self) -> dict[str, Ends]:
        """Where the topics end now."""
        return {name: input_.topic.ends() for name, input_ in self._app.whole.inputs.items()}

    def has_read(self, ends: Mapping[str, Ends]) -> bool:
        """Whether all views hold everything up to there."""
        cuts = self._app.live.cut.sources
        return self._app.backfill is None and all(
            cuts[name].ends[number] >= end for name, parts in ends.items() for number, end in parts.items()
        )

    # -- one epoch ----------------------------------------------------------------------------------------------------

    def step(self) -> Progress | None:
        """Run the next epoch; None if there is nothing to do."""
        return self._step(self._plan_next_epoch)

    def finish(self) -> Progress | None:
        """Run an epoch that ends all windows, as if the input had ended; None if none is open.

        Call it when everything was read (`has_read`). Later rows are late for what it has ended.
        """
        return self._step(self._plan_final_epoch)

    def _step(self, plan_next: Callable[[], EpochPlan | None]) -> Progress | None:
        began = time.perf_counter()
        self._refuse_if_replaced()
        plan = self._plan_epoch(plan_next)  # 1
        if plan is None:
            return None
        self._reached("plan")
        track = self._app.track(plan.track)
        with self._losses.count(track.engine, self._epoch_input(track, plan)):
            plan, work, ran = self._unpublished = self._unpublished or self._run_epoch(track, plan)  # 2
        self._reached("run")
        after = self._app.after(plan, track.after(work.cut, work.after, ran))  # checks that the accounts balance
        try:
            published = self._publish(track, work, ran, after)  # 3
        except TooMuchError as error:
            if not self._plan_smaller(track, work):
                if rows_in(work.cut) > 1 and self._app.published < work.epoch:
                    raise _transaction_too_large(error, rows_in(work.cut)) from error
                raise
            return self.step()
        self._reached("publish")
        gaps = self._gaps()
        self._commit(after, plan, ran)  # 4
        self._reached("commit")
        self._app, self._unpublished = after, None
        self._drop_old_tables()
        progress = self._progress(work, track, ran, published, time.perf_counter() - began)
        return replace(progress, gaps=unknown_gaps(self._gaps(), gaps))

    def _gaps(self) -> tuple[Gap, ...]:
        last = self._app.ledger.last_commit()
        return () if last is None else last.gaps

    def _refuse_if_replaced(self) -> None:
        ledger = self._app.ledger
        if (token := ledger.token()) > self.token:
            raise self._replaced_error(token)
        if (last := ledger.last_epoch()) != self._app.epoch:
            raise UnknownOutcomeError(
                f"app '{ledger.app}': epoch {last} is committed, and this instance knows of {self._app.epoch}",
                hint="start the app again: it continues from there",
            )

    def _replaced_error(self, token: int) -> FencedError:
        return FencedError(
            f"app '{self._app.ledger.app}': instance {self.token} was replaced by instance {token}",
            hint="another instance of this app has started, or a savepoint was restored; only the newest one runs",
        )

    # -- 1 plan -------------------------------------------------------------------------------------------------------

    def _plan_epoch(self, plan_next: Callable[[], EpochPlan | None]) -> EpochPlan | None:
        """What to do next, on disk: an epoch that was not committed, or a new one. None if there is nothing to do."""
        app, pending = self._app, self._app.ledger.pending_plan()
        if pending is None:
            return plan_next()
        assert isinstance(pending, EpochPlan)  # a restore was finished by the start
        found = Found(app.ledger.last_commit(), pending, app.topics_found(), app.targets_found())
        backfill = None if app.backfill is None else app.versions_of(app.backfill)
        match decide_pending(found, app.versions_of(app.live), backfill, app.declared_sinks):
            case "run":
                return pending
            case "use up":
                sources = {name: replace(source, starts=source.ends) for name, source in app.live.cut.sources.items()}
                return self._write_plan(app.live, replace(app.live.cut, sources=sources), app.live.times)
            case "finish":
                return self._take_over_plan(pending, replaced_inputs(pending, found))
            case _:
                return plan_next()

    def _plan_final_epoch(self) -> EpochPlan | None:
        """An epoch that reads nothing and moves the time of all topics to the end of their last windows."""
        live = self._app.live
        assert self._app.backfill is None
        cut, times = live.finished_cut(self._clock())
        moves = any(time > live.times.get(group, NO_TIME) for group, time in times.items())
        return self._write_plan(live, cut, times) if moves else None

    def _plan_next_epoch(self) -> EpochPlan | None:
        while True:
            self._skip_removed_rows()
            try:
                return self._plan_after_last()
            except RangeError:
                if not self._app.unread_gaps(self._clock()):
                    raise
                # Retention has removed rows in this moment, before the plan could hold them.

    def _plan_after_last(self) -> EpochPlan | None:
        app = self._app
        track = app.backfill or app.live
        cut, times = self._next_cut(track)
        wanted = app.backfill is not None or bool(app.replaced.outputs)
        if not wanted and not rows_in(cut) and not track.closes_something(cut, times):
            return None
        return self._write_plan(track, cut, times)

    def _skip_removed_rows(self) -> None:
        """Do without rows that retention has removed before they were read, if the user wants that."""
        gaps = self._app.unread_gaps(self._clock())
        if gaps and not self._from_oldest:
            raise gaps_error(self._app.ledger.app, gaps, ())
        self._app = self._app.without(gaps)

    def _next_cut(self, track: Track) -> tuple[Cut, GroupWatermarks]:
        live, backfill = self._app.live, track is self._app.backfill
        until = live.cut.sources if backfill else None
        cut, reached = next_cut(self._log, track.inputs, track.cut, self._settings, now=self._clock(), until=until)
        times = dict(times_after(track.timed_groups(), track.times, cut, reached))
        if backfill and has_arrived(cut, live.cut):
            times |= {group: live.times[group] for group in times if group in live.times}
        return cut, times

    def _plan_smaller(self, track: Track, work: EpochInput) -> bool:
        """Plan the epoch again with half of its rows, now and from now on: it gives more than a target can take.

        Nothing of it can be seen yet, but for rows set aside, and those are identified by where they come from. False:
        it has only one, or one transaction of the log, or another target has it already.
        """
        rows = rows_in(work.cut)
        half = min(rows, self._settings.max_rows) // 2
        settings = self._settings
        while half and self._app.published < work.epoch:
            self._settings = replace(settings, max_rows=half)
            cut, times = self._next_cut(track)
            if 0 < rows_in(cut) < rows:
                _LOGGER.warning(
                    "app '%s': epochs are too large for its sinks, and have %d rows now", track.plan.app, half
                )
                self._unpublished = None
                self._clear(work)
                self._write_plan(track, cut, times)
                return True
            half //= 2
        self._settings = settings
        return False

    def _write_plan(self, track: Track, cut: Cut, times: GroupWatermarks) -> EpochPlan:
        app = self._app
        plan = EpochPlan(
            app.epoch + 1,
            self.token,
            "backfill" if track is app.backfill else "live",
            cut,
            dict(times),
            app.versions_of(track),
            app.topics_of(track),
            gaps=app.gaps,
        )
        return self._store_plan(plan)

    def _take_over_plan(self, pending: EpochPlan, inputs: Collection[str]) -> EpochPlan:
        """Make a plan of the program before one of the live outputs: some may have its epoch, and all finish it.

        `inputs` are other topics now, which it does not read.
        """
        sources = {name: source for name, source in pending.cut.sources.items() if name not in inputs}
        plan = replace(
            pending,
            token=self.token,
            cut=replace(pending.cut, sources=sources),
            times={group: time for group, time in pending.times.items() if not topics_in(group) & set(inputs)},
            outputs=self._app.versions_of(self._app.live),
        )
        return self._store_plan(plan)

    def _store_plan(self, plan: EpochPlan) -> EpochPlan:
        """Write a plan down. Until its commit the log keeps the rows that it reads as they are, so that a repeat of the
        epoch reads the same ones, whatever is compacted, expired or erased meanwhile."""
        try:
            self._registration.move(self.token, self._read, rows_of(plan))
        except FencedError:
            raise self._replaced_error(self._app.ledger.token()) from None
        self._app.ledger.write_plan(plan)
        return plan

    # -- 2 run --------------------------------------------------------------------------------------------------------

    def _run_epoch(self, track: Track, plan: EpochPlan) -> tuple[EpochPlan, EpochInput, EpochResult]:
        """Run the epoch; without rows that make it fail, which are written into its plan first."""
        where = f"app '{track.plan.app}', epoch {plan.epoch}"
        for _ in range(MOST_ROUNDS):
            work = self._epoch_input(track, plan)
            try:
                ran = track.engine.run(work)
            except FAILURES as error:
                self._clear(work)
                with self._blaming_nothing_if_stopped(where):
                    failure = plain_failure(error, where)
                    # What sinks hold of this epoch was made with its plan as it is.
                    if not is_evaluation(failure) or self._app.published >= work.epoch:
                        raise failure from error
                    plan = replace(plan, token=self.token, dead=self._find_dead(track, work, failure, error))
                self._app.ledger.write_plan(plan)
            else:
                self._stop_at_bad_row(track, work, ran)
                return plan, work, ran
        raise PenstockError(f"{where}: it keeps failing, each time on other rows")

    def _stop_at_bad_row(self, track: Track, work: EpochInput, ran: EpochResult) -> None:
        """Raise RowError if a row would be set aside and the app is to stop instead; unless sinks have the epoch."""
        if self._settings.on_bad_row != "stop" or self._app.published >= work.epoch:
            return
        if rows := dead_rows(ran.dead).to_pylist():
            self._clear(work)
            dead = {(row["topic"], row["partition"], row["offset"]): row["error"] for row in rows}
            raise bad_row_error(track.plan.app, merge_dead({}, dead))

    @contextmanager
    def _blaming_nothing_if_stopped(self, where: str) -> Iterator[None]:
        """Discard what the block finds out about a failure if we were told to stop, before it or meanwhile.

        Whoever ends a program may signal all of its processes. What fails then proves nothing about rows or functions.
        """
        self._refuse_if_stopped(where)
        try:
            yield
        finally:
            self._refuse_if_stopped(where)

    def _refuse_if_stopped(self, where: str) -> None:
        if self._stopping():
            raise EpochStoppedError(f"{where}: it was stopped", hint="the next start runs the epoch again")

    def _epoch_input(self, track: Track, plan: EpochPlan) -> EpochInput:
        return EpochInput(
            plan.epoch,
            self.token,
            replace(plan.cut, epoch=plan.epoch),
            track.states,
            track.views,
            track.times,
            plan.times,
            plan.dead,
            keep_changes=plan.track == "live" and self._settings.changes_kept_epochs > 0,
        )

    def _clear(self, work: EpochInput) -> None:
        with suppress(PenstockError, OSError):  # what matters is why the attempt failed
            self._garbage.remove_attempt(work.epoch, self.token)

    def _find_dead(self, track: Track, work: EpochInput, failure: PenstockError, error: BaseException) -> Dead:
        dead = find_dead(track.engine, track.plan, work, error)
        if dead == work.dead:  # no row is to blame
            output = find_failing_output(track.engine, track.plan, work)
            if output is None:  # it has passed
                raise SparkLostError(failure.message, hint=failure.hint) from error
            raise _over_answers(output, error) from error
        if self._settings.on_bad_row == "stop":
            raise bad_row_error(track.plan.app, dead, error) from error
        return dead

    # -- 3 publish ----------------------------------------------------------------------------------------------------

    def _publish(self, track: Track, work: EpochInput, ran: EpochResult, after: AppState) -> dict[str, Published]:
        """Give each target its changes of the epoch; what they were given. A backfill that is complete is shown."""
        built = track is self._app.backfill and after.backfill is None
        published: dict[str, Published] = {}
        try:
            for name, changes in self._changes_by_target(track, work, ran).items():
                target = Measured(self._app.targets[name])
                target.apply(work.epoch, changes, show=changes if built else ())
                published[name] = target.last
        except (FencedError, FileNotFoundError):  # whoever has replaced us has also removed what we had staged
            if (token := self._app.ledger.token()) > self.token:
                raise self._replaced_error(token) from None
            raise
        return published

    def _changes_by_target(self, track: Track, work: EpochInput, ran: EpochResult) -> dict[str, ChangesByName]:
        """By target, in the order in which they are published: its sinks or side topics, with their changes."""
        aside = self._rows_set_aside(work, ran, track)
        return {
            SIDE_TOPICS: {name: [as_added(rows)] for name, rows in aside.items() if rows.num_rows},
            **{name: _staged_changes(ran, sinks) for name, sinks in self._app.sinks_to_publish(track).items()},
        }

    def _drop_old_tables(self) -> None:
        """Once a commit says that nothing of the program before is needed, its tables go."""
        if self._old_tables_dropped or self._app.backfill is not None:
            return
        drop_old_tables(self._app.whole.plan, self._app.targets)
        self._old_tables_dropped = True

    def _rows_set_aside(self, work: EpochInput, ran: EpochResult, track: Track) -> dict[str, pa.RecordBatch]:
        """The rows that are in no view, by the topic where they are kept."""
        aside = {dead_topic(track.plan.app): dead_rows(ran.dead)}
        late = {
            (state.node, state.input): state
            for state in track.engine.states().values()
            if ran.state_counts.get(state.name, {}).get("late")
        }
        for state in late.values():
            late_offsets: dict[str, dict[int, list[int]]] = {}
            for row in self._late(track, work, state):
                late_offsets.setdefault(row["_topic"], {}).setdefault(row["_partition"], []).append(row["_offset"])
            for topic, offsets in late_offsets.items():
                rows = late_rows(
                    track.inputs[topic].topic,
                    offsets,
                    late_for=track.outputs_of(state.node),
                    watermark=work.watermark_before(state) + state.delay,
                )
                known = aside.get(late_topic(topic))
                aside[late_topic(topic)] = rows if known is None else pa.concat_batches([known, rows])  # type: ignore[attr-defined]
        return aside

    def _late(self, track: Track, work: EpochInput, state: NodeState) -> list[dict[str, Any]]:
        try:
            return track.engine.find_late_rows(work, state)
        except FAILURES as error:
            where = f"app '{track.plan.app}', late rows of epoch {work.epoch}"
            with self._blaming_nothing_if_stopped(where):
                raise plain_failure(error, where) from error

    # -- 4 commit -----------------------------------------------------------------------------------------------------

    def _commit(self, after: AppState, plan: EpochPlan, ran: EpochResult) -> None:
        now = self._clock()
        commit = after.to_commit(now)
        self._app.ledger.commit(commit, self._epoch_changes(after, plan, commit, ran))
        self._read = positions_of(commit)
        try:
            self._registration.move(self.token, self._read)  # the rows of the plan may change from now on
            self._garbage.collect(now)
        except PenstockError as error:  # the epoch is committed whatever comes of this
            _LOGGER.warning("app '%s': old files could not be removed: %s", after.live.plan.app, error.message)

    def _epoch_changes(self, after: AppState, plan: EpochPlan, commit: Commit, ran: EpochResult) -> EpochChanges | None:
        """What followers of views are told of the epoch: nothing of a backfill, until its views are shown."""
        if not self._settings.changes_kept_epochs:
            return None
        if plan.track == "live":
            views = {name: commit.live.views[name] for name in ran.changes}
            changes = {
                name: ViewChangeFiles(view.version, view.columns, view.key, ran.changes[name])
                for name, view in views.items()
            }
            return EpochChanges(commit.epoch, commit.committed_at, changes)
        shown = sorted(ran.views) if after.backfill is None else []
        return EpochChanges(commit.epoch, commit.committed_at, reset=tuple(shown))

    def _progress(
        self, work: EpochInput, track: Track, ran: EpochResult, published: Mapping[str, Published], seconds: float
    ) -> Progress:
        ends = {name: input_.topic.ends() for name, input_ in track.inputs.items()}
        lag = sum(ends[name][number] - end for name in ends for number, end in work.cut.sources[name].ends.items())
        rows = rows_in(work.cut)
        late = sum(counts.get("late", 0) for counts in ran.state_counts.values())
        dead = sum(counts["dead"] for counts in ran.source_counts.values())
        before = self.totals
        self.totals = Totals(before.epochs + 1, before.rows + rows, before.late + late, before.dead + dead)
        return Progress(
            work.epoch,
            rows,
            lag,
            min((moment for moment in work.after.values() if moment != NO_TIME), default=None),
            late,
            dead,
            self._app.backfill is not None,
            seconds,
            published,
            self.totals,
        )

    # -- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of everything. What was committed stays."""
        if self._mark is not None:
            self._mark.close()
        close_targets(self._app.targets)

    def __enter__(self) -> Instance:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _transaction_too_large(error: TooMuchError, rows: int) -> TooMuchError:
    return TooMuchError(
        f"{error.message}. The epoch cannot be smaller: it reads one transaction of the log, of {rows} rows",
        hint="write fewer columns or fewer rows to the sinks, or less in one transaction",
    )


def _staged_changes(ran: EpochResult, outputs: Iterable[str]) -> ChangesByName:
    """The changes of some outputs, not read until they are wanted: where others have published them, they are gone."""

    def staged(name: str) -> Iterator[Changes]:
        for batch in staged_batches(ran.staged[name]):
            yield Changes.of(batch, weight=WEIGHT)

    return {name: staged(name) for name in outputs}


def _over_answers(output: flow.Output, error: BaseException) -> PenstockError:
    kind = "view" if isinstance(output, flow.View) else "sink"
    return PenstockError(
        f"{output.location}: {kind} '{output.name}': an expression fails, and no single row is to blame: "
        f"{reason(error)}",
        hint="over the answers of groups, use functions that give null where others fail: try_divide, try_cast",
    )
