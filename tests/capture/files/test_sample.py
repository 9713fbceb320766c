"""Guessing the schema of an input."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.capture.files.options import CsvOptions, FileOptions
from penstock.capture.files.sample import guess_schema, parquet_schema
from penstock.errors import DeclarationError
from penstock.schema.arrow import parse_schema
from penstock.schema.ddl import to_ddl


def guess_json(data: bytes, **options: object) -> str:
    return to_ddl(guess_schema(io.BytesIO(data), FileOptions(), where="t", **options).schema)  # type: ignore[arg-type]


def guess_csv(data: bytes) -> str:
    return to_ddl(guess_schema(io.BytesIO(data), FileOptions(csv=CsvOptions()), where="t").schema)


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["1", "-2"], "bigint"),
        (["1", "2.5"], "double"),
        (["1", str(2**63)], "decimal(38,0)"),
        (["true", "null"], "boolean"),
        (['"2026-01-31"'], "date"),
        (['"2026-01-31"', '"2026-01-31T12:00:00.5Z"', '"2026-01-31 12:00"'], "timestamp"),
        (['"2026-01-31"', '"soon"'], "string"),
        (['"2026-02-31"', '"12"'], "string"),
        (['{"x": 1}', '{"y": ["a"], "x": 1.5}'], "struct<x: double, y: array<string>>"),
        (["[]", "[1, null]"], "array<bigint>"),
        (["null", "[]"], "array<string>"),
        (["1", "2", '"x"'], "bigint"),
        (["null", "{}"], "string"),
    ],
)
def test_a_type_is_guessed_that_holds_what_was_seen(values: list[str], type_: str) -> None:
    assert guess_json("".join(f'{{"a": {value}}}\n' for value in values).encode()) == f"a {type_}"


def test_csv_is_guessed_from_the_text_of_its_fields() -> None:
    data = (
        b"n,x,zip,flag,day,at,name,none\n1,.5,00123,true,2026-01-31,2026-01-31T12:00:00Z,a,\n-7,1e3,10115,FALSE,,,,\n"
    )
    assert guess_csv(data) == (
        "n bigint, x double, zip string, flag boolean, day date, at timestamp, name string, none string"
    )


def test_the_key_and_the_time_are_never_null_and_the_time_is_a_timestamp() -> None:
    data = b'{"id": 1, "on": "2026-01-31", "n": 1}\n'
    assert guess_json(data, key=("id",), time="on") == "id bigint not null, on timestamp not null, n bigint"
    with pytest.raises(DeclarationError, match="column 'n': it has numbers") as error:
        guess_json(data, time="n")
    assert "--time-unit" in str(error.value.hint)


def test_what_the_user_should_know_is_noted() -> None:
    guessed = guess_schema(io.BytesIO(b'{"a": 1, "b": null}\n{"a": 2}\n{"a": "x"}\noops\n'), FileOptions(), where="t")
    assert guessed.records == 3
    assert guessed.notes == (
        "column 'a': 1 of 3 values are of another type",
        "column 'b': no value was seen; string is only a guess",
    )


def test_a_pipe_that_pauses_is_guessed_from_what_has_come() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as sender:
        sender.write(b'{"a": 1}\n')
        assert guess_schema(stream, FileOptions(), where="t").records == 1


def test_an_input_without_a_row_is_refused() -> None:
    with pytest.raises(DeclarationError, match="no schema can be guessed"):
        guess_json(b"oops\n")


def test_parquet_has_a_schema_whose_types_become_those_of_topics(tmp_path: Path) -> None:
    columns = {"id": pa.array([1], pa.uint32()), "at": pa.array([1], pa.int64()), "no": pa.nulls(1)}
    pq.write_table(pa.table(columns), tmp_path / "p")  # type: ignore[arg-type]
    guessed = parquet_schema(tmp_path / "p", FileOptions(time_unit="ms"), key=("id",), time="at")
    assert to_ddl(parse_schema(guessed.schema)) == "id bigint not null, at timestamp not null, no string"
