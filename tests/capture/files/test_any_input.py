"""Whatever the input is, each record is a row or a bad row with its line: nothing else is ever raised."""

from __future__ import annotations

import io
import json
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock import Log
from penstock.capture.files.options import CsvOptions, FileOptions
from penstock.capture.files.records import Record
from penstock.capture.files.sample import guess_schema
from penstock.capture.files.source import FileSource
from penstock.contracts import SourceTable, TopicSettings
from penstock.errors import DeclarationError
from penstock.log import Topic

SCHEMA = (
    "a boolean, b tinyint, c bigint, d double, e decimal(10,2), f string, g binary, h date, i timestamp, "
    "j timestamp_ntz, k array<double>, l map<int,timestamp>, m struct<x: decimal(5,1), y: array<string>>, n float"
)
NAMES = [column.split()[0] for column in SCHEMA.split(", ") if column[1] == " "]

numbers = st.one_of(
    st.integers(),
    st.sampled_from(["1e400", "-1e400", "1e99999999999999999999", "1" * 5_000, "0." + "1" * 5_000, "1e-400", "-0"]),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "1e38", "1e39", "128", str(2**63), str(10**39), "0.1"]),
    st.floats().map(repr),
).map(str)
texts = st.one_of(
    st.text().map(json.dumps),
    numbers.map(json.dumps),
    st.sampled_from(
        ['"\\ud800"', '"\\u0000"', '"1204062500000"', '"9999-12-31T23:59:59-23:59"', '"0001-01-01T00:00+23:59"']
    ),
    st.datetimes().map(lambda moment: json.dumps(moment.isoformat())),
)
values = st.recursive(
    st.one_of(numbers, texts, st.sampled_from(["null", "true", "[]", "{}", "[" * 2_000, '{"x":' * 2_000])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(st.tuples(texts, inner), max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
        ),
    ),
    max_leaves=5,
)
objects = st.lists(st.tuples(st.sampled_from([*NAMES, "zz"]), values), max_size=4).map(
    lambda pairs: "{" + ", ".join(f'"{name}": {value}' for name, value in pairs) + "}"
)
json_inputs = st.one_of(
    st.binary(), st.lists(st.one_of(objects.map(str.encode), st.binary(), values.map(str.encode))).map(b"\n".join)
)
fields = st.one_of(
    numbers, st.text(max_size=10), values.map(lambda value: '"' + value[:5_000].replace('"', '""') + '"')
)
csv_inputs = st.lists(st.lists(fields, min_size=3, max_size=3), max_size=5).map(
    lambda rows: "\n".join(",".join(row) for row in rows).encode(errors="surrogateescape")
)


@pytest.fixture(scope="module")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Topic:
    log = Log(tmp_path_factory.mktemp("any") / "log")
    return log.create_topic("t", SCHEMA, settings=TopicSettings(durability="os"))


def rows_and_problems(topic: Topic, data: bytes, **options: object) -> tuple[int, list[Record]]:
    """How many rows were stored of an input, and its bad records."""
    bad: list[Record] = []
    reading = FileOptions(fit=topic.fitted_rows, on_bad=bad.append, **options)  # type: ignore[arg-type]
    source = FileSource(io.BytesIO(data), SourceTable("t", topic.schema), reading)
    return sum(len(item.rows) for item in source.read(None)), bad


@given(data=json_inputs, unit=st.sampled_from([None, "s", "ns"]))
@example(data=b'{"c": ' + b"1" * 5_000 + b"}", unit=None)
@example(data=b'{"k": ' + b"[" * 2_000, unit=None)
@example(data=b'{"e": 1e999999999}\n{"e": 1E+999999999999999999999}\n{"d": 1e999999999}', unit=None)
@example(data=b'\xef\xbb\xbf{"c": 1}\r\n\x00\n{"f": "\x00"}\n', unit=None)
def test_every_record_of_json_is_a_row_or_a_bad_row(topic: Topic, data: bytes, unit: str | None) -> None:
    stored, bad = rows_and_problems(topic, data, time_unit=unit)
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert stored + len(bad) == sum(not line.decode(errors="replace").isspace() and line != b"" for line in lines)
    assert all(record.problem and f"line {record.line}" in record.problem.message for record in bad)


@given(data=csv_inputs, names=st.permutations(NAMES), null=st.sampled_from([(), ("NA", "")]))
@example(data=b"1" * 5_000 + b',"' + b"[" * 2_000 + b'",x', names=["c", "k", "l"], null=())
@example(data=b'1,"a\rb\n"x,\x00,\xff\n', names=["c", "f", "d"], null=())
def test_every_record_of_csv_is_a_row_or_a_bad_row(
    topic: Topic, data: bytes, names: list[str], null: tuple[str, ...]
) -> None:
    csv = CsvOptions(header=False, nulls=null)
    _, bad = rows_and_problems(topic, data, csv=csv, columns=tuple(names[:3]))
    assert all(record.problem and f"line {record.line}" in record.problem.message for record in bad)


@given(data=st.one_of(json_inputs, csv_inputs, st.binary()), header=st.booleans())
def test_a_csv_with_any_header_is_read_or_refused(topic: Topic, data: bytes, header: bool) -> None:
    with suppress(DeclarationError):
        rows_and_problems(topic, (b"c,f,d\n" if header else b"") + data, csv=CsvOptions())


@given(data=st.one_of(json_inputs, csv_inputs), is_csv=st.booleans())
@example(data=b'{"a": ' + b'{"x":' * 900 + b"1" + b"}" * 901, is_csv=False)
@example(data=b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}", is_csv=False)
@example(data=b'{"a": {"\\ud800": 1}}', is_csv=False)
def test_guessing_a_schema_succeeds_or_is_refused(data: bytes, is_csv: bool) -> None:
    options = FileOptions(csv=CsvOptions() if is_csv else None)
    with suppress(DeclarationError):
        assert guess_schema(io.BytesIO(data), options, where="t").records


def test_what_was_good_around_bad_rows_is_stored(topic: Topic) -> None:
    data = (
        b'{"c": 1}\n{"c": '
        + b"9" * 5_000
        + b'}\n{"k": '
        + b"[" * 2_000
        + b'\n{"c": 2, "c": 3}\n{"d": 1e400}\n{"c": 4}\n'
    )
    stored, bad = rows_and_problems(topic, data)
    assert stored == 2
    assert [str(record.problem and record.problem.message) for record in bad] == [
        "topic 't': line 2 has a number with more than 4,300 digits",
        "topic 't': line 3 is nested too deeply",
        "topic 't': line 4 has a key twice; found 'c'",
        "topic 't': line 5 has a bad value in column 'd'; found 1E+400",
    ]
