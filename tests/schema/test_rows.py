"""What a user appends becomes exactly the topic's schema, or is refused with the row and the column."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RowError
from penstock.schema.arrow import parse_schema
from penstock.schema.from_python import reader_of
from penstock.schema.rows import batch_to_schema, rows_to_batch

WHERE = "topic 'orders'"
ORDERS = parse_schema("order_id bigint not null, amount decimal(10,2), tags array<string>, placed_at timestamp")
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)

values_of = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-128, 127),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False) | st.integers(-(2**53), 2**53),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "binary": st.binary(max_size=5),
    "decimal(18,3)": st.decimals(-(10**14), 10**14, places=3),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "timestamp_ntz": st.datetimes(),
    "array<int>": st.lists(st.none() | st.integers(-5, 5), max_size=3),
    "struct<a: int, b: string>": st.fixed_dictionaries({"a": st.integers(-5, 5), "b": st.none() | st.text("ab")}),
}


def rows_refusal(rows: list[dict[str, object]], schema: pa.Schema = ORDERS) -> RowError:
    with pytest.raises(RowError) as caught:
        rows_to_batch(rows, schema, where=WHERE)
    assert caught.value.message.startswith(f"{WHERE}: ")
    return caught.value


def batch_refusal(batch: pa.RecordBatch | pa.Table, schema: str) -> RowError:
    with pytest.raises(RowError) as caught:
        batch_to_schema(batch, parse_schema(schema), where=WHERE)
    assert caught.value.message.startswith(f"{WHERE}: ")
    return caught.value


@st.composite
def typed_rows(draw: st.DrawFn) -> tuple[pa.Schema, list[dict[str, object]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(values_of)), min_size=1, max_size=5))
    schema = parse_schema(", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds)))
    row = st.fixed_dictionaries({f"c{i}": st.none() | values_of[kind] for i, kind in enumerate(kinds)})
    return schema, draw(st.lists(row, max_size=5))


@given(typed_rows())
def test_rows_come_back_as_they_were_given(given: tuple[pa.Schema, list[dict[str, object]]]) -> None:
    schema, rows = given
    batch = rows_to_batch(rows, schema, where=WHERE)
    batch.validate(full=True)
    assert batch.schema == schema
    assert batch.to_pylist() == rows


@given(typed_rows())
def test_arrows_conversion_and_reading_one_by_one_agree(given: tuple[pa.Schema, list[dict[str, object]]]) -> None:
    schema, rows = given
    batch = rows_to_batch(rows, schema, where=WHERE)
    for field in schema:
        read = reader_of(field.type, field.name)
        read_values = pa.array([read(row[field.name]) for row in rows], field.type)
        assert batch.column(field.name).equals(read_values)


def test_a_missing_nullable_column_is_null() -> None:
    batch = rows_to_batch([{"order_id": 1, "tags": ["a"]}, {"order_id": 2}], ORDERS, where=WHERE)
    nothing = {"amount": None, "placed_at": None}
    assert batch.to_pylist() == [{"order_id": 1, "tags": ["a"], **nothing}, {"order_id": 2, "tags": None, **nothing}]


def test_values_that_only_the_strict_readers_understand_are_accepted() -> None:
    rows = [
        {"order_id": 1, "amount": "12.34", "placed_at": "2024-02-29T12:00:00Z"},
        {"order_id": 2, "amount": 12.5, "placed_at": NOON},
    ]
    batch = rows_to_batch(rows, ORDERS, where=WHERE)
    assert batch.column("amount").to_pylist() == [Decimal("12.34"), Decimal("12.50")]
    assert batch.column("placed_at").to_pylist() == [NOON, NOON]


def test_no_rows_make_an_empty_batch() -> None:
    batch = rows_to_batch([], ORDERS, where=WHERE)
    assert batch.num_rows == 0
    assert batch.schema == ORDERS


def test_a_misfit_names_the_row_the_column_the_type_and_the_value() -> None:
    error = rows_refusal([{"order_id": 1}, {"order_id": 2}, {"order_id": "three"}])
    assert error.message == "topic 'orders': row 2, column 'order_id' takes bigint; found 'three' (str)"
    assert error.hint == "give an int"


def test_a_number_out_of_range_is_refused_with_the_range() -> None:
    error = rows_refusal([{"n": 1}, {"n": 300}], parse_schema("n tinyint"))
    assert error.message == "topic 'orders': row 1, column 'n' takes tinyint; found 300 (int)"
    assert error.hint == "the range is -128 to 127"
    assert "row 0, column 'n' takes bigint" in rows_refusal([{"n": 2**70}], parse_schema("n bigint")).message


def test_a_column_that_is_not_in_the_schema_is_refused_with_the_nearest_one() -> None:
    error = rows_refusal([{"order_id": 1}, {"order_id": 2, "ammount": 1}])
    assert error.message == "topic 'orders': row 1 has a column that is not in the schema; found 'ammount'"
    assert error.hint == "did you mean 'amount'?"
    assert rows_refusal([{"zzz": 1}]).hint == "the columns are: order_id, amount, tags, placed_at"


@pytest.mark.parametrize("row", [{}, {"order_id": None}])
def test_no_value_in_a_not_null_column_is_refused(row: dict[str, object]) -> None:
    error = rows_refusal([{"order_id": 1}, row])
    assert error.message == "topic 'orders': row 1, column 'order_id' is not null; found no value"


def test_a_row_that_is_not_a_mapping_is_refused() -> None:
    with pytest.raises(RowError, match="row 1 must map column names to values; found \\[1, 2\\]"):
        rows_to_batch([{"order_id": 1}, [1, 2]], ORDERS, where=WHERE)  # type: ignore[list-item]


def test_a_batch_of_the_schema_is_returned_as_it_is() -> None:
    batch = rows_to_batch([{"order_id": 1}], ORDERS, where=WHERE)
    assert batch_to_schema(batch, ORDERS, where=WHERE) is batch


def test_columns_are_reordered_and_missing_ones_are_null() -> None:
    batch = pa.record_batch({"b": ["x"], "a": pa.array([1], pa.int64())})
    fitted = batch_to_schema(batch, parse_schema("a bigint, b string, c date"), where=WHERE)
    assert fitted.to_pylist() == [{"a": 1, "b": "x", "c": None}]
    assert fitted.column("a").buffers()[1].address == batch.column("a").buffers()[1].address


def test_a_table_of_many_chunks_or_none_becomes_one_batch() -> None:
    schema = parse_schema("a bigint")
    table = pa.table({"a": pa.chunked_array([[1, 2], [3]])})
    assert batch_to_schema(table, schema, where=WHERE).to_pylist() == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert batch_to_schema(table.schema.empty_table(), schema, where=WHERE).num_rows == 0


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.array(["a", None]).dictionary_encode(), "string"),
        (pa.array(["a"], pa.large_string()), "string"),
        (pa.array(["a"], pa.string_view()), "string"),
        (pa.array([b"abc"], pa.binary(3)), "binary"),
        (pa.array([1, None], pa.int32()), "bigint"),
        (pa.array([127], pa.int64()), "tinyint"),
        (pa.array([7], pa.uint8()), "int"),
        (pa.array([7], pa.int32()), "double"),
        (pa.array([0.5], pa.float32()), "double"),
        (pa.array([Decimal("1.50")], pa.decimal128(10, 2)), "decimal(5,1)"),
        (pa.array([NOON], pa.timestamp("ns", "Europe/Warsaw")), "timestamp"),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("s")), "timestamp_ntz"),
        (pa.array([dt.date(2024, 2, 29)], pa.date64()), "date"),
        (pa.array([[1]], pa.large_list(pa.int32())), "array<bigint>"),
        (pa.array([None, None]), "struct<a: int>"),
        (pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.int8())), "map<string,int>"),
    ],
    ids=str,
)
def test_a_cast_that_loses_nothing_is_made(found: pa.Array[pa.Scalar[pa.DataType]], wanted: str) -> None:
    fitted = batch_to_schema(pa.record_batch({"x": found}), parse_schema(f"x {wanted}"), where=WHERE)
    fitted.validate(full=True)
    assert fitted.schema == parse_schema(f"x {wanted}")
    assert fitted.column("x").to_pylist() == found.to_pylist()


def test_timestamps_without_a_zone_are_taken_as_utc() -> None:
    batch = pa.record_batch({"at": pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ns"))})
    assert batch_to_schema(batch, parse_schema("at timestamp"), where=WHERE).to_pylist() == [{"at": NOON}]


def test_struct_fields_are_matched_by_name_and_missing_ones_are_null() -> None:
    batch = pa.record_batch({"s": [{"b": "x", "a": 1}, None]})
    fitted = batch_to_schema(batch, parse_schema("s struct<a: bigint, b: string, c: date>"), where=WHERE)
    assert fitted.to_pylist() == [{"s": {"a": 1, "b": "x", "c": None}}, {"s": None}]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.array(["1"]), "int"),
        (pa.array([1]), "string"),
        (pa.array([1]), "double"),
        (pa.array([1.0]), "float"),
        (pa.array([1.0]), "int"),
        (pa.array([True]), "int"),
        (pa.array(["x"]), "binary"),
        (pa.array([b"x"]), "string"),
        (pa.array([1], pa.timestamp("us", "UTC")), "timestamp_ntz"),
        (pa.array([1], pa.timestamp("us")), "date"),
        (pa.array([[1]], pa.list_view(pa.int32())), "array<bigint>"),
        (pa.array([["a"]]), "array<int>"),
    ],
    ids=str,
)
def test_a_cast_that_could_lose_or_guess_is_refused(found: pa.Array[pa.Scalar[pa.DataType]], wanted: str) -> None:
    error = batch_refusal(pa.record_batch({"x": found}), f"x {wanted}")
    assert "column 'x' takes " in error.message
    assert error.hint is not None
    assert "cast it to " in error.hint


def test_a_value_that_does_not_fit_is_named_with_its_row() -> None:
    numbers = pa.table({"n": pa.chunked_array([[1, 2, 3], [4, 500, 6, 700]])})
    message = batch_refusal(numbers, "n tinyint").message
    assert message == "topic 'orders': row 4, column 'n' takes tinyint; found 500 (int64)"
    moments = pa.record_batch({"at": pa.array([1000, 1500], pa.timestamp("ns"))})
    assert "row 1, column 'at' takes timestamp_ntz" in batch_refusal(moments, "at timestamp_ntz").message


def test_unknown_repeated_and_missing_columns_of_a_batch_are_refused() -> None:
    column = pa.array([1])
    assert batch_refusal(pa.record_batch({"qtty": column}), "qty bigint").hint == "did you mean 'qty'?"
    twice = pa.RecordBatch.from_arrays([column, column], names=["qty", "qty"])
    assert "twice; found qty, qty" in batch_refusal(twice, "qty bigint").message
    assert "'id' is not null, but the batch lacks it" in batch_refusal(
        pa.record_batch({"qty": column}), "qty bigint, id int not null"
    ).message  # fmt: skip
    nested = batch_refusal(pa.record_batch({"s": [{"a": 1, "c": 1}]}), "s struct<a: bigint>")
    assert "found 's.c'" in nested.message


@pytest.mark.parametrize("nullable", [True, False])
def test_a_null_in_a_not_null_column_of_a_batch_is_named_with_its_row(nullable: bool) -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, None, None])], schema=pa.schema([pa.field("id", pa.int64(), nullable=nullable)])
    )
    message = batch_refusal(batch, "id bigint not null").message
    assert message == "topic 'orders': row 2, column 'id' is not null; found no value"
