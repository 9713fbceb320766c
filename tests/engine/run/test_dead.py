"""Rows that make an expression or a function fail: set aside with their origin, once, and the rest goes on."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.ledger.ledger import Ledger
from penstock.engine.ledger.records import EpochPlan
from penstock.engine.run.compiled import MOST_EXPLAINED
from penstock.engine.run.failures import EpochStoppedError, SparkLostError
from penstock.errors import PenstockError, RowError
from penstock.flow.settings import AppSettings
from penstock.testing import Crash, Rig
from tests.engine.app_world import TWO, another_instance, at, event, events_of, run_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.flow.stream import Stream


STOPPING = AppSettings(state_partitions=2, on_bad_row="stop")


def noted(*notes: str, start: int = 0) -> list[dict[str, Any]]:
    return [event(start + number, number, note=note) for number, note in enumerate(notes)]


def dead_ids(rig: Rig) -> list[int]:
    return sorted(json.loads(row["row"])["id"] for row in rig.rows("shop.dead"))


def app_of(rows: Any, settings: AppSettings = TWO) -> ps.App:
    """An app with one view over what is made of its events."""
    app = ps.App("shop", settings=settings)
    app.view("answer", rows(events_of(app)))
    return app


# -- expressions ------------------------------------------------------------------------------------------------------


def in_a_condition(events: Stream) -> Any:
    return events.where("cast(note as int) < 100").group_by("kind").agg(n="count(*)")


def in_a_column(events: Stream) -> Any:
    return events.with_columns(n="100 / cast(note as int)").group_by().agg(n="sum(n)")


def in_a_key(events: Stream) -> Any:
    return events.group_by(half="10 div cast(note as int)").agg(n="count(*)")


def in_an_argument(events: Stream) -> Any:
    return events.window(ps.tumbling("1 minute")).group_by("kind").agg(n="max(array(7, 8)[cast(note as int)])")


def in_a_cast_that_spark_adds(events: Stream) -> Any:
    return events.group_by("kind").agg(n="sum(note)", m="avg(note) filter (where id < 100)", all="count(*)")


def in_a_filter(events: Stream) -> Any:
    return events.group_by("kind").agg(n="count(*) filter (where 5 / cast(note as int) > 1)")


def behind_the_newest(events: Stream) -> Any:
    return events.latest("id").select(id="id", n="10 / cast(note as int)")


def behind_the_first(events: Stream) -> Any:
    return events.distinct("id", within="1 minute").select(id="id", n="10 / cast(note as int)")


def in_no_state(events: Stream) -> Any:
    return events.select(id="id", n="element_at(array(1, 2), cast(note as int))")


@pytest.mark.parametrize(
    "rows",
    [
        in_a_condition,
        in_a_column,
        in_a_key,
        in_an_argument,
        in_a_cast_that_spark_adds,
        in_a_filter,
        behind_the_newest,
        behind_the_first,
        in_no_state,
    ],
)
def test_rows_on_which_an_expression_fails_are_set_aside(spark: SparkSession, rows: Any) -> None:
    good = noted("1", "1", "1")
    bad = [event(7, 7, note="seven"), event(8, 8, note="")]
    if rows in (in_a_column, in_a_key, in_a_filter, behind_the_newest, behind_the_first, in_no_state):
        bad.append(event(9, 9, note="0"))
    else:
        bad.append(event(9, 9, note="nine"))
    with Rig(app_of(rows), spark=spark) as rig:
        rig.append("events", [*good[:2], *bad, *good[2:]])
        rig.run()
        assert dead_ids(rig) == [7, 8, 9]
        account = rig.account("answer")
        assert (account.came, account.counted, account.dead) == (6, 3, 3)
        rig.advance("10 minutes")
        rig.append("events", [event(20, 30, note="1")])
        rig.run()
        assert rig.account("answer").counted == 4
        assert dead_ids(rig) == [7, 8, 9]


def test_a_dead_row_tells_where_it_was_why_and_all_that_it_held(spark: SparkSession) -> None:
    with Rig(app_of(in_a_condition), spark=spark) as rig:
        rig.append("events", noted("1", "x"))
        rig.run()
        (row,) = rig.rows("shop.dead")
        offsets = {
            json.loads(json.dumps(id_)): (batch.partition, int(offset))
            for batch in rig.topic("events").batches()
            for id_, offset in zip(batch.rows.column("id").to_pylist(), batch.offsets, strict=True)
        }
        assert (row["topic"], row["partition"], row["offset"]) == ("events", *offsets[1])
        expression = r"where\('cast\(note as int\) < 100'\) fails on it"
        assert re.search(rf": {expression}: \[CAST_INVALID_INPUT\] .*'x'", row["error"]), row["error"]
        assert "SQLSTATE" not in row["error"]
        assert "test_dead.py:" in row["error"]
        assert json.loads(row["row"]) == {"id": 1, "kind": "a", "amount": 1, "note": "x", "at": str(at(1))}


def test_of_several_expressions_a_dead_row_names_the_one_that_fails_on_it(spark: SparkSession) -> None:
    def three_columns(events: Stream) -> Any:
        return events.select("id", number="cast(note as int)", half="10 div amount", kind="kind")

    with Rig(app_of(three_columns), spark=spark) as rig:
        rig.append("events", [event(1, 1, note="1"), event(2, 2, note="two"), event(3, 3, amount=0, note="3")])
        rig.run()
        errors = {json.loads(row["row"])["id"]: row["error"] for row in rig.rows("shop.dead")}
        assert "number='cast(note as int)' fails on it: [CAST_INVALID_INPUT]" in errors[2]
        assert "half='10 div amount' fails on it: [DIVIDE_BY_ZERO]" in errors[3]


def test_of_many_dead_rows_all_name_the_expression_and_the_first_the_reason(spark: SparkSession) -> None:
    with Rig(app_of(in_a_condition), spark=spark) as rig:
        rig.append("events", noted(*("x" for _ in range(MOST_EXPLAINED + 5))))
        rig.run()
        errors = [row["error"] for row in rig.rows("shop.dead")]
        assert len(errors) == MOST_EXPLAINED + 5
        assert all("where('cast(note as int) < 100') fails on it" in error for error in errors)
        assert sum("CAST_INVALID_INPUT" in error for error in errors) == MOST_EXPLAINED


@pytest.mark.parametrize("asked_before", [0, 1])
def test_no_row_is_blamed_once_we_were_told_to_stop_before_the_search_or_during_it(
    spark: SparkSession, asked_before: int
) -> None:
    answers = iter([False] * asked_before)
    with Rig(app_of(in_a_condition), spark=spark) as rig:
        rig.append("events", noted("1", "x"))
        with (
            another_instance(rig, spark, stopping=lambda: next(answers, True)) as instance,
            pytest.raises(EpochStoppedError, match="epoch 1: it was stopped"),
        ):
            instance.step()
        pending = Ledger(rig.log.apps_folder / "shop").pending_plan()
        assert isinstance(pending, EpochPlan)
        assert pending.dead == {}
        assert rig.rows("shop.dead") == []
        with another_instance(rig, spark) as instance:  # the next start tries again, and finds the row
            run_out(instance.step)
        assert dead_ids(rig) == [1]


def test_several_steps_may_fail_on_different_rows_of_one_epoch(spark: SparkSession) -> None:
    app = ps.App("shop", settings=TWO)
    events = events_of(app)
    app.view("kinds", events.where("cast(note as int) < 9").group_by(key="1 div (amount - 5)").agg(n="count(*)"))
    app.view("rows", events.select(id="id", n="date(kind)"))
    days = [event(number, number, kind="2024-01-01", note="1") for number in range(4)]
    with Rig(app, spark=spark) as rig:
        bad = [
            event(10, 0, kind="2024-01-01", note="ten"),
            event(11, 0, kind="2024-01-01", note="1", amount=5),
            event(12, 0, kind="a", note="1"),
        ]
        rig.append("events", [*days, *bad])
        rig.run()
        assert dead_ids(rig) == [10, 11, 12]
        errors = {json.loads(row["row"])["id"]: row["error"] for row in rig.rows("shop.dead")}
        assert "where(" in errors[10]
        assert "group_by(key='1 div (amount - 5)') fails on it: [DIVIDE_BY_ZERO]" in errors[11]
        assert "n='date(kind)' fails on it: [CAST_INVALID_INPUT]" in errors[12]
        assert [row["id"] for row in rig.view("rows")] == [0, 1, 2, 3]
        assert rig.account("kinds") == rig.account("kinds").__class__(came=7, counted=4, dead=3)


def test_an_epoch_may_be_all_bad_rows(spark: SparkSession) -> None:
    with Rig(app_of(in_a_condition), spark=spark) as rig:
        rig.append("events", [event(number, 0, note="x") for number in range(5_000)])
        rig.run()
        assert rig.account("answer").dead == 5_000
        assert len(rig.rows("shop.dead")) == 5_000
        assert rig.view("answer") == []


@pytest.mark.parametrize("step", ["plan", "run", "publish", "commit"])
def test_dead_rows_are_there_once_after_a_crash(spark: SparkSession, step: Any) -> None:
    with Rig(app_of(in_a_condition), spark=spark) as rig:
        rig.append("events", noted("1", "x", "2"))
        rig.crash_at(step)
        with pytest.raises(Crash):
            rig.step()
        rig.restart()
        rig.run()
        assert dead_ids(rig) == [1]
        assert rig.view("answer") == [{"kind": "a", "n": 2}]
        assert rig.account("answer").dead == 1


def test_a_row_of_a_table_that_fails_leaves_the_row_before_it(spark: SparkSession) -> None:
    app = ps.App("shop", settings=TWO)
    prices = app.table("prices", schema="item string, price string", key="item")
    app.view("prices_in_cents", prices.select(item="item", cents="cast(price as int) * 100"))
    with Rig(app, spark=spark) as rig:
        rig.append("prices", [{"item": "a", "price": "1"}, {"item": "b", "price": "2"}])
        rig.run()
        rig.append("prices", [{"item": "a", "price": "much"}, {"item": "b", "price": "3"}])
        rig.run()
        assert rig.view("prices_in_cents") == [{"item": "a", "cents": 100}, {"item": "b", "cents": 300}]
        (row,) = rig.rows("shop.dead")
        assert json.loads(row["row"]) == {"item": "a", "price": "much"}
        rig.append("prices", [{"item": "a", "price": "4"}])
        rig.append("prices", [{"item": "b", "price": None}], deleted=True)
        rig.run()
        assert rig.view("prices_in_cents") == [{"item": "a", "cents": 400}]


# -- functions --------------------------------------------------------------------------------------------------------


def picky(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import udf

    @udf("int")
    def number(note):  # Spark would take annotations for those of vectorised functions
        if note == "three":
            raise ValueError("three is not a number")
        return int(note)

    return rows.withColumn("number", number("note"))


def mapped(events: Stream) -> Any:
    return events.map(picky, schema="id long, kind string, amount long, note string, at timestamp, number int")


def test_rows_on_which_a_function_fails_are_found(spark: SparkSession) -> None:
    app = app_of(lambda events: mapped(events).group_by("kind").agg(n="sum(number)"))
    with Rig(app, spark=spark) as rig:
        notes = ["1"] * 30
        notes[3], notes[17] = "three", "seventeen"
        rig.append("events", noted(*notes))
        rig.run()
        assert rig.view("answer") == [{"kind": "a", "n": 28}]
        errors = {json.loads(row["row"])["id"]: row["error"] for row in rig.rows("shop.dead")}
        assert sorted(errors) == [3, 17]
        assert errors[3] == "ValueError: three is not a number"
        assert rig.account("answer").dead == 2


def test_an_expression_may_fail_behind_a_function_that_drops_columns(spark: SparkSession) -> None:
    def rows(events: Stream) -> Any:
        narrow = events.map(lambda rows: rows.select("kind", "note"), schema="kind string, note string")
        return narrow.group_by(n="cast(note as int)").agg(all="count(*)")

    with Rig(app_of(rows), spark=spark) as rig:
        rig.append("events", noted("1", "x", "1"))
        rig.run()
        assert rig.view("answer") == [{"n": 1, "all": 2}]
        assert dead_ids(rig) == [1]
        assert "CAST_INVALID_INPUT" in rig.rows("shop.dead")[0]["error"]


def test_functions_and_expressions_may_fail_in_one_epoch(spark: SparkSession) -> None:
    def rows(events: Stream) -> Any:
        return mapped(events.where("100 / amount > 0")).group_by("kind").agg(n="sum(10 / number)")

    with Rig(app_of(rows), spark=spark) as rig:
        events = noted("1", "three", "0", "1")
        rig.append("events", [*events, event(4, 4, amount=0, note="1")])
        rig.run()
        assert dead_ids(rig) == [1, 2, 4]
        assert rig.view("answer") == [{"kind": "a", "n": 20.0}]


def test_a_function_that_always_fails_stops_the_app(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engine.run.dead.MOST_FAILING", 2)
    with Rig(app_of(mapped), spark=spark) as rig:
        rig.append("events", noted(*["three"] * 4))
        with pytest.raises(PenstockError, match="fails on more than 2 rows of one epoch") as refused:
            rig.step()
        assert "three is not a number" in refused.value.message
        assert rig.rows("shop.dead") == []


def numbers_by_row(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import udf

    @udf("int")
    def number(note, factor):
        return factor * int(note)

    # By name, too, and over what another function has made.
    return rows.withColumn("number", number(note="note", factor=number("note", "id") * 0 + 1))


def numbers_by_series(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import pandas_udf

    def number(notes: pd.Series) -> pd.Series:
        return notes.astype("int32")

    return rows.withColumn("number", pandas_udf(number, "int")("note"))  # type: ignore[call-overload]


def with_number(rows: DataFrame) -> Any:
    from pyspark.sql.types import IntegerType, StructType

    return StructType([*rows.schema.fields]).add("number", IntegerType())


def numbers_in_arrow(rows: DataFrame) -> DataFrame:
    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.append_column("number", batch.column("note").cast("int32"))

    return rows.mapInArrow(number, with_number(rows))


def numbers_in_pandas(rows: DataFrame) -> DataFrame:
    def number(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            yield frame.assign(number=frame["note"].astype("int32"))

    return rows.mapInPandas(number, with_number(rows))


def numbers_of_a_few_columns(rows: DataFrame) -> DataFrame:
    """It drops the columns that say where a row is in the log: so it cannot be guarded."""
    from pyspark.sql.functions import lit, udf

    few = rows.select("id", "kind", "amount", "note", "at").where("true")
    return few.withColumn("number", udf(lambda note: int(note), "int")("note") + lit(0))


NUMBERED = "id long, kind string, amount long, note string, at timestamp, number int"


@pytest.mark.parametrize(
    "function", [numbers_by_row, numbers_by_series, numbers_in_arrow, numbers_in_pandas, numbers_of_a_few_columns]
)
def test_whatever_kind_of_function_fails_only_the_bad_rows_are_dead(spark: SparkSession, function: Any) -> None:
    app = app_of(lambda events: events.map(function, schema=NUMBERED).group_by("kind").agg(n="sum(number)"))
    bad = {40} if function is numbers_of_a_few_columns else {3, 4, *range(40, 100, 7), 999}
    with Rig(app, spark=spark) as rig:
        rig.append("events", [event(number, 0, note="x" if number in bad else "1") for number in range(1_000)])
        rig.run()
        assert rig.view("answer") == [{"kind": "a", "n": 1_000 - len(bad)}]
        assert dead_ids(rig) == sorted(bad)
        assert all("x" in row["error"] for row in rig.rows("shop.dead"))


def test_a_function_that_fails_only_now_and_then_makes_no_row_dead(spark: SparkSession, tmp_path: Path) -> None:
    """What it raises once, for another reason than the row, it does not raise when the row is alone."""

    def moody(rows: DataFrame) -> DataFrame:
        from pyspark.sql.functions import udf

        @udf("int")
        def number(note):
            if note == "7" and not (tmp_path / "failed").exists():
                (tmp_path / "failed").touch()
                raise OSError("the service does not answer")
            return int(note)

        return rows.withColumn("number", number("note"))

    app = app_of(lambda events: events.map(moody, schema=NUMBERED).group_by("kind").agg(n="sum(number)"))
    with Rig(app, spark=spark) as rig:
        rig.append("events", noted(*"123789"))
        with pytest.raises(SparkLostError, match="the service does not answer"):
            rig.step()
        rig.run()
        assert rig.view("answer") == [{"kind": "a", "n": 30}]
        assert rig.rows("shop.dead") == []


def test_a_row_that_crashes_its_process_stops_the_app_which_says_where_it_is(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engine.run.lost.MOST_LOSSES", 2)

    def crashing(rows: DataFrame) -> DataFrame:
        from pyspark.sql.functions import udf

        @udf("int")
        def number(note):
            return os._exit(11) if note == "crash" else int(note)

        return rows.withColumn("number", number("note"))

    app = app_of(lambda events: events.map(crashing, schema=NUMBERED).group_by("kind").agg(n="sum(number)"))
    with Rig(app, spark=spark) as rig:
        rig.append("events", [event(number, 0, note="crash" if number == 33 else "1") for number in range(60)])
        with pytest.raises(SparkLostError, match="a Python process of Spark ended"):
            rig.step()
        with pytest.raises(PenstockError) as stopped:
            rig.step()
        message = stopped.value.message
        (place,) = re.findall(r"it happens over offsets? (.*) of partition (\d) of topic 'events' alone", message)
        first, _, last = place[0].partition(" to ")
        (at,) = (
            (batch.partition, int(batch.offsets[batch.rows.column("id").to_pylist().index(33)]))
            for batch in rig.topic("events").batches()
            if 33 in batch.rows.column("id").to_pylist()
        )
        assert at[0] == int(place[1])
        assert int(first) <= at[1] <= int(last or first)
        assert "that was 2 times, one after the other" in message
        assert "no row was set aside" in message
        assert rig.rows("shop.dead") == []
        plan = Ledger(rig.log.path / "apps" / "shop").pending_plan()
        assert plan is not None
        assert plan.dead == {}


# -- settings and time ------------------------------------------------------------------------------------------------


def test_an_app_may_stop_instead(spark: SparkSession) -> None:
    with Rig(app_of(in_a_condition, STOPPING), spark=spark) as rig:
        rig.append("events", noted("1", "x"))
        with pytest.raises(RowError, match=r"topic 'events', partition \d, offset \d: .* fails on it") as refused:
            rig.step()
        assert "\n" not in refused.value.message
        assert rig.rows("shop.dead") == []
        rig.restart(app_of(in_a_condition))
        rig.run()
        assert rig.view("answer") == [{"kind": "a", "n": 1}]


def test_an_app_that_stops_names_the_row_and_why_and_commits_nothing(spark: SparkSession) -> None:
    with Rig(app_of(in_a_condition), spark=spark) as rig:
        rig.append("events", noted("1"))
        rig.run()
        rig.restart(app_of(in_a_condition, STOPPING))
        before = rig.positions("events"), rig.view("answer")
        rig.append("events", noted("2", "x"))
        for _ in range(2):  # also when it is started again
            with pytest.raises(RowError) as refused:
                rig.step()
            place = r"^app 'shop': topic 'events', partition \d, offset \d: \S+:\d+: "
            assert re.search(rf"{place}where\(.*\) fails on it: .*CAST_INVALID_INPUT", refused.value.message)
            assert 'AppSettings(on_bad_row="set_aside")' in str(refused.value.hint)
            assert (rig.positions("events"), rig.view("answer")) == before
            rig.restart()
        mended = app_of(lambda events: in_a_condition(events.where("note <> 'x'")), STOPPING)
        rig.restart(mended)
        rig.run()
        assert rig.view("answer") == [{"kind": "a", "n": 2}]
        assert rig.rows("shop.dead") == []


def test_an_app_that_stops_also_stops_at_a_wrong_clock(spark: SparkSession) -> None:
    app = app_of(lambda events: events.group_by("kind").agg(n="count(*)"), STOPPING)
    with Rig(app, spark=spark) as rig:
        rig.append("events", [event(1, 0), event(3, 86_400)])
        with pytest.raises(RowError, match=r"topic 'events', partition \d, offset \d: its event time is too far ahead"):
            rig.step()
        assert rig.view("answer") == []
        assert rig.rows("shop.dead") == []
        rig.restart(app_of(lambda events: events.group_by("kind").agg(n="count(*)")))
        rig.run()
        assert (rig.view("answer"), dead_ids(rig)) == ([{"kind": "a", "n": 1}], [3])


def test_an_event_from_too_far_ahead_is_set_aside(spark: SparkSession) -> None:
    with Rig(app_of(lambda events: events.group_by("kind").agg(n="count(*)")), spark=spark) as rig:
        rig.append("events", [event(1, 0), event(2, 599), event(3, 86_400)])
        rig.run()
        (row,) = rig.rows("shop.dead")
        assert row["error"] == "its event time is too far ahead of when it was stored"
        assert dead_ids(rig) == [3]
        assert rig.account("answer").dead == 1


def test_an_event_without_a_time_is_set_aside(spark: SparkSession) -> None:
    """The log refuses a null in the column of the event time; what corrects it may be null."""
    app = ps.App("shop", settings=TWO)
    schema = "id long, at timestamp, sent timestamp"
    events = app.topic("events", schema=schema, time=ps.event_time("at", sent="sent"))
    app.view("answer", events.group_by().agg(n="count(*)"))
    with Rig(app, spark=spark) as rig:
        rig.append("events", [{"id": 1, "at": at(0), "sent": at(0)}, {"id": 2, "at": at(0), "sent": None}])
        rig.run()
        assert dead_ids(rig) == [2]
        assert "it has no event time" in rig.rows("shop.dead")[0]["error"]


# -- what no row is to blame for --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        lambda events: events.group_by("kind").agg(n="sum(amount) / sum(id)"),
        lambda events: events.group_by("kind").agg(a="sum(amount)", b="sum(id)").select(kind="kind", n="a / b"),
        lambda events: events.group_by("kind").agg(n="count(*) / sum(id)", all="collect_list(note)"),
    ],
)
def test_an_expression_over_answers_stops_the_app_and_names_the_view(spark: SparkSession, rows: Any) -> None:
    app = app_of(rows)
    app.view("another", events_of(app).group_by().agg(n="count(*)"))
    with Rig(app, spark=spark) as rig:
        rig.append("events", [event(0, 0)])
        with pytest.raises(PenstockError) as refused:
            rig.step()
        message = refused.value.message
        assert "view 'answer': an expression fails" in message
        assert "Division by zero" in message
        assert "\n" not in message
        assert "try_divide" in str(refused.value.hint)
        assert rig.rows("shop.dead") == []


def test_what_was_dead_for_a_view_before_is_not_dead_again_when_it_is_built_anew(spark: SparkSession) -> None:
    with Rig(app_of(in_a_condition), spark=spark) as rig:
        rig.append("events", noted("1", "x", "0"))
        rig.run()
        assert dead_ids(rig) == [1]
        changed = app_of(in_a_key)
        with another_instance(rig, spark, changed) as instance:
            run_out(instance.step)
            assert instance.accounts()["answer"].dead == 2
        assert dead_ids(rig) == [1, 2]
