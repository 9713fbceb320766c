"""What commands print."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from penstock.cli.output import count_text, instant_text, json_value, print_table, value_text

NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def test_times_are_iso_8601_in_utc_with_a_z() -> None:
    assert instant_text(NOON) == "2026-01-31T12:00:00Z"
    assert instant_text(NOON.astimezone(dt.timezone(dt.timedelta(hours=5)))) == "2026-01-31T12:00:00Z"
    assert instant_text(2**62) == "148108-07-06T14:00:27.387904Z"
    assert instant_text(1_500_000) == "1970-01-01T00:00:01.500000Z"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("10.50"), "10.50"),
        (Decimal("1E+3"), "1000"),
        (dt.date(2026, 1, 31), "2026-01-31"),
        (NOON, "2026-01-31T12:00:00Z"),
        (NOON.replace(tzinfo=None), "2026-01-31T12:00:00"),
        (b"\x00\xff", "AP8="),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (True, True),
        (None, None),
        ({1: [Decimal(2), b""]}, {"1": ["2", ""]}),
    ],
)
def test_json_has_text_for_what_it_has_no_form_for(value: object, expected: object) -> None:
    assert json_value(value) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("DE", "DE"),
        ("New York", '"New York"'),
        ("", '""'),
        ("null", '"null"'),
        ("a\nb", '"a\\nb"'),
        (None, "null"),
        (True, "true"),
        (Decimal("1.50"), "1.50"),
        ([1, "x"], '[1, "x"]'),
    ],
)
def test_a_value_on_a_line_is_quoted_only_where_it_would_be_misread(value: object, text: str) -> None:
    assert value_text(value) == text


def test_a_table_into_a_file_is_never_cut_and_has_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "rows"), [("x" * 300, 1), ("[bold]", None)])
    assert capsys.readouterr().out.splitlines() == [
        f"{'name':<300}  rows",
        f"{'x' * 300}     1",
        f"{'[bold]':<300}     -",
    ]


def test_one_row_two_rows() -> None:
    assert [count_text(number, "row") for number in (0, 1, 2, 10_000)] == ["0 rows", "1 row", "2 rows", "10,000 rows"]
