"""`penstock views`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AppName, AsJson, LogPath
from penstock.cli.output import instant_text, print_json, print_line, print_table

if TYPE_CHECKING:
    from penstock.derive.views import ViewStatus


@command
def views(app: AppName = None, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """List the views of an app: how many rows they have, and how fresh they are.

    The epoch and its age are those of all views: they move together. The watermark is the time up to which everything
    that happened is in the view.
    """
    from penstock.derive.views import views as status
    from penstock.paths import app_directory, chosen_app

    chosen = chosen_app(log_path, app)
    found = status(app_directory(log_path, chosen))
    if as_json:
        print_json({"app": chosen, "views": [_document(view) for view in found]})
    elif not found:
        print_line(f"app '{chosen}' has no views")
    else:
        now = datetime.now(UTC)
        columns = ("view", "rows", "key", "watermark", "events", "epoch", "committed at", "age")
        print_table(columns, [_line(view, now) for view in found])
        for line in _gap_lines(found):
            print_line(line)


def _line(view: ViewStatus, now: datetime) -> tuple[object, ...]:
    return (
        f"{view.name} (being rebuilt)" if view.rebuilding else view.name,
        view.rows,
        None if view.key is None else ",".join(view.key),
        None if view.watermark is None else instant_text(view.watermark),
        None if view.account is None else view.account.counted,
        view.epoch,
        None if view.committed_at is None else instant_text(view.committed_at),
        None if view.committed_at is None else _age(view.committed_at, now),
    )


def _gap_lines(found: Sequence[ViewStatus]) -> list[str]:
    """What views were built without. Views with the same gap share a line."""
    from penstock.engine.ledger.gaps import gap_text

    views_by_gap: dict[tuple[str, int], list[str]] = {}
    for view in found:
        for gap in view.gaps:
            views_by_gap.setdefault((gap_text(gap), gap.accepted_at), []).append(view.name)
    return [
        f"built without rows that were no longer in the log: {', '.join(names)}: {where}; since {instant_text(moment)}"
        for (where, moment), names in views_by_gap.items()
    ]


def _age(moment: datetime, now: datetime) -> str:
    from penstock.units import format_duration

    seconds = max(0.0, (now - moment).total_seconds())
    unit = next((unit for unit in (86_400, 3_600, 60) if seconds >= 2 * unit), 1)
    return format_duration(float(round(seconds / unit) * unit))


def _document(view: ViewStatus) -> dict[str, object]:
    from penstock.engine.ledger.gaps import gap_document

    return {
        "view": view.name,
        "columns": view.columns,
        "key": view.key,
        "rows": view.rows,
        "epoch": view.epoch,
        "committed_at": view.committed_at,
        "watermark": view.watermark,
        "account": view.facts or None,
        "being_rebuilt": view.rebuilding,
        "gaps": [gap_document(gap) for gap in view.gaps],
    }
