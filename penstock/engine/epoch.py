"""A running instance of an app: one epoch after the other, each in four steps.

1. **Plan.** Choose the next cut and write it down. A retry reads the same rows at the same time.
2. **Run.** Spark runs the whole graph over the rows between the cuts. Tasks write only new files.
3. **Publish.** Every output takes its changes together with the number of the epoch: a repeat changes nothing, and an
   instance that was replaced is refused.
4. **Commit.** Write down which files are the state now. Then what is no longer needed can go.

After a crash the next instance takes a higher token and runs the epoch that was planned and not committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.contracts import ViewChanges
from penstock.derive.topic_sinks import TooMuchError
from penstock.engine.build.graph import StateOf
from penstock.engine.ledger.garbage import Garbage
from penstock.engine.ledger.records import Commit, EpochPlan
from penstock.engine.operators.contract import WEIGHT
from penstock.engine.plan.cut import Cut, Ends
from penstock.engine.plan.next_cut import next_cut, rows_in, times_after, topics_in
from penstock.engine.publish.accounts import Account
from penstock.engine.publish.side_topics import SideTopics, dead_rows, dead_topic, late_rows, late_topic
from penstock.engine.resume.app_state import Started, has_arrived
from penstock.engine.resume.start import start
from penstock.engine.resume.track import Line
from penstock.engine.resume.versions import can_run, others
from penstock.engine.run.compiled import Dead, Ran, Work, staged_batches
from penstock.engine.run.dead import MOST_ROUNDS, find_dead, find_failing_output
from penstock.engine.run.failures import FAILURES, SparkLostError, is_evaluation, plain_failure, reason
from penstock.engine.run.lost import Losses
from penstock.errors import FencedError, PenstockError, RowError, UnknownOutcomeError
from penstock.flow import plan as flow
from penstock.flow.settings import AppSettings
from penstock.log import Log
from penstock.log.frame import NO_TIME
from penstock.log.topic import Topic

_LOGGER = logging.getLogger(__name__)
Clock = Callable[[], int]
"""Microseconds since 1970."""


def wall_clock() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class Progress:
    """What one epoch did. `lag` is how many rows were waiting behind it, `watermark` is None where there is no time.

    `building` says that views that changed are being built again; the others stand still meanwhile.
    """

    epoch: int
    rows: int
    lag: int
    watermark: int | None
    late: int
    dead: int
    building: bool
    seconds: float


class Instance:
    """One instance of an app. `step` runs an epoch; use it as a context manager, or call `close`.

    `rebuild` builds all views again from the log. `reached` is called with the name of each step when it is done
    ('plan', 'run', 'publish', 'commit'): tests crash there.
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
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._log = log
        self._settings = settings
        self._clock = clock
        self._reached = reached
        self._app: Started = start(plan, log, settings, spark, now=clock(), rebuild=rebuild)
        self._sides = SideTopics(log, self._app.producer)
        self._garbage = Garbage(self._app.ledger)
        self._losses = Losses()
        # What has run and could not be published or committed yet: it is not run again for that.
        self._unpublished: tuple[Work, Ran] | None = None
        self._settled = False  # whether the store has only views of this program

    @property
    def token(self) -> int:
        return self._app.token

    def accounts(self) -> dict[str, Account]:
        """What became of all events so far, by view."""
        return dict(self._app.main.accounts)

    def topics(self) -> list[Topic]:
        """What it reads."""
        return [one.topic for one in self._app.whole.inputs.values()]

    def present(self) -> dict[str, Ends]:
        """Where the topics end now."""
        return {name: one.topic.ends() for name, one in self._app.whole.inputs.items()}

    def has_read(self, ends: Mapping[str, Ends]) -> bool:
        """Whether all views hold everything up to there."""
        cuts = self._app.main.cut.sources
        return self._app.building is None and all(
            cuts[name].ends[number] >= end for name, parts in ends.items() for number, end in parts.items()
        )

    # -- one epoch ----------------------------------------------------------------------------------------------------

    def step(self) -> Progress | None:
        """Run the next epoch; None if there is nothing to do."""
        began = time.perf_counter()
        self._refuse_if_replaced()
        planned = self._planned()  # 1
        if planned is None:
            return None
        line, plan = planned
        self._reached("plan")
        cut = replace(Cut.from_document(plan.document["cut"]), epoch=plan.epoch)
        times = plan.document["times"]
        work = Work(plan.epoch, self.token, cut, line.states, line.times, times, plan.document["dead"])
        with self._losses.counted(line.engine, work):
            self._unpublished = self._unpublished or self._ran(line, plan, work)  # 2
        work, ran = self._unpublished
        self._reached("run")
        after = self._app.moved(line.moved(cut, times, ran), building=plan.document["building"])
        try:
            self._publish(work, ran, line, after)  # 3
        except TooMuchError:
            if not self._cut_smaller(line, work):
                raise
            return self.step()
        self._reached("publish")
        self._commit(work, after)  # 4
        self._reached("commit")
        self._app, self._unpublished = after, None
        self._settle()
        return self._progress(work, line, ran, time.perf_counter() - began)

    def _refuse_if_replaced(self) -> None:
        ledger = self._app.ledger
        if (token := ledger.token()) > self.token:
            raise self._replaced(token)
        if (last := ledger.last_epoch()) != self._app.epoch:
            raise UnknownOutcomeError(
                f"app '{ledger.app}': epoch {last} is committed, and this instance knows of {self._app.epoch}",
                hint="start the app again: it goes on from there",
            )

    def _replaced(self, token: int) -> FencedError:
        return FencedError(
            f"app '{self._app.ledger.app}': instance {self.token} was replaced by instance {token}",
            hint="another instance of this app has started, or a savepoint was restored; only the newest one runs",
        )

    # -- 1 plan -------------------------------------------------------------------------------------------------------

    def _planned(self) -> tuple[Line, EpochPlan] | None:
        """What to do next, on disk: an epoch that was not committed, or a new one. None if nothing is to do."""
        app, pending = self._app, self._app.ledger.pending_plan()
        if pending is None:
            return self._new_plan()
        building = pending.document["building"]
        line = app.building if building else app.main
        seen = app.seen >= pending.epoch
        # While something is built, the others go on only with what its bound was worked out with.
        mine = seen or building or app.building is None
        if line is not None and mine and can_run(pending.document, app.versions_of(line), app.ids, building=building):
            return line, pending
        if not seen:
            return self._new_plan()  # what another program has planned, and nobody has seen anything of
        if not app.epoch:
            # Nothing of the first epoch of another program is left but its number, which is used up.
            sources = {name: replace(one, starts=one.ends) for name, one in app.main.cut.sources.items()}
            return app.main, self._stored(app.main, replace(app.main.cut, sources=sources), app.main.times)
        # Outputs of this program may have it already: they finish it, and it is about no others from now on.
        document = {**pending.document, "outputs": app.versions_of(app.main)}
        plan = EpochPlan(pending.epoch, self.token, _without(document, others(pending.document, app.ids)))
        app.ledger.write_plan(plan)
        return app.main, plan

    def _new_plan(self) -> tuple[Line, EpochPlan] | None:
        app = self._app
        line = app.building or app.main
        cut, times = self._next_cut(line)
        wanted = app.building is not None or bool(app.carried.outputs)
        if not wanted and not rows_in(cut) and not line.closes_something(cut, times):
            return None
        return line, self._stored(line, cut, times)

    def _next_cut(self, line: Line) -> tuple[Cut, Mapping[str, int]]:
        main, building = self._app.main, line is self._app.building
        until = main.cut.sources if building else None
        cut, reached = next_cut(self._log, line.inputs, line.cut, self._settings, now=self._clock(), until=until)
        times = dict(times_after(line.timed_groups(), line.times, cut, reached))
        if building and has_arrived(cut, main.cut):
            times |= {group: main.times[group] for group in times if group in main.times}
        return cut, times

    def _cut_smaller(self, line: Line, work: Work) -> bool:
        """Plan the epoch again with half of its rows, now and from now on: what it gives is more than sinks can take.

        Nothing of it is to be seen yet, but for rows set aside, and those are told by where they come from. False:
        it has only one.
        """
        half = min(rows_in(work.cut), self._settings.max_rows) // 2
        if not half:
            return False
        _LOGGER.warning("app '%s': epochs are too large for its sinks, and have %d rows now", line.plan.app, half)
        self._unpublished = None
        self._clear(work)
        self._settings = replace(self._settings, max_rows=half)
        self._stored(line, *self._next_cut(line))
        return True

    def _stored(self, line: Line, cut: Cut, times: Mapping[str, int]) -> EpochPlan:
        document = {
            "cut": cut.to_document(),
            "times": dict(times),
            "dead": {},
            "building": line is self._app.building,
            "outputs": self._app.versions_of(line),
            "topics": self._app.topics_of(line),
        }
        plan = EpochPlan(self._app.epoch + 1, self.token, document)
        self._app.ledger.write_plan(plan)
        return plan

    # -- 2 run --------------------------------------------------------------------------------------------------------

    def _ran(self, line: Line, plan: EpochPlan, work: Work) -> tuple[Work, Ran]:
        """Run the epoch; without rows that make it fail, which are written into its plan first."""
        where = f"app '{line.plan.app}', epoch {work.epoch}"
        for _ in range(MOST_ROUNDS):
            try:
                return work, line.engine.run(work)
            except FAILURES as error:
                self._clear(work)
                failure = plain_failure(error, where)
                # What views and sinks hold of this epoch was made with its plan as it stands.
                if not is_evaluation(failure) or self._app.seen >= work.epoch:
                    raise failure from error
                work = replace(work, dead=self._found_dead(line, work, failure, error))
                self._app.ledger.write_plan(EpochPlan(work.epoch, self.token, {**plan.document, "dead": work.dead}))
        raise PenstockError(f"{where}: it fails again and again, on other rows each time")

    def _clear(self, work: Work) -> None:
        with suppress(PenstockError, OSError):  # what matters is why the attempt failed
            self._garbage.remove_attempt(work.epoch, self.token)

    def _found_dead(self, line: Line, work: Work, failure: PenstockError, error: BaseException) -> Dead:
        dead = find_dead(line.engine, line.plan, work, error)
        if dead == work.dead:  # no row is to blame
            output = find_failing_output(line.engine, line.plan, work)
            if output is None:  # it has passed
                raise SparkLostError(failure.message, hint=failure.hint) from error
            raise _over_answers(output, error) from error
        if self._settings.dead == "stop":
            message = f"app '{line.plan.app}': {_first_of(dead)}"
            raise RowError(message, hint='mend the program, or let it go on: AppSettings(dead="set aside")') from error
        return dead

    # -- 3 publish ----------------------------------------------------------------------------------------------------

    def _publish(self, work: Work, ran: Ran, line: Line, after: Started) -> None:
        silent = self._app.silent if line is self._app.building else frozenset()
        try:
            self._sides.store(self._aside(work, ran, line))
            loud = [sink.name for sink in line.plan.sinks if sink.name not in silent]
            self._app.sinks.apply(work.epoch, _changes(ran, loud))
        except (FencedError, FileNotFoundError):  # whoever has replaced us has also removed what we had staged
            if (token := self._app.ledger.token()) > self.token:
                raise self._replaced(token) from None
            raise
        built = () if after.building is not None else self._app.built
        swapped = [name for name in built if name not in self._app.sinks]
        changes = _changes(ran, [view.name for view in line.plan.views])
        self._app.store.apply(work.epoch, self.token, changes, facts=_facts(after), swap=swapped)

    def _aside(self, work: Work, ran: Ran, line: Line) -> dict[str, pa.RecordBatch]:
        """The rows that are in no view, by the topic where they are kept."""
        aside = {dead_topic(line.plan.app): dead_rows(ran.dead)}
        late = {
            (state.node, state.input): state
            for state in line.engine.states().values()
            if ran.state_counts.get(state.name, {}).get("late")
        }
        for state in late.values():
            places: dict[str, dict[int, list[int]]] = {}
            for row in self._late(line, work, state):
                places.setdefault(row["_topic"], {}).setdefault(row["_partition"], []).append(row["_offset"])
            for topic, offsets in places.items():
                rows = late_rows(
                    line.inputs[topic].topic,
                    offsets,
                    late_for=line.outputs_of(state.node),
                    watermark=work.time_before(state) + state.delay,
                )
                known = aside.get(late_topic(topic))
                aside[late_topic(topic)] = rows if known is None else pa.concat_batches([known, rows])  # type: ignore[attr-defined]
        return aside

    def _late(self, line: Line, work: Work, state: StateOf) -> list[dict[str, Any]]:
        try:
            return line.engine.late(work, state)
        except FAILURES as error:
            raise plain_failure(error, f"app '{line.plan.app}', late rows of epoch {work.epoch}") from error

    # -- 4 commit -----------------------------------------------------------------------------------------------------

    def _commit(self, work: Work, after: Started) -> None:
        self._app.ledger.commit(Commit(work.epoch, self.token, after.states(), after.to_document(), self._clock()))
        try:
            self._garbage.collect()
        except PenstockError as error:  # the epoch is committed whatever comes of this
            _LOGGER.warning("app '%s': old files could not be removed: %s", after.main.plan.app, error.message)

    def _settle(self) -> None:
        """Once a commit says that nothing of the program before is needed, its views go."""
        if not self._settled and self._app.building is None:
            store, views = self._app.store, {view.name for view in self._app.whole.plan.views}
            store.drop([name for name in store.declared() if name not in views])
            self._settled = True

    def _progress(self, work: Work, line: Line, ran: Ran, seconds: float) -> Progress:
        ends = {name: one.topic.ends() for name, one in line.inputs.items()}
        lag = sum(ends[name][number] - end for name in ends for number, end in work.cut.sources[name].ends.items())
        return Progress(
            work.epoch,
            rows_in(work.cut),
            lag,
            min((moment for moment in work.after.values() if moment != NO_TIME), default=None),
            sum(one.get("late", 0) for one in ran.state_counts.values()),
            sum(one["dead"] for one in ran.source_counts.values()),
            self._app.building is not None,
            seconds,
        )

    # -- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._app.store.close()

    def __enter__(self) -> Instance:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _without(planned: dict[str, Any], inputs: Collection[str]) -> dict[str, Any]:
    """A plan's document without inputs that are other topics now."""
    sources = {name: one for name, one in planned["cut"]["sources"].items() if name not in inputs}
    times = {group: one for group, one in planned["times"].items() if not topics_in(group) & set(inputs)}
    return {**planned, "cut": {**planned["cut"], "sources": sources}, "times": times}


def _changes(ran: Ran, outputs: Iterable[str]) -> dict[str, Iterator[ViewChanges]]:
    """The changes of some outputs, not read until they are wanted: where others have published them, they are gone."""

    def staged(name: str) -> Iterator[ViewChanges]:
        for batch in staged_batches(ran.staged[name]):
            yield ViewChanges.of(batch, weight=WEIGHT)

    return {name: staged(name) for name in outputs}


def _facts(app: Started) -> dict[str, Any]:
    """What readers are told about each view."""
    carried = {name: _told(one, None) for name, one in app.carried.accounts.items()}
    mine = {
        view.name: _told(app.main.accounts.get(view.name, Account()), app.main.time_of_view(view))
        for view in app.main.plan.views
    }
    return {"views": {**carried, **mine}}


def _told(account: Account, watermark: int | None) -> dict[str, Any]:
    moment = None
    if watermark is not None and watermark != NO_TIME:
        moment = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=watermark)).isoformat()
    return {"watermark": moment, "events": account.counted, **account.to_document()}


def _over_answers(output: flow.Output, error: BaseException) -> PenstockError:
    kind = "sink" if isinstance(output, flow.Sink) else "view"
    return PenstockError(
        f"{output.place}: {kind} '{output.name}': an expression fails, and no single row is to blame: {reason(error)}",
        hint="over the answers of groups, use functions that give null where others fail: try_divide, try_cast",
    )


def _first_of(dead: Dead) -> str:
    topic, partitions = next(iter(dead.items()))
    partition, offsets = next(iter(partitions.items()))
    offset, why = next(iter(offsets.items()))
    return f"topic '{topic}', partition {partition}, offset {offset}: {why}"
