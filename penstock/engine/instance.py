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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.contracts import ViewChanges
from penstock.engine.accounts import Account
from penstock.engine.cut import Cut
from penstock.engine.dead import MOST_ROUNDS, find_dead
from penstock.engine.epochs import Commit, EpochPlan
from penstock.engine.failures import FAILURES, plain_failure
from penstock.engine.garbage import Garbage
from penstock.engine.line import Line
from penstock.engine.operators.contract import WEIGHT
from penstock.engine.planning import next_cut, rows_in, watermark
from penstock.engine.running import Dead, Ran, Work, staged_batches
from penstock.engine.side_topics import dead_rows, dead_topic, late_rows, late_topic, store_aside
from penstock.engine.start import Started, start
from penstock.errors import PenstockError, RowError
from penstock.flow import plan as flow
from penstock.flow.settings import AppSettings
from penstock.log import Log
from penstock.log.frame import NO_TIME

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

    `rebuild` builds all views again from the log. `reached` is called with the name of each step when it is done ('plan',
    'run', 'publish', 'commit'): tests crash there.
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
        self._garbage = Garbage(self._app.ledger)

    @property
    def token(self) -> int:
        return self._app.token

    def accounts(self) -> dict[str, Account]:
        """What became of all events so far, by view."""
        return dict(self._app.main.accounts)

    # -- one epoch ----------------------------------------------------------------------------------------------------

    def step(self) -> Progress | None:
        """Run the next epoch; None if there is nothing to do."""
        began = time.perf_counter()
        line = self._app.building or self._app.main
        plan = self._planned(line)  # 1
        if plan is None:
            return None
        self._reached("plan")
        cut = replace(Cut.from_document(plan.document["cut"]), epoch=plan.epoch)
        work = Work(plan.epoch, self.token, line.cut, cut, line.states, plan.document["dead"])
        work, ran = self._ran(line, work)  # 2
        self._reached("run")
        moved = line.moved(cut, ran)
        after = self._app.moved(moved)
        self._publish(work, ran, line, after)  # 3
        self._reached("publish")
        self._commit(work, after)  # 4
        self._reached("commit")
        self._app = after
        return self._progress(work, line, line.epoch_accounts(ran), time.perf_counter() - began)

    # -- 1 plan -------------------------------------------------------------------------------------------------------

    def _planned(self, line: Line) -> EpochPlan | None:
        """The plan of the next epoch, on disk: one that was not committed, or a new one. None if nothing is to do."""
        pending = self._app.ledger.pending_plan()
        building = self._app.building is not None
        if pending is not None and pending.document.get("building", False) == building:
            return pending
        epoch = self._app.ledger.last_epoch() + 1
        cut = next_cut(
            self._log, line.inputs, line.cut, self._settings, now=self._clock(), until=self._app.until(line)
        )
        if not building and not rows_in(cut) and not _closes_something(line, cut):
            return None
        document = {"cut": cut.to_document(), "dead": {}, "building": building}
        plan = EpochPlan(epoch, self.token, document)
        self._app.ledger.write_plan(plan)
        return plan

    # -- 2 run --------------------------------------------------------------------------------------------------------

    def _ran(self, line: Line, work: Work) -> tuple[Work, Ran]:
        """Run the epoch; without rows that make it fail, which are written into its plan first."""
        where = f"app '{line.plan.app}', epoch {work.epoch}"
        for _ in range(MOST_ROUNDS):
            try:
                return work, line.engine.run(work)
            except FAILURES as error:
                failure = plain_failure(error, where)
                if type(failure) is not PenstockError:
                    raise failure from error
                work = self._without_dead(line, work, failure)
        raise PenstockError(f"{where}: it fails again and again, on other rows each time")

    def _without_dead(self, line: Line, work: Work, failure: PenstockError) -> Work:
        dead = find_dead(line.engine, line.plan, work)
        if dead == work.dead:
            raise failure  # no row is to blame
        if self._settings.dead == "stop":
            raise RowError(_first_of(dead), hint='mend the program, or let it go on: AppSettings(dead="set aside")')
        building = self._app.building is not None
        document = {"cut": work.cut.to_document(), "dead": dead, "building": building}
        self._app.ledger.write_plan(EpochPlan(work.epoch, self.token, document))
        return replace(work, dead=dead)

    # -- 3 publish ----------------------------------------------------------------------------------------------------

    def _publish(self, work: Work, ran: Ran, line: Line, after: Started) -> None:
        if self._app.building is None:  # what is built again was set aside when it was first read
            store_aside(self._log, self._app.producer, work.epoch, self._aside(work, ran, line))
        changes = {
            name: [ViewChanges.of(batch, weight=WEIGHT) for batch in staged_batches(paths)]
            for name, paths in ran.staged.items()
        }
        swapped = self._app.built if self._app.building is not None and after.building is None else ()
        self._app.store.apply(work.epoch, self.token, changes, facts=_facts(after.main), swap=swapped)

    def _aside(self, work: Work, ran: Ran, line: Line) -> dict[str, pa.RecordBatch]:
        """The rows that are in no view, by the topic where they are kept."""
        aside = {dead_topic(line.plan.app): dead_rows(ran.dead)}
        for state in line.engine.built().states.values():
            if not ran.state_counts.get(state.name, {}).get("late"):
                continue
            places: dict[str, dict[int, list[int]]] = {}
            for row in line.engine.late(work, state.node):
                places.setdefault(row["_topic"], {}).setdefault(row["_partition"], []).append(row["_offset"])
            for topic, offsets in places.items():
                rows = late_rows(
                    line.inputs[topic].topic,
                    offsets,
                    late_for=_views_of(line.plan, state.node),
                    watermark=watermark(work.before, state.sources),
                )
                known = aside.get(late_topic(topic))
                aside[late_topic(topic)] = rows if known is None else pa.concat_batches([known, rows])
        return aside

    # -- 4 commit -----------------------------------------------------------------------------------------------------

    def _commit(self, work: Work, after: Started) -> None:
        self._app.ledger.commit(Commit(work.epoch, self.token, after.states(), after.to_document(), self._clock()))
        try:
            self._garbage.collect()
        except PenstockError as error:  # the epoch is committed whatever comes of this
            _LOGGER.warning("app '%s': old files could not be removed: %s", after.main.plan.app, error.message)

    def _progress(self, work: Work, line: Line, accounts: Mapping[str, Account], seconds: float) -> Progress:
        ends = {name: one.topic.ends() for name, one in line.inputs.items()}
        cuts = work.cut.sources.items()
        lag = sum(ends[name][number] - end for name, one in cuts for number, end in one.ends.items())
        marks = [time.watermark for _, one in cuts if (time := one.time) is not None and time.watermark != NO_TIME]
        return Progress(
            work.epoch,
            rows_in(work.cut),
            lag,
            min(marks, default=None),
            sum(one.late for one in accounts.values()),
            max((one.dead for one in accounts.values()), default=0),
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


def _closes_something(line: Line, cut: Cut) -> bool:
    """Whether a window may end because time has moved on, though nothing has come in."""
    for state in line.engine.built().states.values():
        then, now = watermark(line.cut, state.sources), watermark(cut, state.sources)
        if now > then and then < _last_end(cut, state.sources, _longest(state.node)):
            return True
    return False


def _last_end(cut: Cut, sources: tuple[str, ...], longest: int) -> int:
    """No window that holds an event so far ends later than this."""
    times = [time.producers.values() for name in sources if (time := cut.sources[name].time) is not None]
    newest = max((clock.max_time for clocks in times for clock in clocks), default=NO_TIME)
    return newest if newest == NO_TIME else newest + longest


def _longest(node: flow.Node) -> int:
    """How long after an event a window that holds it can end, with all windows that its answers are in."""
    below = max((_longest(one) for one in flow.inputs(node)), default=0)
    windowing = node.windowing if isinstance(node, flow.Aggregate) else None
    if windowing is None:
        return below
    window = windowing.window
    if isinstance(window, flow.Session):
        return below + window.gap
    day = 86_400_000_000 if isinstance(window, flow.Tumbling | flow.Hopping) and window.zone else 0
    return below + window.size + day


def _views_of(plan: flow.Plan, node: flow.Node) -> str:
    """The views that a node is part of."""
    names = [view.name for view in plan.views if node in flow.nodes(flow.Plan(plan.app, (view,)))]
    return ", ".join(names)


def _facts(line: Line) -> dict[str, Any]:
    return {
        "views": {
            view.name: {
                "watermark": _instant(line.watermark_of(view.node)),
                "events": line.accounts.get(view.name, Account()).counted,
                **line.accounts.get(view.name, Account()).to_document(),
            }
            for view in line.plan.views
        }
    }


def _instant(moment: int) -> str | None:
    from datetime import UTC, datetime, timedelta

    if moment == NO_TIME:
        return None
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)).isoformat()


def _first_of(dead: Dead) -> str:
    topic, partitions = next(iter(dead.items()))
    partition, offsets = next(iter(partitions.items()))
    offset, why = next(iter(offsets.items()))
    return f"topic '{topic}', partition {partition}, offset {offset}: {why}"
