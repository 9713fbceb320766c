"""`penstock plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.command import command
from penstock.cli.options import AppFile, AsJson, ChosenApp, LogOfApp
from penstock.cli.output import counted, print_json, say

if TYPE_CHECKING:
    from penstock.engine.resume.forecast import Forecast


@command
def plan(file: AppFile, app: ChosenApp = None, as_json: AsJson = False, log: LogOfApp = None) -> None:
    """Say what starting a changed program would do: which views stay, and which are built again from the log.

    Nothing is started and nothing is changed. The status is 1 if the program would be refused.
    """
    from penstock.app import load_app
    from penstock.engine.resume.forecast import forecast

    loaded = load_app(file, name=app)
    found = forecast(loaded.plan, log or loaded.log)
    if as_json:
        print_json({"app": loaded.name, **_document(found)})
    else:
        for line in _lines(loaded.name, found):
            say(line)
    if found.resume.refused is not None:
        raise found.resume.refused


def _document(found: Forecast) -> dict[str, object]:
    resume = found.resume
    return {
        "first_start": resume.first,
        "kept": () if resume.first else tuple(resume.kept),
        "rebuilt": resume.rebuilt,
        "new": resume.new,
        "dropped": resume.dropped,
        "muted": tuple(sorted(resume.muted)),
        "continues_backfill": resume.continues,
        "rows_to_read": found.rows,
        "refused": None if resume.refused is None else resume.refused.message,
    }


def _lines(name: str, found: Forecast) -> list[str]:
    resume = found.resume
    if resume.first:
        built = "its view is" if len(resume.new) == 1 else f"all {len(resume.new)} views are"
        return [f"app '{name}' has not run on this log: {built} built from the log"]
    groups = [
        ("kept as they are", tuple(resume.kept)),
        ("changed, built again beside the old ones", resume.rebuilt),
        ("new, built from the log", resume.new),
        ("no longer declared, dropped", resume.dropped),
    ]
    lines = [f"{what}: {', '.join(views)}" for what, views in groups if views]
    if resume.backfill and resume.refused is None:
        what = "still to be read, of what was begun" if resume.continues else "to be read again"
        lines.append(f"{what}: {counted(found.rows, 'row')}; the views that are kept stand still meanwhile")
    return lines
