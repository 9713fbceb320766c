"""Apps that continue without rows which retention has removed: by choice, exactly, and on record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app as cli
from penstock.engine.epoch import Instance
from penstock.engine.ledger.gaps import app_gaps, gap_text
from penstock.errors import RangeError
from penstock.flow.settings import AppSettings
from penstock.log import Log, TopicSettings
from penstock.testing import Rig
from tests.engine.app_world import MINUTES, SCHEMA, asked, event, events_of, run_out, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.testing.rig import Step

ONE = AppSettings(state_partitions=1)
SHORT = TopicSettings(key=("id",), time="at", segment_bytes=500, retention_bytes=1)
"""A topic of which `expire` leaves the last append only."""


def program(*, minutes: bool = False) -> ps.App:
    app = ps.App("shop", settings=ONE)
    events = events_of(app, partitions=1)
    app.view("totals", events.group_by("kind").agg(events="count(*)", amount="sum(amount)"))
    if minutes:
        per_minute = events.window(ps.tumbling("1 minute")).group_by("kind")
        app.view("minutes", per_minute.agg(amount="sum(amount)", events="count(*)"))
    return app


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Iterator[Rig]:
    with Log(tmp_path / "log") as log:
        log.create_topic("events", SCHEMA, settings=SHORT)
    with Rig(program(), spark=spark, folder=tmp_path / "log") as rig:
        yield rig


def append(rig: Rig, first: int, count: int = 10) -> None:
    """Ten events that fill a segment, so that the next append begins another."""
    rig.append("events", [event(number, number, note="x" * 60) for number in range(first, first + count)])


def lose_rows(rig: Rig) -> int:
    """Append two segments, of which the first expires unread; the first offset that is left."""
    read = rig.positions("events")[0]
    append(rig, read)
    append(rig, read + 10)
    rig.log.topic("events").expire()
    (start,) = rig.log.topic("events").starts().values()
    assert start > read
    return start


def places(rig: Rig) -> list[tuple[int, int, list[str]]]:
    return [(gap.start, gap.end, sorted(gap.outputs)) for gap in app_gaps(rig.directory)]


def test_unread_rows_that_are_gone_are_named_and_left_out_only_by_choice(rig: Rig, tmp_path: Path) -> None:
    append(rig, 0)
    rig.run()
    start = lose_rows(rig)
    removed = f"topic 'events', partition 0: offsets 10 to {start - 1} ({start - 10} offsets)"
    with pytest.raises(RangeError) as running:
        rig.step()
    with pytest.raises(RangeError) as starting:
        rig.restart()
    for error in (running.value, starting.value):
        assert error.message == f"app 'shop': rows that it has not read were removed by retention: {removed}"
        assert "penstock run FILE --from-oldest" in str(error.hint)
    rig.restart(from_oldest=True)
    progress = rig.step()
    assert progress is not None
    assert [gap_text(gap) for gap in progress.gaps] == [removed]
    rig.run()
    assert places(rig) == [(10, start, ["totals"])]
    left = 10 + rig.log.topic("events").ends()[0] - start
    assert rig.query("select events from totals") == [{"events": left}]
    account = rig.account("totals")
    assert (account.came, account.counted) == (left, left)
    append(rig, 100)
    rig.restart()
    rig.run()
    assert places(rig) == [(10, start, ["totals"])]
    views = CliRunner().invoke(cli, ["views", "--log", str(tmp_path / "log")])
    assert f"built without rows that were no longer in the log: totals: {removed}; since " in views.stdout


@pytest.mark.parametrize("step", ["plan", "run", "publish"])
def test_an_epoch_that_is_repeated_after_a_crash_has_the_same_gap(rig: Rig, step: Step) -> None:
    append(rig, 0)
    rig.run()
    start = lose_rows(rig)
    rig.restart(from_oldest=True)
    with rig.crash_at(step):
        rig.run()
    append(rig, 50)
    append(rig, 60)
    rig.log.topic("events").expire()
    assert rig.log.topic("events").starts() == {0: start}
    rig.run()
    assert places(rig) == [(10, start, ["totals"])]
    assert rig.account("totals").counted == 10 + rig.log.topic("events").ends()[0] - start


def test_a_new_view_is_built_from_the_oldest_rows_and_the_others_miss_nothing(rig: Rig) -> None:
    append(rig, 0)
    rig.run()
    append(rig, 10)
    rig.run()
    append(rig, 20)
    rig.run()
    rig.log.topic("events").expire()
    (start,) = rig.log.topic("events").starts().values()
    assert start > 0
    with pytest.raises(RangeError, match=rf"are to be built from rows .*: offsets 0 to {start - 1}"):
        rig.restart(program(minutes=True))
    rig.restart(program(minutes=True), from_oldest=True)
    with rig.crash_at("run"):
        rig.run()
    rig.run()
    assert places(rig) == [(0, start, ["minutes"])]
    assert rig.query("select events from totals") == [{"events": 30}]
    rig.advance("10 minutes")
    rig.run()
    assert shown(rig.view("minutes")) == shown(asked(rig.log, MINUTES))
    account = rig.account("minutes")
    assert account.came == account.counted == rig.log.topic("events").ends()[0] - start


def test_a_view_is_built_while_others_skip_what_they_have_not_read(rig: Rig) -> None:
    append(rig, 0)
    rig.run()
    start = lose_rows(rig)
    rig.restart(program(minutes=True), from_oldest=True)
    rig.run()
    assert places(rig) == [(0, start, ["minutes"]), (10, start, ["totals"])]
    end = rig.log.topic("events").ends()[0]
    assert rig.account("totals").counted == 10 + end - start
    rig.advance("10 minutes")
    rig.run()
    assert shown(rig.view("minutes")) == shown(asked(rig.log, MINUTES))


def test_a_savepoint_from_before_the_gap_needs_the_choice_again(rig: Rig, tmp_path: Path) -> None:
    append(rig, 0)
    rig.run()
    run = CliRunner()
    log = ["--log", str(tmp_path / "log")]
    assert run.invoke(cli, ["savepoint", "create", "before", *log]).exit_code == 0
    append(rig, 10)
    rig.run()
    append(rig, 20)
    rig.run()
    rig.log.topic("events").expire()
    (start,) = rig.log.topic("events").starts().values()
    assert run.invoke(cli, ["savepoint", "restore", "before", "--yes", *log]).exit_code == 0
    with pytest.raises(RangeError, match=f"offsets 10 to {start - 1}"):
        rig.restart()
    rig.restart(from_oldest=True)
    rig.run()
    assert places(rig) == [(10, start, ["totals"])]


def test_events_whose_table_rows_are_gone_find_none_and_are_accounted_for(spark: SparkSession, tmp_path: Path) -> None:
    def joined(*, left: bool) -> ps.App:
        app = ps.App("shop", settings=ONE)
        events = events_of(app, partitions=1)
        people = app.table("people", schema="id long, name string", key="id")
        rows = events.select(id="id", at="at").join(people, on="id", how="left" if left else "inner")
        app.view("named", rows)
        return app

    with Log(tmp_path / "log") as log:
        settings = TopicSettings(key=("id",), segment_bytes=300, retention_bytes=1)
        log.create_topic("people", "id long, name string", settings=settings)
    with Rig(joined(left=False), spark=spark, folder=tmp_path / "log") as rig:
        rig.append("people", [{"id": 1, "name": "ann" * 40}])
        rig.run()
        rig.append("people", [{"id": 2, "name": "bob" * 40}])
        rig.append("events", [event(1, 1), event(2, 2)])
        rig.run()
        assert len(rig.view("named")) == 2
        rig.append("people", [{"id": 3, "name": "cyd" * 40}])
        rig.run()
        rig.log.topic("people").expire()
        (start,) = rig.log.topic("people").starts().values()
        rig.restart(joined(left=True), from_oldest=True)
        rig.run()
        assert places(rig) == [(0, start, ["named"])]
        names = {row["id"]: row["name"] for row in rig.view("named")}
        assert names[1] is None
        account = rig.account("named")
        assert account.came == account.counted + account.late + account.dead + account.filtered


def test_rows_that_expire_while_an_epoch_is_planned_are_in_the_gap(rig: Rig, spark: SparkSession) -> None:
    append(rig, 0)
    rig.run()
    append(rig, 10)
    moments: list[int] = []

    def clock() -> int:
        """The second look at the clock is after what was lost has been looked for."""
        moments.append(0)
        if len(moments) == 2:
            append(rig, 20)
            append(rig, 30)
        return int(rig.now.timestamp() * 1_000_000)

    app = program()
    with Instance(app.plan, rig.log, app.settings, spark, clock=clock, from_oldest=True) as instance:
        moments.clear()
        run_out(instance.step)
        counted = instance.accounts()["totals"].counted
    (start,) = rig.log.topic("events").starts().values()
    assert start > 10
    assert places(rig) == [(10, start, ["totals"])]
    assert counted == 10 + rig.log.topic("events").ends()[0] - start
