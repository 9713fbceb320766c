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
    if found.refused is not None:
        raise found.refused


def _document(found: Forecast) -> dict[str, object]:
    differs = found.difference
    return {
        "first_start": found.first,
        "kept": differs.kept,
        "rebuilt": differs.rebuilt,
        "new": differs.new,
        "dropped": differs.dropped,
        "goes_on_building": found.goes_on,
        "rows_to_read": found.rows,
        "refused": None if found.refused is None else found.refused.message,
    }


def _lines(name: str, found: Forecast) -> list[str]:
    differs = found.difference
    if found.first:
        built = "its view is" if len(differs.new) == 1 else f"all {len(differs.new)} views are"
        return [f"app '{name}' has not run on this log: {built} built from the log"]
    groups = [
        ("kept as they are", differs.kept),
        ("changed, built again beside the old ones", differs.rebuilt),
        ("new, built from the log", differs.new),
        ("no longer declared, dropped", differs.dropped),
    ]
    lines = [f"{what}: {', '.join(views)}" for what, views in groups if views]
    if differs.built and found.refused is None:
        what = "still to be read, of what was begun" if found.goes_on else "to be read again"
        lines.append(f"{what}: {counted(found.rows, 'row')}; the views that are kept stand still meanwhile")
    return lines
