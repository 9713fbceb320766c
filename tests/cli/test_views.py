"""`penstock views`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import Result

from penstock import Log
from penstock.engine.ledger.records import Account, BackfillRecord, TrackRecord
from penstock.engine.plan.cut import Cut
from penstock.paths import app_directory
from tests.derive.views.written_app import START, WrittenApp, WrittenView

WATERMARK = 1_769_860_800_000_000  # 2026-01-31 12:00


@pytest.fixture
def three_minutes_ago(folder: Path, log: Log) -> datetime:
    """When the epoch of the views was committed."""
    moment = datetime.now(UTC) - timedelta(minutes=3, seconds=5)
    written = written_app(folder)
    written.started = round(moment.timestamp() * 1_000_000) - 1_000_000
    written.upsert("totals", [{"country": "DE", "n": 1}, {"country": "FR", "n": 2}])
    written.commit()
    return datetime.fromtimestamp((written.started + 1_000_000) / 1_000_000, UTC)


def written_app(folder: Path) -> WrittenApp:
    written = WrittenApp(app_directory(folder, "shop"))
    written.declare(WrittenView("totals", "country string, n bigint", ("country",), "keyed", watermark=WATERMARK))
    written.declare(WrittenView("seen", "id bigint"))
    written.accounts = {"totals": Account(came=9, counted=7, late=2)}
    return written


def test_views_are_listed_with_their_freshness(run: Callable[..., Result], three_minutes_ago: datetime) -> None:
    result = run("views")
    assert result.exit_code == 0, result.stderr
    header, seen, totals = (line.split("  ") for line in result.stdout.splitlines())
    cells = [[cell.strip() for cell in line if cell.strip()] for line in (header, seen, totals)]
    assert cells == [
        ["view", "rows", "key", "watermark", "events", "late", "dead", "lag", "epoch", "age"],
        ["seen", "0", "-", "-", "-", "-", "-", "0", "1", "3 minutes"],
        ["totals", "2", "country", "2026-01-31T12:00:00Z", "7", "2", "0", "0", "1", "3 minutes"],
    ]


def test_json_has_the_columns_too(run: Callable[..., Result], three_minutes_ago: datetime) -> None:
    document = json.loads(run("views", "--app", "shop", "--json").stdout)
    assert document["app"] == "shop"
    assert document["views"][1] == {
        "view": "totals",
        "columns": {"country": "string", "n": "bigint"},
        "key": ["country"],
        "rows": 2,
        "epoch": 1,
        "committed_at": three_minutes_ago.isoformat().replace("+00:00", "Z"),
        "watermark": "2026-01-31T12:00:00Z",
        "account": {"came": 9, "counted": 7, "late": 2, "dead": 0, "filtered": 0, "corrected": 0},
        "being_rebuilt": False,
        "stands_still": False,
        "gaps": [],
    }
    assert (document["lag"], document["backfill"]) == (0, None)
    assert document["views"][0]["account"] is None


def test_a_view_that_is_being_rebuilt_says_so(run: Callable[..., Result], folder: Path) -> None:
    written = written_app(folder)
    built = WrittenView("totals", "country string, n bigint", ("country",), "keyed", version="2")
    written.backfill = BackfillRecord(TrackRecord(Cut(1, START, {}), views={"totals": built.stored_view}), {})
    written.commit()
    lines = run("views").stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["seen", "0", "-"], ["totals", "(being", "rebuilt)"]]


def test_a_view_that_stands_still_during_a_backfill_says_so(run: Callable[..., Result], folder: Path, log: Log) -> None:
    written = written_app(folder)
    built = {"totals": written.views["totals"].stored_view}
    track = TrackRecord(Cut(1, START, {}), outputs={"totals": "2"}, views=built)
    written.backfill = BackfillRecord(track, {})
    written.commit()
    lines = run("views").stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[1:3]] == ["seen (not advancing)", "totals (being rebuilt)"]
    assert lines[4].startswith("backfill of totals: ")
    document = json.loads(run("views", "--json").stdout)
    assert [view["stands_still"] for view in document["views"]] == [True, False]
    assert document["backfill"]["outputs"] == ["totals"]


def test_views_are_listed_also_where_the_log_is_gone(run: Callable[..., Result], folder: Path) -> None:
    written_app(folder).commit()
    assert json.loads(run("views", "--json").stdout)["lag"] is None


def test_an_app_without_views_and_a_log_without_apps(run: Callable[..., Result], folder: Path) -> None:
    assert "no app has run on this log" in run("views").stderr
    WrittenApp(app_directory(folder, "shop"))
    assert run("views").stdout.startswith("app 'shop' has no views yet: they appear with its first epoch")
