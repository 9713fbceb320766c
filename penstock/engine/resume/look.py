"""What a start is decided by: what the program declares, and what is there of the app and its topics. Only looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.contracts import Destination, Log, TargetStatus
from penstock.engine.ledger.ledger import APP_NAME, Ledger
from penstock.engine.ledger.records import Commit, EpochPlan, RestorePlan, SinkRecord
from penstock.engine.ledger.savepoints import load_savepoint
from penstock.engine.ledger.upgrade import is_old_folder, read_old_commit
from penstock.engine.publish.app_writer import written_by
from penstock.engine.publish.topics import existing_destinations
from penstock.engine.resume.decide import Declared, DeclaredSink, Found, TopicFound
from penstock.flow import plan as flow
from penstock.flow.code import digest
from penstock.flow.fingerprint import fingerprint
from penstock.flow.pushdown import push_down
from penstock.targets import target_status
from penstock.units import now_microseconds


def declared_by(log: Log, plan: flow.Plan, *, rebuild: bool = False, from_oldest: bool = False) -> Declared:
    """What a program declares. Sinks are recorded as they were written down, before anything was narrowed."""
    narrow, targets = push_down(plan), find_targets(log, plan)
    return Declared(
        plan.app,
        {output.name: _fingerprint(output) for output in narrow.outputs},
        {output.name: frozenset(source_names(output.node)) for output in narrow.outputs},
        {
            sink.name: _declared_sink(log, sink, destinations)
            for sink in plan.all_sinks
            if (destinations := targets[sink.target].destinations) is not None
        },
        rebuild,
        {sink.name: sink.target for sink in plan.all_sinks if targets[sink.target].can_take_back},
        from_oldest,
    )


def find(log: Log, plan: flow.Plan) -> Found:
    """What is there of an app, before it is started."""
    directory = log.apps_folder / plan.app
    topics = find_topics(log, plan)
    targets = find_targets(log, plan)
    missing = _topics_read(plan) - topics.keys()
    found = Found(None, topics=topics, targets=targets, missing=missing, now=now_microseconds())
    if not (directory / APP_NAME).exists():
        return found
    if is_old_folder(directory):
        return replace(found, last=read_old_commit(directory, log))
    ledger = Ledger(directory)
    last, pending = _last_epochs(ledger)
    restores = isinstance(ledger.pending_plan(), RestorePlan)
    written = replace(targets[flow.TOPICS], epoch=written_by(log, ledger.app, ledger.created).epoch)
    return replace(
        found,
        last=last,
        pending=pending,
        targets={**targets, flow.TOPICS: written},
        forgotten=ledger.is_forgotten() and not restores,
    )


def find_targets(log: Log, plan: flow.Plan) -> dict[str, TargetStatus]:
    """What targets have of an app, without taking them over; of topics not which epochs they have."""
    outside = {sink.url: target_status(sink.url, plan.app) for sink in plan.external_sinks}
    return {flow.TOPICS: TargetStatus(destinations=existing_destinations(log, plan)), **outside}


def find_topics(log: Log, plan: flow.Plan) -> dict[str, TopicFound]:
    """The topics of a plan that are there."""
    names = _topics_read(plan) | {sink.topic for sink in plan.sinks}
    found = {}
    for name in sorted(names & set(log.topics())):
        topic = log.topic(name)
        found[name] = TopicFound(topic.id, topic.starts(), topic.ends())
    return found


def _topics_read(plan: flow.Plan) -> frozenset[str]:
    return frozenset(name for output in plan.outputs for name in source_names(output.node))


def source_names(node: flow.Node) -> set[str]:
    """The topics that a node is made of."""
    return {source.name for source in flow.upstream(node) if isinstance(source, flow.Topic | flow.Changelog)}


def _last_epochs(ledger: Ledger) -> tuple[Commit | None, EpochPlan | None]:
    """The commit to continue from, and the plan of an epoch that is not committed. A restore counts as done."""
    pending = ledger.pending_plan()
    if isinstance(pending, RestorePlan):
        return replace(load_savepoint(ledger, pending.restores).commit, epoch=pending.epoch), None
    return ledger.last_commit(), pending


def _fingerprint(output: flow.Output) -> str:
    """What distinguishes an output from other forms of it."""
    meaning = fingerprint(output.node)
    if isinstance(output, flow.View):
        return meaning
    return digest(f"{output.destination} {meaning}")


def _declared_sink(log: Log, sink: flow.AnySink, destinations: Mapping[str, Destination]) -> DeclaredSink:
    """What it says is as it was declared: other views may change how its answer is worked out, and not the answer."""
    known, destination = set(log.topics()), destinations.get(sink.name)
    inputs = {name: log.topic(name).id if name in known else None for name in source_names(sink.node)}
    record = SinkRecord(destination.id if destination else None, fingerprint(sink.node), dict(sorted(inputs.items())))
    what, hint = f"target '{sink.destination}'", "name another target, or empty this one"
    if sink.target == flow.TOPICS:
        what = f"topic '{sink.destination}'"
        hint = f"name another topic, or have it written again: penstock topic drop {sink.destination}"
    replaces_rows = sink.node.shape.retracts
    return DeclaredSink(sink.name, str(sink.location), sink.target, what, hint, record, replaces_rows)
