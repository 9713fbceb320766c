"""The rig: an app stepped by hand, on a clock that only the test moves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.app import App
from penstock.errors import DeclarationError, PenstockError
from penstock.flow.settings import AppSettings
from penstock.flow.windows import tumbling
from penstock.schema.result import Result
from penstock.testing import Crash, Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def shop(max_rows: int = 1_000_000) -> App:
    app = App("shop", settings=AppSettings(max_rows=max_rows))
    orders = app.topic("orders", schema="id bigint, amount bigint, placed timestamp", key="id", time="placed")
    app.view("minutes", orders.window(tumbling("1 minute")).group_by().agg(n="count(*)", total="sum(amount)"))
    app.view("large", orders.where("amount > 3").select("id"))
    customers = app.table("customers", schema="id bigint, name string", key="id")
    app.view("names", customers.select("id", "name"))
    return app


def test_an_app_moves_only_when_the_test_says_so(spark: SparkSession) -> None:
    with Rig(shop(), spark=spark) as rig:
        rig.append("orders", [{"id": 1, "amount": 5, "placed": "2024-05-01 12:00:10"}])
        assert rig.view("large") == []
        progress = rig.step()
        assert progress is not None
        assert progress.rows == 1
        assert rig.view("large") == [{"id": 1}]
        assert rig.step() is None
        assert rig.view("minutes") == []
        rig.advance("5 minutes")
        assert rig.run() == 1
        assert [(row["n"], row["total"]) for row in rig.view("minutes")] == [(1, 5)]
        assert rig.query("SELECT total FROM minutes WHERE n = ?", [1]) == [{"total": 5}]


def test_a_query_gives_what_that_of_the_app_gives(spark: SparkSession) -> None:
    with Rig(shop(), spark=spark) as rig:
        rig.append("orders", [{"id": 1, "amount": 5, "placed": rig.now}])
        rig.run()
        found = rig.query("SELECT id FROM large WHERE id = $id", {"id": 1})
        assert isinstance(found, Result)
        assert (found, found.epoch, found.to_arrow().num_rows) == ([{"id": 1}], 1, 1)


@pytest.mark.usefixtures("spark")  # for Java; it runs in a process of its own
def test_a_rig_that_starts_spark_prints_nothing(tmp_path: Path) -> None:
    program = (
        "import penstock as ps; from penstock.testing import Rig; app = ps.App('quiet'); "
        "app.view('ids', app.topic('t', schema='id long').select('id'))\n"
        "with Rig(app) as rig: rig.append('t', [{'id': 1}]); rig.run(); assert rig.view('ids') == [{'id': 1}]"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240
    )
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "")


def test_accounts_and_positions_can_be_inspected(spark: SparkSession) -> None:
    with Rig(shop(max_rows=2), spark=spark) as rig:
        assert rig.positions("orders") == {}
        assert rig.watermark("orders") is None
        for number in range(5):
            rig.append("orders", [{"id": number, "amount": number, "placed": rig.now}], producer=f"till-{number % 2}")
        assert rig.run() == 3
        assert rig.positions("orders") == {0: 5}
        assert rig.watermark("orders") == rig.now
        account = rig.account("large")
        assert (account.came, account.counted, account.filtered) == (5, 1, 4)
        assert len(rig.rows("orders")) == 5
        assert rig.rows("shop.dead") == []


def test_rows_of_a_table_can_be_deleted(spark: SparkSession) -> None:
    with Rig(shop(), spark=spark) as rig:
        rig.append("customers", [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}])
        rig.append("customers", [{"id": 1}], deleted=True)
        rig.run()
        assert rig.view("names") == [{"id": 2, "name": "Grace"}]


@pytest.mark.parametrize("step", ["plan", "run", "publish", "commit"])
def test_a_crash_happens_where_it_was_asked_for_and_the_next_instance_continues(spark: SparkSession, step: str) -> None:
    with Rig(shop(), spark=spark) as rig:
        rig.append("orders", [{"id": 1, "amount": 5, "placed": rig.now}])
        rig.crash_at(step)  # type: ignore[arg-type]
        with pytest.raises(Crash, match=step):
            rig.step()
        rig.restart()
        rig.run()
        assert rig.view("large") == [{"id": 1}]
        assert rig.account("large").came == 1


def test_in_a_block_a_crash_is_expected_and_the_app_restarted(spark: SparkSession) -> None:
    with Rig(shop(), spark=spark) as rig:
        rig.append("orders", [{"id": 1, "amount": 5, "placed": rig.now}])
        with rig.crash_at("publish"):
            rig.run()
        rig.run()
        assert rig.view("large") == [{"id": 1}]
        with pytest.raises(AssertionError, match="no epoch has come to the end of step 'run'"), rig.crash_at("run"):
            rig.run()  # nothing is left to do
        with pytest.raises(DeclarationError, match=r"no step 'publsh'; it has plan, run, publish, commit") as refused:
            rig.crash_at("publsh")  # type: ignore[arg-type]
        assert refused.value.hint == "did you mean 'publish'?"


def test_a_block_without_a_crash_does_not_crash_later(spark: SparkSession) -> None:
    with Rig(shop(), spark=spark) as rig:
        with pytest.raises(ZeroDivisionError), rig.crash_at("run"):
            raise ZeroDivisionError
        rig.append("orders", {"id": 1, "amount": 5, "placed": rig.now})  # one row needs no list
        rig.run()
        assert rig.view("large") == [{"id": 1}]


def test_names_that_do_not_exist_are_answered_with_those_that_do(spark: SparkSession) -> None:
    row = {"id": 1, "amount": 5, "placed": "2024-05-01 12:00:10"}
    mistakes: list[tuple[Callable[[Any], object], str, str]] = [
        (lambda rig: rig.append("ordrs", [row]), "topic 'ordrs': it does not exist", "'orders'?"),
        (lambda rig: rig.append("orders", [{**row, "amuont": 5}]), "not in the schema; found 'amuont'", "'amount'?"),
        (lambda rig: rig.append("orders", [{**row, "amount": "x"}]), "'amount' takes bigint; found 'x'", "an int"),
        (lambda rig: rig.view("larg"), "has no view 'larg'; it has minutes, large, names", "'large'?"),
        (lambda rig: rig.account("larg"), "has no view 'larg'", "'large'?"),
        (lambda rig: rig.rows("ordrs"), "topic 'ordrs': it does not exist", "'orders'?"),
        (lambda rig: rig.positions("ordrs"), "does not read topic 'ordrs'; it reads customers, orders", "'orders'?"),
        (lambda rig: rig.watermark("ordrs"), "does not read topic 'ordrs'", "'orders'?"),
        (lambda rig: rig.advnce("1 hour"), "Rig has no 'advnce'", "'advance'?"),
    ]
    with Rig(shop(), spark=spark) as rig:
        for call, message, hint in mistakes:
            with pytest.raises(PenstockError, match=message) as refused:
                call(rig)
            assert hint in str(refused.value.hint)
        rig.crash_at("plan")
        rig.append("orders", [row])
        with pytest.raises(Crash):
            rig.run()
        for call in (rig.run, lambda: rig.account("large")):
            with pytest.raises(AssertionError, match=r"the app has crashed: call restart\(\) first"):
                call()  # type: ignore[call-arg]


def test_the_clock_moves_by_durations_that_have_a_unit(spark: SparkSession) -> None:
    with Rig(shop(), spark=spark) as rig:
        began = rig.now
        rig.advance("5 minutes")
        rig.advance(timedelta(minutes=5))
        assert rig.now - began == timedelta(minutes=10)
        with pytest.raises(DeclarationError, match="a duration has a unit; found 5") as refused:
            rig.advance(5)  # type: ignore[arg-type]
        assert refused.value.hint == "did you mean '5 seconds'?"


def test_a_folder_that_was_given_is_kept_and_found_again(spark: SparkSession, tmp_path: Path) -> None:
    began = datetime(2030, 1, 1, tzinfo=UTC)
    with Rig(shop(), spark=spark, folder=tmp_path, start=began) as rig:
        rig.append("orders", [{"id": 1, "amount": 5, "placed": rig.now}])
        rig.run()
    with Rig(shop(), spark=spark, folder=tmp_path, start=began) as rig:
        assert rig.view("large") == [{"id": 1}]
        assert rig.positions("orders") == {0: 1}
