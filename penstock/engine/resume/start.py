"""Starting an app: replacing the instance that ran before, and finding what of its state this program can use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from penstock.contracts import ViewTable
from penstock.derive.place import STORE_NAME, app_directory
from penstock.derive.store import ViewStore
from penstock.derive.topic_sinks import TopicSinks
from penstock.engine.ledger.ledger import (
    instance_name,
    open_ledger,
    stored_state_partitions,
)
from penstock.engine.ledger.records import Commit
from penstock.engine.ledger.savepoints import Savepoints
from penstock.engine.ledger.view_copies import StoredViews
from penstock.engine.plan.cut import Cut, SourceCut
from penstock.engine.plan.inputs import open_inputs
from penstock.engine.plan.next_cut import Input, first_cut, topics_in
from penstock.engine.publish.sink_topics import check_beginning, check_columns, open_sinks, sink_records, sinks_producer
from penstock.engine.resume.app_state import BUILDING, Carried, Started
from penstock.engine.resume.forecast import forecast_on
from penstock.engine.resume.track import Line, accounts_of
from penstock.engine.resume.versions import (
    Difference,
    Versions,
    can_run,
    check_reach,
    complete_sinks,
    difference,
    fingerprints,
    goes_on,
    known_origins,
    known_outputs,
    origins_document,
    part_of,
    source_names,
    version,
)
from penstock.engine.run.check import check_built
from penstock.engine.run.compiled import Engine, Home
from penstock.engine.spark import session_for
from penstock.errors import DamagedError
from penstock.flow import plan as flow
from penstock.flow.narrow import narrowed
from penstock.flow.settings import AppSettings
from penstock.log import Log


def start(plan: flow.Plan, log: Log, settings: AppSettings, spark: SparkSession, *, now: int, rebuild: bool) -> Started:
    """Take over from whoever ran this app before.

    1. Build the whole plan, and look at the topics and at what is there: whatever is wrong shows before anybody is
       replaced.
    2. Take a new token, with which every earlier instance is refused: by the log, the ledger and the view store.
    3. Finish a restore that was begun.
    4. Go on with what the last commit left, as far as this plan still means the same; build the rest again.
    """
    declared, plan = plan, narrowed(plan)
    directory = app_directory(log.path, plan.app)
    partitions = (
        settings.state_partitions or stored_state_partitions(directory) or spark.sparkContext.defaultParallelism
    )
    session = session_for(spark, partitions)
    inputs: dict[str, Input] = {}  # opened only when nothing is wrong: that makes topics that are missing
    engine = Engine(session, plan, inputs, Home(log.path, directory, partitions))
    check_built(engine, session, plan)  # 1
    check_columns(log, plan, engine.built().outputs)
    if (refused := forecast_on(log, declared, rebuild=rebuild).refused) is not None:
        raise refused
    ledger = open_ledger(directory, plan.app, state_partitions=partitions, created=now)
    inputs |= open_inputs(log, plan)
    topics = open_sinks(log, plan, engine.built().outputs)
    producer = log.producer(instance_name(plan.app))  # 2
    ledger.take_over(producer.epoch)
    sinks = TopicSinks(log, sinks_producer(ledger), topics)
    Savepoints(ledger, StoredViews(directory, plan.app)).finish_restore(producer.epoch, restored_at=now)  # 3
    store = ViewStore(directory / STORE_NAME)
    try:
        published = store.take_over(plan.app, producer.epoch)
        whole = Line(engine, plan, inputs, first_cut(inputs, now), {}, {}, {})
        records = sink_records(log, declared)
        app = Started(
            ledger,
            store,
            producer,
            sinks,
            records,
            whole=whole,
            main=whole,
            building=None,
            carried=Carried(),
            versions={},
            origins={},
            epoch=ledger.last_epoch(),
            published=published,
        )
        return _gone_on(_checked(app, rebuild=rebuild), rebuild=rebuild)  # 4
    except BaseException:
        store.close()
        raise


def _checked(app: Started, *, rebuild: bool) -> Started:
    """Refuse views that have lost what the state was published with, or have more than the state knows of."""
    pending = app.ledger.pending_plan() is not None
    if app.published == app.epoch or (app.published == app.epoch + 1 and pending):
        return app
    if rebuild:
        app.store.reset(app.epoch)
        return replace(app, published=app.epoch)
    where = "behind" if app.published < app.epoch else "ahead of"
    raise DamagedError(
        f"app '{app.main.plan.app}': its views are at epoch {app.published}, {where} its state at epoch {app.epoch}",
        hint="restore a savepoint, or build everything again from the log: penstock run --rebuild",
    )


def _gone_on(app: Started, *, rebuild: bool) -> Started:
    declared = fingerprints(app.whole.plan)
    last = app.ledger.last_commit()
    origins = origins_document({name: one.topic.starts() for name, one in app.whole.inputs.items()})
    if last is None:
        return _begun(replace(app, origins=origins, versions={name: version(one, 0) for name, one in declared.items()}))
    app = replace(app, origins={**origins, **known_origins(last.document, app.ids.inputs)})
    shown = {name: table.version for name, table in app.store.declared().items()}
    # A version that was swapped in by an epoch that is not committed is not what the state belongs to.
    pending = app.ledger.pending_plan()
    planned = pending.document if pending is not None and app.seen >= pending.epoch else None
    known, written = known_outputs(last.document, planned)
    known = {name: one for name, one in known.items() if name in written or shown.get(name) == one}
    app = replace(app, written=written)
    differs = difference(declared, known, rebuild=rebuild)
    half_built = None if rebuild else _half_built(app, last, declared, differs)
    begun = {name: version(declared[name], last.epoch) for name in differs.built}
    versions = {**{name: known[name] for name in differs.kept}, **(half_built or {"outputs": begun})["outputs"]}
    app = replace(app, versions={name: versions[name] for name in declared})
    built = {name: app.versions[name] for name in differs.built}
    begins = half_built is None
    if planned is not None and planned["building"]:
        if not can_run(planned, built, app.ids, building=True):
            return _gone_on(_passed_over(app, last), rebuild=rebuild)
        begins = False
    app = _with_main(app, last, known, differs, rebuild=rebuild)
    if differs.built:
        app = _with_building(app, last, differs, half_built)
        if begins:
            _check_beginning(app)
    _declare(app, last, differs)
    return app


def _check_beginning(app: Started) -> None:
    """What the forecast says, by what is really there: hidden tables may be gone that it counts on."""
    assert app.building is not None
    starts = {name: one.topic.starts() for name, one in app.building.inputs.items()}
    check_reach(app.whole.plan.app, app.origins, starts)
    loud = [sink for sink in app.building.plan.sinks if sink.name not in app.silent]
    check_beginning({sink: app.sinks.topic(sink.name) for sink in loud})


def _passed_over(app: Started, last: Commit) -> Started:
    """Use up the number of an epoch of building that this program does not want: what was built is of no use then."""
    epoch = last.epoch + 1
    app.store.apply(epoch, app.token, {})
    states = {name: parts for name, parts in last.states.items() if not name.startswith(BUILDING)}
    document = {**last.document, "building": None}
    app.ledger.commit(Commit(epoch, app.token, states, document, last.committed_at))
    return replace(app, epoch=epoch, published=epoch)


def _begun(app: Started) -> Started:
    """An app of which no epoch is committed yet. Views that another program has begun are thrown away."""
    shown = {name: table.version for name, table in app.store.declared().items()}
    pending = app.ledger.pending_plan()
    mine = pending is None or can_run(pending.document, app.versions, app.ids, building=False)
    if shown not in ({}, {view.name: app.versions[view.name] for view in app.whole.plan.views}) or not mine:
        app.store.reset(0)
        app = replace(app, published=0)
    app.store.declare(_tables(app, tuple(app.versions)))
    return app


def _half_built(
    app: Started, last: Commit, declared: Mapping[str, str], differs: Difference
) -> Mapping[str, Any] | None:
    """What the last instance has left of the views to build, if it is what is wanted, and its rows are there."""
    found: Mapping[str, Any] | None = last.document["building"]
    if found is None or not goes_on(found, declared, differs.built, app.ids, complete_sinks(app.written, app.records)):
        return None
    hidden, shown = app.store.declared(building=True), app.store.declared()
    wanted = {view.name: found["outputs"][view.name] for view in app.whole.plan.views if view.name in found["outputs"]}
    there = {name: {one[name].version for one in (hidden, shown) if name in one} for name in wanted}
    return found if all(one in there[name] for name, one in wanted.items()) else None


def _declare(app: Started, last: Commit, differs: Difference) -> None:
    """Have the tables of this program's views; what neither it nor the last one knows is the rest of an older one."""
    there = {*app.store.declared(), *app.store.declared(building=True)}
    half_built = (last.document["building"] or {"outputs": {}})["outputs"]
    views = {view.name for view in app.whole.plan.views}
    app.store.drop(sorted(there - views - set(last.document["outputs"]) - set(half_built)))
    app.store.declare(_tables(app, differs.kept))
    app.store.declare(_tables(app, differs.built), building=True)


def _tables(app: Started, names: tuple[str, ...]) -> list[ViewTable]:
    schemas = app.whole.engine.built().outputs
    views = [view for view in app.whole.plan.views if view.name in names]
    return [ViewTable(one.name, schemas[one.name], one.node.shape.key, app.versions[one.name]) for one in views]


def _with_main(app: Started, last: Commit, known: Versions, differs: Difference, *, rebuild: bool) -> Started:
    """The views that stay, where the last commit left them."""
    stored = _cut_of(last, last.document)
    inputs = app.whole.inputs
    same = {name: one for name, one in stored.sources.items() if _is_same(one, inputs.get(name))}
    main = app.whole
    if differs.built:
        main = _part(app.whole, differs.kept)
    else:
        same = {name: same.get(name, one) for name, one in app.whole.cut.sources.items()}
    wanted = main.engine.states()
    accounts = accounts_of(last.document)
    states = {name: parts for name, parts in last.states.items() if not name.startswith(BUILDING)}
    main = replace(
        main,
        cut=replace(stored, sources=same),
        times={group: one for group, one in last.document["times"].items() if topics_in(group) <= same.keys()},
        states={name: parts for name, parts in states.items() if name in wanted},
        accounts={name: one for name, one in accounts.items() if name in differs.kept},
    )
    carried = Carried()
    if not rebuild:
        carried = Carried(
            {name: one for name, one in known.items() if name not in differs.kept},
            {name: parts for name, parts in states.items() if name not in wanted},
            {name: one for name, one in accounts.items() if name in known and name not in differs.kept},
        )
    return replace(app, main=main, whole=app.whole if differs.built else main, carried=carried)


def _with_building(app: Started, last: Commit, differs: Difference, half_built: Mapping[str, Any] | None) -> Started:
    """Views that changed are built from the beginning of the log, while those that stay wait where they are."""
    line = _part(app.whole, differs.built)
    line = replace(line, cut=replace(line.cut, epoch=last.epoch))
    if half_built is not None:
        states = {name: parts for name, parts in last.states.items() if name.startswith(BUILDING)}
        line = replace(
            line,
            cut=_cut_of(last, half_built),
            times=half_built["times"],
            states={name.removeprefix(BUILDING): parts for name, parts in states.items()},
            accounts=accounts_of(half_built),
        )
    return replace(app, building=line)


def _part(whole: Line, outputs: tuple[str, ...]) -> Line:
    """A line of some of the outputs, before its first epoch."""
    plan = part_of(whole.plan, outputs)
    sources = source_names(plan)
    inputs = {name: one for name, one in whole.inputs.items() if name in sources}
    cut = replace(whole.cut, sources={name: whole.cut.sources[name] for name in inputs})
    return Line(whole.engine.for_part(plan, inputs), plan, inputs, cut, {}, {}, {})


def _is_same(cut: SourceCut, one: Input | None) -> bool:
    return one is None or one.topic.description.id == cut.topic_id


def _cut_of(last: Commit, document: Mapping[str, Any]) -> Cut:
    # The number is the commit's own: a restored one has the cut of an earlier epoch.
    return replace(Cut.from_document(document["cut"]), epoch=last.epoch)
