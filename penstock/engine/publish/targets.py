"""The targets that an app writes: opened and taken over at its start, asked what they have, given the tables they need.

What is done with a target follows from its powers, which are asked for with `isinstance` of a Protocol, never from
which target it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.contracts import CannotTakeBack, KeepsTables, LimitsEpochs, Log, Target, TargetStatus, TargetTable
from penstock.engine.ledger.records import Versions
from penstock.engine.publish.app_writer import AppWriter
from penstock.engine.publish.side_topics import SIDE_TOPICS, SideTopics
from penstock.engine.publish.topics import TopicTarget, topic_sinks
from penstock.engine.resume.decide import Found, Resume
from penstock.flow import plan as flow
from penstock.targets import open_target

Targets = Mapping[str, Target]
"""Targets by their names, in the order in which they are published: side topics, topics, and URLs."""


def take_over_targets(log: Log, writer: AppWriter, plan: flow.Plan, schemas: Mapping[str, pa.Schema]) -> Targets:
    """Open every target that the program names, and refuse whoever wrote it before.

    Topics are taken over also where this program writes none: the one before may have.
    """
    targets: dict[str, Target] = {
        SIDE_TOPICS: SideTopics(log, writer),
        flow.TOPICS: TopicTarget(log, writer, topic_sinks(plan, schemas)),
    }
    try:
        for url in sorted({sink.url for sink in plan.external_sinks}):
            targets[url] = open_target(url)
        for name, target in targets.items():
            target.take_over(plan.app, writer.token)
            if isinstance(target, CannotTakeBack):
                target.prepare(sink.name for sink in plan.sinks_to(name))
    except BaseException:
        close_targets(targets)
        raise
    return _in_order(targets)


def _in_order(targets: Targets) -> Targets:
    """Rows set aside count for nobody as seen, so they go first; then targets that may refuse an epoch for its size."""
    sinks = sorted(targets.keys() - {SIDE_TOPICS}, key=lambda name: (not isinstance(targets[name], LimitsEpochs), name))
    return {name: targets[name] for name in (SIDE_TOPICS, *sinks)}


def close_targets(targets: Targets) -> None:
    for target in targets.values():
        target.close()


def statuses(targets: Targets) -> dict[str, TargetStatus]:
    """What those targets have that a start is decided by."""
    found: dict[str, TargetStatus] = {}
    for name, target in targets.items():
        if isinstance(target, KeepsTables):
            found[name] = target.status()
        elif isinstance(target, CannotTakeBack):
            found[name] = TargetStatus(target.last_epoch(), destinations=target.destinations())
    return found


def declare_tables(
    plan: flow.Plan, schemas: Mapping[str, pa.Schema], targets: Targets, found: Found, resume: Resume
) -> None:
    """Have the tables of all sinks, hidden where they are to be built while others are shown."""
    for name, target in targets.items():
        if not isinstance(target, KeepsTables):
            continue
        if not found.is_current(name) or (resume.first and resume.action != "run"):
            if resume.first:  # tables of an app that was begun anew since
                target.drop([*target.status().tables, *target.status().hidden])
            target.realign(0 if found.last is None else found.last.epoch)
        target.declare(_tables(plan, name, schemas, resume.kept))
        target.declare(_tables(plan, name, schemas, resume.backfill), hidden=True)


def drop_old_tables(plan: flow.Plan, targets: Targets) -> None:
    """Remove the tables of sinks that the program does not have."""
    for name, target in targets.items():
        if isinstance(target, KeepsTables):
            wanted = {sink.name for sink in plan.sinks_to(name)}
            target.drop([table for table in target.status().tables if table not in wanted])


def _tables(plan: flow.Plan, target: str, schemas: Mapping[str, pa.Schema], versions: Versions) -> list[TargetTable]:
    return [
        TargetTable(sink.name, schemas[sink.name], sink.node.shape.key, versions[sink.name])
        for sink in plan.sinks_to(target)
        if sink.name in versions
    ]
