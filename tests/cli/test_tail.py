"""`penstock tail`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable

import pyarrow as pa
import pytest
from typer.testing import Result

from penstock import Log

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def topic(log: Log) -> str:
    """30 rows, one append each, in turn in two partitions."""
    created = log.create_topic("t", "id bigint, name string", partitions=2)
    for number in range(30):
        created.append({"id": number, "name": f"n{number}"})
    return created.name


def ids(result: Result) -> list[int]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line)["row"]["id"] for line in result.stdout.splitlines()]


def test_the_last_ten_rows_are_shown_in_the_order_in_which_they_came(run: Callable[..., Result], topic: str) -> None:
    assert ids(run("tail", topic, "--json")) == list(range(20, 30))
    assert ids(run("tail", topic, "--json", "-n", "3")) == [27, 28, 29]
    assert ids(run("tail", topic, "--json", "-n", "0")) == []
    assert ids(run("tail", topic, "--json", "-n", "1000")) == list(range(30))


def test_a_line_has_the_position_the_time_and_the_columns(run: Callable[..., Result], topic: str) -> None:
    (line,) = run("tail", topic, "-n", "1").stdout.splitlines()
    assert re.fullmatch(r"1:14  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z  id=29 name=n29", line)


def test_json_has_a_document_per_line(run: Callable[..., Result], topic: str) -> None:
    document = json.loads(run("tail", topic, "-n", "1", "--json").stdout)
    assert re.fullmatch(r"\d{4}-.*Z", document.pop("appended_at"))
    assert document == {"partition": 1, "offset": 14, "deleted": False, "row": {"id": 29, "name": "n29"}}


def test_from_a_position_rows_are_shown_from_there_up_to_the_limit(run: Callable[..., Result], topic: str) -> None:
    assert ids(run("tail", topic, "--json", "--from", "start")) == list(range(30))
    assert ids(run("tail", topic, "--json", "--from", "start", "--limit", "4")) == [0, 1, 2, 3]
    assert ids(run("tail", topic, "--json", "--from", "13", "--partition", "0")) == [26, 28]
    assert ids(run("tail", topic, "--json", "--from", "1 hour ago", "-n", "1")) == [0]
    assert ids(run("tail", topic, "--json", "--from", "2999-01-01")) == []
    assert ids(run("tail", topic, "--json", "--from", "end")) == []


def test_from_a_time_means_event_time_where_the_topic_has_one(run: Callable[..., Result], log: Log) -> None:
    topic = log.create_topic("timed", "id int, at timestamp", time="at")
    topic.append([{"id": day, "at": f"2026-01-0{day}"} for day in (1, 2, 3)])
    assert ids(run("tail", "timed", "--json", "--from", "2026-01-02")) == [2, 3]


def test_columns_can_be_chosen_and_ordered(run: Callable[..., Result], topic: str) -> None:
    assert run("tail", topic, "-n", "1", "--columns", "name,id").stdout.endswith("  name=n29 id=29\n")
    assert "there is no column 'nam'" in run("tail", topic, "--columns", "nam").stderr


def test_rows_of_one_key_are_found_however_far_back(run: Callable[..., Result], log: Log) -> None:
    topic = log.create_topic("keyed", "shop string, id int", key="shop", partitions=4)
    topic.append({"shop": "rare", "id": -1})
    topic.append([{"shop": f"s{number % 7}", "id": number} for number in range(5_000)])
    assert ids(run("tail", "keyed", "--json", "--key", "rare")) == [-1]
    assert ids(run("tail", "keyed", "--json", "--key", "s3", "-n", "2", "--columns", "id")) == [4_987, 4_994]
    assert ids(run("tail", "keyed", "--json", "--key", "none")) == []


def test_a_delete_shows_its_key(run: Callable[..., Result], log: Log) -> None:
    topic = log.create_topic("keyed", "id int, name string", key="id")
    topic.append({"id": 1, "name": "a"})
    topic.delete({"id": 1})
    assert run("tail", "keyed", "-n", "1").stdout.endswith("  deleted id=1\n")


def test_rows_that_are_left_after_compaction_are_found(run: Callable[..., Result], log: Log) -> None:
    topic = log.create_topic("keyed", "id int, n int", key="id")
    for number in range(200):
        topic.append({"id": 0 if number > 2 else number, "n": number})
    log.topic("keyed").compact()
    shown = run("tail", "keyed", "--json", "--columns", "n").stdout.splitlines()
    assert [json.loads(line)["row"]["n"] for line in shown] == [1, 2, 199]


def test_versions_are_shown_in_json_where_the_topic_has_them(run: Callable[..., Result], log: Log) -> None:
    run("topic", "create", "events", "--schema", "id int", "--key", "id", "--versioned")
    log.topic("events").append([{"id": 1}, {"id": 1}])
    shown = run("tail", "events", "--json").stdout.splitlines()
    assert [json.loads(line)["version"] for line in shown] == [1, 2]


def test_following_shows_what_another_process_appends_and_ends_with_ctrl_c(
    run: Callable[..., Result], start: Start, topic: str
) -> None:
    following = start("tail", topic, "-f", "-n", "1", "--columns", "id")
    assert following.stdout is not None
    assert following.stdout.readline().endswith("id=29\n")
    for number in (100, 101):
        writing = start("produce", topic)
        writing.communicate(f'{{"id": {number}}}\n')
        assert writing.returncode == 0
        assert following.stdout.readline().endswith(f"id={number}\n")
    following.send_signal(signal.SIGINT)
    output, errors = following.communicate(timeout=60)
    assert (following.returncode, output, errors) == (0, "", "")


def test_following_ends_at_the_limit(start: Start, log: Log, topic: str) -> None:
    following = start("tail", topic, "--follow", "--from", "start", "--limit", "32", "--json")
    assert following.stdout is not None
    shown = [following.stdout.readline() for _ in range(30)]
    log.topic(topic).append([{"id": number} for number in (30, 31, 32)])
    remaining, _ = following.communicate(timeout=60)
    assert following.returncode == 0
    assert [json.loads(line)["row"]["id"] for line in [*shown, *remaining.splitlines()]] == list(range(32))


def test_an_offset_that_a_partition_does_not_have_is_refused_with_how_to_choose_one(
    run: Callable[..., Result], log: Log, topic: str
) -> None:
    log.topic(topic).append({"id": 30}, partition=1)
    result = run("tail", topic, "--from", "16")
    assert result.exit_code == 1
    assert "partition 0: offset 16 does not exist; it has 0 to 15" in result.stderr
    assert "hint: offsets count per partition; choose one with --partition" in result.stderr
    assert run("tail", topic, "--from", "16", "--partition", "1").exit_code == 0


def test_times_that_python_cannot_hold_are_shown_at_any_depth(run: Callable[..., Result], log: Log) -> None:
    topic = log.create_topic(
        "far", "a timestamp, b timestamp_ntz, c date, d array<timestamp>, e map<string,date>, f struct<g: timestamp>"
    )
    far, day = pa.array([2**62, None]), pa.array([5_000_000, None], pa.int32())
    instants = far.cast(topic.schema.field("a").type)
    dates = day.cast(pa.date32())
    columns = [
        instants,
        far.cast(pa.timestamp("us")),
        dates,
        pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), instants),
        pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["k", "k"]), dates),
        pa.StructArray.from_arrays([instants], ["g"]),
    ]
    topic.append(pa.RecordBatch.from_arrays(columns, names=topic.schema.names))
    first, second = (json.loads(line)["row"] for line in run("tail", "far", "--json").stdout.splitlines())
    wall, date = "148108-07-06T14:00:27.387904", "15659-07-15"
    assert first == {"a": f"{wall}Z", "b": wall, "c": date, "d": [f"{wall}Z"], "e": {"k": date}, "f": {"g": f"{wall}Z"}}
    assert second == {"a": None, "b": None, "c": None, "d": [None], "e": {"k": None}, "f": {"g": None}}
    assert f"a={wall}Z b={wall} c={date}" in run("tail", "far").stdout


def test_a_partition_that_does_not_exist_is_refused(run: Callable[..., Result], topic: str) -> None:
    result = run("tail", topic, "--partition", "7")
    assert result.exit_code == 1
    assert "partition 7 does not exist; it has 2 (0-1)" in result.stderr
