"""The targets outside of the log that an app writes: taken over at its start, and given the tables they need."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.contracts import KeepsTables, Target, TargetTable
from penstock.engine.ledger.records import Versions
from penstock.engine.resume.decide import Found, Resume
from penstock.flow import plan as flow
from penstock.targets import open_target

Targets = Mapping[str, Target]
"""Targets by their URLs."""


def take_over_targets(plan: flow.Plan, token: int) -> Targets:
    """Open every target that the program names, and refuse whoever wrote it before."""
    targets: dict[str, Target] = {}
    try:
        for url in sorted({sink.url for sink in plan.external_sinks}):
            targets[url] = open_target(url)
            targets[url].take_over(plan.app, token)
    except BaseException:
        for target in targets.values():
            target.close()
        raise
    return targets


def declare_tables(
    plan: flow.Plan, schemas: Mapping[str, pa.Schema], targets: Targets, found: Found, resume: Resume
) -> None:
    """Have the tables of all sinks, hidden where they are to be built while others are shown."""
    for url, target in targets.items():
        if not isinstance(target, KeepsTables):
            continue
        if not found.is_current(url) or (resume.first and resume.action != "run"):
            if resume.first:  # tables of an app that was begun anew since
                target.drop([*target.status().tables, *target.status().hidden])
            target.realign(0 if found.last is None else found.last.epoch)
        target.declare(_tables(plan, url, schemas, resume.kept))
        target.declare(_tables(plan, url, schemas, resume.backfill), hidden=True)


def _tables(plan: flow.Plan, url: str, schemas: Mapping[str, pa.Schema], versions: Versions) -> list[TargetTable]:
    return [
        TargetTable(sink.name, schemas[sink.name], sink.node.shape.key, versions[sink.name])
        for sink in plan.external_sinks
        if sink.url == url and sink.name in versions
    ]
