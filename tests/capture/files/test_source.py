"""Files as a source: the contract, bad records, pauses of the input, and records that earlier versions have stored."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Log, TopicSettings
from penstock.capture.files.options import CsvOptions, FileOptions
from penstock.capture.files.records import Record
from penstock.capture.files.source import FileSource
from penstock.capture.files.writers import UnnamedWriter, open_input_writer
from penstock.capture.pump import pump
from penstock.contracts import SourceTable
from penstock.errors import DeclarationError, RowError
from penstock.log import Topic
from penstock.log.frame import Stamp
from penstock.schema.arrow import parse_schema
from penstock.suggest import closest
from tests.capture.contract import ROWS, SourceContract, pairs

NUMBERS = count()
RECORDS = 24
TABLE = SourceTable("t", parse_schema("id bigint, name string"), ("id",))


def json_lines(numbers: range) -> io.BytesIO:
    return io.BytesIO("".join(f'{{"id": {number}}}\n' for number in numbers).encode())


class TestJsonLines(SourceContract):
    def open(self) -> FileSource:
        return FileSource(json_lines(range(1, ROWS + 1)), TABLE, FileOptions(batch_rows=5))


class TestCsvWithBlankLinesAndRecordsOfSeveralLines(SourceContract):
    def open(self) -> FileSource:
        lines = "".join(f'{number},"two\nlines"\n\n' for number in range(1, ROWS + 1))
        return FileSource(io.BytesIO(f"id,name\n{lines}".encode()), TABLE, FileOptions(csv=CsvOptions(), batch_rows=1))


class TestWithBadRecordsLeftOut(SourceContract):
    """Also after the last good one: its position counts them."""

    def open(self) -> FileSource:
        lines = "".join(f'oops\n{{"id": {number}}}\noops\n' for number in range(1, ROWS + 1))
        options = FileOptions(batch_rows=4, on_bad=lambda record: None)
        return FileSource(io.BytesIO(lines.encode()), TABLE, options)


def test_a_position_has_the_number_of_records_and_the_line_of_the_last() -> None:
    source = FileSource(io.BytesIO(b'{"id": 1}\n\n\n{"id": 2}\n'), TABLE)
    (item,) = source.read(None)
    assert item.position == {"records": 2, "line": 4}


def test_unless_bad_records_are_handled_what_came_before_is_given_and_then_the_error_is_raised() -> None:
    items = FileSource(io.BytesIO(b'{"id": 1}\n{"id": 2}\noops\n{"id": 3}\n'), TABLE).read(None)
    item = next(items)
    assert [row["id"] for row, _ in pairs(item)] == [1, 2]
    assert item.position == {"records": 2, "line": 2}
    with pytest.raises(RowError, match="line 3 is not JSON"):
        next(items)


def test_bad_records_are_reported_before_their_neighbours_are_stored() -> None:
    seen: list[int] = []
    stream = io.BytesIO(b'{"id": 1}\noops\n{"id": 2}\n')
    items = FileSource(stream, TABLE, FileOptions(on_bad=lambda record: seen.append(record.line))).read(None)
    assert [row["id"] for row, _ in pairs(next(items))] == [1, 2]
    assert seen == [2]


def test_while_the_input_pauses_it_gives_what_it_has_and_then_heartbeats() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as sender:
        items = FileSource(stream, TABLE).read(None)
        sender.write(b'{"id": 1}\n{"id": 2}\n{"id"')
        first, heartbeat = next(items), next(items)
        assert [row["id"] for row, _ in pairs(first)] == [1, 2]
        assert (len(heartbeat.rows), heartbeat.position) == (0, first.position)
        sender.write(b": 3}\n")
        sender.close()
        assert [row["id"] for item in items for row, _ in pairs(item)] == [3]


def test_a_pipe_cannot_be_read_twice() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        source = FileSource(stream, TABLE)
        assert list(source.read(None)) == []
        with pytest.raises(DeclarationError, match="cannot be read a second time"):
            list(source.read(None))


def test_a_table_without_a_schema_is_refused() -> None:
    with pytest.raises(DeclarationError, match="table 't': a file is read by a schema"):
        FileSource(io.BytesIO(), SourceTable("t"))


# -- into a topic, under a name ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """One log for all examples, each with a topic of its own."""
    with Log(tmp_path_factory.mktemp("files") / "log") as opened:
        yield opened


def new_topic(log: Log, *, key: tuple[str, ...] = ("id",), partitions: int = 3) -> Topic:
    settings = TopicSettings(partitions=partitions, key=key, durability="os")
    return log.create_topic(f"t{next(NUMBERS)}", "id bigint", settings=settings)


def send(log: Log, topic: Topic, *, size: int, records: int, name: str = "input") -> tuple[int, int]:
    """Write the whole input as the command does. Returns how many rows were stored, and how many were skipped."""
    writer, earlier = open_input_writer(log, name, topic)
    table = SourceTable(topic.name, topic.schema)
    options = FileOptions(batch_rows=size, fit=topic.fitted_rows, earlier=earlier)
    source = FileSource(json_lines(range(1, records + 1)), table, options)
    return pump(source, writer).rows, source.skipped_rows


def send_as_before(log: Log, topic: Topic, *, size: int, records: int, only: frozenset[int] | None = None) -> None:
    """Write as earlier versions did, with the number of the last record; after a crash the last append is partial."""
    partitions, producer = topic.settings.partitions, log.producer("input")
    for start in range(1, records + 1, size):
        numbers = range(start, min(start + size, records + 1))
        turn = 0 if topic.settings.key else (start // size) % partitions
        stamp = Stamp(producer.id, producer.epoch, numbers[-1] * partitions + turn)
        requests = topic.appender.requests([{"id": number} for number in numbers], stamp=stamp)
        is_last = numbers[-1] == records
        topic.appender.store(
            {n: request for n, request in requests.items() if not is_last or only is None or n in only}
        )


def ids(topic: Topic) -> list[int]:
    return sorted(topic.read().to_arrow()["id"].to_pylist())


@given(size=st.integers(1, 10), second=st.integers(1, 10), sent=st.integers(1, RECORDS), keyed=st.booleans())
def test_a_rerun_stores_what_is_new_whatever_the_sizes_of_its_items(
    log: Log, size: int, second: int, sent: int, keyed: bool
) -> None:
    topic = new_topic(log, key=("id",) if keyed else ())
    assert send(log, topic, size=size, records=sent) == (sent, 0)
    assert send(log, topic, size=second, records=RECORDS) == (RECORDS - sent, sent)
    assert ids(topic) == list(range(1, RECORDS + 1))


@given(
    size=st.integers(1, 10),
    sent=st.integers(1, RECORDS),
    only=st.frozensets(st.integers(0, 2)),
    again=st.lists(st.tuples(st.integers(1, 10), st.integers(1, RECORDS)), max_size=3),
)
def test_what_an_earlier_version_stored_also_in_part_is_not_stored_again(
    log: Log, size: int, sent: int, only: frozenset[int], again: list[tuple[int, int]]
) -> None:
    topic = new_topic(log)
    send_as_before(log, topic, size=size, records=sent, only=only)
    for step, records in again:
        send(log, topic, size=step, records=max(records, 1))
    before = len(ids(topic))
    stored, _ = send(log, topic, size=7, records=RECORDS)
    assert stored == RECORDS - before
    assert ids(topic) == list(range(1, RECORDS + 1))
    assert send(log, topic, size=5, records=RECORDS) == (0, RECORDS)


@given(size=st.integers(1, 10), sent=st.integers(1, RECORDS))
def test_the_same_without_a_key(log: Log, size: int, sent: int) -> None:
    topic = new_topic(log, key=())
    send_as_before(log, topic, size=size, records=sent)
    assert send(log, topic, size=4, records=RECORDS) == (RECORDS - sent, sent)
    assert ids(topic) == list(range(1, RECORDS + 1))


def test_one_name_may_bring_an_input_into_each_of_two_topics(log: Log) -> None:
    first, second = new_topic(log), new_topic(log)
    for topic in (first, second):
        assert send(log, topic, size=4, records=8, name="both") == (8, 0)
    for topic in (first, second):
        assert send(log, topic, size=4, records=9, name="both") == (1, 8)


def test_a_topic_that_is_dropped_and_created_again_takes_its_input_again(log: Log) -> None:
    for _ in range(2):
        topic = log.create_topic("again", "id bigint", key="id")
        assert send(log, topic, size=4, records=8) == (8, 0)
        log.drop_topic("again")


def test_the_name_of_a_writer_that_does_something_else_is_refused(log: Log) -> None:
    log.writer("cdc").write([], {"lsn": 5})
    with pytest.raises(DeclarationError, match="writer 'cdc': it does not write inputs") as error:
        open_input_writer(log, "cdc", new_topic(log))
    assert error.value.hint == "use another name for this input"
    assert log.writer("cdc").position == {"lsn": 5}


def test_without_a_name_what_is_read_again_is_stored_again(log: Log) -> None:
    topic = new_topic(log)
    for _ in range(2):
        source = FileSource(json_lines(range(1, 4)), SourceTable(topic.name, topic.schema))
        pump(source, UnnamedWriter(log))
    assert ids(topic) == [1, 1, 2, 2, 3, 3]


def test_records_that_the_topic_refuses_are_bad_records(log: Log) -> None:
    topic, bad = new_topic(log), list[Record]()
    lines = io.BytesIO(b'{"id": 1}\n{"id": "x"}\n{"idd": 3}\n{"id": 4}\n')
    options = FileOptions(fit=topic.fitted_rows, on_bad=bad.append)
    pump(FileSource(lines, SourceTable(topic.name, topic.schema), options), UnnamedWriter(log))
    problems: list[Any] = [str(record.problem) for record in bad]
    assert [record.line for record in bad] == [2, 3]
    assert "line 2, column 'id' takes bigint; found 'x'" in problems[0]
    assert str(closest("idd", ["id"])) in problems[1]
    assert ids(topic) == [1, 4]
