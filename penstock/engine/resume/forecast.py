"""What starting a program would do to an app that has run before, said beforehand. Nothing is started."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.contracts import Log
from penstock.engine.plan.inputs import check_inputs
from penstock.engine.resume.decide import Declared, Found, Offsets, Resume, decide
from penstock.engine.resume.look import declared_by, find
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.pushdown import push_down
from penstock.flow.schemas import with_earlier_schemas
from penstock.logs import log_exists, open_log


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a start would decide, and how many rows are to be read to build what it builds."""

    resume: Resume
    rows: int = 0


def forecast(plan: flow.Plan, url: str | Path, *, from_oldest: bool = False) -> Forecast:
    """What starting a program would do on a log that may not exist yet."""
    if not log_exists(url):
        names = {output.name: "" for output in plan.outputs}
        return Forecast(decide(Declared(plan.app, names, dict.fromkeys(names, frozenset())), Found(None)))
    with closing(open_log(url)) as log:
        return forecast_on(log, plan, from_oldest=from_oldest)


def forecast_on(log: Log, plan: flow.Plan, *, rebuild: bool = False, from_oldest: bool = False) -> Forecast:
    found = find(log, plan)
    plan = with_earlier_schemas(plan, found.schemas)
    declared = declared_by(log, plan, rebuild=rebuild, from_oldest=from_oldest)
    resume = decide(declared, found)
    try:
        check_inputs(log, push_down(plan))
    except DeclarationError as error:
        return Forecast(replace(resume, refused=error))
    return Forecast(resume, _rows_to_read(declared, found, resume))


def _rows_to_read(declared: Declared, found: Found, resume: Resume) -> int:
    read = {topic for name in resume.backfill for topic in declared.reads[name]}
    begun: Mapping[str, Offsets] = {}
    if resume.continues and found.last is not None and found.last.backfill is not None:
        begun = {name: cut.ends for name, cut in found.last.backfill.track.cut.sources.items()}
    return sum(
        topic.ends[number] - begun.get(name, {}).get(number, start)
        for name, topic in found.topics.items()
        if name in read
        for number, start in topic.starts.items()
    )
