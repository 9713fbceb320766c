"""Running an app from a program: in a session of the user, in a thread, as a script."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock as ps
from penstock.app import load_app
from penstock.engine.resume.forecast import forecast
from penstock.errors import DeclarationError
from penstock.script import _is_default, _show_end_of_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDS_SPARK = pytest.mark.xdist_group("spark")
ROWS = [{"id": number, "kind": "ab"[number % 2]} for number in range(5)]


def shop(folder: Path) -> ps.App:
    app = ps.App("shop", log=folder, settings=ps.AppSettings(state_partitions=2))
    orders = app.topic("orders", schema="id long, kind string")
    app.view("kinds", orders.group_by("kind").agg(orders="count(*)"))
    return app


def append(folder: Path, rows: list[dict[str, Any]]) -> None:
    with ps.Log(folder) as log:
        if "orders" not in log.topics():
            log.create_topic("orders", "id bigint, kind string")
        log.topic("orders").append(rows)


@NEEDS_SPARK
def test_a_run_up_to_the_present_says_what_it_did_and_its_views_can_be_asked(
    spark: SparkSession, tmp_path: Path
) -> None:
    app, epochs = shop(tmp_path), list[ps.EpochSummary]()
    append(tmp_path, ROWS)
    before = spark.conf.getAll
    summary = app.run(once=True, spark=spark, on_epoch=epochs.append)
    assert (summary.app, summary.rows, summary.late, summary.dead) == ("shop", 5, 0, 0)
    assert (summary.epochs, summary.last_epoch) == (len(epochs), epochs[-1].epoch)
    assert sum(epoch.rows for epoch in epochs) == 5
    assert (epochs[-1].lag, epochs[-1].watermark, epochs[-1].building) == (0, None, False)
    assert app.query("select * from kinds order by kind") == [{"kind": "a", "orders": 3}, {"kind": "b", "orders": 2}]
    # The session is the caller's: it still works, and as before.
    assert spark.conf.getAll == before
    assert spark.range(3).count() == 3
    assert app.run(once=True, spark=spark).rows == 0


@NEEDS_SPARK
def test_a_run_in_a_thread_ends_when_it_is_told_and_leaves_signals_alone(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path, ROWS)
    stop, ended = threading.Event(), list[ps.RunSummary]()
    handler = signal.getsignal(signal.SIGINT)
    running = threading.Thread(
        target=lambda: ended.append(shop(tmp_path).run(spark=spark, stop=stop, on_epoch=lambda epoch: stop.set()))
    )
    running.start()
    running.join(120)
    assert [summary.rows for summary in ended] == [5]
    assert signal.getsignal(signal.SIGINT) is handler


@NEEDS_SPARK
def test_an_error_of_on_epoch_ends_the_run_after_the_commit(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path, ROWS)

    def fail(epoch: ps.EpochSummary) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        shop(tmp_path).run(spark=spark, on_epoch=fail)
    assert shop(tmp_path).query("select sum(orders) as n from kinds") == [{"n": 5}]


def test_what_is_no_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"run: spark is a SparkSession .*; found 'local\[2\]'"):
        shop(tmp_path).run(spark="local[2]")  # type: ignore[arg-type]


# -- scripts ----------------------------------------------------------------------------------------------------------

SCRIPT = """
import penstock as ps
from scale import FACTOR

class Step:
    pass

def enlarge(rows):
    return rows.withColumn("id", rows.id * FACTOR) if Step else rows

app = ps.App("shop", log="log", settings=ps.AppSettings(state_partitions=2))
orders = app.topic("orders", schema="id long, kind string")
enlarged = orders.map(enlarge, schema="id long, kind string")
app.view("kinds", enlarged.group_by("kind").agg(orders="count(*)", ids="sum(id)"))

if __name__ == "__main__":
    summary = app.run(once=True)
    print(summary.rows, list(app.query("select * from kinds order by kind")), flush=True)
    print(app.run(on_epoch=lambda epoch: print("epoch of", epoch.rows, flush=True)).epochs)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scale.py").write_text("FACTOR = 10\n")
    (tmp_path / "shop.py").write_text(SCRIPT)
    return tmp_path / "shop.py"


@NEEDS_SPARK
@pytest.mark.usefixtures("spark")  # for Java; it runs in a process of its own
def test_a_script_runs_is_interrupted_with_one_line_and_continues_under_the_command(script: Path) -> None:
    append(Path("log"), ROWS)
    with subprocess.Popen(
        [sys.executable, "shop.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == (
            "5 [{'kind': 'a', 'orders': 3, 'ids': 60}, {'kind': 'b', 'orders': 2, 'ids': 40}]\n"
        )
        append(Path("log"), ROWS[:1])
        assert process.stdout.readline() == "epoch of 1\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "1\n"
        assert process.stderr.read() == "app 'shop': stopping after the running epoch\n"
        assert process.wait(60) == 0
    resume = forecast(load_app(script).plan, Path("log")).resume  # what `penstock run shop.py` would do
    assert (list(resume.kept), resume.rebuilt) == (["kinds"], ())


@NEEDS_SPARK
@pytest.mark.usefixtures("spark")  # for Java; it runs in a process of its own
def test_on_a_terminal_a_script_says_that_spark_is_starting(script: Path) -> None:
    script.write_text(SCRIPT.partition("if __name__")[0] + "\napp.run(once=True)\n")
    terminal, its_end = pty.openpty()
    with open(terminal, "rb", buffering=0) as shown:
        ended = subprocess.run(
            [sys.executable, script], stdout=subprocess.DEVNULL, stderr=its_end, check=False, timeout=240
        )
        os.close(its_end)
        assert (ended.returncode, shown.read(1000)) == (0, b"app 'shop': starting Spark\r\n")


def test_a_script_that_fails_shows_one_line_and_a_hint(script: Path) -> None:
    script.write_text(SCRIPT.replace('app.view("kinds"', 'print("kinds"'))
    shown = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=240)
    assert shown.returncode == 1
    assert shown.stderr.splitlines() == [
        "error: app 'shop': it declares no views",
        "hint: say what is to be kept: app.view(name, ...)",
    ]


def test_a_run_while_the_file_is_loaded_is_refused(script: Path) -> None:
    script.write_text(SCRIPT.replace('if __name__ == "__main__":', "if True:"))
    with pytest.raises(DeclarationError, match=r"shop.py:\d+: run: the file of app 'shop' is being loaded") as refused:
        load_app(script)
    assert refused.value.hint == 'put app.run() under: if __name__ == "__main__":'


@pytest.mark.parametrize("arguments", [{"stop": True}, {"on_epoch": "print"}])
def test_arguments_of_another_kind_are_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=rf"test_script.py:\d+: run: {next(iter(arguments))} is a"):
        shop(tmp_path).run(**arguments)


def test_handlers_of_the_user_are_not_replaced() -> None:
    def of_pyspark(number: int, frame: object) -> None: ...

    of_pyspark.__module__ = "pyspark.core.context"
    handlers: list[tuple[Callable[..., Any] | signal.Handlers, bool]] = [
        (signal.default_int_handler, True),
        (signal.SIG_DFL, True),
        (of_pyspark, True),
        (signal.SIG_IGN, False),
        (lambda number, frame: None, False),
    ]
    assert [_is_default(handler) for handler, _ in handlers] == [expected for _, expected in handlers]


def test_an_error_that_nobody_catches_is_shown_in_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    error = ps.PenstockError("the disk is full", hint="make space")
    _show_end_of_run(type(error), error, None)
    _show_end_of_run(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == (
        "error: the disk is full\nhint: make space\n"
        "stopped: the epoch that was running is run again at the next start\n"
    )


def test_python_m_penstock_is_the_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "penstock", "--version"], capture_output=True, text=True, check=False)
    assert shown.stdout == f"penstock {ps.__version__}\n"
