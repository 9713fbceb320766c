"""What starting a program would do to an app that has run before, said beforehand. Nothing is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.derive.place import app_directory
from penstock.engine.inputs import check_inputs
from penstock.engine.ledger import APP_NAME, Ledger
from penstock.engine.sink_topics import check_beginning, check_going_on, topic_ids
from penstock.engine.versions import (
    Difference,
    Written,
    can_run,
    check_reach,
    check_topics,
    difference,
    fingerprints,
    goes_on,
    known_origins,
    part_of,
    record_of,
    source_names,
    version,
)
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.narrow import narrowed
from penstock.log import Log
from penstock.log.log import LOG_NAME


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
    plan = narrowed(plan)
    directory = app_directory(log.path, plan.app)
    ledger = Ledger(directory) if (directory / APP_NAME).exists() else None
    last = None if ledger is None else ledger.last_commit()
    stored = {} if last is None else last.document["outputs"]
    found = Forecast(last is None, difference(fingerprints(plan), stored, rebuild=rebuild))
    try:
        check_inputs(log, plan)
        if last is not None:
            found = _compared(found, last.document, log, plan, rebuild=rebuild)
        _check_sinks(found, ledger, log, plan)
        return found
    except DeclarationError as error:
        return replace(found, refused=error)


def _check_sinks(found: Forecast, ledger: Ledger | None, log: Log, plan: flow.Plan) -> None:
    """Refuse sinks whose topic is not the one they have written, or has rows though they begin."""
    last = None if ledger is None else ledger.last_commit()
    written: Written = {} if last is None else last.document["written"]
    check_going_on(log, [sink for sink in plan.sinks if sink.name in found.difference.kept], written)
    versions = {name: version(one, last.epoch if last else 0) for name, one in fingerprints(plan).items()}
    built = {name: versions[name] for name in found.difference.built}
    pending = None if ledger is None else ledger.pending_plan()
    planned = None if pending is None or pending.restores is not None else pending.document
    if found.goes_on or (planned is not None and can_run(planned, built, building=last is not None)):
        return  # what the topics hold is theirs
    ids = topic_ids(log, plan.sinks)
    begun = [sink for sink in plan.sinks if sink.name in built]
    silent = [one.name for one in begun if written.get(one.name) == record_of(ids.get(one.name, ""), built[one.name])]
    check_beginning(log, [sink for sink in begun if sink.name not in silent])


def _compared(found: Forecast, document: Mapping[str, Any], log: Log, plan: flow.Plan, *, rebuild: bool) -> Forecast:
    """The forecast for an app that has run before; refused if its topics are no longer what it needs."""
    topics = {name: log.topic(name) for name in source_names(plan) & set(log.topics())}
    ids = {name: topic.description.id for name, topic in topics.items()}
    if not rebuild:
        check_topics(plan.app, document, ids)
    built = found.difference.built
    read = source_names(part_of(plan, built))
    starts = {name: topic.starts() for name, topic in topics.items() if name in read}
    half_built = None if rebuild else document["building"]
    goes = goes_on(half_built, fingerprints(plan), built)
    if goes:
        assert half_built is not None
        ends = {name: one["ends"] for name, one in half_built["cut"]["sources"].items()}
        starts = {
            name: {number: ends.get(name, {}).get(str(number), start) for number, start in parts.items()}
            for name, parts in starts.items()
        }
    else:
        check_reach(plan.app, known_origins(document, ids), starts)
    rows = sum(topics[name].end(number) - start for name, parts in starts.items() for number, start in parts.items())
    return replace(found, rows=rows, goes_on=goes)
