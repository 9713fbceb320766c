"""Topics that `penstock produce` creates: as a program declares them, or guessed from the data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from penstock import Log
from penstock.app import load_app
from penstock.engine.plan.inputs import check_inputs

PYTHON = """
import penstock as ps
app = ps.App("shop")
orders = app.topic("orders", schema="id long not null, amount decimal(10,2), at timestamp", key="id", time="at",
                   partitions=3)
unused = app.table("prices", schema="item string, price double", key="item")
app.view("n", orders.group_by("id").agg(n="count(*)"))
"""
SQL = """
CREATE TOPIC orders (id BIGINT NOT NULL, amount DECIMAL(10,2), at TIMESTAMP)
WITH (key = 'id', time = 'at', partitions = 3);
CREATE VIEW n AS SELECT id, count(*) AS n FROM orders GROUP BY id;
"""
CSV = "id,amount,at\n1,9.50,2026-01-31T12:00:00Z\n"


@pytest.fixture(params=["shop.py"])
def program(tmp_path: Path, restored_process: None, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / str(request.param)
    path.write_text(SQL if path.suffix == ".sql" else PYTHON)
    return path


@pytest.mark.parametrize("program", ["shop.py", "shop.sql"], indirect=True)
def test_a_topic_is_created_as_the_program_declares_it(run: Callable[..., Result], folder: Path, program: Path) -> None:
    result = run("produce", "orders", "--format", "csv", "--app", str(program), stdin=CSV)
    assert (result.exit_code, result.stdout) == (0, "stored 1 row in 'orders'\n")
    with Log(folder) as log:
        check_inputs(log, load_app(program).plan)
        topic = log.topic("orders")
        assert topic.schemas == ("id bigint not null, amount decimal(10,2), at timestamp",)
        assert (topic.settings.key, topic.settings.time, topic.settings.partitions) == (("id",), "at", 3)
    assert run("produce", "orders", "--format", "csv", "--app", str(program), stdin=CSV).exit_code == 0


def test_a_topic_that_no_view_reads_yet_is_created_too(run: Callable[..., Result], folder: Path, program: Path) -> None:
    assert run("produce", "prices", "--app", str(program), stdin='{"item": "tea", "price": 1.5}').exit_code == 0
    assert run("produce", "price", "--app", str(program), stdin="").stderr.splitlines() == [
        f"error: {program}: app 'shop' does not declare topic 'price'; it declares orders, prices",
        "hint: did you mean 'prices'?",
    ]


def test_a_topic_that_differs_from_the_program_is_refused_as_the_app_would(
    run: Callable[..., Result], program: Path
) -> None:
    run("topic", "create", "orders", "--schema", "id bigint")
    result = run("produce", "orders", "--app", str(program), stdin='{"id": 1}')
    assert result.exit_code == 1
    assert "topic 'orders': its key in the log is none; this app declares id" in result.stderr


def test_without_a_topic_the_error_names_the_ways_to_create_one(run: Callable[..., Result], folder: Path) -> None:
    for _ in range(2):
        result = run("produce", "orders", stdin="{}")
        assert result.exit_code == 1
        error, hint = result.stderr.splitlines()
        assert error == f"error: topic 'orders': it does not exist in {folder}"
        assert all(way in hint for way in ("--app", "--infer", "penstock topic create orders --schema"))
        assert folder.exists() is (_ == 1)
        run("topic", "create", "order", "--schema", "id bigint")
    assert "did you mean 'order'?" in hint


def test_a_guess_is_shown_and_stores_nothing_until_it_is_accepted(
    run: Callable[..., Result], folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text(CSV)
    args = ("produce", "orders", "--file", str(tmp_path / "in.csv"), "--infer", "--key", "id", "--time", "at")
    shown = run(*args)
    assert shown.exit_code == 1
    assert not folder.exists()
    assert shown.stderr.splitlines()[:4] == [
        "topic 'orders' does not exist; its schema, guessed from 1 row:",
        "  id bigint not null,",
        "  amount double,",
        "  at timestamp not null",
    ]
    assert shown.stdout == (
        "penstock topic create orders --schema 'id bigint not null, amount double, at timestamp not null' "
        "--key id --time at\n"
    )
    assert run(*args, "--yes", "--partitions", "2").stdout == "stored 1 row in 'orders'\n"
    assert "--partitions cannot change it; it has 2, and 3 was asked for" in run(*args, "--partitions", "3").stderr


def test_nothing_of_stdin_is_lost_by_guessing_and_a_rerun_stores_nothing_twice(
    run: Callable[..., Result], folder: Path
) -> None:
    lines = "".join(f'{{"id": {number}, "text": "{"x" * 500}"}}\n' for number in range(3_000))
    args = ("produce", "t", "--infer", "--yes", "--producer", "import")
    assert run(*args, stdin=lines).stdout == "stored 3,000 rows in 't'\n"
    again = run(*args, "--json", stdin=lines + '{"id": 3000}\n')
    assert json.loads(again.stdout)["stored"] == 1
    with Log(folder) as log:
        assert sorted(log.topic("t").read().to_arrow()["id"].to_pylist()) == list(range(3_001))


def test_a_later_row_that_does_not_fit_is_bad_with_the_hint_that_the_schema_was_guessed(
    run: Callable[..., Result],
) -> None:
    lines = "".join(f'{{"id": {number}}}\n' for number in range(1_000)) + '{"id": "x"}\noops\n'
    result = run("produce", "t", "--infer", "--yes", "--skip-bad", stdin=lines)
    assert result.stdout == "stored 1,000 rows in 't'; 2 bad lines left out\n"
    misfit, syntax = result.stderr.splitlines()[-2:]
    assert misfit.startswith("bad: topic 't': line 1001, column 'id' takes bigint; found 'x'")
    assert "the schema was guessed" in misfit
    assert "guessed" not in syntax


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--app", "x.py", "--infer"), "by --app or by --infer, not by both"),
        (("--key", "id"), "are for a topic that --infer creates"),
        (("--format", "parquet"), "Parquet is read from a file"),
        (("--delimiter", ";"), "are for CSV; the input is json"),
        (("--format", "csv", "--delimiter", ";;"), "the delimiter is one character"),
        (("--format", "csv", "--no-header"), "--columns must name the columns"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    run: Callable[..., Result], options: tuple[str, ...], message: str
) -> None:
    result = run("produce", "t", *options, stdin="")
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
