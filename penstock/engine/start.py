"""Starting an app: replacing the instance that ran before, and finding what of its state this program can go on with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from penstock.contracts import ViewTable
from penstock.derive.place import app_directory
from penstock.derive.store import ViewStore
from penstock.engine.cut import Cut, SourceCut
from penstock.engine.epochs import Commit, States
from penstock.engine.inputs import open_inputs
from penstock.engine.ledger import (
    Ledger,
    instance_name,
    open_ledger,
    stored_state_partitions,
)
from penstock.engine.line import Line, accounts_of
from penstock.engine.planning import Input, first_cut
from penstock.engine.running import Engine, Home
from penstock.engine.savepoints import Savepoints
from penstock.engine.spark import session_for
from penstock.engine.versions import (
    Versions,
    check_reach,
    difference,
    origins_document,
    part_of,
    versions,
)
from penstock.engine.view_copies import StoredViews
from penstock.errors import DamagedError
from penstock.flow import plan as flow
from penstock.flow.settings import AppSettings
from penstock.log import Log
from penstock.log.producer import Producer

VIEWS_NAME = "views.sqlite"
# How the states of views that are being built stand beside those of the others in a commit.
_BUILDING = "+"


@dataclass(frozen=True, slots=True)
class Started:
    """A running app between two epochs. `building` is the line of views that are built again, if there are such."""

    ledger: Ledger
    store: ViewStore
    producer: Producer
    whole: Line  # what the app is when nothing is being built; its cut and states count only then
    main: Line
    building: Line | None
    versions: Versions
    generation: int
    origins: Mapping[str, Any]

    @property
    def token(self) -> int:
        return self.producer.epoch

    @property
    def built(self) -> tuple[str, ...]:
        """The views that are being built."""
        return () if self.building is None else tuple(view.name for view in self.building.plan.views)

    def until(self, line: Line) -> Mapping[str, SourceCut] | None:
        """Where a line must stop: what is being built, where the others stand."""
        if line is not self.building:
            return None
        return self.main.cut.sources

    def moved(self, line: Line) -> Started:
        """The app after an epoch of one of its lines. What has been built up to the main line becomes part of it."""
        if self.building is None:
            return replace(self, main=line, whole=line)
        if not _has_arrived(line.cut, self.main.cut):
            return replace(self, building=line)
        sources = {**line.cut.sources, **self.main.cut.sources}
        joined = replace(
            self.whole,
            cut=replace(line.cut, sources={name: sources[name] for name in self.whole.inputs}),
            states={**line.states, **self.main.states},
            accounts={**line.accounts, **self.main.accounts},
        )
        return replace(self, main=joined, whole=joined, building=None)

    def states(self) -> dict[str, Mapping[int, Any]]:
        """All states that a commit names."""
        wanted = self.main.engine.built().states if self.main.plan.views else {}
        states = {name: parts for name, parts in self.main.states.items() if name in wanted}
        if self.building is not None:
            states |= {f"{_BUILDING}{name}": parts for name, parts in self.building.states.items()}
        return states

    def to_document(self) -> dict[str, Any]:
        names = {view.name for view in self.main.plan.views}
        return {
            **self.main.to_document(),
            "views": {name: version for name, version in self.versions.items() if name in names},
            "generation": self.generation,
            "origins": self.origins,
            "building": None
            if self.building is None
            else {**self.building.to_document(), "views": {name: self.versions[name] for name in self.built}},
        }


def start(
    plan: flow.Plan, log: Log, settings: AppSettings, spark: SparkSession, *, now: int, rebuild: bool
) -> Started:
    """Take over from whoever ran this app before.

    1. Build the whole plan: whatever is wrong with it shows before anybody is replaced.
    2. Take a new token, with which every earlier instance is refused: by the log, the ledger and the view store.
    3. Finish a restore that was begun.
    4. Go on with what the last commit left, as far as this plan still means the same; build the rest again.
    """
    directory = app_directory(log.path, plan.app)
    partitions = (
        settings.state_partitions or stored_state_partitions(directory) or spark.sparkContext.defaultParallelism
    )
    session = session_for(spark, partitions)
    home = Home(log.path, directory, partitions)
    inputs = open_inputs(log, plan)
    engine = Engine(session, plan, inputs, home)  # 1
    schemas = engine.built().views
    producer = log.producer(instance_name(plan.app))  # 2
    ledger = open_ledger(directory, plan.app, state_partitions=partitions, created=now)
    ledger.take_over(producer.epoch)
    Savepoints(ledger, StoredViews(directory, plan.app)).finish_restore(producer.epoch, restored_at=now)  # 3
    store = ViewStore(directory / VIEWS_NAME)
    applied = store.take_over(plan.app, producer.epoch)
    last = ledger.last_commit()
    _check_store(plan.app, applied, ledger.last_epoch(), store, rebuild=rebuild)
    known = {} if last is None else last.document["views"]
    generation = (0 if last is None else last.document["generation"]) + (1 if rebuild else 0)
    declared = versions(plan, generation)
    whole = Line(engine, plan, inputs, first_cut(inputs, now), {}, {})
    app = Started(ledger, store, producer, whole, whole, None, declared, generation, _origins(last, inputs))
    differs = difference(declared, known)
    tables = {
        view.name: ViewTable(view.name, schemas[view.name], view.node.shape.key, declared[view.name])
        for view in plan.views
    }
    store.drop(differs.dropped)
    if last is None:
        store.declare(list(tables.values()))
        return app
    if not differs.built:  # 4
        return _resumed(app, last)
    store.declare([tables[name] for name in differs.built], building=True)
    return _with_building(app, last, differs.kept, Engines(session, home))


@dataclass(frozen=True, slots=True)
class Engines:
    """Makes engines for parts of a plan."""

    session: SparkSession
    home: Home

    def line(self, plan: flow.Plan, inputs: Mapping[str, Input], cut: Cut) -> Line:
        sources = {node.name for node in flow.nodes(plan) if isinstance(node, flow.Topic | flow.Changelog)}
        mine = {name: one for name, one in inputs.items() if name in sources}
        return Line(Engine(self.session, plan, mine, self.home), plan, mine, cut, {}, {})


def _resumed(app: Started, last: Commit) -> Started:
    """Everything goes on from the last commit; a new topic, if there is one, from its start."""
    stored = _cut_of(last, last.document)
    sources = {name: stored.sources.get(name, one) for name, one in app.whole.cut.sources.items()}
    line = replace(
        app.whole,
        cut=replace(stored, sources=sources),
        states=_states(last.states, ""),
        accounts=accounts_of(last.document),
    )
    return replace(app, main=line, whole=line)


def _with_building(app: Started, last: Commit, kept: tuple[str, ...], engines: Engines) -> Started:
    """Views that stay wait where they are, while those that changed are built from the beginning of the log."""
    plan, inputs = app.whole.plan, app.whole.inputs
    changed = tuple(view.name for view in plan.views if view.name not in kept)
    stored = _cut_of(last, last.document)
    main = engines.line(part_of(plan, kept), inputs, stored)
    accounts = {name: one for name, one in accounts_of(last.document).items() if name in kept}
    main = replace(main, states=_states(last.states, ""), accounts=accounts)
    building = engines.line(part_of(plan, changed), inputs, app.whole.cut)
    building = replace(building, cut=replace(app.whole.cut, epoch=last.epoch))
    half_built = last.document["building"]
    if half_built is not None and half_built["views"] == {name: app.versions[name] for name in changed}:
        building = replace(
            building,
            cut=_cut_of(last, half_built),
            states=_states(last.states, _BUILDING),
            accounts=accounts_of(half_built),
        )
    else:
        check_reach(plan.app, app.origins, {name: one.topic.starts() for name, one in building.inputs.items()})
    return replace(app, main=main, building=building)


def _has_arrived(cut: Cut, main: Cut) -> bool:
    return all(
        name not in main.sources or (one.ends == main.sources[name].ends and one.time == main.sources[name].time)
        for name, one in cut.sources.items()
    )


def _origins(last: Commit | None, inputs: Mapping[str, Input]) -> dict[str, Any]:
    """Where the app began to read each topic."""
    known = {} if last is None else last.document["origins"]
    return {**origins_document({name: one.topic.starts() for name, one in inputs.items()}), **known}


def _cut_of(last: Commit, document: Mapping[str, Any]) -> Cut:
    # The number is the commit's own: a restored one has the cut of an earlier epoch.
    return replace(Cut.from_document(document["cut"]), epoch=last.epoch)


def _states(states: States, prefix: str) -> dict[str, Any]:
    if prefix:
        return {name.removeprefix(prefix): parts for name, parts in states.items() if name.startswith(prefix)}
    return {name: parts for name, parts in states.items() if not name.startswith(_BUILDING)}


def _check_store(app: str, applied: int, last: int, store: ViewStore, *, rebuild: bool) -> None:
    """Views behind the state have lost what the state was published with."""
    if applied >= last:
        return
    if rebuild:
        store.reset(last)
        return
    raise DamagedError(
        f"app '{app}': its views are at epoch {applied}, behind its state at epoch {last}",
        hint="restore a savepoint, or build everything again from the log: penstock run --rebuild",
    )
