"""Data frames as rows of a topic: pandas with its habits, Polars, Arrow, and whatever speaks Arrow's interfaces."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from penstock.errors import RowError
from penstock.schema.arrow import parse_schema
from penstock.schema.frames import frame_to_batch

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def rows_of(frame: object, schema: str) -> list[dict[str, Any]]:
    batch = frame_to_batch(frame, parse_schema(schema), where="topic 'orders'")
    assert batch is not None
    return batch.to_pylist()


def refused(frame: object, schema: str) -> RowError:
    with pytest.raises(RowError) as error:
        rows_of(frame, schema)
    return error.value


def test_dicts_are_no_frame() -> None:
    assert frame_to_batch([{"id": 1}], parse_schema("id long"), where="topic 'orders'") is None


# -- pandas -----------------------------------------------------------------------------------------------------------


def test_the_index_of_pandas_is_left_out_unless_it_is_named_like_a_column() -> None:
    frame = pd.DataFrame({"id": [1, 2]}, index=[7, 8])
    assert rows_of(frame, "id long") == [{"id": 1}, {"id": 2}]
    assert rows_of(frame.set_index("id"), "id long") == [{"id": 1}, {"id": 2}]
    frame = pd.DataFrame({"id": [1], "kind": ["a"], "n": [5], "page": [3]}).set_index(["kind", "page"])
    assert rows_of(frame, "id long, kind string, n long") == [{"id": 1, "kind": "a", "n": 5}]


def test_nan_of_pandas_is_null_except_in_floats_that_are_not_null() -> None:
    frame = pd.DataFrame({"x": [1.5, np.nan]})
    assert rows_of(frame, "x double") == [{"x": 1.5}, {"x": None}]
    kept = rows_of(frame, "x double not null")
    assert kept[0] == {"x": 1.5}
    assert np.isnan(kept[1]["x"])
    assert rows_of(pl.DataFrame({"x": [1.5, None]}), "x double") == [{"x": 1.5}, {"x": None}]
    assert np.isnan(rows_of(pl.DataFrame({"x": [float("nan")]}), "x double")[0]["x"])


def test_whole_numbers_that_pandas_holds_as_floats_become_whole_numbers_again() -> None:
    frame = pd.DataFrame({"id": [1, None, 3]})
    assert frame["id"].dtype == np.float64
    assert rows_of(frame, "id int") == [{"id": 1}, {"id": None}, {"id": 3}]
    error = refused(pd.DataFrame({"id": [1.0, np.nan, 2.5]}), "id long")
    assert error.message == "topic 'orders': row 2, column 'id' takes bigint; found np.float64(2.5) (float64)"
    assert "Int64" in str(error.hint)
    assert "row 1" in refused(pd.DataFrame({"id": [1.0, np.inf]}), "id long").message
    assert "row 0, column 'id' takes tinyint" in refused(pd.DataFrame({"id": [300.0]}), "id tinyint").message


def test_times_of_pandas_without_a_zone_are_utc_and_nat_is_null() -> None:
    frame = pd.DataFrame({"at": pd.to_datetime(["2024-05-01 12:00", None])})
    assert rows_of(frame, "at timestamp") == [{"at": NOON}, {"at": None}]
    zoned = frame.assign(at=frame["at"].dt.tz_localize("Europe/Berlin"))
    assert rows_of(zoned, "at timestamp")[0] == {"at": NOON - dt.timedelta(hours=2)}
    fine = pd.DataFrame({"at": pd.to_datetime(["2024-05-01 12:00:00.000000000", "2024-05-01 12:00:00.000000001"])})
    assert "row 1, column 'at' takes timestamp" in refused(fine, "at timestamp").message


def test_midnights_of_pandas_are_days_and_other_times_are_not() -> None:
    frame = pd.DataFrame({"day": pd.to_datetime(["2024-05-01", None])})
    assert rows_of(frame, "day date") == [{"day": dt.date(2024, 5, 1)}, {"day": None}]
    error = refused(pd.DataFrame({"day": pd.to_datetime(["2024-05-01 00:00", "2024-05-01 12:00"])}), "day date")
    assert "row 1, column 'day' takes date" in error.message
    assert "normalize" in str(error.hint)


def test_columns_of_objects_are_read_as_the_values_of_dicts_are() -> None:
    frame = pd.DataFrame(
        {
            "name": ["a", np.nan],
            "price": ["1.50", Decimal("2.25")],
            "at": ["2024-05-01T12:00:00Z", pd.NaT],
            "day": [dt.date(2024, 5, 1), None],
            "tags": [["x", None], None],
            "raw": [b"\x00", pd.NA],
        },
        dtype=object,
    )
    schema = "name string, price decimal(10,2), at timestamp, day date, tags array<string>, raw binary"
    assert rows_of(frame, schema) == [
        {
            "name": "a",
            "price": Decimal("1.50"),
            "at": NOON,
            "day": dt.date(2024, 5, 1),
            "tags": ["x", None],
            "raw": b"\x00",
        },
        {"name": None, "price": Decimal("2.25"), "at": None, "day": None, "tags": None, "raw": None},
    ]
    error = refused(pd.DataFrame({"name": ["a", 7]}), "name string")
    assert error.message == "topic 'orders': row 1, column 'name' takes string; found 7 (int)"


def test_floats_are_decimals_by_their_shortest_text() -> None:
    expected = [{"price": Decimal("12.34")}, {"price": None}]
    assert rows_of(pd.DataFrame({"price": [12.34, np.nan]}), "price decimal(10,2)") == expected
    assert rows_of(pl.DataFrame({"price": [12.34, None]}), "price decimal(10,2)") == expected
    assert "row 0" in refused(pl.DataFrame({"price": [0.125]}), "price decimal(10,2)").message


def test_other_dtypes_of_pandas_keep_their_values() -> None:
    frame = pd.DataFrame(
        {
            "id": pd.array([1, None], dtype="Int64"),
            "kind": pd.Categorical(["a", None]),
            "name": pd.array(["x", None], dtype="string[pyarrow]"),
            "ok": [True, False],
            "amount": pd.array([Decimal("1.5"), None], dtype=pd.ArrowDtype(pa.decimal128(5, 1))),
        }
    )
    assert rows_of(frame, "id long, kind string, name string, ok boolean, amount decimal(10,2)") == [
        {"id": 1, "kind": "a", "name": "x", "ok": True, "amount": Decimal("1.50")},
        {"id": None, "kind": None, "name": None, "ok": False, "amount": None},
    ]


@pytest.mark.parametrize(
    ("frame", "message", "hint"),
    [
        (pd.DataFrame({"id": [1], "contry": ["DE"]}), "not in the schema; found 'contry'", "country"),
        (pd.DataFrame([[1, "DE"]]), "not in the schema; found '0'", "id, country"),
        (pd.DataFrame([[1, 2]], columns=["id", "id"]), "column twice; found id, id", None),
        (pd.DataFrame({"country": ["DE"]}), "column 'id' is not null, but the batch lacks it", None),
        (pd.DataFrame({"id": pd.array([1, None], dtype="Int64")}), "row 1, column 'id' is not null", "give a value"),
        (pd.DataFrame({"id": ["one"]}), "row 0, column 'id' takes bigint; found 'one' (str)", "give an int"),
        (pl.DataFrame({"id": ["one"]}), "column 'id' takes bigint; found", "cast it"),
        (pl.DataFrame({"id": [1.0]}), "column 'id' takes bigint; found double", "cast it"),
        (pl.Series("id", [1]), "Series cannot be read as a table", "one column for each column"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_with_its_column(frame: object, message: str, hint: str | None) -> None:
    error = refused(frame, "id long not null, country string")
    assert error.message.startswith("topic 'orders': ")
    assert message in error.message
    assert hint is None or hint in str(error.hint)


# -- others -----------------------------------------------------------------------------------------------------------


def test_polars_frames_keep_their_values() -> None:
    frame = pl.DataFrame(
        {
            "id": [1, None],
            "kind": pl.Series(["a", None], dtype=pl.Categorical),
            "price": [Decimal("1.50"), None],
            "at": [NOON.replace(tzinfo=None), None],
            "day": [dt.date(2024, 5, 1), None],
            "tags": [["x"], []],
            "shop": [{"city": "Ulm"}, None],
        }
    )
    columns = ("id long", "kind string", "price decimal(10,2)", "at timestamp", "day date", "tags array<string>")
    schema = ", ".join([*columns, "shop struct<city:string>"])
    assert rows_of(frame, schema) == [
        {
            "id": 1,
            "kind": "a",
            "price": Decimal("1.50"),
            "at": NOON,
            "day": dt.date(2024, 5, 1),
            "tags": ["x"],
            "shop": {"city": "Ulm"},
        },
        {"id": None, "kind": None, "price": None, "at": None, "day": None, "tags": [], "shop": None},
    ]


def test_text_in_arrow_is_read_as_times_dates_and_decimals_row_by_row() -> None:
    frame = pl.DataFrame({"at": ["2024-05-01T12:00:00Z", None], "day": ["2024-05-01", None], "price": ["1.50", None]})
    assert rows_of(frame, "at timestamp, day date, price decimal(10,2)") == [
        {"at": NOON, "day": dt.date(2024, 5, 1), "price": Decimal("1.50")},
        {"at": None, "day": None, "price": None},
    ]
    error = refused(pa.table({"at": ["2024-05-01", "yesterday"]}), "at timestamp")
    assert error.message == "topic 'orders': row 1, column 'at' takes timestamp; found 'yesterday' (str)"


class InterchangeFrame:
    """A data frame that knows only the interchange protocol."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.__dataframe__ = frame.__dataframe__


def test_a_frame_with_the_interchange_protocol_alone_is_read() -> None:
    assert rows_of(InterchangeFrame(pd.DataFrame({"id": [1, 2]})), "id long") == [{"id": 1}, {"id": 2}]


def test_a_reader_of_batches_is_read_to_its_end() -> None:
    table = pa.table({"id": [1, 2, 3]})
    assert rows_of(table.to_reader(max_chunksize=2), "id long") == [{"id": 1}, {"id": 2}, {"id": 3}]
