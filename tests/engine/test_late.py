"""Events that come too late for every window they belong to: in `<topic>.late`, once, and in the books."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import penstock as ps
from penstock.testing import Crash, Rig
from tests.engine.app_world import TWO, another_instance, at, event, events_of, run_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.flow.stream import Stream

HOUR = 3_600


def late_ids(rig: Rig, topic: str = "events") -> list[int]:
    return sorted(row["id"] for row in rig.rows(f"{topic}.late"))


def app_of(rows: Any) -> ps.App:
    app = ps.App("shop", settings=TWO)
    app.view("answer", rows(events_of(app, time=ps.event_time("at", max_ahead="10 hours"))))
    return app


def windowed(window: Any, **options: Any) -> Any:
    return lambda events: events.window(window, **options).group_by("kind").agg(n="count(*)")


def drop(window: Any) -> Any:
    return windowed(window, late="drop")


def asking(window: Any, **aggregates: str) -> Any:
    return lambda events: events.window(window, late="drop").group_by("kind").agg(**aggregates)


def doubled(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import col

    return rows.withColumn("amount", col("amount") * 2)


def narrowed(rows: DataFrame) -> DataFrame:
    """It drops the columns by which Penstock knows where a row comes from."""
    return rows.select("kind", "at")


def mapped(events: Stream) -> Stream:
    return events.map(doubled, schema="id long, kind string, amount long, note string, at timestamp")


def cases() -> list[Any]:
    """What is asked, and at which seconds an event is just too late and just in time, when it is 2 hours past noon."""
    two = 2 * HOUR
    minute = ps.tumbling("1 minute")
    return [
        pytest.param(drop(minute), two - 1, two, id="tumbling"),
        pytest.param(windowed(minute, keep="10 minutes"), two - 601, two - 600, id="tumbling, kept"),
        pytest.param(windowed(minute), HOUR - 1, HOUR, id="tumbling, kept for an hour"),
        pytest.param(windowed(minute, late="drop", emit="changes"), two - 1, two, id="tumbling, changes"),
        pytest.param(drop(ps.tumbling("1 minute", offset="30 seconds")), two - 31, two - 30, id="tumbling, offset"),
        pytest.param(drop(ps.hopping("1 minute", "20 seconds")), two - 41, two - 40, id="hopping"),
        pytest.param(drop(ps.hopping("50 seconds", "20 seconds")), two - 41, two - 40, id="hopping, uneven"),
        pytest.param(drop(ps.session("1 minute")), two - 61, two - 60, id="session"),
        pytest.param(drop(ps.sliding("1 minute")), two - 1, two, id="sliding"),
        pytest.param(drop(ps.tumbling("1 day", zone="Europe/Berlin")), -14 * HOUR - 1, -14 * HOUR, id="days in Berlin"),
        pytest.param(
            asking(minute, n="count(distinct id)", m="sum(amount)"),
            two - 1,
            two,
            id="count(distinct)",
        ),
        pytest.param(
            asking(minute, n="collect_set(note)"),
            two - 1,
            two,
            id="any aggregate",
        ),
        pytest.param(
            asking(ps.session("1 minute"), n="collect_set(note)"),
            two - 61,
            two - 60,
            id="session, any aggregate",
        ),
        pytest.param(lambda events: drop(minute)(events.where("amount > 0")), two - 1, two, id="where"),
        pytest.param(
            lambda events: drop(minute)(events.select(kind="upper(kind)", at="at")), two - 1, two, id="select"
        ),
        pytest.param(lambda events: drop(minute)(mapped(events)), two - 1, two, id="map"),
        pytest.param(
            lambda events: drop(minute)(events.map(narrowed, schema="kind string, at timestamp")),
            two - 1,
            two,
            id="a map that drops columns",
        ),
        pytest.param(
            lambda events: drop(minute)(events.where("id < 2").union(events.where("id >= 2"))), two - 1, two, id="union"
        ),
        pytest.param(
            lambda events: events.distinct("id", within="1 minute"), HOUR, HOUR + 1, id="distinct within a minute"
        ),
    ]


@pytest.mark.parametrize(("rows", "late", "in_time"), cases())
def test_what_is_too_late_is_kept_once_and_counted(spark: SparkSession, rows: Any, late: int, in_time: int) -> None:
    with Rig(app_of(rows), spark=spark) as rig:
        rig.advance("2 hours")
        rig.append("events", [event(0, 2 * HOUR)])
        rig.run()
        before = rig.account("answer")
        rig.append("events", [event(1, late), event(2, in_time), event(3, late, amount=7)])
        rig.run()
        account = rig.account("answer")
        assert late_ids(rig) == [1, 3]
        assert (account.late, account.counted) == (before.late + 2, before.counted + 1)
        assert account.came == account.counted + account.late + account.dead + account.filtered
        for row in rig.rows("events.late"):
            assert row["late_for"] == "answer"
            assert row["late_watermark"] == at(2 * HOUR)
            assert row["at"] == at(late)


@pytest.mark.parametrize("step", ["plan", "run", "publish", "commit"])
def test_late_rows_are_there_once_after_a_crash(spark: SparkSession, step: Any) -> None:
    with Rig(app_of(drop(ps.tumbling("1 minute"))), spark=spark) as rig:
        rig.append("events", [event(0, 300)])
        rig.run()
        rig.append("events", [event(1, 0), event(2, 301)])
        rig.crash_at(step)
        with pytest.raises(Crash):
            rig.step()
        rig.restart()
        rig.run()
        assert late_ids(rig) == [1]
        assert rig.account("answer").late == 1


def test_where_a_late_row_was_is_told(spark: SparkSession) -> None:
    app = ps.App("shop", settings=TWO)
    events = events_of(app)
    minutes = events.window(ps.tumbling("1 minute"), late="drop").group_by("kind").agg(n="count(*)")
    app.view("minutes", minutes)
    app.view("again", minutes.select(kind="kind", n="n"))
    app.view("hours", events.window(ps.tumbling("1 hour"), late="drop").group_by("kind").agg(n="count(*)"))
    with Rig(app, spark=spark) as rig:
        rig.append("events", [event(0, 300)])
        rig.run()
        rig.append("events", [event(1, 0, note="late")])
        rig.run()
        (row,) = rig.rows("events.late")
        assert (row["late_for"], row["note"]) == ("minutes, again", "late")
        (found,) = [
            batch.partition
            for batch in rig.topic("events").batches({row["late_partition"]: row["late_offset"]})
            if 1 in batch.rows.column("id").to_pylist()
        ]
        assert found == row["late_partition"]
        assert [rig.account(view).late for view in ("minutes", "again", "hours")] == [1, 1, 0]


def test_late_rows_of_two_topics_go_to_the_topics_they_came_from(spark: SparkSession) -> None:
    app = ps.App("shop", settings=TWO)
    both = events_of(app, "here").union(events_of(app, "there"))
    app.view("answer", drop(ps.tumbling("1 minute"))(both))
    with Rig(app, spark=spark) as rig:
        rig.append("here", [event(0, 300)])
        rig.append("there", [event(1, 360)])
        rig.run()
        rig.append("here", [event(2, 299), event(3, 301)])
        rig.append("there", [event(4, 200), event(5, 301)])
        rig.run()
        assert (late_ids(rig, "here"), late_ids(rig, "there")) == ([2], [4])
        assert rig.account("answer").late == 2


def test_a_topic_that_begins_when_steps_behind_it_are_ahead_is_late_for_them(spark: SparkSession) -> None:
    app = ps.App("shop", settings=TWO)
    minutes = [drop(ps.tumbling("1 minute"))(events_of(app, name)) for name in ("here", "there")]
    both = minutes[0].union(minutes[1])
    app.view("best", both.top(1, by="n desc", per=["window_end"]))
    app.view("hours", both.window(ps.tumbling("1 hour"), late="drop").group_by().agg(n="count(*)"))
    app.view("there_alone", windowed(ps.tumbling("2 minutes"), late="drop")(events_of(app, "there")))
    with Rig(app, spark=spark) as rig:
        for second in (0, 300, 600):
            rig.append("here", [event(second, second)])
            rig.run()
        rig.advance("2 minutes")
        rig.append("there", [event(1, 0), event(2, 1), event(3, 540), event(4, 700)])
        rig.run()
        assert late_ids(rig, "there") == [1, 2, 3]
        assert [row["window_end"] for row in rig.view("best")] == [at(60), at(360), at(660)]
        assert [rig.account(view).late for view in ("best", "hours", "there_alone")] == [3, 3, 0]
        assert [row["window_end"] for row in rig.view("there_alone")] == [at(120), at(600)]


def test_a_new_column_of_the_topic_comes_into_the_late_rows(spark: SparkSession) -> None:
    with Rig(app_of(drop(ps.tumbling("1 minute"))), spark=spark) as rig:
        rig.append("events", [event(0, 300)])
        rig.append("events", [event(1, 0)])
        rig.step()
        rig.append("events", [event(2, 0)])
        rig.run()
        rig.topic("events").evolve("id long, kind string, amount long, note string, at timestamp, place string")
        rig.append("events", [{**event(3, 0), "place": "Ulm"}])
        rig.run()
        assert {row["id"]: row.get("place") for row in rig.rows("events.late")} == {2: None, 3: "Ulm"}


def test_views_that_are_built_again_keep_no_row_twice(spark: SparkSession) -> None:
    with Rig(app_of(drop(ps.tumbling("1 minute"))), spark=spark) as rig:
        rig.append("events", [event(0, 300)])
        rig.run()
        rig.append("events", [event(1, 0)])
        rig.run()
        with another_instance(rig, spark, rebuild=True) as instance:
            run_out(instance.step)
            # Read together, the second event is not late any more; that it was, stays on record.
            assert instance.accounts()["answer"].late == 0
            rig.append("events", [event(2, 0)])
            run_out(instance.step)
            assert instance.accounts()["answer"].late == 1
        assert late_ids(rig) == [1, 2]
