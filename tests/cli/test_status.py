"""`penstock status`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable

from typer.testing import Result

from penstock import Log
from penstock.capture.folder import CaptureFolder, CaptureStatus, TableStatus, this_process
from penstock.engine.ledger.instances import InstanceMark
from penstock.engine.ledger.records import Account
from penstock.engine.plan.watermark import Clock, SourceTime
from penstock.units import now_microseconds
from tests.engine.ledger.reading_app import NOON, ReadingApp

TIME = {"orders": SourceTime(NOON, {0: Clock(NOON, NOON)}, held_by=0)}


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


def test_a_log_without_apps_says_so(run: Callable[..., Result], orders: str) -> None:
    assert run("status").stdout.startswith("no app has run on ")


def test_all_apps_are_listed_and_a_damaged_one_does_not_hide_the_others(
    run: Callable[..., Result], log: Log, orders: str
) -> None:
    app = ReadingApp(log)
    app.now = now_microseconds()
    app.commit_epoch({orders: 1}, TIME, Account(came=3, counted=1, late=1, dead=1))
    damaged = ReadingApp(log, "damaged")
    (damaged.ledger.directory / "app.json").write_text("{")
    mark = InstanceMark(app.ledger.directory, "shop", 1, since=NOON)
    result = run("status")
    mark.close()
    assert result.exit_code == 0, result.stderr
    header, broken, shop, empty, note = result.stdout.splitlines()
    assert cells(header)[:5] == ["app", "state", "epoch", "committed", "lag"]
    assert cells(broken)[:3] == ["damaged", "unreadable", "-"]
    assert cells(shop)[:3] == ["shop", "running", "1"]
    assert cells(shop)[4] == "2"
    assert cells(shop)[-3:] == ["2026-05-01T12:00:00Z", "1", "1"]
    assert empty == ""
    assert note.startswith("damaged: ")
    assert "is damaged" in note


def test_one_app_is_shown_with_everything(run: Callable[..., Result], log: Log, orders: str) -> None:
    app = ReadingApp(log)
    app.commit_epoch({orders: 1}, TIME, Account(came=1, late=1))
    app.plan_epoch({orders: 1})
    assert run("savepoint", "create", "before", "--app", "shop").exit_code == 0
    result = run("status", "shop")
    assert result.exit_code == 0, result.stderr
    shown = result.stdout
    assert "state:      stopped" in shown
    assert "note:       epoch 2 was interrupted; the next start runs it again" in shown
    assert "rows without a producer: at 2026-05-01T12:00:00Z" in shown
    lines = [cells(line) for line in shown.splitlines()]
    assert ["sink totals", "live", "0", "1", "0", "0"] in lines
    assert ["1", "live", "1", "2.00", "1", "0", "2026-05-01T12:00:02Z"] in lines
    assert any(line[:2] == ["before", "1"] for line in lines)


def test_a_silent_producer_is_not_said_to_hold_the_watermark_back(
    run: Callable[..., Result], log: Log, orders: str
) -> None:
    silent = SourceTime(NOON, {0: Clock(NOON, NOON)}, held_by=0, held_until=NOON)
    ReadingApp(log).commit_epoch({orders: 3}, {orders: silent})
    assert "nobody: rows without a producer silent for longer than `idle`, last row " in run("status", "shop").stdout


def test_a_backfill_shows_its_progress_and_what_stands_still(run: Callable[..., Result], log: Log, orders: str) -> None:
    app = ReadingApp(log)
    app.commit_epoch({orders: 3})
    app.commit_backfill({orders: 1}, {"minutes": "2"})
    text = "backfill of minutes: 33%, 1 of 3 rows; all other views do not advance until it is done"
    assert f"shop: {text}" in run("status").stdout
    assert f"note:       {text}" in run("status", "shop").stdout


def test_json_has_the_same_facts(run: Callable[..., Result], log: Log, orders: str) -> None:
    ReadingApp(log).commit_epoch({orders: 1}, TIME, Account(came=1, late=1))
    (shop,) = json.loads(run("status", "--json").stdout)["apps"]
    assert (shop["app"], shop["state"], shop["lag"], shop["late"]) == ("shop", "stopped", 2, 1)
    assert "epochs" not in shop
    document = json.loads(run("status", "shop", "--json").stdout)
    assert document["topics"][0]["held_by"] == {
        "name": None,
        "newest": "2026-05-01T12:00:00Z",
        "last_append": "2026-05-01T12:00:00Z",
        "silent": False,
    }
    assert document["epochs"][0]["committed_at"] == "2026-05-01T12:00:02Z"


def test_an_app_that_has_not_run_is_an_error(run: Callable[..., Result], log: Log, orders: str) -> None:
    ReadingApp(log)
    result = run("status", "shopp")
    assert result.exit_code == 1
    assert "did you mean" in result.stderr


def test_watching_goes_on_until_ctrl_c(start: Callable[..., subprocess.Popen[str]], log: Log, orders: str) -> None:
    ReadingApp(log).commit_epoch({orders: 1})
    process = start("status", "--watch")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("app ")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_it_needs_neither_spark_nor_duckdb(log: Log, orders: str) -> None:
    ReadingApp(log).commit_epoch({orders: 1})
    program = (
        "import sys; from typer.testing import CliRunner; from penstock.cli import app; "
        "assert CliRunner().invoke(app, ['status', 'shop']).exit_code == 0; "
        "sys.exit(bool({'pyspark', 'duckdb', 'pandas'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_captures_are_listed_with_how_far_their_copies_are(run: Callable[..., Result], log: Log, orders: str) -> None:
    folder = CaptureFolder.of(log, "shop")
    tables = (TableStatus("customers", "customers", "copying", 43, 100), TableStatus("orders", "orders", "complete", 7))
    with folder.running():
        folder.store_status(
            this_process(CaptureStatus("shop", "sqlite:///shop.db", "copying", tables=tables, delay_seconds=1.25))
        )
        lines = run("status").stdout.splitlines()
        assert [cells(line) for line in lines[2:4]] == [
            ["capture", "state", "from", "tables", "delay"],
            ["shop", "copying", "sqlite:///shop.db", "2", "1 s"],
        ]
        assert lines[-1].startswith("shop: copy of customers: ━━━┄┄┄┄┄ 43%; an app waits for the first copy")
    (document,) = json.loads(run("status", "--json").stdout)["captures"]
    assert (document["state"], document["tables"][0]["state"]) == ("stopped", "copying")
    assert "has died; start it again" in run("status").stdout
