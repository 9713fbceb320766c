"""What starting a program would do to an app that has run before, said beforehand. Nothing is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.derive.place import app_directory
from penstock.engine.ledger.ledger import APP_NAME, Ledger
from penstock.engine.ledger.records import Commit
from penstock.engine.ledger.savepoints import load_savepoint
from penstock.engine.ledger.view_copies import StoredViews
from penstock.engine.plan.inputs import check_inputs
from penstock.engine.publish.sink_topics import check_beginning, check_going_on, ids_of, sink_records, sinks_producer
from penstock.engine.resume.versions import (
    Difference,
    Ids,
    can_run,
    check_reach,
    check_topics,
    complete_sinks,
    difference,
    fingerprints,
    goes_on,
    known_origins,
    known_outputs,
    part_of,
    source_names,
    version,
)
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.narrow import narrowed
from penstock.log import Log
from penstock.log.identity import LOG_NAME


@dataclass(frozen=True, slots=True)
class Forecast:
    """Views and sinks by what becomes of them.

    `rows` are to be read to build some of them, `goes_on` says that this was begun before, and `refused` says why the
    program cannot be started.
    """

    first: bool  # the app has not run before
    difference: Difference
    rows: int = 0
    goes_on: bool = False
    refused: DeclarationError | None = None


def forecast(plan: flow.Plan, path: Path) -> Forecast:
    """The same for a log that may not be there yet."""
    if not (path / LOG_NAME).exists():
        return Forecast(True, difference(fingerprints(plan), {}))
    with Log(path, create=False) as log:
        return forecast_on(log, plan)


def forecast_on(log: Log, plan: flow.Plan, *, rebuild: bool = False) -> Forecast:
    declared, plan = plan, narrowed(plan)
    directory = app_directory(log.path, plan.app)
    ledger = Ledger(directory) if (directory / APP_NAME).exists() else None
    last, planned = (None, None) if ledger is None else _left(ledger, log)
    known, written = ({}, {}) if last is None else known_outputs(last.document, planned)
    said = fingerprints(plan)
    found = Forecast(last is None, difference(said, known, rebuild=rebuild))
    try:
        check_inputs(log, plan)
        records = sink_records(log, declared)
        ids = ids_of(log, plan, records)
        if last is not None:
            half_built = None if rebuild else last.document["building"]
            goes = goes_on(half_built, said, found.difference.built, ids, complete_sinks(written, records))
            found = _compared(replace(found, goes_on=goes), last.document, log, plan, ids, rebuild=rebuild)
        check_going_on(log, [sink for sink in plan.sinks if sink.name in found.difference.kept], written)
        built = {name: version(said[name], last.epoch if last else 0) for name in found.difference.built}
        continues = planned is not None and can_run(planned, built, ids, building=last is not None)
        if not found.goes_on and not continues:
            begun = [sink for sink in plan.sinks if sink.name in built]
            begun = [sink for sink in begun if sink.name not in complete_sinks(written, records)]
            check_beginning({sink: log.topic(sink.topic) for sink in begun if sink.topic in log.topics()})
        return found
    except DeclarationError as error:
        return replace(found, refused=error)


def _left(ledger: Ledger, log: Log) -> tuple[Commit | None, Mapping[str, Any] | None]:
    """What the last instance has left: the commit to go on from, and the plan of an epoch that is not committed.

    The plan counts if anybody can have seen something of its epoch.
    """
    pending = ledger.pending_plan()
    if pending is not None and pending.restores is not None:
        return replace(load_savepoint(ledger, pending.restores).commit, epoch=pending.epoch), None
    published = StoredViews(ledger.directory, ledger.app).epoch() or 0
    seen = max(published, log.last_transaction(sinks_producer(ledger)))
    return ledger.last_commit(), pending.document if pending is not None and seen >= pending.epoch else None


def _compared(
    found: Forecast, document: Mapping[str, Any], log: Log, plan: flow.Plan, ids: Ids, *, rebuild: bool
) -> Forecast:
    """The forecast for an app that has run before; refused if its topics are no longer what it needs."""
    inputs = {name: log.topic(name) for name in source_names(plan) & set(log.topics())}
    if not rebuild:
        check_topics(plan.app, document, ids.inputs)
    built = found.difference.built
    read = source_names(part_of(plan, built))
    starts = {name: topic.starts() for name, topic in inputs.items() if name in read}
    if found.goes_on:
        ends = {name: one["ends"] for name, one in document["building"]["cut"]["sources"].items()}
        starts = {
            name: {number: ends.get(name, {}).get(str(number), start) for number, start in parts.items()}
            for name, parts in starts.items()
        }
    else:
        check_reach(plan.app, known_origins(document, ids.inputs), starts)
    rows = sum(inputs[name].end(number) - start for name, parts in starts.items() for number, start in parts.items())
    return replace(found, rows=rows)
