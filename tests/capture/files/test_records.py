"""The records of an input."""

from __future__ import annotations

import io
from decimal import Decimal

import pytest

from penstock.capture.files.csv_records import csv_records
from penstock.capture.files.json_records import json_records
from penstock.capture.files.lines import Lines
from penstock.capture.files.records import Record
from penstock.errors import DeclarationError
from penstock.schema.arrow import parse_schema

SCHEMA = parse_schema(
    "id bigint, name string, note string not null, price decimal(10,4), ratio double, tags array<int>"
)


def read_json(data: bytes) -> list[Record]:
    return list(json_records(Lines(io.BytesIO(data)), SCHEMA, where="t"))


def read_csv(data: bytes) -> list[Record]:
    return list(csv_records(Lines(io.BytesIO(data)), SCHEMA, where="t"))


def problems(records: list[Record]) -> list[str | None]:
    return [record.problem.message if record.problem else None for record in records]


def test_numbers_in_json_keep_their_digits_where_the_topic_has_decimals() -> None:
    (record,) = read_json(b'{"price": 0.1000000000000000000001, "ratio": 0.1}')
    assert record.row == {"price": Decimal("0.1000000000000000000001"), "ratio": 0.1}


def test_empty_lines_are_skipped_but_counted_as_lines() -> None:
    assert [(record.number, record.line) for record in read_json(b'{"id":1}\n\n  \n{"id":2}\n')] == [(1, 1), (2, 4)]


def test_a_bad_line_of_json_says_where_and_the_next_one_is_read() -> None:
    records = read_json(b'{"id": 1}\n{"id": \n[1]\n\xff\n{"id": 2}\n')
    assert [record.row for record in records if not record.problem] == [{"id": 1}, {"id": 2}]
    found = problems(records)
    assert found[1] == "t: line 2 is not JSON; Expecting value (at character 7)"
    assert found[2] == "t: line 3 is not a JSON object; found an array"
    assert found[3] == "t: line 4 is not UTF-8"


def test_csv_is_read_by_the_schema() -> None:
    (record,) = read_csv(b'id,name,ratio,tags\n7,"a, ""b""",.5,"[1, 2]"\n')
    assert record.row == {"id": 7, "name": 'a, "b"', "ratio": 0.5, "tags": [1, 2]}


def test_an_empty_field_is_null_or_the_empty_string_where_null_is_not_allowed() -> None:
    (record,) = read_csv(b"id,name,note\n,,\n")
    assert record.row == {"id": None, "name": None, "note": ""}


def test_a_record_over_several_lines_has_the_number_of_its_first_and_all_its_text() -> None:
    first, second = read_csv(b'id,name\n1,"a\nb"\nx,c,d\n')
    assert (first.line, first.row, first.text) == (2, {"id": 1, "name": "a\nb"}, '1,"a\nb"\n')
    assert problems([second]) == ["t: line 4 has 3 fields; the header has 2"]


def test_a_bad_line_of_csv_says_what_is_wrong_and_the_next_one_is_read() -> None:
    records = read_csv(b'id,tags\n"1"x,[]\n1,[\n2,[]\n')
    found = problems(records)
    assert found[0] is not None
    assert found[0].startswith("t: line 2 is not CSV; ")
    assert found[1] == "t: line 3 has a bad value in column 'tags'; found '['"
    assert records[2].row == {"id": 2, "tags": []}


def test_a_header_with_an_unknown_or_a_repeated_column_is_refused_at_once() -> None:
    with pytest.raises(DeclarationError, match="not in the schema; found 'nam'") as refused:
        read_csv(b"id,nam\n1,a\n")
    assert refused.value.hint == "did you mean 'name'?"
    with pytest.raises(DeclarationError, match="found 'id;name'") as refused:
        read_csv(b"id;name\n1;a\n")
    assert refused.value.hint == "the file seems to have another delimiter: --delimiter ';'"
    with pytest.raises(DeclarationError, match="a column twice"):
        read_csv(b"id,id\n")


def test_an_empty_file_has_no_records() -> None:
    assert read_csv(b"") == []
    assert read_json(b"") == []
