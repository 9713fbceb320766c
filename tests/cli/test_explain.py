"""`penstock explain`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

SHOP = """
from penstock import App, tumbling

app = App("shop")
orders = app.topic("orders", schema="country string, amount double, placed_at timestamp", time="placed_at")
app.view("revenue", orders.window(tumbling("1 minute")).group_by("country").agg(revenue="sum(amount)"))
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    return path


def test_the_graph_and_its_state_are_shown(run: Callable[..., Result], shop: Path) -> None:
    shown = run("explain", str(shop))
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.startswith("app shop\n")
    assert "accumulators per country and window, until 1 hour after its end" in shown.stdout
    assert "view revenue  <- 2" in shown.stdout


def test_the_same_is_available_as_json(run: Callable[..., Result], shop: Path) -> None:
    document = json.loads(run("explain", str(shop), "--json").stdout)
    assert [node["kind"] for node in document["nodes"]] == ["topic", "window"]
    assert document["views"][0]["name"] == "revenue"


def test_one_of_several_apps_is_chosen(run: Callable[..., Result], shop: Path) -> None:
    shop.write_text(SHOP + "other = App('other')\n")
    refused = run("explain", str(shop))
    assert refused.exit_code == 1
    assert "hint: choose one with --app NAME" in refused.stderr
    assert run("explain", str(shop), "--app", "other").stdout == "app other\n\nno views\n"


def test_an_error_is_reported_with_the_users_line_and_no_traceback(run: Callable[..., Result], shop: Path) -> None:
    shop.write_text(SHOP.replace("sum(amount)", "summ(amount)"))
    refused = run("explain", str(shop))
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"error: {shop}:6: agg: revenue: Spark has no function 'summ'; found 'summ(amount)'\n"
        "hint: did you mean 'sum'?\n"
    )


SHOP_IN_SQL = """
CREATE TOPIC orders (country STRING, amount DOUBLE, placed_at TIMESTAMP) WITH (time = 'placed_at');

CREATE VIEW revenue AS
SELECT country, window_start, window_end, revision, sum(amount) AS revenue
FROM orders
GROUP BY window(placed_at, '1 minute'), country;
"""


def test_a_file_of_sql_is_shown_as_the_same_app_in_python(
    run: Callable[..., Result], shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.parent)
    Path("shop.sql").write_text(SHOP_IN_SQL)
    shown = run("explain", "shop.sql")
    assert shown.exit_code == 0, shown.stderr
    in_python = run("explain", "shop.py").stdout
    assert without_locations(shown.stdout) == without_locations(in_python)
    assert "declared shop.sql:7" in shown.stdout
    assert "view revenue  <- 2    (shop.sql:4)" in shown.stdout
    document = json.loads(run("explain", "shop.sql", "--json").stdout)
    assert [node["kind"] for node in document["nodes"]] == ["topic", "window"]


def without_locations(shown: str) -> list[str]:
    return [line.partition("    (")[0] for line in shown.splitlines() if not line.strip().startswith("declared")]


def test_an_error_in_sql_is_reported_with_its_line(
    run: Callable[..., Result], shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.parent)
    Path("shop.sql").write_text(SHOP_IN_SQL.replace("sum(amount)", "sum(amonut)"))
    refused = run("explain", "shop.sql")
    assert refused.exit_code == 1
    assert refused.stderr == (
        "error: shop.sql:5: select: there is no column 'amonut'; there are country, amount, placed_at\n"
        "hint: did you mean 'amount'?\n"
    )
