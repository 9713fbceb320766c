"""The commands of `penstock capture`, on a SQLite database."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from penstock import Log
from penstock.capture.declaration import CaptureDeclaration, CapturedTable, store_declaration
from penstock.capture.folder import CaptureStatus, TableStatus
from penstock.cli.capture.output import status_line
from tests.cli.capture.conftest import ROWS

Run = Callable[..., Result]
Sql = Callable[..., None]


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [line for line in result.stdout.splitlines() if line]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"timed out: {what}"
        time.sleep(0.05)


def test_tables_become_topics(run: Run, url: str, log_of: Callable[[], Log]) -> None:
    result = run("capture", "run", url, "--table", "orders", "--table", "people", "--topic", "people=persons", "--once")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[-1] == f"stopped after {ROWS + 1} rows"
    with log_of() as log:
        assert len(log.topic("orders").read()) == ROWS
        assert log.topic("persons").read()[0]["name"] == "Ada"


def test_run_may_be_left_out_and_a_name_starts_it_again(run: Run, url: str, sql: Sql) -> None:
    assert run("capture", url, "--table", "orders", "--once").exit_code == 0
    sql("insert into orders values (1000, 'new', null)")
    result = run("capture", "run", "shop", "--once")
    assert result.stderr.splitlines()[-1] == "stopped after 1 row"


def test_columns_and_options_of_unknown_tables_are_refused(run: Run, url: str) -> None:
    result = run("capture", url, "--table", "orders", "--columns", "order=id", "--once")
    assert result.exit_code == 2
    assert "'order' is none of the tables, orders" in result.stderr
    assert run("capture", url, "--once").exit_code == 1


def test_status_shows_source_tables_and_state(run: Run, url: str) -> None:
    assert run("capture", url, "--table", "orders", "--once").exit_code == 0
    shown = lines(run("capture", "status"))
    assert shown[0] == "capture shop"
    assert shown[1] == f"source     {url}"
    assert shown[2].startswith("state      stopped since ")
    assert shown[-2:] == ["table   topic   copy      copied", f"orders  orders  complete     {ROWS}"]
    document = json.loads(run("capture", "status", "shop", "--json").stdout)
    assert (document["state"], document["running"], document["rows"]) == ("stopped", False, ROWS)
    assert lines(run("capture", "list"))[1].split() == ["shop", "stopped", url, "orders"]


def test_a_password_is_nowhere_to_be_seen(run: Run, folder: Path) -> None:
    Log(folder, create=True).close()
    declaration = CaptureDeclaration(
        "shop", "postgresql://app:hidden-word@127.0.0.1:1/shop", (CapturedTable("orders", "orders"),)
    )
    store_declaration(folder / "captures" / "shop", declaration)
    for arguments in (["status"], ["status", "--json"], ["list"], ["list", "--json"], ["verify"]):
        output = run("capture", *arguments).output
        assert "hidden-word" not in output
        assert arguments == ["verify"] or "postgresql://app:***@127.0.0.1:1/shop" in output
    # The URL is kept as it was written, for its owner only.
    stored = [path for path in folder.rglob("*") if path.is_file() and b"hidden-word" in path.read_bytes()]
    assert [(path.name, path.stat().st_mode & 0o777) for path in stored] == [("capture.json", 0o600)]


def test_a_password_in_the_arguments_gets_a_warning(run: Run) -> None:
    written, kept = "nosuch://app:hidden-word@db/shop", "nosuch://app:${SHOP_PASSWORD}@db/shop"
    result = run("capture", "run", written, "--table", "orders")
    assert "in the list of processes" in result.stderr
    assert "hidden-word" not in result.output
    assert "in the list of processes" not in run("capture", "run", kept, "--table", "orders").stderr


def test_a_snapshot_is_requested_and_taken_at_the_next_start(run: Run, url: str) -> None:
    assert run("capture", url, "--table", "orders", "--once").exit_code == 0
    assert lines(run("capture", "snapshot", "--table", "orders")) == [
        "capture 'shop' copies orders again when the capture is started: penstock capture run shop"
    ]
    assert run("capture", "run", "shop", "--once").stderr.splitlines()[-1] == f"stopped after {ROWS} rows"
    result = run("capture", "snapshot", "--table", "order")
    assert "it does not capture a table 'order'" in result.stderr


def test_verify_shows_exactly_the_rows_that_differ(run: Run, url: str, log_of: Callable[[], Log]) -> None:
    assert run("capture", url, "--table", "orders", "--once").exit_code == 0
    assert lines(run("capture", "verify")) == [f"orders: {ROWS} rows, equal to topic 'orders'"]
    with log_of() as log:
        log.topic("orders").append({"id": 7, "note": "forged", "amount": 10.5, "committed_at": "2026-01-01T00:00:00Z"})
        log.topic("orders").delete({"id": 8})
    result = run("capture", "verify", "shop", "--table", "orders")
    assert result.exit_code == 1
    assert sorted(result.stdout.split("\n\n")[1].splitlines()[1:]) == [
        "7    different   note    n7      forged",
        "8    missing     -       -       -",
    ]
    document = json.loads(run("capture", "verify", "--json").stdout)
    assert document["tables"][0]["equal"] is False
    assert len(document["tables"][0]["differences"]) == 2


def test_a_removed_capture_can_begin_anew(run: Run, url: str, sql: Sql) -> None:
    assert run("capture", url, "--table", "orders", "--once").exit_code == 0
    assert lines(run("capture", "remove", "shop", "--yes")) == ["removed capture 'shop'; its topics stay: orders"]
    assert "nothing has been captured" in run("capture", "status").stderr
    sql("delete from orders where id = 3")
    assert run("capture", url, "--table", "orders", "--once").exit_code == 0
    assert lines(run("capture", "verify")) == [f"orders: {ROWS - 1} rows, equal to topic 'orders'"]
    assert lines(run("capture", "remove", "--topics", "--yes")) == ["removed capture 'shop'"]
    assert lines(run("topic", "list", "--json")) == lines(run("topic", "list", "--json"))


def test_ctrl_c_ends_a_capture_with_one_line(
    start: Callable[..., subprocess.Popen[str]], run: Run, url: str, folder: Path
) -> None:
    process = start("capture", url, "--table", "orders")
    wait_until(lambda: _state(folder) == "following", "it follows")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert stderr.splitlines()[-1] == f"stopped after {ROWS} rows"
    assert _state(folder) == "stopped"


def test_values_of_variables_are_neither_stored_nor_in_the_list_of_processes(
    start: Callable[..., subprocess.Popen[str]], shop: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_WORD", "hidden-word")
    shop.rename(shop.with_name("hidden-word.db"))
    process = start("capture", f"sqlite:///{shop.parent}/${{SHOP_WORD}}.db", "--name", "shop", "--table", "orders")
    wait_until(lambda: _state(folder) in ("following", "failed"), "it has started")
    assert _state(folder) == "following"
    assert b"hidden-word" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert not any(b"hidden-word" in path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("width", [40, 60, 79])
@pytest.mark.parametrize("state", ["copying", "following"])
def test_the_line_of_progress_fits_the_terminal(state: str, width: int) -> None:
    tables = (TableStatus("customers", "customers", "copying", 420_000, 1_000_000, 200.0), TableStatus("b", "b"))
    status = CaptureStatus("shop", "", state, tables=tables, rows=12_345, rows_per_second=41_000, delay_seconds=0.003)
    assert len(status_line(status, width)) <= width
    if width == 79 and state == "copying":
        assert status_line(status, width) == (
            "copying customers ━━━━━┄┄┄┄┄┄ 42%, 41,000 rows/s, 3 min 20 s left, 1 more table"
        )
    if state == "following":
        assert status_line(status, width) == "following, 12,345 rows, 3 ms behind"


def _state(folder: Path) -> Any:
    try:
        return json.loads((folder / "captures" / "shop" / "status.json").read_text())["state"]
    except FileNotFoundError:
        return None


@pytest.fixture
def log_of(folder: Path) -> Callable[[], Log]:
    return lambda: Log(folder)
