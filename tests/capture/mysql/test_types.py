# ruff: noqa: E501, DTZ001
"""All types at both limits: through the copy and through the binary log, equal to each other and to what was written."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.contracts import Captured, SourceTable, TableEvent
from penstock.errors import DeclarationError
from tests.capture.database_contract import items_to_end, opened
from tests.capture.database_fold import Fold
from tests.capture.mysql.world import MariaDBWorld

NINES = "9" * 38
LONG = "1234567890123456789012345678901234567890.1234567890123456789012345"  # decimal(65,25)

# declaration, Arrow type, literals and the values that they become
# fmt: off
TYPES: list[tuple[str, pa.DataType, list[tuple[str, Any]]]] = [
    ("tinyint", pa.int8(), [("-128", -128), ("127", 127)]),
    ("tinyint(1)", pa.int8(), [("0", 0), ("1", 1), ("5", 5)]),
    ("tinyint unsigned", pa.int16(), [("0", 0), ("255", 255)]),
    ("smallint", pa.int16(), [("-32768", -32768), ("32767", 32767)]),
    ("smallint unsigned", pa.int32(), [("65535", 65535)]),
    ("mediumint", pa.int32(), [("-8388608", -8388608), ("8388607", 8388607)]),
    ("mediumint unsigned", pa.int32(), [("16777215", 16777215)]),
    ("int", pa.int32(), [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)]),
    ("int unsigned", pa.int64(), [("4294967295", 2**32 - 1)]),
    ("int unsigned zerofill", pa.int64(), [("42", 42)]),
    ("bigint", pa.int64(), [(str(-(2**63)), -(2**63)), (str(2**63 - 1), 2**63 - 1)]),
    ("bigint unsigned", pa.int64(), [("0", 0), (str(2**63 - 1), 2**63 - 1)]),
    ("decimal(10,2)", pa.decimal128(10, 2), [("-99999999.99", Decimal("-99999999.99")), ("0.05", Decimal("0.05"))]),
    ("decimal(18,9)", pa.decimal128(18, 9), [("-1.000000001", Decimal("-1.000000001")), ("-0.5", Decimal("-0.500000000"))]),
    ("decimal(20,0)", pa.decimal128(20, 0), [("-" + "9" * 20, Decimal("-" + "9" * 20)), ("7", Decimal(7))]),
    ("decimal(38,0)", pa.decimal128(38, 0), [(NINES, Decimal(NINES)), ("-" + NINES, Decimal("-" + NINES))]),
    ("decimal(38,38)", pa.decimal128(38, 38), [("0." + NINES, Decimal("0." + NINES)), ("0", Decimal("0E-38"))]),
    ("decimal(65,25)", pa.string(), [(LONG, LONG), ("-" + LONG, "-" + LONG), ("0", "0." + "0" * 25)]),
    ("float", pa.float32(), [("1.5", 1.5), ("3.4028234663852886e38", 3.4028234663852886e38), ("0.1", 0.10000000149011612)]),
    ("double", pa.float64(), [("0.1", 0.1), ("-1.7976931348623157e308", -1.7976931348623157e308), ("5e-324", 5e-324)]),
    ("bit(1)", pa.int64(), [("b'1'", 1), ("b'0'", 0)]),
    ("bit(63)", pa.int64(), [(str(2**63 - 1), 2**63 - 1)]),
    ("bit(64)", pa.decimal128(20, 0), [(str(2**64 - 1), Decimal(2**64 - 1))]),
    ("year", pa.int32(), [("1901", 1901), ("2155", 2155), ("0", 0)]),
    ("date", pa.date32(), [("'0001-01-01'", date(1, 1, 1)), ("'9999-12-31'", date(9999, 12, 31))]),
    ("datetime", pa.timestamp("us"), [("'1000-01-01 00:00:00'", datetime(1000, 1, 1))]),
    ("datetime(3)", pa.timestamp("us"), [("'2024-02-29 23:59:59.999'", datetime(2024, 2, 29, 23, 59, 59, 999000))]),
    ("datetime(6)", pa.timestamp("us"), [("'9999-12-31 23:59:59.999999'", datetime(9999, 12, 31, 23, 59, 59, 999999))]),
    ("timestamp", pa.timestamp("us", "UTC"), [("'1970-01-01 00:00:01'", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))]),
    ("timestamp(1)", pa.timestamp("us", "UTC"), [("'2038-01-19 03:14:07.9'", datetime(2038, 1, 19, 3, 14, 7, 900000, UTC))]),
    ("timestamp(6)", pa.timestamp("us", "UTC"), [("'2001-02-03 04:05:06.000007'", datetime(2001, 2, 3, 4, 5, 6, 7, UTC))]),
    ("time", pa.string(), [("'-838:59:59'", "-838:59:59"), ("'838:59:59'", "838:59:59"), ("'00:00:00'", "00:00:00")]),
    ("time(2)", pa.string(), [("'-00:00:00.01'", "-00:00:00.01"), ("'12:34:56.78'", "12:34:56.78")]),
    ("time(6)", pa.string(), [("'-838:59:58.999999'", "-838:59:58.999999"), ("'01:02:03.000004'", "01:02:03.000004")]),
    ("char(5)", pa.string(), [("''", ""), ("'äbc  '", "äbc")]),
    ("char(255)", pa.string(), [("repeat('ä', 255)", "ä" * 255)]),
    ("varchar(10)", pa.string(), [("'a  '", "a  "), ("'😀'", "😀")]),
    ("varchar(300)", pa.string(), [("repeat('x', 300)", "x" * 300)]),
    ("varchar(20) character set latin1", pa.string(), [("'äß€'", "äß€"), ("'abc'", "abc"), ("0x8190", "\x81\x90")]),
    ("varchar(20) character set latin2", pa.string(), [("'łž'", "łž")]),
    ("varchar(20) character set ucs2", pa.string(), [("'aä€'", "aä€")]),
    ("varchar(20) character set utf8mb3", pa.string(), [("'aä€'", "aä€")]),
    ("text", pa.string(), [("repeat('ä', 5000)", "ä" * 5000)]),
    ("mediumtext", pa.string(), [("repeat('z', 70000)", "z" * 70000)]),
    ("longtext", pa.string(), [("'x'", "x")]),
    ("json", pa.string(), [("'{\"a\": [1, null]}'", '{"a": [1, null]}'), ("'null'", "null")]),
    ("binary(4)", pa.binary(), [("0x00", bytes(4)), ("0x01000000", b"\1\0\0\0"), ("0xffffffff", b"\xff" * 4)]),
    ("varbinary(10)", pa.binary(), [("0x0000", bytes(2)), ("''", b"")]),
    ("blob", pa.binary(), [("repeat(0xff, 300)", b"\xff" * 300)]),
    ("longblob", pa.binary(), [("repeat(0x01, 70000)", b"\1" * 70000)]),
    ("enum('a','b,c','ä''') character set latin1", pa.string(), [("'a'", "a"), ("'b,c'", "b,c"), ("3", "ä'")]),
    ("set('x','y','z')", pa.string(), [("''", ""), ("'x,z'", "x,z"), ("'z,y'", "y,z")]),
    ("geometry", pa.binary(), [("ST_GeomFromText('POINT(1 2)', 4326)", b"\xe6\x10\0\0\1\1\0\0\0\0\0\0\0\0\0\xf0?\0\0\0\0\0\0\0@")]),
]
# fmt: on


def read_both_ways(world: MariaDBWorld, table: SourceTable, *inserts: str) -> tuple[list[Any], list[Any], pa.Schema]:
    """The rows of a table as they are copied, and as they are followed when they are written again."""
    fold = Fold({table.name: ("id",)})
    world.execute(*inserts)
    with opened(world, None, [table]) as database:
        (found,) = database.tables()
        for item in items_to_end(database, None):
            fold.add(item)
            check_schema(item, found.schema)
    copied = fold.rows(table.name)
    world.execute(f"DELETE FROM {table.name}", *inserts)
    fold.copies.clear()
    with opened(world, None, [table]) as database:
        for item in items_to_end(database, fold.position):
            assert not isinstance(item, TableEvent)
            fold.add(item)
            check_schema(item, found.schema)
    assert found.schema is not None
    return copied, fold.rows(table.name), found.schema


def check_schema(item: object, schema: pa.Schema | None) -> None:
    if isinstance(item, Captured) and isinstance(item.rows, pa.RecordBatch):
        assert item.rows.schema == schema


def test_every_type_is_the_same_through_the_copy_and_through_the_log(world: MariaDBWorld) -> None:
    columns = [f"c{number}" for number in range(len(TYPES))]
    declared = ", ".join(f"{name} {type_} NULL" for name, (type_, _, _) in zip(columns, TYPES, strict=True))
    world.execute(f"CREATE TABLE t (id int PRIMARY KEY, {declared})", "SET sql_mode = '', time_zone = '+00:00'")
    inserts, expected = ["INSERT INTO t (id) VALUES (0)"], [dict.fromkeys(columns)]
    for row in range(max(len(values) for _, _, values in TYPES)):
        chosen = [values[row % len(values)] for _, _, values in TYPES]
        inserts.append(f"INSERT INTO t VALUES ({row + 1}, {', '.join(literal for literal, _ in chosen)})")
        expected.append({name: value for name, (_, value) in zip(columns, chosen, strict=True)})
    copied, followed, schema = read_both_ways(world, SourceTable("t"), *inserts)
    assert {name: schema.field(name).type for name in columns} == {
        name: type_ for name, (_, type_, _) in zip(columns, TYPES, strict=True)
    }
    for name in columns:
        assert [row[name] for row in copied] == [row[name] for row in expected], schema.field(name)
        assert [row[name] for row in followed] == [row[name] for row in expected], schema.field(name)


def test_values_that_are_no_dates_stop_the_capture_unless_they_are_captured_as_text(world: MariaDBWorld) -> None:
    world.execute(
        "CREATE TABLE t (id int PRIMARY KEY, d date, e datetime(2), s timestamp NULL, b int, c float, y year)"
    )
    world.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
    insert = (
        "INSERT INTO t VALUES (1, '0000-00-00', '0000-00-00', '0000-00-00', 7, 0.5, 0), "
        "(2, '2024-00-10', '2024-02-31 01:02:03.45', '2024-01-02 03:04:05', NULL, NULL, 1999), "
        "(3, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    texts = SourceTable("t", as_text=frozenset("desbcy"))
    copied, followed, _ = read_both_ways(world, texts, insert)
    assert copied == followed
    assert [(row["d"], row["e"], row["s"]) for row in copied] == [
        ("0000-00-00", "0000-00-00 00:00:00.00", "0000-00-00 00:00:00"),
        ("2024-00-10", "2024-02-31 01:02:03.45", "2024-01-02 03:04:05"),
        (None, None, None),
    ]
    assert (copied[0]["b"], copied[0]["c"], copied[0]["y"]) == ("7", "0.5", "0000")
    for column in "des":
        table = SourceTable("t", columns=("id", column))
        with opened(world, None, [table]) as database, pytest.raises(DeclarationError, match="no date") as error:
            items_to_end(database, None)
        assert "as text" in (error.value.hint or "")
        world.execute("CREATE TABLE empty LIKE t")
        fold = Fold({"empty": ("id",)})
        table = SourceTable("empty", columns=("id", column))
        with opened(world, None, [table]) as database:
            for item in items_to_end(database, None):
                fold.add(item)
        world.execute("INSERT INTO empty SELECT * FROM t")
        with opened(world, None, [table]) as database, pytest.raises(DeclarationError, match="no date"):
            items_to_end(database, fold.position)
        world.execute("DROP TABLE empty")


def test_columns_that_are_not_captured_do_not_move_those_that_are(world: MariaDBWorld) -> None:
    world.execute(
        "CREATE TABLE t (u uuid, id int PRIMARY KEY, i inet6, y year, a int unsigned, v int AS (a + 1) VIRTUAL, "
        "w int AS (a + 2) STORED, s varchar(9) CHARACTER SET latin1, e enum('p','q'), j inet4, "
        "x varchar(9) CHARACTER SET utf8mb4, h int INVISIBLE DEFAULT 3)"
    )
    table = SourceTable("t", columns=("id", "y", "a", "w", "s", "e", "x", "h"))
    insert = (
        "INSERT INTO t (u, id, i, y, a, s, e, j, x) VALUES "
        "(uuid(), 1, '::1', 2000, 2147483640, 'ä', 'q', '1.2.3.4', '😀'), "
        "(NULL, 2, NULL, NULL, 5, NULL, NULL, NULL, NULL)"
    )
    copied, followed, _ = read_both_ways(world, table, "SET sql_mode = ''", insert)
    assert copied == followed
    first = {"id": 1, "y": 2000, "a": 2147483640, "w": 2147483642, "s": "ä", "e": "q", "x": "😀", "h": 3}
    assert copied[0] == first
    with opened(world, None, [SourceTable("t")]) as database, pytest.raises(DeclarationError, match=r"uuid"):
        database.tables()


def test_unsigned_numbers_beyond_bigint_stop_the_capture_unless_they_are_captured_as_text(world: MariaDBWorld) -> None:
    largest = str(2**64 - 1)
    world.execute("CREATE TABLE t (id int PRIMARY KEY, n bigint unsigned)", "CREATE TABLE empty LIKE t")
    copied, followed, _ = read_both_ways(
        world, SourceTable("t", as_text=frozenset("n")), f"INSERT INTO t VALUES (1, {largest}), (2, 7)"
    )
    assert copied == followed
    assert [row["n"] for row in copied] == [largest, "7"]
    with opened(world, None, [SourceTable("t")]) as database, pytest.raises(DeclarationError, match=largest) as error:
        items_to_end(database, None)
    assert 'as_text=["n"]' in (error.value.hint or "")
    fold = Fold({"empty": ("id",)})
    with opened(world, None, [SourceTable("empty")]) as database:
        for item in items_to_end(database, None):
            fold.add(item)
    world.execute("INSERT INTO empty SELECT * FROM t")
    with (
        opened(world, None, [SourceTable("empty")]) as database,
        pytest.raises(DeclarationError, match=f"column 'n': {largest} does not fit into a bigint"),
    ):
        items_to_end(database, fold.position)
