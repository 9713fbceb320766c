"""`penstock views`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AppName, AsJson, LogPath, open_log
from penstock.cli.output import age_text, instant_text, print_json, print_line, print_table
from penstock.cli.status import backfill_text
from penstock.errors import PenstockError
from penstock.units import now_microseconds

if TYPE_CHECKING:
    from penstock.derive.views import ViewStatus
    from penstock.engine.ledger.status import AppStatus


@command
def views(app: AppName = None, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """List the views of an app: how many rows they have, how fresh they are, and what they have missed.

    The watermark is the time up to which everything that happened is in the view. Late and dead events are not in it.
    All views move together: the epoch, its age and the lag (the rows that wait to be read) are those of all of them.

    Example: penstock views --app shop
    """
    from penstock.derive.views import views as list_views
    from penstock.paths import app_directory, chosen_app

    chosen = chosen_app(log_path, app)
    found, status = list_views(app_directory(log_path, chosen)), _status_of(log_path, chosen)
    if as_json:
        backfill = status.backfill and {**asdict(status.backfill), "share": round(status.backfill.share, 4)}
        documents = [_document(view, status) for view in found]
        print_json({"app": chosen, "lag": _lag(status), "backfill": backfill, "views": documents})
    elif not found:
        print_line(f"app '{chosen}' has no views yet: they appear with its first epoch, once there are rows to process")
    else:
        now = now_microseconds()
        columns = ("view", "rows", "key", "watermark", "events", "late", "dead", "lag", "epoch", "age")
        print_table(columns, [_line(view, status, now) for view in found])
        for line in _gap_lines(found):
            print_line(line)
        if status.backfill is not None:
            print_line()
            print_line(backfill_text(status.backfill))


def _status_of(log_path: Path, app: str) -> AppStatus:
    """How the app is doing. Views can be read also where the log cannot: then that is its problem."""
    from penstock.engine.ledger.status import AppStatus, app_status

    try:
        with open_log(log_path) as log:
            return app_status(log, app, detailed=False)
    except PenstockError as error:
        return AppStatus(app, problem=error.message)


def _lag(status: AppStatus) -> int | None:
    return status.lag if status.problem is None else None


def _stands_still(view: ViewStatus, status: AppStatus) -> bool:
    return any(output.name == view.name and output.state == "waiting" for output in status.outputs)


def _line(view: ViewStatus, status: AppStatus, now: int) -> tuple[object, ...]:
    note = " (being rebuilt)" if view.rebuilding else " (not advancing)" if _stands_still(view, status) else ""
    account = view.account
    return (
        view.name + note,
        view.rows,
        None if view.key is None else ",".join(view.key),
        None if view.watermark is None else instant_text(view.watermark),
        None if account is None else account.counted,
        None if account is None else account.late,
        None if account is None else account.dead,
        _lag(status),
        view.epoch,
        None if view.committed_at is None else age_text(view.committed_at, now),
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


def _document(view: ViewStatus, status: AppStatus) -> dict[str, object]:
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
        "stands_still": _stands_still(view, status),
        "gaps": [gap_document(gap) for gap in view.gaps],
    }
