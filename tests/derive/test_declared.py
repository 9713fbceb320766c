"""Values of SQLite as values of Python."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from penstock.derive.declared import as_parameter, register_converters

WALL_TIME = datetime(2026, 1, 31, 12, tzinfo=UTC).replace(tzinfo=None)


@pytest.mark.parametrize(
    ("declared", "stored", "value"),
    [
        ("BOOLEAN_INT", 0, False),
        ("BOOLEAN_INT", 1, True),
        ("TIMESTAMP_TEXT", "2026-01-31 12:00:00.000001", datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)),
        ("TIMESTAMP_TEXT", "148108-07-06 14:00:27", "148108-07-06 14:00:27"),
        ("TIMESTAMP_NTZ_TEXT", "2026-01-31 12:00:00", WALL_TIME),
        ("DATE_TEXT", "2026-01-31", date(2026, 1, 31)),
        ("DATE_TEXT", "275760-09-13", "275760-09-13"),
        ("JSON_TEXT", '{"a":[1,null]}', {"a": [1, None]}),
        ("DECIMAL_10_2", 12.5, Decimal("12.50")),
        ("DECIMAL_10_2", 3, Decimal("3.00")),
        ("DECIMAL_15_15", 1e-15, Decimal("0.000000000000001")),
        ("DECIMAL_BLOB_38_0", str(10**30), Decimal(10**30)),
        ("DECIMAL_TEXT_30_4", "12345678901234567890.0001", Decimal("12345678901234567890.0001")),
        ("TIMESTAMP_TEXT", None, None),
    ],
)
def test_a_column_has_the_values_of_its_declared_type(declared: str, stored: object, value: object) -> None:
    register_converters([declared, "INTEGER"])
    with closing(sqlite3.connect(":memory:", detect_types=sqlite3.PARSE_DECLTYPES)) as connection:
        connection.execute(f"create table t (a {declared}, b integer)")
        connection.execute("insert into t values (?, 1)", (stored,))
        ((found, number),) = connection.execute("select * from t").fetchall()
    assert (found, number) == (value, 1)
    assert type(found) is type(value)
    assert str(found) == str(value)


def test_the_types_of_sqlite3_itself_are_left_alone() -> None:
    before = dict(sqlite3.converters)
    register_converters(["INTEGER", "TEXT", "TIMESTAMP_TEXT", "DATE_TEXT"])
    assert {name: sqlite3.converters[name] for name in ("DATE", "TIMESTAMP")} == {
        name: before[name] for name in ("DATE", "TIMESTAMP")
    }
    assert "TEXT" not in sqlite3.converters


def test_parameters_are_written_as_views_have_them() -> None:
    plus_one = timezone(timedelta(hours=1))
    assert as_parameter(datetime(2026, 1, 31, 13, tzinfo=plus_one)) == "2026-01-31 12:00:00"
    assert as_parameter(WALL_TIME) == "2026-01-31 12:00:00"
    assert as_parameter(date(2026, 1, 31)) == "2026-01-31"
    assert [as_parameter(Decimal(text)) for text in ("0.1", "7", "7.00")] == [0.1, 7, 7]
    assert as_parameter(Decimal(2**64)) == str(2**64)
    assert as_parameter("text") == "text"
