# ruff: noqa: E501
"""Messages as the tools write them, shortened to what matters."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.messages.decode import DecodedChanges, decode_changes
from penstock.flow.plan import Messages
from penstock.schema.arrow import parse_schema

UTC = dt.UTC
CUSTOMERS = "id bigint not null, name string, note string"
Message = tuple[object, object]


def decode(messages: list[Message], schema: str = CUSTOMERS, *, key: str = "id", **options: Any) -> DecodedChanges:
    what = Messages(**{"format": "debezium", "table": "shop.customers", **options})
    texts = [
        [text if text is None or isinstance(text, str) else json.dumps(text) for text in pair] for pair in messages
    ]
    decoded = decode_changes([k for k, _ in texts], [v for _, v in texts], parse_schema(schema), key.split(","), what)
    decoded.rows.validate(full=True)
    assert decoded.rows.num_rows == len(decoded.gone) == len(decoded.message)
    return decoded


def rows(decoded: DecodedChanges) -> list[dict[str, object]]:
    """The rows, of which those that are gone have a mark; there must be no reason."""
    assert decoded.reasons == {}
    return [
        {name: value for name, value in row.items() if value is not None} | ({"gone": True} if gone else {})
        for row, gone in zip(decoded.rows.to_pylist(), decoded.gone, strict=True)
    ]


def reason(decoded: DecodedChanges) -> str:
    """The only reason; there must be no row."""
    assert decoded.rows.num_rows == 0
    (found,) = decoded.reasons.values()
    return found


def value_of(type_: str, value: object, field: dict[str, object] | None = None, **options: Any) -> object:
    """What a value becomes in a column; with `field`, in the envelope of a schema that says so."""
    payload = {"op": "c", "before": None, "after": {"id": 1, "v": value}}
    fields = [{"field": "id", "type": "int64"}, {"field": "v", **(field or {})}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    message = payload if field is None else {"schema": schema, "payload": payload}
    decoded = decode([({"id": 1}, message)], f"id bigint not null, v {type_}", **options)
    return reason(decoded) if decoded.reasons else decoded.rows.column("v")[0].as_py()


# -- Debezium ---------------------------------------------------------------------------------------------------------

POSTGRES_SOURCE = {
    "version": "2.7.0.Final",
    "connector": "postgresql",
    "db": "shop",
    "schema": "public",
    "table": "customers",
    "lsn": 24023128,
}


def event(op: str, before: object, after: object, **more: object) -> dict[str, object]:
    return {"before": before, "after": after, "source": POSTGRES_SOURCE, "op": op, "ts_ms": 1714560000000, **more}


def enveloped(payload: object, kind: str = "value") -> dict[str, object]:
    row = [{"type": "int64", "optional": False, "field": "id"}, {"type": "string", "optional": True, "field": "name"}]
    struct = {"type": "struct", "optional": True, "name": "dbserver1.public.customers.Value", "fields": row}
    fields = (
        row[:1]
        if kind == "key"
        else [{**struct, "field": "before"}, {**struct, "field": "after"}, {"type": "string", "field": "op"}]
    )
    return {
        "schema": {"type": "struct", "fields": fields, "name": "dbserver1.public.customers.Envelope"},
        "payload": payload,
    }


HISTORY: list[Message] = [
    ({"id": 1}, event("r", None, {"id": 1, "name": "Ada", "note": None})),
    ({"id": 2}, event("c", None, {"id": 2, "name": "Bob", "note": "x", "added_later": 7})),
    ({"id": 1}, event("u", None, {"id": 1, "name": "Ada L.", "note": None})),
    ({"id": 2}, event("d", {"id": 2, "name": None, "note": None}, None)),
    ({"id": 2}, None),
]
EXPECTED = [
    {"id": 1, "name": "Ada"},
    {"id": 2, "name": "Bob", "note": "x"},
    {"id": 1, "name": "Ada L."},
    {"id": 2, "gone": True},
    {"id": 2, "gone": True},
]


def test_the_history_of_a_table_without_schemas() -> None:
    decoded = decode(HISTORY)
    assert rows(decoded) == EXPECTED
    assert decoded.message.tolist() == [0, 1, 2, 3, 4]


def test_the_history_of_a_table_with_schemas() -> None:
    history = [(enveloped(key, "key"), None if value is None else enveloped(value)) for key, value in HISTORY]
    assert rows(decode(history)) == EXPECTED


def test_a_delete_without_the_row_takes_its_key_from_the_key_of_the_message() -> None:
    assert rows(decode([({"id": 2}, event("d", None, None))])) == [{"id": 2, "gone": True}]


def test_a_changed_key_is_a_delete_and_a_row_of_the_same_message() -> None:
    decoded = decode([({"id": 3}, event("u", {"id": 2, "name": "Bob"}, {"id": 3, "name": "Bob", "note": None}))])
    assert rows(decoded) == [{"id": 2, "gone": True}, {"id": 3, "name": "Bob"}]
    assert decoded.message.tolist() == [0, 0]


@pytest.mark.parametrize(
    "placeholder",
    ["__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", ["__debezium_unavailable_value"]],
)
def test_a_value_that_was_not_sent_is_never_taken_for_a_value(placeholder: object) -> None:
    after = {"id": 1, "name": "Ada", "note": placeholder}
    assert "column 'note' is as before and was not sent" in reason(decode([({"id": 1}, event("u", None, after))]))
    assert "column 'note' is as before" in reason(decode([({"id": 1}, event("u", after, after))]))
    whole = event("u", {"id": 1, "name": "A", "note": "long"}, after)
    assert rows(decode([({"id": 1}, whole)])) == [{"id": 1, "name": "Ada", "note": "long"}]
    assert rows(decode([({"id": 1}, event("u", None, after))], "id bigint not null, name string")) == [
        {"id": 1, "name": "Ada"}
    ]


def test_logical_messages_are_not_about_rows() -> None:
    assert rows(decode([({"prefix": "p"}, event("m", None, None, message={"prefix": "p", "content": "eA=="}))])) == []


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ((None, event("t", None, None)), "it truncates the table, which is not supported"),
        ((None, None), "it deletes a row, and has no key that says which"),
        (({"other": 1}, None), "its key has no 'id', which belongs to the key of the table; it has other"),
        (({"id": 1}, "{"), "its value is not JSON"),
        (({"id": 1}, "[" * 100_000), "its value is not JSON"),
        (({"id": 1}, "3"), "its value is no JSON object"),
        (({"id": 1}, {"id": 1, "name": "flat"}), "it is no change event of Debezium"),
        (({"id": 1}, event("u", None, None)), "it does not have the row as it is now in 'after', but nothing"),
        (({"id": 1}, event("c", None, {"id": None, "name": "x"})), "column 'id' is null, and must not be"),
        (({"id": 1}, event("c", None, {"name": "x"})), "column 'id' is missing, and must not be"),
        (({"id": 1}, '{"op": "c", "after": {"id": 1e999999999}}'), "column 'id' takes bigint"),
        (({"id": 1}, '{"op": "c", "after": {"id": 1, "name": "\\ud800"}}'), "column 'name' takes string"),
        (({"id": 1}, event("c", None, {"id": "one"})), "column 'id' takes bigint; found 'one' (str): give an int"),
        (({"id": 1}, event("c", None, {"id": 2**63})), "column 'id' takes bigint"),
    ],
)  # fmt: skip
def test_a_message_that_says_no_row_has_a_reason(message: Message, why: str) -> None:
    assert why in reason(decode([message]))


def test_bad_messages_take_nothing_from_those_around_them() -> None:
    decoded = decode([HISTORY[0], ({"id": 9}, "{"), HISTORY[1]])
    assert decoded.message.tolist() == [0, 2]
    assert list(decoded.reasons) == [1]


@pytest.mark.parametrize(
    ("type_", "value", "logical", "expected"),
    [
        ("date", 19844, "io.debezium.time.Date", dt.date(2024, 5, 1)),
        ("date", -719162, "org.apache.kafka.connect.data.Date", dt.date(1, 1, 1)),
        ("date", 1714521600000, "io.debezium.time.Timestamp", dt.date(2024, 5, 1)),  # DATE of Oracle
        ("timestamp", 1714560000123, "io.debezium.time.Timestamp", dt.datetime(2024, 5, 1, 10, 40, 0, 123_000, UTC)),
        ("timestamp", 1714560000123456, "io.debezium.time.MicroTimestamp", dt.datetime(2024, 5, 1, 10, 40, 0, 123_456, UTC)),
        ("timestamp_ntz", 1714560000123456700, "io.debezium.time.NanoTimestamp", dt.datetime(2024, 5, 1, 10, 40, 0, 123_456)),  # noqa: DTZ001 - DATETIME2(7) of SQL Server
        ("timestamp", -1, "org.apache.kafka.connect.data.Timestamp", dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
        ("timestamp", "2024-05-01T12:40:00.5+02:00", "io.debezium.time.ZonedTimestamp", dt.datetime(2024, 5, 1, 10, 40, 0, 500_000, UTC)),
        ("string", 45296789012, "io.debezium.time.MicroTime", "12:34:56.789012"),
        ("string", -3600000, "io.debezium.time.Time", "-01:00:00"),
        ("bigint", 45296789012, "io.debezium.time.MicroTime", 45296789012),
        ("int", 2024, "io.debezium.time.Year", 2024),
        ("string", '{"a":1}', "io.debezium.data.Json", '{"a":1}'),
        ("boolean", 1, "", True),
        ("binary", "AP8=", "", b"\x00\xff"),
    ],
)  # fmt: skip
def test_logical_types_mean_what_the_schema_says(type_: str, value: object, logical: str, expected: object) -> None:
    assert value_of(type_, value, {"type": "int64", "name": logical}) == expected


def test_decimals_in_all_forms() -> None:
    exact = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    assert value_of("decimal(10,2)", "BM4=", exact) == Decimal("12.30")
    assert value_of("decimal(10,2)", "+zI=", exact) == Decimal("-12.30")
    nines = base64.b64encode((10**38 - 1).to_bytes(16, "big")).decode()
    assert value_of("decimal(38,0)", nines, {**exact, "parameters": {"scale": "0"}}) == Decimal("9" * 38)
    assert value_of("string", "BM4=", exact) == "12.30"
    variable = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    assert value_of("decimal(10,2)", {"scale": 1, "value": "ew=="}, variable) == Decimal("12.30")
    assert value_of("bigint", {"scale": 0, "value": "ew=="}) == 123  # NUMBER of Oracle
    assert value_of("decimal(10,2)", "12.3") == Decimal("12.30")
    assert value_of("string", 1.50) == "1.5"
    assert value_of("decimal(38,30)", "0.123456789012345678901234567891") == Decimal("0.123456789012345678901234567891")
    assert "takes bigint" in str(value_of("bigint", "1e999999999"))
    assert value_of("double", 12.5) == 12.5
    assert "at most 2 digits after the point" in str(value_of("decimal(10,2)", "12.345"))


def test_a_number_in_a_timestamp_needs_its_unit_unless_the_message_says_it() -> None:
    assert "declare time_unit" in str(value_of("timestamp", 1714560000123))
    assert value_of("timestamp", 1714560000123, time_unit="ms") == dt.datetime(2024, 5, 1, 10, 40, 0, 123_000, UTC)
    assert value_of("date", 19844) == dt.date(2024, 5, 1)
    assert "only the years 1 to 9999" in str(value_of("timestamp", 2**62, time_unit="ms"))


def test_documents_of_mongodb() -> None:
    schema = "_id string not null, name string, age int, balance decimal(10,2), since timestamp, tags array<string>, address struct<city: string>, more string"
    after = {
        "_id": {"$oid": "596e275826f08b2730779e1f"}, "name": "Anne", "age": {"$numberLong": "41"}, "balance": {"$numberDecimal": "1.50"},
        "since": {"$date": 1714560000000}, "tags": ["a", "b"], "address": {"city": "Rome", "zip": "00100"}, "more": {"x": [1, {"y": None}]},
    }  # fmt: skip
    key = {"id": json.dumps(after["_id"])}
    messages: list[Message] = [
        (key, {"op": "c", "after": json.dumps(after), "source": {"connector": "mongodb"}}),
        (key, {"op": "d", "after": None, "before": None, "source": {"connector": "mongodb"}}),
        (key, None),
    ]
    gone = {"_id": "596e275826f08b2730779e1f", "gone": True}
    assert rows(decode(messages, schema, key="_id")) == [
        {
            "_id": "596e275826f08b2730779e1f", "name": "Anne", "age": 41, "balance": Decimal("1.50"),
            "since": dt.datetime(2024, 5, 1, 10, 40, tzinfo=UTC), "tags": ["a", "b"], "address": {"city": "Rome"}, "more": '{"x":[1,{"y":null}]}',
        },
        gone,
        gone,
    ]  # fmt: skip
    update = {"op": "u", "after": None, "updateDescription": {"updatedFields": '{"age": 42}'}}
    assert "but only 'updateDescription'; with MongoDB, set" in reason(decode([(key, update)], schema, key="_id"))


# -- Maxwell ----------------------------------------------------------------------------------------------------------


def maxwell(kind: str, data: object, table: str = "customers", **more: object) -> Message:
    return (
        {"database": "shop", "table": table, "pk.id": 1},
        {
            "database": "shop",
            "table": table,
            "type": kind,
            "ts": 1449786310,
            "xid": 940752,
            "commit": True,
            "data": data,
            **more,
        },
    )


def test_the_history_of_a_table_of_maxwell_among_others() -> None:
    history = [
        maxwell("bootstrap-start", {}),
        maxwell("bootstrap-insert", {"id": 1, "name": "Ada", "note": None}),
        maxwell("bootstrap-complete", {}),
        maxwell("insert", {"id": 1, "name": "not a customer"}, "orders"),
        maxwell("insert", {"id": 2, "name": "Bob"}),
        maxwell("update", {"id": 1, "name": "Ada L.", "note": None}, old={"name": "Ada"}),
        maxwell("update", {"id": 3, "name": "Bob"}, old={"id": 2}),
        maxwell("delete", {"id": 1, "name": "Ada L."}),
        (None, {"type": "table-create", "database": "shop", "table": "customers", "def": {}, "ts": 1}),
        ({"database": "shop", "table": "customers", "pk.id": 3}, None),
        ({"database": "shop", "table": "orders", "pk.id": 3}, None),
    ]
    expected = [
        {"id": 1, "name": "Ada"},
        {"id": 2, "name": "Bob"},
        {"id": 1, "name": "Ada L."},
        {"id": 2, "gone": True},
        {"id": 3, "name": "Bob"},
        {"id": 1, "gone": True},
        {"id": 3, "gone": True},
    ]
    assert rows(decode(history, format="maxwell")) == expected
    assert rows(decode(history, format="maxwell", table="customers")) == expected


def test_values_of_maxwell() -> None:
    schema = "id bigint not null, placed_at timestamp, day date, amount decimal(10,2), content binary, detail string"
    data = {
        "id": 1,
        "placed_at": "2024-05-01 10:40:00.123456",
        "day": "2024-05-01",
        "amount": 12.30,
        "content": "AP8=",
        "detail": {"a": [1.50]},
    }
    (row,) = rows(decode([maxwell("insert", data)], schema, format="maxwell"))
    assert row == {
        "id": 1, "placed_at": dt.datetime(2024, 5, 1, 10, 40, 0, 123_456, UTC), "day": dt.date(2024, 5, 1),
        "amount": Decimal("12.30"), "content": b"\x00\xff", "detail": '{"a":[1.5]}',
    }  # fmt: skip
    zero = {**data, "placed_at": "0000-00-00 00:00:00"}
    assert "column 'placed_at' takes timestamp" in reason(decode([maxwell("insert", zero)], schema, format="maxwell"))


def test_what_is_no_message_of_maxwell_has_a_reason() -> None:
    assert "it is no message of Maxwell" in reason(decode([HISTORY[0]], format="maxwell"))
    assert "its key is none of Maxwell" in reason(decode([({"id": 1}, None)], format="maxwell"))


# -- anything ---------------------------------------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["customers", "shop", "update", "u", "{}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["id", "name", "note", "op", "before", "after", "schema", "payload", "fields", "database", "table", "type", "data", "old", "$date", "$oid", "$binary", "$numberLong", "scale", "value", "parameters", "field"]),
        inner, max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip
SCHEMA = (
    "id bigint not null, name timestamp, note decimal(5,2), value double, data array<date>, old map<string, binary>"
)


@given(
    st.lists(st.tuples(anything, anything), max_size=3),
    st.sampled_from(["debezium", "maxwell"]),
    st.sampled_from(["c", "u", "d", None]),
)
def test_any_message_is_rows_or_has_a_reason(messages: list[Message], tool: str, op: str | None) -> None:
    texts: list[Message] = [
        (json.dumps(key), json.dumps({**value, "op": op} if op and isinstance(value, dict) else value))
        for key, value in messages
    ]
    decoded = decode(texts, SCHEMA, format=tool)
    assert not set(decoded.message.tolist()) & decoded.reasons.keys()
