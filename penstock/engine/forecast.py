"""What starting a program would do to an app that has run before, said beforehand. Nothing is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.derive.place import app_directory, app_names
from penstock.engine.ledger import Ledger
from penstock.engine.versions import Difference, check_reach, difference, part_of, versions
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.log import Log


@dataclass(frozen=True, slots=True)
class Forecast:
    """Views by what becomes of them; `rows` are to be read again, and `refused` says why that is not possible."""

    first: bool  # the app has not run before
    difference: Difference
    rows: int
    refused: DeclarationError | None


def forecast(plan: flow.Plan, path: Path) -> Forecast:
    ledger = Ledger(app_directory(path, plan.app)) if plan.app in app_names(path) else None
    last = None if ledger is None else ledger.last_commit()
    if last is None:
        return Forecast(True, difference(versions(plan, 0), {}), 0, None)
    differs = difference(versions(plan, last.document["generation"]), last.document["views"])
    sources = {
        node.name
        for node in flow.nodes(part_of(plan, differs.built))
        if isinstance(node, flow.Topic | flow.Changelog)
    }
    with Log(path, create=False) as log:
        topics = {name: log.topic(name) for name in sources & set(log.topics())}
        starts = {name: topic.starts() for name, topic in topics.items()}
        rows = sum(topic.end(number) - start for name, topic in topics.items() for number, start in starts[name].items())
        try:
            check_reach(plan.app, last.document["origins"], starts)
        except DeclarationError as error:
            return Forecast(False, differs, rows, error)
    return Forecast(False, differs, rows, None)
