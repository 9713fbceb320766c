"""`penstock produce`."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from penstock import Log

Start = Callable[..., "subprocess.Popen[str]"]


def lines_of(numbers: range) -> str:
    return "".join(f'{{"id": {number}, "name": "n{number}"}}\n' for number in numbers)


def stored_ids(log: Log, topic: str = "t") -> list[int]:
    return sorted(log.topic(topic).read().to_arrow()["id"].to_pylist())


@pytest.fixture
def topic(log: Log) -> str:
    return log.create_topic("t", "id bigint, name string", key="id", partitions=2).name


def test_json_lines_from_stdin_are_stored(run: Callable[..., Result], log: Log, topic: str) -> None:
    result = run("produce", topic, stdin=lines_of(range(3)))
    assert (result.exit_code, result.stdout) == (0, "stored 3 rows in 't'\n")
    assert stored_ids(log) == [0, 1, 2]


def test_csv_from_a_file_is_stored(run: Callable[..., Result], log: Log, topic: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('id,name\n1,"a, b"\n2,\n')
    assert run("produce", topic, "--file", str(tmp_path / "in.csv"), "--format", "csv").exit_code == 0
    rows = sorted(log.topic(topic).read(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "name": "a, b"}, {"id": 2, "name": None}]


def test_every_type_goes_in_as_it_comes_out(run: Callable[..., Result], log: Log) -> None:
    schema = (
        "a boolean, b tinyint, c double, d decimal(20,10), e string, f binary, g date, h timestamp, i timestamp_ntz, "
        "j array<double>, k map<int,binary>, l struct<x: decimal(5,1), y: array<string>>"
    )
    row = {
        "a": True,
        "b": -1,
        "c": "NaN",
        "d": "1234567890.0123456789",
        "e": "ü",
        "f": "AP8=",
        "g": "2026-01-31",
        "h": "2026-01-31T12:00:00.000001Z",
        "i": "2026-01-31T12:00:00",
        "j": [0.5, None],
        "k": {"1": "AA=="},
        "l": {"x": "1.5", "y": ["a"]},
    }
    log.create_topic("all", schema)
    assert run("produce", "all", stdin=json.dumps(row)).exit_code == 0
    assert json.loads(run("tail", "all", "--json").stdout)["row"] == row


def test_a_bad_line_stops_the_work_and_everything_before_it_is_stored(
    run: Callable[..., Result], log: Log, topic: str
) -> None:
    result = run("produce", topic, stdin=lines_of(range(3)) + '{"id": "x"}\n' + lines_of(range(3, 9)))
    assert result.exit_code == 1
    hint = (
        "hint: give an int; 3 rows before it are stored, and a rerun of the whole input would store them again: "
        "continue with what follows line 3; with --producer NAME from the start, a rerun skips what is stored"
    )
    assert result.stderr.splitlines() == [
        "stored 3 rows in 't'; the last was line 3",
        "error: topic 't': line 4, column 'id' takes bigint; found 'x' (str)",
        hint,
    ]
    assert stored_ids(log) == [0, 1, 2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": 1, "nam": "x"}', "topic 't': line 2 has a column that is not in the schema; found 'nam'"),
        ('{"name": "x"}', "topic 't': the key column 'id' is null in line 2"),
        ("{", "topic 't': line 2 is not JSON; "),
        ("17", "topic 't': line 2 is not a JSON object; found a number"),
    ],
)
def test_whatever_is_wrong_with_a_line_is_reported_with_its_number(
    run: Callable[..., Result], topic: str, line: str, message: str
) -> None:
    result = run("produce", topic, stdin=lines_of(range(1)) + line)
    assert result.exit_code == 1
    assert f"error: {message}" in result.stderr


def test_bad_lines_can_be_skipped_and_are_counted(run: Callable[..., Result], log: Log, topic: str) -> None:
    given = lines_of(range(2)) + "oops\n" + lines_of(range(2, 4)) + '{"id": 0.5}\n' + lines_of(range(4, 6))
    result = run("produce", topic, "--skip-bad", "--batch-rows", "3", stdin=given)
    assert result.exit_code == 0
    assert result.stdout == "stored 6 rows in 't'; 2 bad lines left out\n"
    first, second = result.stderr.splitlines()
    assert first.startswith("bad: topic 't': line 3 is not JSON; ")
    assert first.endswith(" - give one JSON object per line, or use --format csv")
    assert second.startswith("bad: topic 't': line 6, column 'id' takes bigint; ")
    assert stored_ids(log) == list(range(6))


def test_bad_lines_can_be_written_to_a_file_that_can_be_corrected_and_sent(
    run: Callable[..., Result], log: Log, topic: str, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.csv"
    result = run("produce", topic, "--format", "csv", "--bad-file", str(bad), stdin=b"id,name\n1,a\nx,b\n2,\xff\ny,c\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert bad.read_bytes() == b"id,name\nx,b\n2,\xff\ny,c\n"
    bad.write_bytes(bad.read_bytes().replace(b"x", b"8").replace(b"y", b"9").replace(b"\xff", b"u"))
    assert run("produce", topic, "--format", "csv", "--file", str(bad)).exit_code == 0
    assert stored_ids(log) == [1, 2, 8, 9]


def test_deleting_needs_only_the_keys(run: Callable[..., Result], log: Log, topic: str) -> None:
    run("produce", topic, stdin=lines_of(range(2)))
    assert run("produce", topic, "--delete", "--format", "csv", stdin="id\n1\n").exit_code == 0
    shown = [json.loads(line) for line in run("tail", topic, "--json", "--key", "1").stdout.splitlines()]
    assert [row["deleted"] for row in shown] == [False, True]


def test_the_result_as_json_also_reports_work_that_was_cut_short(run: Callable[..., Result], topic: str) -> None:
    whole = run("produce", topic, "--json", stdin=lines_of(range(2)))
    assert json.loads(whole.stdout) == {
        "topic": "t",
        "stored": 2,
        "repeated": 0,
        "bad": 0,
        "last_line": 2,
        "promised": None,
        "complete": True,
    }
    cut = run("produce", topic, "--json", stdin=lines_of(range(1)) + "oops")
    assert cut.exit_code == 1
    assert json.loads(cut.stdout)["complete"] is False


def test_a_named_producer_stores_nothing_twice(run: Callable[..., Result], log: Log, topic: str) -> None:
    run("produce", topic, "--producer", "import", stdin=lines_of(range(3)))
    again = run("produce", topic, "--producer", "import", "--batch-rows", "2", stdin=lines_of(range(5)))
    assert again.stdout == "stored 2 rows in 't'; 3 skipped: producer 'import' had stored up to record 3 before\n"
    assert again.stderr == ""
    assert stored_ids(log) == list(range(5))


def test_another_input_under_the_same_name_is_skipped_with_a_hint(run: Callable[..., Result], topic: str) -> None:
    run("produce", topic, "--producer", "import", stdin=lines_of(range(4)))
    second = run("produce", topic, "--producer", "import", stdin=lines_of(range(8, 9)))
    assert second.exit_code == 0
    assert second.stdout == "stored 0 rows in 't'; 1 skipped: producer 'import' had stored up to record 4 before\n"
    assert second.stderr == "hint: use another name for another input\n"


def test_a_file_whose_bad_line_was_corrected_is_finished_by_the_same_command(
    run: Callable[..., Result], log: Log, topic: str
) -> None:
    args = ("produce", topic, "--producer", "import")
    assert run(*args, stdin=lines_of(range(3)) + "oops\n").exit_code == 1
    assert run(*args, stdin=lines_of(range(6))).exit_code == 0
    assert stored_ids(log) == list(range(6))


def test_a_producer_that_was_killed_is_finished_by_the_same_command(
    run: Callable[..., Result], start: Start, log: Log, topic: str, tmp_path: Path
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(lines_of(range(20_000)))
    args = ("produce", topic, "--file", str(source), "--producer", "import")
    reader = log.topic(topic).reader()
    killed = start(*args, "--batch-rows", "10")
    assert reader.poll(60.0)
    killed.kill()
    killed.wait()
    reader.close()
    assert 0 < len(log.topic(topic).read()) < 20_000
    assert run(*args).exit_code == 0
    assert stored_ids(log) == list(range(20_000))


def test_lines_are_stored_as_they_come_and_ctrl_c_reports_how_many(start: Start, log: Log, topic: str) -> None:
    process = start("produce", topic)
    assert process.stdin is not None
    reader = log.topic(topic).reader()
    received = 0
    for number in range(3):
        process.stdin.write(lines_of(range(number, number + 1)))
        process.stdin.flush()
        received += sum(len(batch) for batch in reader.poll(60.0))
    assert received == 3
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == -signal.SIGINT
    assert process.stderr is not None
    assert process.stderr.read() == "stored 3 rows in 't'; the last was line 3\n"


def test_a_file_that_cannot_be_read_is_an_error(run: Callable[..., Result], topic: str, tmp_path: Path) -> None:
    result = run("produce", topic, "--file", str(tmp_path / "none"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: {tmp_path / 'none'}: it cannot be read (No such file or directory)\n"


def test_rows_that_are_too_much_for_one_append_become_several(run: Callable[..., Result], log: Log) -> None:
    run("topic", "create", "small", "--schema", "id bigint, name string", "--max-batch-bytes", "10 kB")
    assert run("produce", "small", "--producer", "import", stdin=lines_of(range(2_000))).exit_code == 0
    assert stored_ids(log, "small") == list(range(2_000))


def test_a_row_that_is_too_large_is_a_bad_line(run: Callable[..., Result], log: Log) -> None:
    run("topic", "create", "small", "--schema", "id bigint, name string", "--max-batch-bytes", "10 kB")
    result = run("produce", "small", stdin=lines_of(range(3)) + f'{{"id": 3, "name": "{"x" * 20_000}"}}')
    assert result.exit_code == 1
    assert "error: line 4: topic 'small': a batch of 1 rows has" in result.stderr
    assert stored_ids(log, "small") == [0, 1, 2]


def test_bad_lines_do_not_overwrite_the_input(run: Callable[..., Result], tmp_path: Path) -> None:
    run("topic", "create", "same", "--schema", "id int")
    lines = tmp_path / "lines.json"
    lines.write_text('{"id": 1}\n')
    result = run("produce", "same", "--file", str(lines), "--bad-file", str(lines))
    assert result.exit_code == 2
    assert lines.read_text() == '{"id": 1}\n'


def test_csv_may_have_another_delimiter_no_header_fewer_columns_and_its_own_nulls(
    run: Callable[..., Result], log: Log, topic: str
) -> None:
    tab = ("--format", "csv", "--delimiter", "tab", "--no-header", "--columns", "name,,id", "--null", "NA")
    assert run("produce", topic, *tab, stdin="a\tx\t1\nNA\tx\t2\n\tx\t3\n").exit_code == 0
    chosen = ("--format", "csv", "--delimiter", ";", "--columns", "id,name")
    assert run("produce", topic, *chosen, stdin="more;name;id\nx;b;4\n").exit_code == 0
    rows = {row["id"]: row["name"] for row in log.topic(topic).read()}
    assert rows == {1: "a", 2: None, 3: "", 4: "b"}
    unknown = run("produce", topic, *chosen, stdin="name;idd\nb;5\n")
    assert "does not name a column 'id'; found name, idd" in unknown.stderr


def test_the_format_is_told_by_the_name_of_the_file_also_if_it_is_compressed(
    run: Callable[..., Result], log: Log, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"id\tname\n1\ta\n"))
    pq.write_table(pa.table({"id": [2], "name": ["b"]}), tmp_path / "b.parquet")
    (tmp_path / "c").write_bytes((tmp_path / "b.parquet").read_bytes())
    for name in ("a.tsv.gz", "b.parquet", "c"):
        assert run("produce", topic, "--file", str(tmp_path / name), "--producer", name).exit_code == 0
    assert stored_ids(log) == [1, 2, 2]


def test_a_parquet_file_is_stored_once_and_its_bad_rows_can_be_corrected(
    run: Callable[..., Result], log: Log, tmp_path: Path
) -> None:
    log.create_topic("t", "id tinyint")
    pq.write_table(pa.table({"id": [1, 300, 3]}), tmp_path / "p.parquet")
    args = ("produce", "t", "--file", str(tmp_path / "p.parquet"), "--producer", "p")
    stopped = run(*args)
    assert stopped.stderr.splitlines()[:2] == [
        "stored 1 row in 't'; the last was row 1",
        "error: topic 't': row 2, column 'id' takes tinyint; found 300 (int64)",
    ]
    result = run(*args, "--bad-file", str(tmp_path / "bad.jsonl"))
    assert result.stdout == (
        "stored 1 row in 't'; 1 skipped: producer 'p' had stored up to record 1 before; 1 bad row left out\n"
    )
    assert (tmp_path / "bad.jsonl").read_text() == '{"id": 300}\n'
    assert stored_ids(log) == [1, 3]


def test_numbers_are_times_only_if_it_is_said_what_they_count(run: Callable[..., Result], log: Log) -> None:
    log.create_topic("times", "at timestamp")
    for line in ('{"at": 1700000000000}', '{"at": "1204062500000"}'):
        refused = run("produce", "times", stdin=line)
        assert "line 1 has a bad value in column 'at'" in refused.stderr
        assert "--time-unit s, ms, us or ns" in refused.stderr
    lines = '{"at": 1700000000000}\n{"at": 1700000000000.5}\n{"at": "2023-11-14T22:13:20Z"}\n'
    assert run("produce", "times", "--time-unit", "ms", stdin=lines).exit_code == 0
    assert run("produce", "times", "--time-unit", "s", "--format", "csv", stdin="at\n1700000000\n").exit_code == 0
    times = sorted(str(moment) for moment in log.topic("times").read().to_arrow()["at"].to_pylist())
    assert times == ["2023-11-14 22:13:20+00:00"] * 3 + ["2023-11-14 22:13:20.000500+00:00"]


def test_lines_that_break_parsers_are_bad_lines_like_any_other(
    run: Callable[..., Result], log: Log, topic: str
) -> None:
    lines = ['{"id": 1}', '{"id": ' + "[" * 100_000, '{"id": ' + "9" * 5_000 + "}", '{"id": 2}']
    result = run("produce", topic, "--skip-bad", stdin="\n".join(lines))
    assert (result.exit_code, result.stdout) == (0, "stored 2 rows in 't'; 2 bad lines left out\n")
    first, second = result.stderr.splitlines()
    assert first.startswith("bad: topic 't': line 2 is nested too deeply - ")
    assert second == "bad: topic 't': line 3 has a number with more than 4,300 digits"
    assert stored_ids(log) == [1, 2]


def test_a_promise_is_made_at_the_end_of_the_input_and_not_if_it_fails(run: Callable[..., Result], log: Log) -> None:
    log.create_topic("times", "at timestamp", time="at")
    args = ("produce", "times", "--promise", "2026-02-01", "--producer", "import")
    assert run(*args, stdin='{"at": "2026-01-31"}\noops\n').exit_code == 1
    assert log.promises("times") == []
    result = run(*args, stdin='{"at": "2026-01-31"}\n{"at": "2026-01-31"}\n')
    assert result.stdout.endswith("; promised: nothing earlier than 2026-02-01T00:00:00Z will follow\n")
    (promise,) = log.promises("times")
    assert (log.producers()[promise.producer], promise.ends) == ("import", {0: 2})
