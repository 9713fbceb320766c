"""Declared types become types of Arrow, every value is exact, and one that does not fit is named."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.sqlite.types import MisfitError, arrow_type, to_column
from penstock.contracts import SourceTable
from penstock.errors import DeclarationError
from tests.capture.database_contract import items_to_end
from tests.capture.database_fold import Fold
from tests.capture.sqlite.world import SqliteWorld


@pytest.mark.parametrize(
    ("declared", "type_"),
    [
        ("INTEGER", pa.int64()),
        ("unsigned big int", pa.int64()),
        ("BOOLEAN", pa.bool_()),
        ("bool", pa.bool_()),
        ("varchar(20)", pa.string()),
        ("TEXT", pa.string()),
        ("BLOB", pa.binary()),
        ("VARBINARY(16)", pa.binary()),
        ("DOUBLE PRECISION", pa.float64()),
        ("REAL", pa.float64()),
        ("DECIMAL(10,2)", pa.decimal128(10, 2)),
        ("numeric( 12 )", pa.decimal128(12, 0)),
        ("DECIMAL", pa.float64()),
        ("NUMERIC", pa.float64()),
        ("DECIMAL(50,2)", pa.string()),
        ("DATETIME", pa.string()),
        ("TIMESTAMP", pa.string()),
        ("date", pa.string()),
        ("JSON", pa.string()),
        ("ANY", pa.string()),
        ("", pa.string()),
    ],
)
def test_declared_types_become_types_of_arrow(declared: str, type_: pa.DataType) -> None:
    assert arrow_type(declared) == type_


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (pa.bool_(), 1, True),
        (pa.bool_(), 0, False),
        (pa.float64(), 2**53, float(2**53)),
        (pa.decimal128(10, 2), 12.5, Decimal("12.50")),
        (pa.decimal128(10, 2), 0.1 + 0.2, Decimal("0.30")),
        (pa.decimal128(10, 2), -7, Decimal("-7.00")),
        (pa.decimal128(10, 2), 1e7, Decimal("10000000.00")),
        (pa.decimal128(3, 2), 0, Decimal("0.00")),
        (pa.string(), 20240501, "20240501"),
        (pa.string(), 2.5, "2.5"),
    ],
)
def test_values_that_fit_are_converted(type_: pa.DataType, value: Any, expected: object) -> None:
    assert to_column([value, None], type_).to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.bool_(), 2),
        (pa.bool_(), "true"),
        (pa.int64(), 1.5),
        (pa.int64(), 1.0),
        (pa.int64(), "abc"),
        (pa.float64(), 2**53 + 1),
        (pa.float64(), "1.5"),
        (pa.decimal128(10, 2), 0.125),
        (pa.decimal128(4, 2), 100),
        (pa.decimal128(10, 2), "12.50 EUR"),
        (pa.decimal128(10, 2), float("inf")),
        (pa.string(), b"bytes"),
        (pa.string(), "\udcff"),
        (pa.binary(), "text"),
    ],
)
def test_values_that_do_not_fit_are_named(type_: pa.DataType, value: Any) -> None:
    with pytest.raises(MisfitError) as error:
        to_column([None, value], type_)
    assert repr(value) in str(error.value)


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
)


@given(st.lists(VALUES))
def test_every_value_can_be_captured_as_text(values: list[Any]) -> None:
    texts = to_column(values, pa.string(), as_text=True).to_pylist()
    with closing(sqlite3.connect(":memory:")) as connection:
        for value, text in zip(values, texts, strict=True):
            if isinstance(value, bytes):
                assert connection.execute(f"SELECT {text}").fetchone() == (value,)
            elif isinstance(value, float):
                assert float(text) == value
            else:
                assert text == (None if value is None else str(value))


TYPES = "id INTEGER PRIMARY KEY, i BIGINT, r REAL, t TEXT, b BLOB, f BOOLEAN, d DECIMAL(20,4), at DATETIME"


@given(
    i=st.none() | st.integers(-(2**63), 2**63 - 1),
    r=st.none() | st.floats(allow_nan=False),
    t=st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    b=st.none() | st.binary(),
    f=st.none() | st.booleans(),
)
def test_every_value_comes_out_as_it_was_copied_or_changed(
    tmp_path_factory: pytest.TempPathFactory, **values: Any
) -> None:
    world = SqliteWorld(tmp_path_factory.mktemp("values") / "v.db", ddl=[f"CREATE TABLE v ({TYPES})"])
    row = {"i": None, "r": None, "t": None, "b": None, "f": None, "d": 1.25, "at": "2024-05-01 12:00:00", **values}
    insert = f"INSERT INTO v ({', '.join(row)}) VALUES ({', '.join('?' for _ in row)})"
    with closing(world.connect()) as connection:
        connection.execute(insert, tuple(row.values()))
        database = world.open(tables=[SourceTable("v")])
        fold = Fold.of(database.tables())
        for item in items_to_end(database, None):
            fold.add(item)
        connection.execute(insert, tuple(row.values()))
        for item in items_to_end(database, fold.position):
            fold.add(item)
        database.close()
    expected = {**row, "d": Decimal("1.2500")}
    if row["r"] == 0:
        expected["r"] = 0.0  # SQLite does not store the sign of zero
    assert fold.rows("v") == [{"id": 1, **expected}, {"id": 2, **expected}]


@pytest.mark.parametrize("is_copied", [True, False])
@pytest.mark.parametrize("value", ["'abc'", "1.5", "X'00'", "CAST(X'ff' AS TEXT)"])
def test_a_value_that_does_not_fit_stops_the_capture_until_it_is_corrected(
    tmp_path: Path, value: str, *, is_copied: bool
) -> None:
    world = SqliteWorld(tmp_path / "v.db", ddl=["CREATE TABLE v (id INTEGER PRIMARY KEY, size INTEGER)"])
    fold = Fold({"v": ("id",)})
    wrong = f"INSERT INTO v VALUES (7, {value})"
    database = world.open(tables=[SourceTable("v")])
    if is_copied:
        world.execute(wrong)
    else:
        for item in items_to_end(database, None):
            fold.add(item)
        world.execute(wrong)
    with pytest.raises(DeclarationError, match="table 'v': column 'size' has the type int64; found ") as error:
        items_to_end(database, fold.position)
    assert "as text" in (error.value.hint or "")
    database.close()

    database = world.open(tables=[SourceTable("v", as_text=frozenset({"size"}))])
    items_to_end(database, None)
    database.close()

    world.execute("UPDATE v SET size = 5")
    database = world.open(tables=[SourceTable("v")])
    position = database.copy_again(fold.position, ["v"])
    for item in items_to_end(database, position):
        fold.add(item)
    database.close()
    assert fold.rows("v") == [{"id": 7, "size": 5}]


def test_a_null_in_a_key_stops_the_capture_and_is_named(tmp_path: Path) -> None:
    ddl = ["CREATE TABLE v (a TEXT, b INTEGER, PRIMARY KEY (a, b))", "INSERT INTO v VALUES ('x', 1), ('x', NULL)"]
    world = SqliteWorld(tmp_path / "v.db", ddl=ddl)
    database = world.open(tables=[SourceTable("v")])
    with pytest.raises(DeclarationError, match="table 'v': column 'b' belongs to the key; found null"):
        items_to_end(database, None)
    world.execute("DELETE FROM v WHERE b IS NULL")
    items = items_to_end(database, None)
    world.execute("INSERT INTO v VALUES (NULL, 2)")
    with pytest.raises(DeclarationError, match="table 'v': column 'a' belongs to the key; found null"):
        items_to_end(database, items[-1].position)
    database.close()
