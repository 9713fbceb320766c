"""`penstock run` in the process and Spark session of the tests; tests/faults runs it in processes of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from penstock import Log
from penstock.derive.views import query

pytestmark = pytest.mark.usefixtures("spark", "restored_process")

SHOP = """
from penstock import App, AppSettings, tumbling

app = App("shop", settings=AppSettings(state_partitions=2, max_rows=10))
orders = app.topic("orders", schema="id long, country string, placed_at timestamp", time="placed_at")
app.view("counts", orders.group_by("country").agg(n="count(*)"))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    return path


def counts(folder: Path) -> int:
    (row,) = query(folder / "apps" / "shop", "select sum(n) as n from counts").rows()
    return int(row["n"] or 0)


def append(folder: Path, count: int) -> None:
    with Log(folder) as log:
        rows = [{"id": number, "country": "DE", "placed_at": "2024-05-01"} for number in range(count)]
        log.topic("orders").append(rows)


def epochs(shown: Result) -> list[dict[str, Any]]:
    documents = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [documents[0]["event"], documents[-1]["event"]] == ["started", "stopped"]
    return [document for document in documents if document["event"] == "epoch"]


def test_once_runs_to_the_present_and_ends(run: Callable[..., Result], shop: Path, folder: Path) -> None:
    first = run("run", str(shop), "--once", "--log", str(folder))
    assert first.exit_code == 0, first.stderr
    assert first.stderr.splitlines()[-1] == "stopped after 0 epochs and 0 rows"
    append(folder, 25)
    second = run("run", str(shop), "--once", "--log", str(folder))
    assert second.stderr.splitlines()[-1] == "stopped after 3 epochs and 25 rows"
    assert "epoch 1, 10 rows in " in second.stderr
    assert counts(folder) == 25


def test_each_epoch_is_a_document_on_request(run: Callable[..., Result], shop: Path, folder: Path) -> None:
    run("run", str(shop), "--once", "--log", str(folder))
    append(folder, 12)
    shown = run("run", str(shop), "--once", "--json", "--log", str(folder))
    documents = epochs(shown)
    assert [(document["epoch"], document["rows"], document["lag"], document["building"]) for document in documents] == [
        (1, 10, 2, False),
        (2, 2, 0, False),
    ]
    assert documents[1]["watermark"].startswith("2024-05-01")
    assert documents[1]["targets"]["side topics"]["rows"] == 0
    rebuilt = run("run", str(shop), "--once", "--json", "--rebuild", "--log", str(folder))
    documents = epochs(rebuilt)
    assert [(document["epoch"], document["rows"], document["building"]) for document in documents] == [
        (3, 10, True),
        (4, 2, False),
    ]
    assert counts(folder) == 12


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("", "app 'shop': it declares no views"),
        (
            'app.view("v", orders.group_by().agg(n="sum(array(id))"))',
            "shop.py:6: the types do not fit in 'sum(array(id))': the first parameter requires ",
        ),
        (
            'app.view("v", orders.map(lambda rows: 1 / 0, schema="id long"))',
            "shop.py:6: map: the function fails: ZeroDivisionError: division by zero",
        ),
        ('app.view("v", orders.map(lambda rows: 3, schema="id long"))', "shop.py:6: map: the function must return"),
    ],
)
def test_an_error_that_only_spark_finds_is_reported_with_the_line_before_anything_is_created(
    run: Callable[..., Result], shop: Path, folder: Path, program: str, message: str
) -> None:
    shop.write_text(SHOP[: SHOP.index('app.view("counts"')] + program)
    shown = run("run", str(shop), "--once", "--log", str(folder))
    assert shown.exit_code == 1
    assert message in shown.stderr
    assert "Traceback" not in shown.stderr
    assert "java" not in shown.stderr
    with Log(folder) as log:
        assert log.topics() == []


def test_it_waits_while_the_disk_is_full(
    run: Callable[..., Result], shop: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.engine.epoch import Instance
    from penstock.errors import UnavailableError

    step, failures = Instance.step, ["disk full", "disk full"]

    def step_or_fail(self: Instance) -> object:
        if failures:
            raise UnavailableError(failures.pop(), hint="make space")
        return step(self)

    run("run", str(shop), "--once", "--log", str(folder))
    append(folder, 5)
    monkeypatch.setattr(Instance, "step", step_or_fail)
    monkeypatch.setattr("penstock.engine.loop.TRY_AGAIN_SECONDS", 0.0)
    shown = run("run", str(shop), "--once", "--log", str(folder))
    assert shown.exit_code == 0
    assert shown.stderr.count("disk full (make space)\ncontinues after 1 s\n") == 1
    assert counts(folder) == 5
    failures += ["disk full"]
    monkeypatch.setattr("penstock.engine.loop.MOST_SECONDS", -1.0)
    shown = run("run", str(shop), "--once", "--log", str(folder))
    assert shown.exit_code == 1
    assert shown.stderr.splitlines()[-2:] == ["error: disk full", "hint: make space"]
