"""The status of apps, as found on disk and in the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engine.ledger.instances import InstanceMark
from penstock.engine.ledger.records import Account
from penstock.engine.ledger.registration import Registration
from penstock.engine.ledger.savepoints import Savepoints
from penstock.engine.ledger.status import AppStatus, ProducerStatus, app_status, app_statuses
from penstock.engine.plan.watermark import Clock, SourceTime, finish
from penstock.log import Log, TopicSettings
from tests.engine.ledger.reading_app import NOON, SECOND, ReadingApp


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log with a topic `orders` of ten rows in two partitions, stored a second apart from noon on."""
    moments = iter(range(NOON // SECOND, NOON // SECOND + 10_000))
    with Log(tmp_path / "log", clock=lambda: next(moments)) as opened:
        topic = opened.create_topic("orders", "id long", settings=TopicSettings(partitions=2, key=("id",)))
        for number in range(10):
            topic.append([{"id": number}])
        yield opened


def stored_at(log: Log, partition: int, offset: int) -> int:
    return next(log.topic("orders").batches({partition: offset})).append_time


# -- running ----------------------------------------------------------------------------------------------------------


def test_a_log_without_apps_has_no_status(log: Log) -> None:
    assert app_statuses(log) == []


def test_an_app_runs_while_its_instance_does(log: Log) -> None:
    app = ReadingApp(log)
    app.commit_epoch({"orders": 4})
    assert app_status(log, "shop").running is None
    mark = InstanceMark(app.ledger.directory, "shop", 1, since=NOON)
    running = app_status(log, "shop").running
    assert running is not None
    assert (running.token, running.since) == (1, NOON)
    mark.close()
    assert app_status(log, "shop").running is None


def test_an_epoch_that_is_planned_shows_until_it_is_committed(log: Log) -> None:
    app = ReadingApp(log)
    app.commit_epoch({"orders": 4})
    app.plan_epoch({"orders": 2})
    found = app_status(log, "shop")
    assert (found.epoch, found.planned, found.planned_at) == (1, 2, NOON + 2 * SECOND)


# -- topics -----------------------------------------------------------------------------------------------------------


def test_the_lag_is_what_was_not_read_and_its_age_that_of_the_oldest_row(log: Log) -> None:
    app, ends = ReadingApp(log), log.topic("orders").ends()
    app.commit_epoch({"orders": ends[0] + 1})
    (topic,) = app_status(log, "shop").topics
    assert (topic.lag, topic.oldest_unread) == (ends[1] - 1, stored_at(log, 1, 1))
    app.commit_epoch({"orders": 10})
    (topic,) = app_status(log, "shop").topics
    assert (topic.lag, topic.oldest_unread, topic.lost) == (0, None, 0)


def test_the_producer_that_holds_the_watermark_back_is_named(log: Log) -> None:
    number = log.producer("sensor-7").append(log.topic("orders"), [{"id": 11}]) and next(iter(log.producers()))
    time = SourceTime(NOON, {number: Clock(NOON + 5, NOON + 9), 0: Clock(NOON + 8)}, held_by=number)
    app = ReadingApp(log)
    app.commit_epoch({"orders": 4}, {"orders": time})
    (topic,) = app_status(log, "shop").topics
    assert (topic.watermark, topic.held_by) == (NOON, ProducerStatus("sensor-7", NOON + 5, NOON + 9))
    assert not topic.finished


def test_a_producer_that_has_been_silent_for_longer_than_idle_no_longer_holds_it_back(log: Log) -> None:
    time = SourceTime(NOON, {0: Clock(NOON, NOON)}, held_by=0, held_until=NOON + 30 * SECOND)
    app = ReadingApp(log)
    app.commit_epoch({"orders": 4}, {"orders": time})
    (topic,) = app_status(log, "shop").topics
    assert topic.held_by == ProducerStatus(None, NOON, NOON, silent=False)  # rows are unread, perhaps of this producer
    app.commit_epoch({"orders": 6}, {"orders": time})
    (topic,) = app_status(log, "shop").topics
    assert topic.held_by == ProducerStatus(None, NOON, NOON, silent=True)


def test_a_watermark_that_was_moved_by_the_end_of_the_input_says_so(log: Log) -> None:
    ended = finish(SourceTime(NOON, {0: Clock(NOON)}, held_by=0), NOON + 5)
    assert ended is not None
    app = ReadingApp(log)
    app.commit_epoch({"orders": 4}, {"orders": ended})
    (topic,) = app_status(log, "shop").topics
    assert (topic.watermark, topic.finished, topic.held_by) == (NOON + 5, True, None)


def test_a_topic_that_was_dropped_or_created_again_is_not_compared(log: Log) -> None:
    ReadingApp(log).commit_epoch({"orders": 4})
    log.drop_topic("orders")
    assert [topic.dropped for topic in app_status(log, "shop").topics] == [True]
    log.create_topic("orders", "id long")
    assert [topic.dropped for topic in app_status(log, "shop").topics] == [True]


# -- what was missed, epochs, backfills, savepoints -------------------------------------------------------------------


def test_late_and_dead_events_are_told_in_all_and_by_epoch(log: Log) -> None:
    app = ReadingApp(log)
    for late, dead in ((1, 0), (0, 2), (3, 0)):
        app.commit_epoch({"orders": 1}, account=Account(came=late + dead, late=late, dead=dead))
    found = app_status(log, "shop")
    assert (found.late, found.dead) == (4, 2)
    assert [(epoch.epoch, epoch.rows, epoch.seconds, epoch.late, epoch.dead) for epoch in found.epochs] == [
        (1, 1, 2.0, 1, 0),
        (2, 1, 2.0, 0, 2),
        (3, 1, 2.0, 3, 0),
    ]


def test_a_backfill_tells_how_far_it_has_come_and_which_outputs_wait(log: Log) -> None:
    app = ReadingApp(log)
    app.commit_epoch({"orders": 8})
    app.commit_backfill({"orders": 2}, {"minutes": "2"})
    found = app_status(log, "shop")
    assert found.backfill is not None
    assert (found.backfill.outputs, found.backfill.read, found.backfill.total) == (("minutes",), 2, 8)
    assert found.backfill.share == 0.25
    assert {output.name: output.state for output in found.outputs} == {"minutes": "being built", "totals": "waiting"}


def test_savepoints_are_listed_also_damaged_ones(log: Log) -> None:
    app = ReadingApp(log)
    app.commit_epoch({"orders": 4})
    savepoints = Savepoints(app.ledger, Registration(log, "shop"))
    savepoints.create("before", created=NOON)
    (app.ledger.directory / "savepoints" / "broken.json").write_text("{}")
    before, broken = app_status(log, "shop").savepoints
    assert (before.name, before.created, before.epoch, before.problem) == ("before", NOON, 1, None)
    assert "savepoint 'broken' is damaged" in str(broken.problem)


def test_the_delete_markers_that_are_kept_for_an_app_are_counted(log: Log) -> None:
    app = ReadingApp(log)
    app.commit_epoch({"orders": 10})
    log.topic("orders").append([{"id": 1}, {"id": 2}], deleted=[True, True])
    (hold,) = app_status(log, "shop").holds
    assert (hold.holder, hold.keeps, hold.rows) == ("app:shop", "delete markers", 2)


# -- what cannot be read ----------------------------------------------------------------------------------------------


def problems(log: Log) -> dict[str, AppStatus]:
    return {found.app: found for found in app_statuses(log) if found.problem is not None}


def test_a_damaged_or_half_created_app_does_not_hide_the_others(log: Log) -> None:
    ReadingApp(log).commit_epoch({"orders": 4})
    (log.apps_folder / "begun").mkdir()
    damaged = ReadingApp(log, "damaged")
    damaged.commit_epoch({"orders": 4})
    damaged.ledger.path_of(1, "commit").write_text("{")
    ReadingApp(log, "empty")
    assert [found.app for found in app_statuses(log)] == ["begun", "damaged", "empty", "shop"]
    found = problems(log)
    assert set(found) == {"begun", "damaged"}
    assert "its first start did not get far enough" in str(found["begun"].problem)
    assert "the commit of epoch 1 is damaged" in str(found["damaged"].problem)
    assert app_status(log, "empty").epoch == 0
