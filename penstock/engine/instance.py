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

from pyspark.sql import SparkSession

from penstock.contracts import ViewChanges, ViewTable
from penstock.derive.store import ViewStore
from penstock.engine.accounts import Account, account, meters
from penstock.engine.cut import Cut
from penstock.engine.epochs import Commit, EpochPlan
from penstock.engine.garbage import Garbage
from penstock.engine.inputs import open_inputs
from penstock.engine.ledger import (
    Ledger,
    app_directory,
    instance_name,
    open_ledger,
    stored_state_partitions,
)
from penstock.engine.operators.contract import WEIGHT
from penstock.engine.planning import Input, first_cut, next_cut, rows_in, watermark
from penstock.engine.running import Dead, Engine, Home, Ran, Work, staged_batches
from penstock.engine.savepoints import Savepoints
from penstock.engine.spark import session_for
from penstock.engine.view_copies import StoredViews
from penstock.errors import DamagedError, PenstockError
from penstock.flow import plan as flow
from penstock.flow.fingerprint import fingerprint
from penstock.flow.settings import AppSettings
from penstock.log import Log
from penstock.log.frame import NO_TIME

VIEWS_NAME = "views.sqlite"
_LOGGER = logging.getLogger(__name__)
Clock = Callable[[], int]
"""Microseconds since 1970."""


def wall_clock() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class Progress:
    """What one epoch did. `lag` is how many rows were waiting behind it, `watermark` is None where there is no time."""

    epoch: int
    rows: int
    lag: int
    watermark: int | None
    late: int
    dead: int
    seconds: float


class Instance:
    """One instance of an app. `step` runs an epoch; use it as a context manager, or call `close`.

    `reached` is called with the name of each step when it is done ('plan', 'run', 'publish', 'commit'): tests crash
    there.
    """

    def __init__(
        self,
        plan: flow.Plan,
        log: Log,
        settings: AppSettings,
        spark: SparkSession,
        *,
        clock: Clock = wall_clock,
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._plan = plan
        self._log = log
        self._settings = settings
        self._clock = clock
        self._reached = reached
        directory = app_directory(log.path, plan.app)
        stored = stored_state_partitions(directory)
        partitions = settings.state_partitions or stored or spark.sparkContext.defaultParallelism
        self._home = Home(log.path, directory, partitions)
        self._inputs: dict[str, Input] = open_inputs(log, plan)
        self._engine = Engine(session_for(spark, partitions), plan, self._inputs, self._home)
        views = self._views()  # fails, if anything is wrong with the plan, before anybody is replaced
        self._producer = log.producer(instance_name(plan.app))
        self.token = self._producer.epoch
        self._ledger: Ledger = open_ledger(directory, plan.app, state_partitions=partitions, created=clock())
        self._ledger.take_over(self.token)
        Savepoints(self._ledger, StoredViews(directory, plan.app)).finish_restore(self.token, restored_at=clock())
        self._garbage = Garbage(self._ledger)
        self._store = ViewStore(directory / VIEWS_NAME)
        self._check_store(self._store.take_over(plan.app, self.token))
        self._store.declare(views)

    # -- one epoch ----------------------------------------------------------------------------------------------------

    def step(self) -> Progress | None:
        """Run the next epoch; None if there is nothing to do."""
        began = time.perf_counter()
        last = self._ledger.last_commit()
        before = first_cut(self._inputs, self._clock()) if last is None else _cut_of(last)
        plan = self._ledger.pending_plan() or self._next_plan(before)  # 1
        if plan is None:
            return None
        self._reached("plan")
        cut = Cut.from_document(plan.document["cut"])
        states = {} if last is None else last.states
        work = Work(plan.epoch, self.token, before, cut, states, plan.document["dead"])
        ran = self._engine.run(work)  # 2
        self._reached("run")
        accounts = self._accounts(ran)
        totals = _added(last, accounts)
        self._publish(work, ran, totals)  # 3
        self._reached("publish")
        document = {"cut": cut.to_document(), "accounts": {name: one.to_document() for name, one in totals.items()}}
        self._ledger.commit(Commit(work.epoch, self.token, ran.states, document, self._clock()))  # 4
        self._reached("commit")
        self._collect_garbage()
        return self._progress(cut, accounts, time.perf_counter() - began)

    def accounts(self) -> dict[str, Account]:
        """What became of all events so far, by view."""
        last = self._ledger.last_commit()
        known = {} if last is None else last.document["accounts"]
        return {view.name: Account(**known.get(view.name, {})) for view in self._plan.views}

    def _next_plan(self, before: Cut) -> EpochPlan | None:
        """Choose the next cut and write it down; None if it would change nothing."""
        cut = next_cut(self._log, self._inputs, before, self._settings, now=self._clock())
        if not rows_in(cut) and not self._closes_something(before, cut):
            return None
        dead: Dead = {}
        plan = EpochPlan(cut.epoch, self.token, {"cut": cut.to_document(), "dead": dead})
        self._ledger.write_plan(plan)
        return plan

    def _closes_something(self, before: Cut, cut: Cut) -> bool:
        """Whether a window may end because time has moved on, though nothing has come in."""
        for state in self._engine.built().states.values():
            then, now = watermark(before, state.sources), watermark(cut, state.sources)
            if now > then and then < self._last_end(cut, state.sources, _longest(state.node)):
                return True
        return False

    def _last_end(self, cut: Cut, sources: tuple[str, ...], longest: int) -> int:
        """No window that holds an event so far ends later than this."""
        times = [time.producers.values() for name in sources if (time := cut.sources[name].time) is not None]
        newest = max((clock.max_time for clocks in times for clock in clocks), default=NO_TIME)
        return newest if newest == NO_TIME else newest + longest

    def _publish(self, work: Work, ran: Ran, totals: Mapping[str, Account]) -> None:
        changes = {
            name: [ViewChanges.of(batch, weight=WEIGHT) for batch in staged_batches(paths)]
            for name, paths in ran.staged.items()
        }
        self._store.apply(work.epoch, self.token, changes, facts=self._facts(work.cut, totals))

    def _facts(self, cut: Cut, totals: Mapping[str, Account]) -> dict[str, Any]:
        return {
            "views": {
                view.name: {
                    "watermark": _instant(self._watermark_of(cut, view.node)),
                    "events": totals[view.name].counted,
                    **totals[view.name].to_document(),
                }
                for view in self._plan.views
            }
        }

    def _progress(self, cut: Cut, accounts: Mapping[str, Account], seconds: float) -> Progress:
        ends = {name: one.topic.ends() for name, one in self._inputs.items()}
        lag = sum(ends[name][number] - end for name, one in cut.sources.items() for number, end in one.ends.items())
        marks = [mark for view in self._plan.views if (mark := self._watermark_of(cut, view.node)) != NO_TIME]
        return Progress(
            cut.epoch,
            rows_in(cut),
            lag,
            min(marks, default=None),
            sum(one.late for one in accounts.values()),
            max((one.dead for one in accounts.values()), default=0),
            seconds,
        )

    def _collect_garbage(self) -> None:
        """The epoch is committed whatever comes of this: what cannot be removed now can be later."""
        try:
            self._garbage.collect()
        except PenstockError as error:
            _LOGGER.warning("app '%s': old files could not be removed: %s", self._plan.app, error.message)

    # -- what is known about the plan ---------------------------------------------------------------------------------

    def _views(self) -> list[ViewTable]:
        schemas = self._engine.built().views
        return [
            ViewTable(view.name, schemas[view.name], view.node.shape.key, fingerprint(view.node))
            for view in self._plan.views
        ]

    def _accounts(self, ran: Ran) -> dict[str, Account]:
        state_of = {}
        for state in self._engine.built().states.values():
            if "events" in ran.state_counts.get(state.name, {}):
                state_of[state.node] = state.name
        return {
            view.name: account(
                view.name, meters(view.node, state_of), ran.source_counts, ran.state_counts, ran.added
            )
            for view in self._plan.views
        }

    def _watermark_of(self, cut: Cut, node: flow.Node) -> int:
        from penstock.engine.build.graph import timed_sources

        return watermark(cut, timed_sources(node))

    def _check_store(self, applied: int) -> None:
        last = self._ledger.last_epoch()
        if applied < last:
            raise DamagedError(
                f"app '{self._plan.app}': its views are at epoch {applied}, behind its state at epoch {last}",
                hint="restore a savepoint, or build everything again from the log: penstock run --rebuild",
            )

    # -- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Instance:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cut_of(commit: Commit) -> Cut:
    # The number is the commit's own: a restored one has the cut of an earlier epoch.
    return replace(Cut.from_document(commit.document["cut"]), epoch=commit.epoch)


def _added(last: Commit | None, accounts: Mapping[str, Account]) -> dict[str, Account]:
    before = {} if last is None else last.document["accounts"]
    return {name: Account(**before.get(name, {})) + one for name, one in accounts.items()}


def _longest(node: flow.Node) -> int:
    """How long after an event a window that holds it can end."""
    windowing = node.windowing if isinstance(node, flow.Aggregate) else None
    if windowing is None:
        return 0
    window = windowing.window
    if isinstance(window, flow.Session):
        return window.gap
    day = 86_400_000_000 if isinstance(window, flow.Tumbling | flow.Hopping) and window.zone else 0
    return window.size + day


def _instant(moment: int) -> str | None:
    from datetime import UTC, datetime, timedelta

    if moment == NO_TIME:
        return None
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)).isoformat()
