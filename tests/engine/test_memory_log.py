"""Apps on a log that has no powers at all: the engine needs nothing but the contract, and the answers are the same."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps
from penstock.contracts import (
    FindsConsistentEnds,
    KeepsHolds,
    KeepsPromises,
    MeasuresExtents,
    SummarisesRows,
    TopicRows,
    Wakes,
)
from penstock.engine.ledger.ledger import Ledger
from penstock.engine.ledger.registration import Registration, forget_app
from penstock.engine.ledger.savepoints import Savepoints
from penstock.engine.publish.app_writer import open_app_writer
from penstock.errors import FencedError
from penstock.flow.settings import AppSettings
from penstock.testing import Crash, MemoryLog, Rig
from penstock.testing.memory_log import MemoryTopic
from tests.engine.app_world import MINUTES, TOTALS, at, event, events_of, shop, some_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = AppSettings(state_partitions=2, max_rows=7)


class PlainTopic(MemoryTopic):
    """Without the power that it has in memory."""

    summaries = None  # type: ignore[assignment]


class PlainLog(MemoryLog):
    """A log in memory that keeps no transactions together, and whose topics have no powers either."""

    consistent_ends = None  # type: ignore[assignment]

    def new_topic(self, name: str, schema: pa.Schema, settings: ps.TopicSettings) -> PlainTopic:
        return PlainTopic(name, uuid.uuid4().hex, schema, settings, self)


class MemoryRig(Rig):
    """A rig whose log is in memory. A named producer is a writer that counts its appends."""

    log: PlainLog

    def _open_log(self, clock: Callable[[], float]) -> PlainLog:  # type: ignore[override]
        return PlainLog(clock=clock)

    def append(
        self, topic: str, rows: Sequence[Mapping[str, Any]], *, producer: str | None = None, deleted: bool = False
    ) -> None:
        marks = [True] * len(rows) if deleted else None
        if producer is None:
            self.log.topic(topic).append(rows, deleted=marks)
        else:
            count = self.log.position(producer) or 0
            self.log.writer(producer).write([TopicRows(topic, rows, marks)], count + 1)


def answer(rig: MemoryRig, sql: str) -> list[dict[str, Any]]:
    """What DuckDB answers over all events."""
    events = pa.Table.from_batches([batch.rows for batch in rig.log.topic("events").batches()])
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("events", events)
        return connection.sql(sql).to_arrow_table().to_pylist()


def assert_answers(rig: MemoryRig) -> None:
    for name, sql in (("totals", TOTALS), ("minutes", MINUTES)):
        shown = [{key: value for key, value in row.items() if key != "window_end"} for row in rig.view(name)]
        expected = answer(rig, sql)
        names = sorted(expected[0])
        wanted = sorted([row[key] for key in names] for row in expected)
        assert sorted([row[key] for key in names] for row in shown) == wanted


def test_the_plain_log_has_no_powers_and_the_log_in_memory_those_of_transactions() -> None:
    memory = MemoryLog()
    assert isinstance(memory, FindsConsistentEnds)
    assert isinstance(memory.create_topic("lines", "id long"), SummarisesRows)
    log = PlainLog()
    topic = log.create_topic("lines", "id long")
    for power in (FindsConsistentEnds, KeepsHolds, KeepsPromises, Wakes):
        assert not isinstance(log, power)
    for power in (MeasuresExtents, SummarisesRows):
        assert not isinstance(topic, power)


@pytest.mark.parametrize("step", ["plan", "run", "publish", "commit"])
def test_answers_are_those_of_a_database_through_limits_and_crashes(spark: SparkSession, step: Any) -> None:
    with MemoryRig(shop(SMALL), spark=spark) as rig:
        for start in range(0, 40, 10):
            rig.append("events", some_events(start, 10, seconds=7.0 * start))
        rig.step()
        rig.crash_at(step)
        with pytest.raises(Crash):
            rig.run()
        rig.restart()
        rig.append("events", some_events(40, 5, seconds=3.0))
        assert rig.run() >= 4
        rig.advance("10 minutes")
        rig.run()
        assert_answers(rig)
        account = rig.account("totals")
        assert (account.came, account.counted) == (45, 45)


def test_each_writer_has_a_watermark_of_its_own(spark: SparkSession) -> None:
    with MemoryRig(shop(), spark=spark) as rig:
        rig.append("events", [event(1, 100)], producer="ahead")
        rig.append("events", [event(2, 10)], producer="behind")
        rig.run()
        assert rig.watermark("events") == at(10)
        rig.append("events", [event(3, 90)], producer="behind")
        rig.run()
        assert rig.watermark("events") == at(90)


def app_with_sinks(settings: AppSettings = SMALL) -> ps.App:
    app = ps.App("shop", settings=settings)
    events = events_of(app)
    app.sink("large", events.where("amount > 3").select("id", "amount"))
    app.sink("kinds", events.group_by("kind").agg(events="count(*)"))
    app.view("failing", events.select("id", quotient="100 div amount"))
    minutes = events.window(ps.tumbling("1 minute"), emit="final", late="drop").group_by().agg(events="count(*)")
    app.view("minutes", minutes)
    return app


@pytest.mark.parametrize("step", ["run", "publish"])
def test_sinks_late_rows_and_dead_rows_are_written_once(spark: SparkSession, step: Any) -> None:
    with MemoryRig(app_with_sinks(), spark=spark) as rig:
        rig.append("events", [event(number, number, amount=number) for number in range(1, 12)])
        rig.append("events", [event(99, 12, amount=0)])  # 100 div 0
        rig.crash_at(step)
        with pytest.raises(Crash):
            rig.run()
        rig.restart()
        rig.run()
        rig.append("events", [event(12, 600)])
        rig.run()
        rig.append("events", [event(13, 1)])  # ten minutes late
        rig.run()
        assert sorted(row["id"] for row in rig.rows("large")) == list(range(4, 12))
        assert [row["offset"] >= 0 for row in rig.rows("shop.dead")] == [True]
        assert [row["id"] for row in rig.rows("events.late")] == [13]
        newest = {row["kind"]: row["events"] for row in rig.rows("kinds")}
        assert newest == {"a": 13}


def test_a_changed_program_is_built_again_from_the_log(spark: SparkSession) -> None:
    with MemoryRig(shop(SMALL), spark=spark) as rig:
        rig.append("events", some_events(0, 20))
        rig.run()
        changed = ps.App("shop", settings=SMALL)
        events = events_of(changed)
        changed.view("totals", events.group_by("kind").agg(events="count(*)", amount="sum(amount)"))
        changed.view("ids", events.select("id"))
        rig.restart(changed)
        rig.run()
        assert [row["id"] for row in rig.view("ids")] == list(range(20))
        assert sum(row["events"] for row in rig.view("totals")) == 20


def test_a_table_follows_its_changelog(spark: SparkSession) -> None:
    app = ps.App("shop", settings=SMALL)
    people = app.table("people", schema="id bigint, name string", key="id")
    app.view("names", people.select("id", "name"))
    with MemoryRig(app, spark=spark) as rig:
        rig.append("people", [{"id": number, "name": "old"} for number in range(5)])
        rig.run()
        rig.append("people", [{"id": 1, "name": "new"}])
        rig.append("people", [{"id": 2}], deleted=True)
        rig.run()
        assert [(row["id"], row["name"]) for row in rig.view("names")] == [
            (0, "old"),
            (1, "new"),
            (3, "old"),
            (4, "old"),
        ]


def test_a_savepoint_is_restored_and_an_app_forgotten_without_holds(spark: SparkSession) -> None:
    with MemoryRig(shop(), spark=spark) as rig:
        rig.append("events", some_events(0, 6))
        rig.run()
        savepoints = Savepoints(Ledger(rig.directory), Registration(rig.log, "shop"))
        savepoints.create("before", created=1)
        rig.append("events", some_events(6, 6))
        rig.run()
        savepoints.restore("before", lambda: open_app_writer(rig.log, "shop").token, restored_at=2)
        rig.restart()
        rig.advance("10 minutes")
        rig.run()
        assert_answers(rig)
        forget_app(rig.log, Ledger(rig.directory), "shop")
        rig.append("events", some_events(12, 1))
        with pytest.raises(FencedError):
            rig.run()


def test_an_older_instance_is_refused(spark: SparkSession) -> None:
    with MemoryRig(app_with_sinks(), spark=spark) as rig:
        rig.append("events", some_events(1, 3))
        rig.run()
        open_app_writer(rig.log, "shop")
        rig.append("events", some_events(4, 3))
        with pytest.raises(FencedError):
            rig.run()


def test_quiet_streams_finish(spark: SparkSession) -> None:
    with MemoryRig(app_with_sinks(), spark=spark) as rig:
        rig.append("events", [event(1, 1)])
        rig.run()
        assert rig.view("minutes") == []
        rig.now += timedelta(minutes=30)
        rig.run()
        assert [row["events"] for row in rig.view("minutes")] == [1]
