"""Copies in small chunks over keys of every type, and compressed logs."""

from __future__ import annotations

import pytest

from penstock.contracts import SourceOptions, SourceTable
from tests.capture.database_contract import items_to_end, opened
from tests.capture.database_fold import Fold
from tests.capture.mysql.world import MariaDBWorld


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("bigint unsigned", ["0", "5", "9007199254740993", "9007199254740992", "9223372036854775807"]),
        ("decimal(30,5)", ["-1.5", "0", "0.00001", "99999999999999999.99999", "99999999999999999.99998"]),
        ("varchar(20) character set latin1", ["'a'", "'B'", "'c'", "'ä'", "'z''\\\\'", "''"]),
        ("varchar(20) character set utf8mb4 collate utf8mb4_unicode_ci", ["'ß'", "'a'", "'É'", "'f'", "'😀'"]),
        ("varchar(20) collate utf8mb4_bin", ["'A'", "'a'", "'b'", "'ä'"]),
        ("varbinary(9)", ["0x00", "0x0000", "0xff", "''", "0x27"]),
        ("binary(2)", ["0x00", "0x0001", "0xff", "0x2700", "0x27ff"]),
        ("datetime(3)", ["'2024-01-01 00:00:00.001'", "'2024-01-01 00:00:00.002'", "'2020-01-01'", "'2021-01-01'"]),
        ("timestamp", ["'2024-10-27 00:30:00'", "'2024-10-27 01:30:00'", "'2024-10-27 02:30:00'"]),
        ("time", ["'-10:00:00'", "'00:00:00'", "'10:00:00'"]),
        ("date", ["'2024-01-01'", "'1999-01-01'", "'2030-01-01'"]),
        ("year", ["2024", "1999", "0"]),
        ("bit(40)", ["1", "0", "1099511627775", "256"]),
        ("enum('z','b','a')", ["'z'", "'b'", "'a'"]),
        ("set('z','b','a')", ["'z'", "'b,a'", "'a'", "''"]),
        ("float", ["0.1", "0.2", "-1e30", "1.17549e-38", "3"]),
        ("double", ["0.1", "0.30000000000000004", "0.3", "-1e300", "5"]),
    ],
)
def test_a_copy_in_chunks_has_every_key_once(world: MariaDBWorld, type_: str, values: list[str]) -> None:
    world.execute(f"CREATE TABLE t (k {type_} NOT NULL, n int NOT NULL, PRIMARY KEY (k, n))")
    world.execute(*[f"INSERT INTO t VALUES ({value}, {n})" for value in values for n in (1, 2, 3)])
    fold, rows = Fold({"t": ("k", "n")}), 0
    with opened(world, SourceOptions(chunk_rows=2), [SourceTable("t")]) as database:
        for item in items_to_end(database, None):
            fold.add(item)
            rows += len(getattr(item, "rows", ()))
    assert rows == len(values) * 3
    assert len(fold.copies["t"].rows) == rows


def test_compressed_logs_are_read(world: MariaDBWorld) -> None:
    world.execute("CREATE TABLE t (id int PRIMARY KEY, text varchar(2000))")
    fold, table = Fold({"t": ("id",)}), SourceTable("t")
    with opened(world, None, [table]) as database:
        for item in items_to_end(database, None):
            fold.add(item)
    world.server.execute("SET GLOBAL log_bin_compress = ON")
    try:
        world.execute("INSERT INTO t VALUES (1, repeat('x', 2000)), (2, repeat('y', 2000)), (3, '')")
        world.execute("UPDATE t SET text = repeat('z', 1000) WHERE id = 1", "DELETE FROM t WHERE id = 2")
        world.execute(f"ALTER TABLE t ADD COLUMN b int COMMENT '{'c' * 900}'", "INSERT INTO t VALUES (4, 'x', 5)")
        with opened(world, None, [table]) as database:
            for item in items_to_end(database, fold.position):
                fold.add(item)
    finally:
        world.server.execute("SET GLOBAL log_bin_compress = OFF")
    assert [(row["id"], len(row["text"])) for row in fold.rows("t")] == [(1, 1000), (3, 0), (4, 1)]
