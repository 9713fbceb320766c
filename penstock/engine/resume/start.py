"""Starting an app: replacing the instance that ran before, and continuing from what it left."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from penstock.contracts import KeepsTables, Log
from penstock.engine.ledger.gaps import skip_gaps
from penstock.engine.ledger.ledger import Ledger, open_ledger, stored_state_partitions
from penstock.engine.ledger.records import Commit, EpochChanges, ReplacedOutputs, TrackRecord
from penstock.engine.ledger.registration import Registration
from penstock.engine.ledger.savepoints import Savepoints
from penstock.engine.ledger.upgrade import is_old_folder, upgrade_folder
from penstock.engine.plan.cut import SourceCut
from penstock.engine.plan.inputs import open_inputs
from penstock.engine.plan.next_cut import Input, first_cut, topics_in
from penstock.engine.publish.app_writer import open_app_writer, written_by
from penstock.engine.publish.targets import Targets, declare_tables, take_over_targets
from penstock.engine.publish.topics import check_columns
from penstock.engine.resume.app_state import NOTHING_REPLACED, AppState
from penstock.engine.resume.decide import Found, Resume, backfill_after_skip, decide
from penstock.engine.resume.forecast import forecast_on
from penstock.engine.resume.look import declared_by, find, source_names
from penstock.engine.resume.track import Track
from penstock.engine.run.check import check_plan
from penstock.engine.run.compiled import CompiledPlan, Home
from penstock.engine.spark import session_for
from penstock.flow import plan as flow
from penstock.flow.pushdown import push_down
from penstock.flow.schemas import with_earlier_schemas, with_schemas_of
from penstock.flow.settings import AppSettings


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What the user has chosen for a start: to build everything again, and to do without rows that the log no longer
    has."""

    rebuild: bool = False
    from_oldest: bool = False


def start(
    declared: flow.Plan,
    log: Log,
    settings: AppSettings,
    spark: SparkSession,
    *,
    now: int,
    options: StartOptions,
    compiled: CompiledPlan | None = None,
) -> AppState:
    """Take over from whoever ran this app before. `compiled` is this plan as an earlier instance has built it.

    1. Build the whole plan, and look at the topics and at what is there: whatever is wrong shows before anybody is
       replaced.
    2. Take a new token, with which every earlier instance is refused: by the log, the ledger and the targets.
    3. Finish a restore that was begun.
    4. Continue from the last commit, as far as this plan still means the same; build the rest again.
    """
    schemas = find(log, declared).schemas
    declared = with_earlier_schemas(declared, schemas)
    home = _home(log, declared.app, settings, spark)
    directory, partitions = home.directory, home.partitions
    inputs: dict[str, Input] = {}  # opened only when nothing is wrong: that makes topics that are missing
    plan = push_down(declared)
    if compiled is not None and compiled.home == home and compiled.plan == plan:
        engine = compiled.reopen(inputs)
    else:
        engine = CompiledPlan(session_for(spark, partitions), plan, inputs, home)
    plan = engine.plan
    check_plan(engine)  # 1
    check_columns(log, plan, engine.build().outputs)
    forecast = forecast_on(log, declared, rebuild=options.rebuild, from_oldest=options.from_oldest)
    if forecast.resume.refused is not None:
        raise forecast.resume.refused
    writer = open_app_writer(log, plan.app)  # 2
    if is_old_folder(directory):
        upgrade_folder(directory, log, writer.token)
    ledger = open_ledger(directory, plan.app, state_partitions=partitions, created=now)
    ledger.take_over(writer.token)
    writer.begin(written_by(log, plan.app, ledger.created))
    inputs |= open_inputs(log, plan)
    targets = take_over_targets(log, writer, plan, engine.build().outputs)
    Savepoints(ledger, Registration(log, plan.app)).finish_restore(writer.token, restored_at=now)  # 3
    resume = _decide_start(log, declared, ledger, targets, writer.token, options)  # 4
    declare_tables(plan, engine.build().outputs, targets, find(log, declared), resume)
    whole = Track(engine, plan, inputs, first_cut(inputs, now), {}, {}, {}, {})
    app = AppState(
        ledger,
        writer,
        targets,
        declared_by(log, declared).sinks,
        whole=whole,
        live=whole,
        backfill=None,
        replaced=NOTHING_REPLACED,
        versions=resume.versions,
        origins=resume.origins,
        epoch=ledger.last_epoch(),
        muted=resume.muted,
        written=resume.written,
        schemas=with_schemas_of(declared, schemas),
        gaps=resume.gaps,
    )
    last = ledger.last_commit()
    return app if last is None else _resume_app(app, last, resume, rebuild=options.rebuild)


def _home(log: Log, app: str, settings: AppSettings, spark: SparkSession) -> Home:
    """Where the app lives, so that tasks find it too: they may run in other folders, and on other machines."""
    directory = log.apps_folder / app
    partitions = settings.state_partitions or stored_state_partitions(directory)
    return Home(log.url, directory, partitions or spark.sparkContext.defaultParallelism)


def _decide_start(
    log: Log, plan: flow.Plan, ledger: Ledger, targets: Targets, token: int, options: StartOptions
) -> Resume:
    """The decision, now that nobody else changes anything: what the forecast said, by what is really there."""
    declared = declared_by(log, plan, rebuild=options.rebuild, from_oldest=options.from_oldest)
    found = find(log, plan)
    resume = decide(declared, found)
    if resume.action == "skip":
        _skip_epoch(ledger, targets, token, found)
        resume = decide(declared, find(log, plan))
    if resume.refused is not None:
        raise resume.refused
    return resume


def _skip_epoch(ledger: Ledger, targets: Targets, token: int, found: Found) -> None:
    """Use up the number of a backfill epoch that this program does not want."""
    last = found.last
    assert last is not None
    skipped = replace(last, epoch=last.epoch + 1, token=token, backfill=backfill_after_skip(found), restored_from=None)
    for target in targets.values():
        if isinstance(target, KeepsTables):  # which are where the app is, or are built again
            target.apply(skipped.epoch, {})
    if found.forgotten:  # it does not read anything, so the app is as it was
        ledger.forget(epoch=skipped.epoch)
    ledger.commit(skipped, EpochChanges(skipped.epoch, skipped.committed_at))


def _resume_app(app: AppState, last: Commit, resume: Resume, *, rebuild: bool) -> AppState:
    """The app where the last commit left it, with the outputs that stay, and those that are to be built."""
    live = _live_track(app.whole, last, resume)
    states, views = {**last.replaced.states, **last.live.states}, last.views
    replaced = ReplacedOutputs(views={name: view for name, view in views.items() if name not in resume.kept})
    if not rebuild:
        accounts = {**last.replaced.accounts, **last.live.accounts}
        outdated = {name for name in resume.known if name not in resume.kept}
        replaced = ReplacedOutputs(
            {name: resume.known[name] for name in outdated},
            {name: runs for name, runs in states.items() if name not in live.states},
            replaced.views,
            {name: account for name, account in accounts.items() if name in outdated},
        )
    app = replace(app, live=live, whole=app.whole if resume.backfill else live, replaced=replaced)
    return replace(app, backfill=_backfill_track(app.whole, last, resume)) if resume.backfill else app


def _live_track(whole: Track, last: Commit, resume: Resume) -> Track:
    """The outputs that stay, where the last commit left them. Topics that were created again are read anew."""
    stored = {
        name: source for name, source in last.live.cut.sources.items() if _is_same(source, whole.inputs.get(name))
    }
    track, sources = whole, {name: stored.get(name, source) for name, source in whole.cut.sources.items()}
    if resume.backfill:
        track, sources = _part(whole, resume.kept), stored
    wanted = track.engine.states()
    states, views = {**last.replaced.states, **last.live.states}, last.views
    accounts = {**last.replaced.accounts, **last.live.accounts}
    return replace(
        track,
        cut=skip_gaps(replace(last.live.cut, epoch=last.epoch, sources=sources), resume.gaps),
        times={group: time for group, time in last.live.times.items() if topics_in(group) <= sources.keys()},
        states={name: runs for name, runs in states.items() if name in wanted},
        views={name: views[name].runs for name in resume.kept if name in views},
        accounts={name: account for name, account in accounts.items() if name in resume.kept},
    )


def _backfill_track(whole: Track, last: Commit, resume: Resume) -> Track:
    """Outputs that changed are built from the beginning of the log, while those that stay wait where they are."""
    track = _part(whole, resume.backfill)
    if not resume.continues or last.backfill is None:
        return replace(track, cut=replace(track.cut, epoch=last.epoch))
    continued = _from_record(track, last.backfill.track, last.epoch)
    return replace(continued, cut=skip_gaps(continued.cut, resume.gaps))


def _from_record(track: Track, record: TrackRecord, epoch: int) -> Track:
    # The number is the commit's own: a restored one has the cut of an earlier epoch.
    return replace(
        track,
        cut=replace(record.cut, epoch=epoch),
        times=record.times,
        states=record.states,
        views={name: view.runs for name, view in record.views.items()},
        accounts=record.accounts,
    )


def _part(whole: Track, outputs: Collection[str]) -> Track:
    """A track of some of the outputs, before its first epoch."""
    plan = flow.Plan(whole.plan.app, tuple(output for output in whole.plan.outputs if output.name in outputs))
    sources = {name for output in plan.outputs for name in source_names(output.node)}
    inputs = {name: input_ for name, input_ in whole.inputs.items() if name in sources}
    cut = replace(whole.cut, sources={name: whole.cut.sources[name] for name in inputs})
    return Track(whole.engine.for_outputs(plan, inputs), plan, inputs, cut, {}, {}, {}, {})


def _is_same(cut: SourceCut, input_: Input | None) -> bool:
    return input_ is None or input_.topic.id == cut.topic_id
