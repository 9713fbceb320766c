"""`penstock plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.command import command
from penstock.cli.options import AppFile, AsJson, ChosenApp, FromOldest, LogOfApp
from penstock.cli.output import count_text, print_json, print_line, print_warnings

if TYPE_CHECKING:
    from penstock.engine.resume.decide import Resume
    from penstock.engine.resume.forecast import Forecast


@command
def plan(
    file: AppFile,
    from_oldest: FromOldest = False,
    app: ChosenApp = None,
    as_json: AsJson = False,
    log_path: LogOfApp = None,
) -> None:
    """Say what starting a changed program would do: which views stay, which are built again from the log, and which
    offsets it needs that the log no longer has.

    Nothing is started and nothing is changed. The status is 1 if the program would be refused.
    """
    from penstock.app import load_app
    from penstock.engine.resume.forecast import forecast as forecast_start
    from penstock.flow.explain import warnings_document

    loaded = load_app(file, name=app)
    forecast = forecast_start(loaded.plan, log_path or loaded.log, from_oldest=from_oldest)
    if as_json:
        print_json({"app": loaded.name, **_document(forecast), "warnings": warnings_document(loaded.plan)})
    else:
        print_warnings(loaded.plan)
        for line in _lines(loaded.name, forecast):
            print_line(line)
    if forecast.resume.refused is not None:
        raise forecast.resume.refused


def _document(forecast: Forecast) -> dict[str, object]:
    from penstock.engine.ledger.gaps import gap_document, unknown_gaps

    resume = forecast.resume
    return {
        "first_start": resume.first,
        "kept": () if resume.first else tuple(resume.kept),
        "rebuilt": resume.rebuilt,
        "new": resume.new,
        "dropped": resume.dropped,
        "muted": tuple(sorted(resume.muted)),
        "continues_backfill": resume.continues,
        "rows_to_read": forecast.rows,
        "missing": [gap_document(gap) for gap in resume.new_gaps],
        "gaps": [gap_document(gap) for gap in unknown_gaps(resume.gaps, resume.new_gaps)],
        "refused": None if resume.refused is None else resume.refused.message,
    }


def _lines(name: str, forecast: Forecast) -> list[str]:
    resume = forecast.resume
    if resume.first:
        built = "its view is" if len(resume.new) == 1 else f"all {len(resume.new)} views are"
        return [f"app '{name}' has not run on this log: {built} built from the log"]
    groups = [
        ("kept as they are", tuple(resume.kept)),
        ("changed, rebuilt next to the old ones", resume.rebuilt),
        ("new, built from the log", resume.new),
        ("no longer declared, dropped", resume.dropped),
    ]
    lines = [f"{what}: {', '.join(views)}" for what, views in groups if views]
    if resume.backfill and resume.refused is None:
        what = "still to be read, of what was begun" if resume.continues else "to be read again"
        lines.append(
            f"{what}: {count_text(forecast.rows, 'row')}; the views that are kept do not advance until it is done"
        )
    return [*lines, *_gap_lines(resume)]


def _gap_lines(resume: Resume) -> list[str]:
    """What is missing now, and what was left out before."""
    from penstock.engine.ledger.gaps import gap_text, unknown_gaps

    lines = [f"no longer in the log, and not read yet: {gap_text(gap)}" for gap in resume.unread]
    lines += [
        f"no longer in the log, and needed for {', '.join(sorted(gap.outputs))}: {gap_text(gap)}"
        for gap in resume.unbuilt
    ]
    known = unknown_gaps(resume.gaps, resume.new_gaps)
    return lines + [f"left out before, in {', '.join(sorted(gap.outputs))}: {gap_text(gap)}" for gap in known]
