"""A repeated epoch reads the same rows, whatever became of the log between its plan and its commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import penstock as ps
from penstock.errors import UnavailableError
from penstock.flow.settings import AppSettings
from penstock.log import TopicSettings
from penstock.log.retention import Retention
from penstock.testing import Crash, Rig
from penstock.testing.rig import Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id long not null, city string"


def program() -> ps.App:
    app = ps.App("shop", settings=AppSettings(state_partitions=2))
    people = app.table("people", schema=SCHEMA, key="id")
    cities = people.group_by("city").agg(people="count(*)")
    app.view("cities", cities)
    app.sink("cities_topic", cities.where("city is not null"))
    return app


@pytest.fixture
def rig(spark: SparkSession) -> Iterator[Rig]:
    with Rig(program(), spark=spark) as rig:
        yield rig


def crash(rig: Rig, step: Step) -> None:
    rig.crash_at(step)
    with pytest.raises(Crash):
        rig.run()


@pytest.mark.parametrize("step", ["plan", "run", "publish"])
def test_a_row_that_is_updated_and_compacted_away_is_read_again_as_planned(rig: Rig, step: Step) -> None:
    rig.append("people", [{"id": 1, "city": "Rome"}])
    rig.run()
    rig.append("people", [{"id": 1, "city": "Oslo"}])
    crash(rig, step)
    rig.append("people", [{"id": 1, "city": "Bern"}])
    rig.log.topic("people").compact()
    rig.restart()
    rig.run()
    assert rig.view("cities") == [{"city": "Bern", "people": 1}]
    newest = {row["city"]: row["people"] for row in rig.rows("cities_topic")}
    assert newest["Bern"] == 1
    assert "Oslo" in newest, "the epoch that was planned was run as planned"


def test_rows_that_a_plan_reads_do_not_expire_before_its_commit(rig: Rig) -> None:
    rig.append("people", [{"id": 1, "city": "Rome"}])
    crash(rig, "plan")
    rig.log.topic("people").retain(Retention(bytes=1))
    rig.append("people", [{"id": 2, "city": "Oslo"}])
    rig.log.topic("people").expire()
    rig.restart()
    rig.run()
    assert rig.view("cities") == [{"city": "Oslo", "people": 1}, {"city": "Rome", "people": 1}]


def test_an_erasure_waits_for_the_epoch_that_reads_the_rows(rig: Rig) -> None:
    rig.append("people", [{"id": 1, "city": "Rome"}])
    crash(rig, "plan")
    with pytest.raises(UnavailableError, match="app:shop"):
        rig.log.topic("people").erase({"id": 1}, wait=0.1)
    rig.restart()
    rig.run()
    rig.log.topic("people").erase({"id": 1}, wait=0.1)
    assert rig.rows("people") == []


def test_no_rows_are_held_once_everything_is_committed(rig: Rig) -> None:
    rig.append("people", [{"id": 1, "city": "Rome"}])
    crash(rig, "run")
    assert [(hold.name, len(hold.ranges)) for hold in rig.log.holds()] == [("app:shop", 1)]
    rig.restart()
    rig.run()
    (hold,) = rig.log.holds()
    assert (hold.name, hold.ranges, [position.offset for position in hold.read]) == ("app:shop", (), [1])


def test_topics_that_do_not_exist_yet_are_made_before_they_are_held(spark: SparkSession) -> None:
    with Rig(program(), spark=spark) as rig:
        assert rig.log.topic("people").settings == TopicSettings(key=("id",))
        assert rig.run() == 0
