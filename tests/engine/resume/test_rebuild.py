"""Starting a changed program: what stays, what is built again beside the old, and when readers see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock as ps
from penstock.engine.ledger.ledger import Ledger
from penstock.errors import DeclarationError, PenstockError, RangeError
from penstock.flow.settings import AppSettings
from penstock.testing import Crash, Rig
from tests.engine.app_world import (
    TWO,
    another_instance,
    asked,
    event,
    events_of,
    forgetful_topic,
    run_out,
    shown,
    some_events,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = AppSettings(state_partitions=2, max_rows=8)
ROWS = 20  # three epochs, when they are small


def program(
    *, factor: int | None = 1, minimum: int | None = None, most: bool = False, settings: AppSettings = SMALL
) -> ps.App:
    """`sums` can be changed or left out, `counts` and `most` be there or not; `kinds` is always the same."""
    app = ps.App("shop", settings=settings)
    events = events_of(app)
    app.view("kinds", events.group_by("kind").agg(events="count(*)"))
    if factor is not None:
        app.view("sums", events.group_by("kind").agg(amount=f"sum(amount * {factor})"))
    if minimum is not None:
        app.view("counts", events.where(f"amount >= {minimum}").group_by().agg(events="count(*)"))
    if most:
        app.view("most", events.group_by("kind").agg(amount="max(amount)", minutes="collect_set(note)"))
    return app


def sums(rig: Rig) -> int | None:
    return rig.query("select sum(amount) as n from sums")[0]["n"]  # type: ignore[no-any-return]


TOTAL = sum(range(ROWS))
NO_VIEW = DeclarationError


@pytest.fixture
def rig(spark: SparkSession) -> Iterator[Rig]:
    """The first program, with everything read."""
    with Rig(program(settings=TWO), spark=spark) as started:
        started.append("events", some_events(0, ROWS))
        started.run()
        yield started


def built(rig: Rig) -> list[tuple[int, bool]]:
    """Runs to the end; how many rows each epoch read, and whether something was still being built after it."""
    return [(one.rows, one.building) for one in run_out(rig.step)]


def assert_all_right(rig: Rig, factor: int = 1) -> None:
    expected = asked(rig.log, f"select kind, sum(amount * {factor}) as amount from events group by kind")
    assert shown(rig.view("sums")) == shown(expected)
    expected = asked(rig.log, "select kind, count(*) as events from events group by kind")
    assert shown(rig.view("kinds")) == shown(expected)


def test_the_same_program_reads_nothing_again(rig: Rig) -> None:
    rig.restart(program())
    assert built(rig) == []
    rig.append("events", some_events(ROWS, 3))
    assert built(rig) == [(3, False)]
    assert_all_right(rig)
    assert rig.account("kinds").came == ROWS + 3


def test_a_changed_view_is_built_beside_the_old_one_and_swapped_in_one_epoch(rig: Rig) -> None:
    rig.append("events", some_events(ROWS, 4))
    rig.restart(program(factor=10))
    seen = []
    while (done := rig.step()) is not None:
        seen.append((done.rows, done.building, sums(rig)))
    new = sum(range(ROWS + 4))
    assert seen == [(8, True, TOTAL), (8, True, TOTAL), (4, False, 10 * TOTAL), (4, False, 10 * new)]
    assert rig.account("kinds").came == rig.account("sums").came == ROWS + 4
    assert_all_right(rig, 10)


def test_a_new_view_is_not_there_until_it_is_complete(rig: Rig) -> None:
    rig.restart(program(minimum=10))
    with pytest.raises(NO_VIEW, match="counts"):
        rig.view("counts")
    rig.step()
    with pytest.raises(NO_VIEW, match="counts"):
        rig.view("counts")
    rig.run()
    assert rig.view("counts") == [{"events": 10}]


def test_a_view_that_is_no_longer_declared_goes_with_the_first_epoch(rig: Rig) -> None:
    rig.restart(program(factor=None))
    assert sums(rig) == TOTAL
    assert built(rig) == [(0, False)]
    with pytest.raises(NO_VIEW, match="sums"):
        sums(rig)
    rig.restart(program())
    assert built(rig) == [(8, True), (8, True), (4, False)]
    assert_all_right(rig)


def test_a_program_that_comes_back_before_anything_was_dropped_goes_on(rig: Rig) -> None:
    rig.restart(program(factor=None))
    rig.restart(program())
    assert built(rig) == []
    assert_all_right(rig)


@pytest.mark.parametrize("step", ["plan", "run", "publish", "commit"])
@pytest.mark.parametrize("epoch", [1, 3])
def test_building_goes_on_after_a_crash(rig: Rig, step: Any, epoch: int) -> None:
    rig.restart(program(factor=10, minimum=10))
    for _ in range(epoch - 1):
        rig.step()
    rig.crash_at(step)
    with pytest.raises(Crash):
        rig.step()
    rig.restart(program(factor=10, minimum=10))
    rows = sum(rows for rows, _ in built(rig))
    done = 8 * (epoch - 1) + ((8, 8, 4)[epoch - 1] if step == "commit" else 0)
    assert rows == ROWS - done  # what was built is not read again
    assert_all_right(rig, 10)
    assert rig.view("counts") == [{"events": 10}]
    rig.append("events", some_events(ROWS, 5))
    rig.run()
    assert_all_right(rig, 10)


@pytest.mark.parametrize("step", ["plan", "run", "publish", "commit"])
def test_a_change_back_while_building_finds_everything_as_it_was(rig: Rig, step: Any) -> None:
    rig.restart(program(factor=10))
    rig.step()
    rig.crash_at(step)
    with pytest.raises(Crash):
        rig.step()
    rig.restart(program())
    rows = [rows for rows, _ in built(rig)]
    assert sum(rows) == 0
    rig.append("events", some_events(ROWS, 5))
    rig.run()
    assert_all_right(rig)
    assert rig.account("sums").came == ROWS + 5


@pytest.mark.parametrize("step", ["plan", "run", "publish", "commit"])
def test_a_second_change_while_the_first_is_being_built(rig: Rig, step: Any) -> None:
    rig.restart(program(factor=10))
    rig.step()
    rig.crash_at(step)
    with pytest.raises(Crash):
        rig.step()
    rig.restart(program(factor=100, most=True))
    rig.run()
    assert_all_right(rig, 100)
    rig.append("events", some_events(ROWS, 5))
    rig.run()
    assert_all_right(rig, 100)
    assert shown(rig.view("most"), "minutes") == shown(
        asked(rig.log, "select kind, max(amount) as amount from events group by kind")
    )


@pytest.mark.parametrize("step", ["plan", "run", "publish"])
@pytest.mark.parametrize("changed", [{"factor": 10}, {"factor": None}, {"minimum": 5}])
def test_the_rows_of_an_epoch_that_the_old_program_has_planned_are_counted_once(
    rig: Rig, step: Any, changed: dict[str, Any]
) -> None:
    rig.append("events", some_events(ROWS, 5))
    rig.crash_at(step)
    with pytest.raises(Crash):
        rig.step()
    rig.append("events", some_events(ROWS + 5, 2))
    rig.restart(program(**changed))
    rig.run()
    assert rig.query("select sum(events) as n from kinds") == [{"n": ROWS + 7}]


@pytest.mark.parametrize("step", ["plan", "run", "publish"])
def test_the_last_epoch_of_building_may_crash_and_the_program_change(rig: Rig, step: Any) -> None:
    rig.restart(program(factor=10))
    rig.step()
    rig.step()
    rig.crash_at(step)
    with pytest.raises(Crash):
        rig.step()
    assert sums(rig) == TOTAL  # readers follow commits
    rig.restart(program(factor=7))
    rig.run()
    assert_all_right(rig, 7)
    rig.append("events", some_events(ROWS, 5))
    rig.run()
    assert_all_right(rig, 7)


def test_a_program_may_change_before_its_first_epoch_is_committed(spark: SparkSession) -> None:
    with Rig(program(), spark=spark) as rig:
        rig.append("events", some_events(0, 5))
        rig.crash_at("publish")
        with pytest.raises(Crash):
            rig.step()
        rig.restart(program(factor=10))
        rig.append("events", some_events(5, 5))
        rig.run()
        assert_all_right(rig, 10)
        assert rig.account("sums").came == 10


def test_everything_may_change_at_once(rig: Rig) -> None:
    app = ps.App("shop", settings=SMALL)
    app.view("sums", events_of(app).where("amount > 5").group_by("kind").agg(amount="sum(amount)"))
    rig.append("events", some_events(ROWS, 5))
    rig.crash_at("publish")
    with pytest.raises(Crash):
        rig.step()
    rig.restart(app)
    rig.run()
    expected = asked(rig.log, "select kind, sum(amount) as amount from events where amount > 5 group by kind")
    assert shown(rig.view("sums")) == shown(expected)


def test_a_new_topic_is_read_from_its_beginning(rig: Rig) -> None:
    app = program()
    others = events_of(app, "others")
    app.view("others_too", others.union(events_of(app)).group_by().agg(events="count(*)"))
    rig.restart(app)
    rig.append("others", some_events(100, 3))
    rig.run()
    assert rig.view("others_too") == [{"events": ROWS + 3}]
    assert_all_right(rig)


def test_new_columns_of_a_topic_may_be_used(rig: Rig) -> None:
    wider = "id long, kind string, amount long, note string, at timestamp, place string"
    rig.topic("events").evolve(wider)
    rig.append("events", [{**event(100, 50), "place": "Ulm"}])
    rig.run()
    app = ps.App("shop", settings=TWO)
    events = app.topic("events", schema=wider, key="id", time="at", partitions=2)
    app.view("places", events.group_by("place").agg(n="count(*)"))
    rig.restart(app)
    rig.run()
    assert rig.view("places") == [{"place": None, "n": ROWS}, {"place": "Ulm", "n": 1}]


def test_files_of_what_is_gone_are_removed(rig: Rig) -> None:
    rig.restart(program(factor=10))
    rig.run()
    for start in range(ROWS, ROWS + 12):
        rig.append("events", some_events(start, 1))
        rig.run()
    ledger = Ledger(rig.directory)
    commit = ledger.last_commit()
    assert commit is not None
    assert len(commit.live.states) == 2
    folders = {path.parts[-3] for path in ledger.directory.glob("state/*/*/*.arrow")}
    assert folders == set(commit.live.states)
    changes = [ledger.changes_of(epoch) for epoch in ledger.epochs_with_changes()]
    kept = {path for record in changes if record for path in record.paths()}
    for epoch in ledger.epochs_with("commit"):
        kept |= (ledger.commit_of(epoch) or commit).paths()
    found = {path.relative_to(ledger.directory).as_posix() for path in ledger.directory.glob("views/*/*/*")}
    assert found == {path for path in kept if path.startswith("views/")}


# -- what is refused, before anybody is replaced ----------------------------------------------------------------------


def goes_on(rig: Rig) -> bool:
    """The instance that ran before was not replaced."""
    rig.append("events", some_events(500, 1))
    return rig.step() is not None


def refused(rig: Rig, spark: SparkSession, app: ps.App, **options: Any) -> PenstockError:
    with pytest.raises((DeclarationError, RangeError)) as error, another_instance(rig, spark, app, **options):
        pass
    return error.value


def test_what_the_log_no_longer_has_cannot_be_built_again(spark: SparkSession, tmp_path: Path) -> None:
    forgetful_topic(tmp_path / "log")
    with Rig(program(settings=TWO), spark=spark, folder=tmp_path / "log") as rig:
        for start in range(0, 100, 10):
            rig.append("events", some_events(start, 10))
            rig.run()
        before = sums(rig)
        for options in ({}, {"rebuild": True}):
            app = program(factor=None if options else 10, settings=TWO)
            error = refused(rig, spark, app, **options)
            assert (
                "built from rows that were removed by retention: topic 'events', partition 0: offset" in error.message
            )
            assert "--from-oldest" in str(error.hint)
        assert goes_on(rig)
        assert sums(rig) == before + 500 if before is not None else False


def test_a_topic_that_was_created_again_is_not_taken_for_the_old_one(rig: Rig, spark: SparkSession) -> None:
    rig._stop()
    rig.log.drop_topic("events")
    error = None
    with pytest.raises(DeclarationError) as found:
        recreate_and_restart(rig)
    error = found.value
    assert "topic 'events' is not the one it has read: it was dropped and created again" in error.message
    assert "--rebuild" in str(error.hint)
    with another_instance(rig, spark, program(), rebuild=True) as instance:
        run_out(instance.step)
    assert_all_right(rig)
    rig.restart(program())
    rig.append("events", some_events(50, 3))
    rig.run()
    assert_all_right(rig)


def recreate_and_restart(rig: Rig) -> None:
    with rig.log.__class__(rig.log.path) as log:
        log.create_topic("events", "id long, kind string, amount long, note string, at timestamp", key="id", time="at")
    rig.append("events", some_events(0, 7))
    rig.restart(program())
