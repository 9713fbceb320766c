# ruff: noqa: DTZ901, E501
"""Every type, and both limits of each, from a real server: through COPY and through pgoutput."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from penstock.capture.postgres.copy_rows import last_key, read_copy_csv, read_copy_texts
from penstock.capture.postgres.pgoutput import Insert, Relation, decode
from penstock.capture.postgres.rows import RowChanges, decode_rows
from penstock.capture.postgres.types import (
    SESSION_SETTINGS,
    TYPES_QUERY,
    ColumnLayout,
    TableLayout,
    catalog_types,
    column_layout,
    resolve_type,
    table_layout,
)
from penstock.errors import DeclarationError
from penstock.schema.ddl import type_ddl
from tests.servers.postgres import PostgresServer

UTC = dt.UTC
ROW_BEFORE = """
CREATE EXTENSION IF NOT EXISTS hstore; CREATE EXTENSION IF NOT EXISTS citext;
CREATE TYPE mood AS ENUM ('sad', 'so so', 'happy');
CREATE TYPE pair AS (x int, y text);
CREATE DOMAIN price AS numeric(6,2);
CREATE DOMAIN cheap AS price CHECK (VALUE < 10);
CREATE DOMAIN prices AS numeric(6,2)[]
"""

AS_SHOWN = None
"""The value is the text that was written."""


@dataclass(frozen=True)
class Case:
    """A type, the Spark type it becomes, and values with what they become."""

    sql: str
    ddl: str
    values: dict[str, object]


def same(*texts: str) -> dict[str, object]:
    return dict.fromkeys(texts, AS_SHOWN)


CASES = [
    Case("bool", "boolean", {"t": True, "f": False}),
    Case("int2", "smallint", {"-32768": -32768, "32767": 32767}),
    Case("int4", "int", {"-2147483648": -(2**31), "2147483647": 2**31 - 1}),
    Case("int8", "bigint", {"-9223372036854775808": -(2**63), "9223372036854775807": 2**63 - 1}),
    Case("oid", "bigint", {"0": 0, "4294967295": 2**32 - 1}),
    Case("float4", "float", {"1e-45": 1.401298464324817e-45, "-3.4028235e+38": -3.4028234663852886e38, "0.1": 0.10000000149011612, "Infinity": float("inf"), "-Infinity": float("-inf"), "-0": 0.0}),
    Case("float8", "double", {"5e-324": 5e-324, "1.7976931348623157e+308": 1.7976931348623157e308, "0.1": 0.1, "Infinity": float("inf")}),
    Case("numeric(10,2)", "decimal(10,2)", {"99999999.99": Decimal("99999999.99"), "-99999999.99": Decimal("-99999999.99"), "1": Decimal("1.00")}),
    Case("numeric(38,10)", "decimal(38,10)", {"9" * 28 + "." + "9" * 10: Decimal("9" * 28 + "." + "9" * 10)}),
    Case("numeric(38,38)", "decimal(38,38)", {"-0." + "9" * 38: Decimal("-0." + "9" * 38)}),
    Case("numeric", "string", same("NaN", "Infinity", "-Infinity", "1.50", "0", "9" * 100 + "." + "1" * 50)),
    Case("numeric(39,0)", "string", same("9" * 39, "NaN")),
    Case("numeric(5,-2)", "string", {"1234567": "1234600"}),
    Case("numeric(2,4)", "string", same("0.0099", "NaN")),
    Case("text", "string", same("", "NULL", "\\N", "\\.", 'a"b,c\nd\r\te', "ü\U0001f600", "x" * 10_000)),
    Case("varchar(5)", "string", same("", "abcde")),
    Case("char(3)", "string", {"a": "a  ", "": "   ", "abc": "abc"}),
    Case('"char"', "string", same("a", "")),
    Case("name", "string", same("some_name")),
    Case("citext", "string", same("AbC")),
    Case("bytea", "binary", {"\\x": b"", "\\x00ff22": b"\x00\xff\x22"}),
    Case("date", "date", {"0001-01-01": dt.date.min, "9999-12-31": dt.date.max, "1582-10-10": dt.date(1582, 10, 10), "infinity": dt.date.max, "-infinity": dt.date.min}),
    Case("timestamp", "timestamp_ntz", {"0001-01-01 00:00:00": dt.datetime.min, "9999-12-31 23:59:59.999999": dt.datetime.max, "infinity": dt.datetime.max, "-infinity": dt.datetime.min}),
    Case("timestamp(0)", "timestamp_ntz", {"2024-01-01 00:00:00.6": dt.datetime(2024, 1, 1, 0, 0, 1)}),  # noqa: DTZ001
    Case("timestamptz", "timestamp", {"0001-01-01 00:00:00+00": dt.datetime.min.replace(tzinfo=UTC), "9999-12-31 23:59:59.999999+00": dt.datetime.max.replace(tzinfo=UTC), "2024-07-01 02:00:00.5+02": dt.datetime(2024, 7, 1, 0, 0, 0, 500_000, UTC), "infinity": dt.datetime.max.replace(tzinfo=UTC), "-infinity": dt.datetime.min.replace(tzinfo=UTC)}),
    Case("time", "string", same("00:00:00", "24:00:00", "12:34:56.789012")),
    Case("timetz", "string", same("12:00:00+02", "00:00:00-15:59")),
    Case("interval", "string", {"1 year 2 mons 3 days 04:05:06.7": AS_SHOWN, "-178000000 years": AS_SHOWN, "P1D": "1 day"}),
    Case("uuid", "string", same("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    Case("json", "string", same('{"b": 1,  "a": [null, "x"]}', "null")),
    Case("jsonb", "string", {'{"b":1,"a":[null]}': '{"a": [null], "b": 1}', "null": AS_SHOWN}),
    Case("jsonpath", "string", same('$."a"')),
    Case("xml", "string", same("<a>x</a>")),
    Case("money", "string", {"1.50": "$1.50"}),
    Case("inet", "string", same("10.0.0.1", "2001:db8::/32")),
    Case("cidr", "string", same("10.0.0.0/8")),
    Case("macaddr", "string", same("08:00:2b:01:02:03")),
    Case("bit(3)", "string", same("101")),
    Case("varbit", "string", same("", "10101")),
    Case("tsvector", "string", same("'a':1 'b':2")),
    Case("tsquery", "string", same("'a' & 'b'")),
    Case("point", "string", same("(1,2)")),
    Case("box", "string", same("(1,1),(0,0)")),
    Case("polygon", "string", same("((0,0),(1,1),(1,0))")),
    Case("circle", "string", same("<(0,0),1>")),
    Case("int4range", "string", {"[1,5]": "[1,6)", "empty": AS_SHOWN}),
    Case("tstzrange", "string", {"[2024-01-01,)": '["2024-01-01 00:00:00+00",)'}),
    Case("int4multirange", "string", same("{[1,3),[5,7)}")),
    Case("hstore", "string", same('"a"=>"1", "b"=>NULL')),
    Case("mood", "string", same("sad", "so so")),
    Case("pair", "string", same("(1,x)", '(,"a b")')),
    Case("regclass", "string", {"pg_class": AS_SHOWN, "public.wide": AS_SHOWN}),
    Case("int2vector", "string", same("1 2 3", "")),
    Case("price", "decimal(6,2)", {"9999.99": Decimal("9999.99")}),
    Case("cheap", "decimal(6,2)", {"9.99": Decimal("9.99")}),
    Case("prices", "array<decimal(6,2)>", {"{1,NULL}": [Decimal("1.00"), None]}),
    Case("bool[]", "array<boolean>", {"{t,f,NULL}": [True, False, None], "{}": []}),
    Case("int8[]", "array<bigint>", {"{-9223372036854775808,NULL,9223372036854775807}": [-(2**63), None, 2**63 - 1]}),
    Case("float8[]", "array<double>", {"{0.1,Infinity}": [0.1, float("inf")]}),
    Case("numeric(4,1)[]", "array<decimal(4,1)>", {"{1,NULL,-999.9}": [Decimal("1.0"), None, Decimal("-999.9")]}),
    Case("numeric[]", "array<string>", {"{1.50,NaN,NULL}": ["1.50", "NaN", None]}),
    Case("bytea[]", "array<binary>", {'{"\\\\x00ff",NULL,"\\\\x"}': [b"\x00\xff", None, b""]}),
    Case("date[]", "array<date>", {"{2024-02-29,infinity}": [dt.date(2024, 2, 29), dt.date.max]}),
    Case("timestamp[]", "array<timestamp_ntz>", {'{"0001-01-01 00:00:00",infinity}': [dt.datetime.min, dt.datetime.max]}),
    Case("timestamptz[]", "array<timestamp>", {'{"2024-07-01 02:00:00+02"}': [dt.datetime(2024, 7, 1, tzinfo=UTC)]}),
    Case("text[]", "array<string>", {'{a,"",NULL,"NULL","x y","a,b","{}","\\"\\\\"}': ["a", "", None, "NULL", "x y", "a,b", "{}", '"\\'], "{}": [], "{a,b}": ["a", "b"]}),
    Case("uuid[]", "array<string>", {"{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]}),
    Case("jsonb[]", "array<string>", {'{"{\\"a\\": [1, 2]}"}': ['{"a": [1, 2]}']}),
    Case("mood[]", "array<string>", {'{sad,"so so"}': ["sad", "so so"]}),
    Case("pair[]", "array<string>", {'{"(1,x)"}': ["(1,x)"]}),
    Case("int4range[]", "array<string>", {'{"[1,2)"}': ["[1,2)"]}),
    Case("box[]", "array<string>", {"{(1,1),(0,0);(2,2),(1,1)}": ["(1,1),(0,0)", "(2,2),(1,1)"]}),
    Case("cheap[]", "array<decimal(6,2)>", {"{9.99,NULL}": [Decimal("9.99"), None]}),
]  # fmt: skip

MISFITS = {
    "numeric(10,2)": ["NaN"],
    "date": ["4713-01-01 BC", "0001-12-31 BC", "10000-01-01", "5874897-12-31"],
    "timestamp": ["4713-01-01 00:00:00 BC", "10000-01-01 00:00:00", "294276-12-31 23:59:59.999999"],
    "timestamptz": ["4713-01-01 00:00:00+00 BC", "10000-01-01 00:00:00+00"],
    "int4[]": ["{{1,2},{3,4}}", "[0:1]={1,2}"],
    "text[]": ['{{"a b"},{c}}', "[2:2]={x}"],
    "numeric(4,1)[]": ["{1.0,NaN}"],
    "prices": ["{NaN}"],
    "timestamptz[]": ['{"10000-01-01 00:00:00+00"}'],
}


class World:
    """A database with a publication, and what was written to a table since, in both ways in which it is captured."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        server.execute("CREATE PUBLICATION p FOR ALL TABLES")
        server.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        options = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in SESSION_SETTINGS.items())
        self.connection = psycopg.connect(server.url, autocommit=True, options=options)

    def layout(self, table: str, *, key: str | None = "id", as_text: frozenset[str] = frozenset()) -> TableLayout:
        types = catalog_types(self.connection.execute(TYPES_QUERY))
        attributes = self.connection.execute(
            "SELECT attname, atttypid, atttypmod FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [f"public.{table}"],
        )
        return table_layout(
            f"public.{table}",
            [
                column_layout(name, resolve_type(types, oid, modifier), is_key=name == key, as_text=name in as_text)
                for name, oid, modifier in attributes
            ],
        )

    def copied(self, layout: TableLayout) -> bytes:
        columns = ", ".join(f'"{column.name}"' for column in layout.table_columns)
        statement = f"COPY (SELECT {columns} FROM {layout.name} ORDER BY 1) TO STDOUT (FORMAT csv)"
        with self.connection.cursor().copy(statement) as copy:  # type: ignore[arg-type]
            return b"".join(bytes(piece) for piece in copy)

    def streamed(self) -> tuple[Relation, list[bytes]]:
        """The changes of the only table that was written since the last call."""
        rows = self.connection.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, "
            "'proto_version', '1', 'publication_names', 'p')"
        ).fetchall()
        messages = [row[0] for row in rows]
        (relation,) = {decode(message, streaming=False) for message in messages if message[:1] == b"R"}
        assert isinstance(relation, Relation)
        return relation, [message for message in messages if message[:1] in b"IUD"]

    def changes(self, layout: TableLayout) -> RowChanges:
        relation, messages = self.streamed()
        return decode_rows(messages, relation, layout, np.zeros(len(messages), np.int64), streaming=False)

    def shown(self, layout: TableLayout, column: ColumnLayout) -> list[str | None]:
        """The texts of a column as the server itself shows them."""
        statement = f"""SELECT CASE WHEN num_nulls("{column.name}") = 0 THEN format('%%s', "{column.name}") END
                        FROM {layout.name} ORDER BY id"""
        return [text for (text,) in self.connection.execute(statement.replace("%%", "%"))]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    server = PostgresServer().start()
    try:
        server.execute(ROW_BEFORE)
        world = World(server)
        yield world
        world.connection.close()
    finally:
        server.remove()


def test_every_type_at_both_limits_is_the_same_through_copy_and_through_pgoutput(world: World) -> None:
    names = [f"c{number}" for number in range(len(CASES))]
    columns = ", ".join(f"{name} {case.sql}" for name, case in zip(names, CASES, strict=True))
    world.server.execute(f"CREATE TABLE wide (id int PRIMARY KEY, {columns})")
    expected: list[dict[str, Any]] = []
    with world.server.connect() as connection:
        for name, case in zip(names, CASES, strict=True):
            for text, value in case.values.items():
                row = {"id": len(expected), **dict.fromkeys(names), name: text if value is AS_SHOWN else value}
                statement = f"INSERT INTO public.wide (id, {name}) VALUES (%s, %s::text::{case.sql})"
                if case.sql == "pair" or case.sql.endswith("[]") or case.sql in ("int2vector", '"char"'):
                    literal = text.replace("'", "''")
                    statement = f"INSERT INTO public.wide (id, {name}) VALUES ({len(expected)}, '{literal}')"
                    connection.execute(statement)  # type: ignore[arg-type]
                else:
                    connection.execute(statement, [len(expected), text])  # type: ignore[arg-type]
                expected.append(row)
    layout = world.layout("wide")
    assert {name: type_ddl(layout.schema.field(name).type) for name in names} == dict(
        zip(names, (case.ddl for case in CASES), strict=True)
    )
    copied = read_copy_csv(world.copied(layout), layout, 0)
    copied.validate(full=True)
    changes = world.changes(layout)
    assert changes.deleted is None
    assert copied.drop_columns(["committed_at"]).to_pylist() == expected
    assert changes.batch.drop_columns(["committed_at"]).to_pylist() == expected
    assert changes.batch.equals(copied)
    texts = read_copy_texts(world.copied(layout), layout)
    for column in layout.table_columns:
        assert texts.column(column.name).cast(pa.string()).to_pylist() == world.shown(layout, column)
    assert last_key(texts, layout) == (str(len(expected) - 1),)


@pytest.mark.parametrize(("sql", "text"), [(sql, text) for sql, texts in MISFITS.items() for text in texts])
def test_what_does_not_fit_stops_both_ways_and_can_be_captured_as_text(world: World, sql: str, text: str) -> None:
    world.server.execute(f"DROP TABLE IF EXISTS misfit; CREATE TABLE misfit (id int PRIMARY KEY, valid_until {sql})")
    world.server.execute(
        f"INSERT INTO misfit SELECT i FROM generate_series(1, 5) AS i; INSERT INTO misfit VALUES (6, '{text}')"
    )
    layout = world.layout("misfit")
    copied, (relation, messages) = world.copied(layout), world.streamed()
    times = np.zeros(len(messages), np.int64)
    for read in (
        lambda layout: read_copy_csv(copied, layout, 0),
        lambda layout: decode_rows(messages, relation, layout, times, streaming=False).batch,
    ):
        with pytest.raises(
            DeclarationError, match=r"table public\.misfit, column valid_until: '.*' does not fit the type"
        ) as caught:
            read(layout)
        assert f"'{text}'" in caught.value.message
        assert caught.value.hint == 'capture the column as text: as_text=["valid_until"]'
        as_text = read(world.layout("misfit", as_text=frozenset({"valid_until"})))
        assert as_text.column("valid_until").to_pylist() == [None] * 5 + [text]


def test_nan_of_a_float_comes_through_both_ways(world: World) -> None:
    world.server.execute("CREATE TABLE nans (id int PRIMARY KEY, a float4, b float8)")
    world.server.execute("INSERT INTO nans VALUES (1, 'NaN', 'NaN')")
    layout = world.layout("nans")
    for batch in (read_copy_csv(world.copied(layout), layout, 0), world.changes(layout).batch):
        assert [str(batch.column(name)[0]) for name in ("a", "b")] == ["nan", "nan"]


def test_rows_without_a_key_have_the_same_id_in_both_ways(world: World) -> None:
    world.server.execute(
        "CREATE TABLE keyless (a text, b int, c timestamptz); ALTER TABLE keyless REPLICA IDENTITY FULL"
    )
    world.server.execute(
        "INSERT INTO keyless VALUES ('', 1, now()), (NULL, 1, NULL), ('1', NULL, NULL), (NULL, NULL, NULL)"
    )
    layout = world.layout("keyless", key=None)
    assert layout.key == ("row_id",)
    copied = read_copy_csv(world.copied(layout), layout, 0)
    rows = {row["row_id"]: row for row in copied.to_pylist()}
    assert len(rows) == 4
    assert {row["row_id"]: row for row in world.changes(layout).batch.to_pylist()} == rows
    world.server.execute(
        "UPDATE keyless SET b = 2 WHERE a = ''; UPDATE keyless SET b = b WHERE a = '1'; DELETE FROM keyless WHERE b = 1"
    )
    after = {row["row_id"]: row for row in read_copy_csv(world.copied(layout), layout, 0).to_pylist()}
    changes = world.changes(layout)
    assert changes.deleted is not None
    for row, is_deleted in zip(changes.batch.to_pylist(), changes.deleted.to_pylist(), strict=True):
        if is_deleted:
            del rows[row["row_id"]]
        else:
            rows[row["row_id"]] = row
    assert rows == after
    assert len(after) == 3


def test_a_column_of_nulls_alone_is_copied_row_by_row(world: World) -> None:
    world.server.execute("CREATE TABLE narrow (a text); ALTER TABLE narrow REPLICA IDENTITY FULL")
    world.server.execute("INSERT INTO narrow VALUES (NULL), (''), (NULL), (E'\\\\.'), (E'\\n')")
    layout = world.layout("narrow", key=None)
    copied = read_copy_csv(world.copied(layout), layout, 0)
    assert sorted(map(str, copied.column("a").to_pylist())) == sorted(["None", "", "None", "\\.", "\n"])
    assert world.changes(layout).batch.num_rows == 5


def test_large_values_that_an_update_leaves_alone_are_marked_or_filled_from_the_old_row(world: World) -> None:
    world.server.execute("CREATE TABLE toasted (id int PRIMARY KEY, n int, big text)")
    world.server.execute("ALTER TABLE toasted ALTER big SET STORAGE EXTERNAL")
    world.server.execute("INSERT INTO toasted VALUES (1, 1, repeat('x', 9000))")
    world.streamed()
    world.server.execute("UPDATE toasted SET n = 2")
    layout = world.layout("toasted")
    changes = world.changes(layout)
    assert changes.batch.column("big").to_pylist() == [None]
    assert changes.unchanged["big"].to_pylist() == [True]
    assert changes.moved is None
    world.server.execute("UPDATE toasted SET id = 7")
    changes = world.changes(layout)
    assert changes.batch.column("id").to_pylist() == [1, 7]
    assert changes.moved is not None
    assert changes.moved.to_pylist() == [False, True]
    world.server.execute("ALTER TABLE toasted REPLICA IDENTITY FULL")
    world.server.execute("UPDATE toasted SET n = 3")
    changes = world.changes(layout)
    assert changes.unchanged == {}
    assert changes.batch.column("big").to_pylist() == ["x" * 9000]


def test_messages_of_a_real_server_are_decoded_one_by_one_too(world: World) -> None:
    world.server.execute("CREATE TABLE small (id int PRIMARY KEY, a text); INSERT INTO small VALUES (1, NULL)")
    relation, (message,) = world.streamed()
    assert decode(message, streaming=False) == Insert(relation.relation_id, (b"1", None))
