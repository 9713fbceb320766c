"""Erasure reaches everything: after the commands that it names, no file of the log has the value any more."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

import penstock as ps
from penstock.cli import app as cli
from penstock.engine.epoch import Instance
from penstock.flow.settings import AppSettings
from penstock.log import Log, TopicSettings
from penstock.testing import Rig
from tests.engine.app_world import another_instance, event, events_of, run_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE = AppSettings(state_partitions=1)
CANARY = "canary-5f1c9b"
KEY = 4242


def shop() -> ps.App:
    """An app whose views, state and sink have the notes of events."""
    app = ps.App("shop", settings=ONE)
    events = events_of(app, partitions=1)
    app.view("notes", events.select(id="id", note="note", kind="cast(kind as bigint)"))
    app.view("by_note", events.group_by("note").agg(events="count(*)"))
    app.view("minutes", events.window(ps.tumbling("1 minute"), late="drop").group_by("note").agg(events="count(*)"))
    app.sink("copies", events.where("amount >= 0").select(id="id", note="note"))
    return app


def mailer() -> ps.App:
    """An app that reads what the first one writes."""
    app = ps.App("mailer", settings=ONE)
    copies = app.topic("copies", schema="id long, note string")
    app.view("mails", copies.select(note="note"))
    return app


def archive() -> ps.App:
    app = ps.App("archive", settings=ONE)
    app.view("archived", events_of(app, partitions=1).select(note="note"))
    return app


def files_with(folder: Path, text: str) -> list[str]:
    found = [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
    return sorted(str(path.relative_to(folder)) for path in found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def run(folder: Path) -> Callable[..., Result]:
    return lambda *args: CliRunner().invoke(cli, [*args, "--log", str(folder)])


@pytest.fixture
def rig(spark: SparkSession, folder: Path) -> Iterator[Rig]:
    """`shop` runs, `archive` and `mailer` have run; rows of the key are counted, late and dead everywhere."""
    with Rig(shop(), spark=spark, folder=folder) as rig:
        rig.append("events", [event(KEY, 1, "1", note=CANARY), event(2, 2, "1", note="others")])
        rig.run()
        rig.append("events", [event(2, 300, "1", note="others")])
        rig.run()
        late = event(KEY, 3, "1", note=f"{CANARY} late")
        dead = event(KEY, 350, kind=f"{CANARY} dead")
        rig.append("events", [late, dead, event(2, 350, kind="no number")])
        rig.run()
        for app in (archive(), mailer()):
            with another_instance(rig, spark, app) as instance:
                run_out(instance.step)
        yield rig


def rebuild(rig: Rig, spark: SparkSession, app: ps.App) -> None:
    """`penstock run --rebuild --once`: as another process does it, with a log of its own."""

    def clock() -> int:
        return int(rig.now.timestamp() * 1_000_000)

    folder = rig.log.path
    with Log(folder) as log, Instance(app.plan, log, app.settings, spark, clock=clock, rebuild=True) as instance:
        run_out(instance.step)


def test_after_the_named_commands_no_file_has_the_value(
    rig: Rig, spark: SparkSession, folder: Path, run: Callable[..., Result]
) -> None:
    assert run("savepoint", "create", "before", "--app", "shop").exit_code == 0
    for place in ("topics/events/", "topics/events.late/", "topics/shop.dead/", "topics/copies/"):
        assert any(path.startswith(place) for path in files_with(folder, CANARY)), place
    for app in ("shop", "archive", "mailer"):
        assert any(path.startswith(f"apps/{app}/") for path in files_with(folder, CANARY)), app

    erased = run("erase", "events", "--key", str(KEY), "--yes", "--json")
    assert erased.exit_code == 3
    document = json.loads(erased.stdout)
    assert document["rows_removed"] == 3
    removed = {side["topic"]: side["rows_removed"] for side in document["side_topics"]}
    assert removed == {"events.late": 1, "shop.dead": 1}
    assert not [path for path in files_with(folder, CANARY) if path.startswith("topics/") and "/copies/" not in path]
    assert [json.loads(row["row"])["kind"] for row in rig.rows("shop.dead")] == ["no number"]

    log = f" --log {folder}"
    assert [copy["command"] for copy in document["copies"]] == [
        f"penstock run FILE --rebuild --once{log}",
        f"penstock savepoint drop before --app shop --yes{log}",
        f"penstock topic drop copies --yes{log}",
        f"penstock run FILE --rebuild --once{log}",
        f"penstock run FILE --rebuild --once{log}",
    ]
    assert [copy["app"] for copy in document["copies"]] == ["archive", "shop", None, "shop", "mailer"]

    rebuild(rig, spark, archive())
    assert not [path for path in files_with(folder, CANARY) if path.startswith("apps/archive/")]
    assert run("savepoint", "drop", "before", "--app", "shop", "--yes").exit_code == 0
    assert run("erase", "events", "--check").exit_code == 3
    assert run("topic", "drop", "copies", "--yes").exit_code == 0
    rebuild(rig, spark, shop())
    left = run("erase", "events", "--check")
    assert "app 'mailer': view mails" in left.stdout
    rebuild(rig, spark, mailer())

    assert files_with(folder, CANARY) == []
    checked = run("erase", "events", "--check")
    assert (checked.exit_code, checked.stdout) == (0, "no app of this log has a copy of an erased row\n")
    assert {row["note"] for row in rig.view("notes")} == {"others"}


def test_a_running_app_is_named_until_it_is_rebuilt(rig: Rig, folder: Path, run: Callable[..., Result]) -> None:
    first = run("erase", "events", "--key", str(KEY), "--yes")
    assert first.exit_code == 3
    assert "app 'shop': views by_note, minutes, notes; sink copies; with their state" in first.stdout
    assert first.stdout.splitlines()[-1] == f"then look again: penstock erase events --check --log {folder}"
    rig.restart()
    rig.append("events", [event(3, 500, "1", note="more")])
    rig.run()
    assert "app 'shop': views by_note, minutes, notes" in run("erase", "events", "--check").stdout


def test_apps_that_do_not_read_the_topic_are_not_named(
    spark: SparkSession, folder: Path, run: Callable[..., Result]
) -> None:
    with Log(folder) as log:
        log.create_topic("people", "id long, name string", settings=TopicSettings(key=("id",)))
        log.topic("people").append({"id": 1, "name": CANARY})
    with Rig(archive(), spark=spark, folder=folder) as rig:
        rig.append("events", [event(1, 1)])
        rig.run()
        erased = run("erase", "people", "--key", "1", "--yes")
        assert erased.exit_code == 0
        assert erased.stdout.endswith("no app of this log has a copy of an erased row\n")
        assert files_with(folder, CANARY) == []


def test_either_a_key_or_a_check_is_asked_for(run: Callable[..., Result], folder: Path) -> None:
    with Log(folder) as log:
        log.create_topic("people", "id long", settings=TopicSettings(key=("id",)))
    for options in ([], ["--key", "1", "--check"]):
        refused = run("erase", "people", *options)
        assert refused.exit_code == 1
        assert "give --key to erase rows, or --check" in refused.stderr
