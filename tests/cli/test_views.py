"""`penstock views`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from penstock.cli.query import query
from penstock.cli.views import views
from penstock.contracts import ViewChanges, ViewTable
from penstock.derive.place import store_path
from penstock.derive.store import ViewStore

TOTALS = ViewTable("totals", pa.schema([("country", pa.string()), ("n", pa.int64())]), ("country",))
FACTS = {"views": {"totals": {"watermark": "2026-01-31T12:00:00Z", "events": 7}}}


@pytest.fixture
def run(folder: Path) -> Callable[..., Result]:
    app = Typer()
    app.command("query")(query)
    app.command("views")(views)
    return lambda *args: CliRunner().invoke(app, list(args))


@pytest.fixture
def three_minutes_ago(folder: Path) -> datetime:
    """When the epoch of the views was applied."""
    moment = datetime.now(UTC) - timedelta(minutes=3, seconds=5)
    with ViewStore(store_path(folder, "shop"), clock=lambda: moment) as store:
        store.take_over("shop", 1)
        store.declare([TOTALS, ViewTable("seen", pa.schema([("id", pa.int64())]))])
        rows = pa.record_batch({"country": ["DE", "FR"], "n": [1, 2]})
        store.apply(1, 1, {"totals": [ViewChanges(rows, pa.array([1, 1]))]}, facts=FACTS)
    return moment


def test_views_are_listed_with_their_freshness(run: Callable[..., Result], three_minutes_ago: datetime) -> None:
    result = run("views")
    assert result.exit_code == 0, result.stderr
    header, seen, totals = (line.split("  ") for line in result.stdout.splitlines())
    cells = [[cell.strip() for cell in line if cell.strip()] for line in (header, seen, totals)]
    shown = three_minutes_ago.isoformat().replace("+00:00", "Z")
    assert cells == [
        ["view", "rows", "key", "watermark", "events", "epoch", "applied at", "age"],
        ["seen", "0", "-", "-", "-", "1", shown, "3 minutes"],
        ["totals", "2", "country", "2026-01-31T12:00:00Z", "7", "1", shown, "3 minutes"],
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
        "applied_at": three_minutes_ago.isoformat().replace("+00:00", "Z"),
        "watermark": "2026-01-31T12:00:00Z",
        "events": 7,
        "facts": {"watermark": "2026-01-31T12:00:00Z", "events": 7},
        "being_rebuilt": False,
    }


def test_a_view_that_is_being_rebuilt_says_so(
    run: Callable[..., Result], folder: Path, three_minutes_ago: datetime
) -> None:
    with ViewStore(store_path(folder, "shop")) as store:
        store.take_over("shop", 2)
        store.declare([ViewTable("totals", TOTALS.schema, ("country",), "2")], building=True)
    assert "totals (being rebuilt)" in run("views").stdout


def test_an_app_without_views_and_a_log_without_apps(run: Callable[..., Result], folder: Path) -> None:
    assert "no app has run on this log" in run("views").stderr
    with ViewStore(store_path(folder, "shop")) as store:
        store.take_over("shop", 1)
    assert run("views").stdout == "app 'shop' has no views\n"
