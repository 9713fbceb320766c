"""A result: a sequence of dicts that is Arrow, pandas or Polars when asked, and reads well where it is shown."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

from penstock.schema import result as module
from penstock.schema.result import Result

TABLE = pa.table(
    {
        "country": ["DE", "FR", None],
        "orders": pa.array([2, 1, None]),
        "revenue": pa.array([Decimal("25.00"), Decimal("3.50"), None], pa.decimal128(10, 2)),
    }
)
ROWS = [
    {"country": "DE", "orders": 2, "revenue": Decimal("25.00")},
    {"country": "FR", "orders": 1, "revenue": Decimal("3.50")},
    {"country": None, "orders": None, "revenue": None},
]


def test_it_is_a_sequence_of_dicts() -> None:
    rows = Result(TABLE)
    assert list(rows) == ROWS
    assert (len(rows), rows[0], rows[-1]) == (3, ROWS[0], ROWS[-1])
    assert rows.columns == ("country", "orders", "revenue")
    assert ROWS[1] in rows
    with pytest.raises(IndexError):
        rows[3]


def test_it_equals_a_list_of_the_same_dicts_on_either_side() -> None:
    rows = Result(TABLE)
    assert rows == ROWS
    assert rows == Result(TABLE)
    assert ROWS == rows  # noqa: SIM300 - the list is asked first
    assert rows != ROWS[:2]
    assert rows != 3
    assert not Result(TABLE.slice(0, 0))


def test_a_slice_is_a_result_with_the_same_epoch() -> None:
    rows = Result(TABLE, epoch=7)
    assert (rows[1:], rows[::-1], rows[5:]) == (ROWS[1:], ROWS[::-1], [])
    assert (rows.epoch, rows[1:].epoch) == (7, 7)


def test_whole_numbers_beyond_64_bits_are_ints() -> None:
    table = pa.table({"sum": pa.array([Decimal(2**70), None], pa.decimal128(38, 0))})
    assert list(Result(table, whole_numbers=frozenset({0}))) == [{"sum": 2**70}, {"sum": None}]


def test_no_dict_is_made_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    convert = module.python_values
    monkeypatch.setattr(module, "python_values", lambda column: made.append(len(column)) or convert(column))
    rows = Result(pa.table({"n": range(1_000_000)}))
    assert len(rows) == rows.to_arrow().num_rows == rows.to_polars().height == len(rows.to_pandas())
    assert "1,000,000 rows" in repr(rows)
    assert rows[999_999] == {"n": 999_999}
    assert sum(made) == 11
    assert next(iter(rows)) == {"n": 0}
    assert sum(made) < 20_000


def test_arrow_pandas_and_polars_have_the_same_values() -> None:
    rows = Result(TABLE)
    assert rows.to_arrow() is TABLE
    assert rows.to_pandas()["revenue"].dtype.pyarrow_dtype == pa.decimal128(10, 2)
    assert rows.to_pandas()["orders"].isna().tolist() == [False, False, True]
    assert rows.to_polars().to_dicts() == ROWS
    assert pl.DataFrame(rows).to_dicts() == ROWS
    assert pa.table(rows) == TABLE


def test_without_polars_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["polars"] = None
import pyarrow as pa
from penstock.errors import DeclarationError
from penstock.schema.result import Result
try:
    Result(pa.table({"n": [1]})).to_polars()
except DeclarationError as error:
    print(error.hint)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "pip install polars; or use .to_arrow() or .to_pandas()\n"


def test_methods_of_tables_and_frames_are_named_where_they_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'num_rows'; use \.to_arrow\(\), \.to_pandas\(\)"):
        Result(TABLE).num_rows  # type: ignore[has-type]  # noqa: B018


def test_it_is_shown_as_a_table() -> None:
    assert repr(Result(TABLE)).splitlines() == [
        "country  orders  revenue",
        "DE            2    25.00",
        "FR            1     3.50",
        "-             -        -",
        "(3 rows)",
    ]
    assert repr(Result(TABLE[:0])) == "country  orders  revenue\n(0 rows)"
    at = pa.array([dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    assert repr(Result(pa.table({"at": at}))).splitlines()[1:] == ["2024-05-01T12:00:00Z", "(1 row)"]


def test_of_long_and_wide_results_the_beginning_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = repr(Result(pa.table({f"column_{number}": range(100) for number in range(5)}))).splitlines()
    assert len(lines) == 12
    assert max(map(len, lines[:-1])) <= 40
    assert lines[-1] == "(100 rows; the first 10 are shown; 1 more column)"
    (_, line, _) = repr(Result(pa.table({"text": ["x" * 1000]}))).splitlines()
    assert line == "x" * 57 + "..."


def test_notebooks_get_a_table_whose_text_is_escaped() -> None:
    shown = Result(pa.table({"a<b": ["<script>", None]}))._repr_html_()
    assert "<th>a&lt;b</th>" in shown
    assert "<td>&lt;script&gt;</td>" in shown
    assert "(2 rows)" in shown
