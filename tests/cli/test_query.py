"""`penstock query`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from typer.testing import Result

from penstock.paths import app_directory
from tests.derive.views.written_app import WrittenApp, WrittenView

ROWS = [
    {"start": datetime(2026, 1, 31, 12, tzinfo=UTC), "country": "DE", "total": Decimal("12.50"), "n": 12},
    {"start": datetime(2026, 1, 31, 12, tzinfo=UTC), "country": "two\nlines", "total": None, "n": 3},
]


def fill(folder: Path, app: str = "shop", copies: int = 1) -> None:
    written = WrittenApp(app_directory(folder, app), app)
    revenue = "start timestamp, country string, total decimal(10,2), n bigint"
    written.declare(WrittenView("revenue", revenue, ("start", "country"), "keyed"))
    written.declare(WrittenView("numbers", "i bigint"))
    written.upsert("revenue", ROWS)
    written.append("numbers", [{"i": number} for number in range(copies)])
    written.commit()


def test_an_answer_is_a_table(run: Callable[..., Result], folder: Path) -> None:
    fill(folder)
    result = run("query", "select * from revenue order by country")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "start                 country       total   n",
        "2026-01-31T12:00:00Z  DE            12.50  12",
        '2026-01-31T12:00:00Z  "two\\nlines"      -   3',
    ]


def test_an_answer_without_rows_has_its_columns(run: Callable[..., Result], folder: Path) -> None:
    fill(folder)
    assert run("query", "select country, n from revenue where n > 99").stdout == "country  n\n"
    assert json.loads(run("query", "select n from revenue where n > 99", "--json").stdout)["rows"] == []


def test_json_is_one_document_with_the_epoch(run: Callable[..., Result], folder: Path) -> None:
    fill(folder)
    document = json.loads(run("query", "select * from revenue order by country", "--json").stdout)
    assert (document["app"], document["epoch"]) == ("shop", 1)
    assert document["rows"] == [
        {"start": "2026-01-31T12:00:00Z", "country": "DE", "total": "12.50", "n": 12},
        {"start": "2026-01-31T12:00:00Z", "country": "two\nlines", "total": None, "n": 3},
    ]


def test_csv_has_a_header_and_quotes_where_needed(run: Callable[..., Result], folder: Path) -> None:
    fill(folder)
    result = run("query", "select country, total from revenue order by country", "--csv")
    assert result.stdout == 'country,total\nDE,12.50\n"two\nlines",\n'


def test_more_rows_than_are_measured_are_all_printed(run: Callable[..., Result], folder: Path) -> None:
    fill(folder, copies=20_001)
    lines = run("query", "select i from numbers order by i").stdout.splitlines()
    assert (lines[0], lines[1], lines[-1], len(lines)) == ("  i", "  0", "20000", 20_002)


def test_an_app_must_be_named_where_there_are_several(run: Callable[..., Result], folder: Path) -> None:
    fill(folder)
    fill(folder, "bank")
    result = run("query", "select 1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "more than one app has run on this log: bank, shop" in result.stderr
    assert "hint: choose one with --app" in result.stderr
    assert json.loads(run("query", "select 1 as one", "--app", "bank", "--json").stdout)["app"] == "bank"


def test_an_error_is_two_lines(run: Callable[..., Result], folder: Path) -> None:
    fill(folder)
    result = run("query", "select * from revenu")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: query: there is no view 'revenu'; there is numbers, revenue\nhint: did you mean 'revenue'?\n"
    )
    assert "views can only be read" in run("query", "delete from revenue").stderr


def test_json_and_csv_exclude_each_other(run: Callable[..., Result], folder: Path) -> None:
    fill(folder)
    assert run("query", "select 1", "--json", "--csv").exit_code == 2


def test_without_views_the_error_says_so(run: Callable[..., Result], folder: Path) -> None:
    result = run("query", "select 1")
    assert result.exit_code == 1
    assert "no app has run on this log" in result.stderr
