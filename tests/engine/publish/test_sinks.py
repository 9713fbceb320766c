"""Sinks: an answer in a topic, exactly once, whatever happens to the app."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.ledger.ledger import Ledger, instance_name
from penstock.engine.ledger.registration import Registration
from penstock.engine.ledger.savepoints import Savepoints
from penstock.engine.publish import topics
from penstock.errors import DeclarationError, FencedError, RowError
from penstock.flow.settings import AppSettings
from penstock.log import Log, TopicSettings
from penstock.testing import Crash, Rig
from tests.engine.app_world import SCHEMA, another_instance, asked, event, events_of, run_out, shown, some_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = AppSettings(state_partitions=2, max_rows=8)
ROWS = 20  # three epochs
TOTALS = "select kind, count(*) as events, sum(amount) as amount from events group by kind"


def program(*, minimum: int | None = 5, totals: bool = True, factor: int = 1, more: bool = False) -> ps.App:
    """`large` is a stream, `totals` a table; `sums` is a view that can change, and `more` another sink."""
    app = ps.App("shop", settings=SMALL)
    events = events_of(app)
    app.view("sums", events.group_by("kind").agg(amount=f"sum(amount * {factor})"))
    if minimum is not None:
        app.sink(
            "large",
            events.where(f"amount >= {minimum}").select("id", "amount", "at"),
            to=ps.topic("large", partitions=2),
        )
    if totals:
        app.sink("totals", events.group_by("kind").agg(events="count(*)", amount="sum(amount)"), to=ps.topic("kinds"))
    if more:
        app.sink("notes", events.select("id", "note"))
    return app


@pytest.fixture
def rig(spark: SparkSession) -> Iterator[Rig]:
    """The first program, with everything read."""
    with Rig(program(), spark=spark) as started:
        started.append("events", some_events(0, ROWS))
        started.run()
        yield started


def table(rig: Rig, topic: str, key: str) -> list[dict[str, Any]]:
    """What a topic holds, read as a table."""
    rows: dict[Any, dict[str, Any]] = {}
    for batch in rig.topic(topic).batches():
        deleted = batch.deleted if batch.deleted is not None else [False] * len(batch)
        for row, gone in zip(batch.rows.to_pylist(), deleted, strict=True):
            rows.pop(row[key], None)
            if not gone:
                rows[row[key]] = row
    return list(rows.values())


def assert_right(rig: Rig, minimum: int = 5) -> None:
    expected = asked(rig.log, f'select id, amount, "at" from events where amount >= {minimum}')
    assert shown(rig.rows("large")) == shown(expected)
    assert shown(table(rig, "kinds", "kind")) == shown(asked(rig.log, TOTALS))


def goes_on_right(rig: Rig) -> None:
    rig.append("events", some_events(100, 10))
    rig.run()
    assert_right(rig)


# -- what is written --------------------------------------------------------------------------------------------------


def test_a_stream_is_appended_and_a_table_is_written_as_its_changes(rig: Rig) -> None:
    assert_right(rig)
    assert rig.topic("large").settings.partitions == 2
    assert rig.topic("kinds").settings.key == ("kind",)
    # One row for each kind that changed, in each of three epochs.
    assert len(rig.rows("kinds")) == 9
    assert rig.account("large").counted == 15
    assert rig.account("large").filtered == 5


def test_rows_of_an_epoch_are_in_the_order_of_their_time(spark: SparkSession) -> None:
    app = ps.App("shop", settings=AppSettings(state_partitions=2))
    app.sink("all_events", events_of(app))
    with Rig(app, spark=spark) as rig:
        rig.append("events", [event(one, (one * 7) % 20) for one in range(20)])
        rig.run()
        times = [row["at"] for row in rig.rows("all_events")]
        assert times == sorted(times)


def test_a_table_is_followed_through_updates_and_deletes_and_can_be_read_by_another_app(spark: SparkSession) -> None:
    app = ps.App("shop", settings=SMALL)
    people = app.table("people", schema="id long, city string", key="id")
    app.sink("adults", people.where("city <> 'Ulm'"))
    app.sink("cities", people.group_by("city").agg(people="count(*)"))
    with Rig(app, spark=spark) as rig:
        rig.append("people", [{"id": one, "city": "Bonn"} for one in range(4)])
        rig.run()
        rig.append("people", [{"id": 1, "city": "Ulm"}, {"id": 2, "city": "Rome"}])
        rig.append("people", [{"id": 3}], deleted=True)
        rig.run()
        rig.append("people", [{"id": 0, "city": "Rome"}, {"id": 2, "city": "Oslo"}])
        rig.run()
        assert shown(table(rig, "adults", "id")) == shown([{"id": 0, "city": "Rome"}, {"id": 2, "city": "Oslo"}])
        expected = shown([{"city": name, "people": 1} for name in ("Ulm", "Rome", "Oslo")])
        assert shown(table(rig, "cities", "city")) == expected
        other = ps.App("other", settings=SMALL)
        other.view("cities", other.table("cities", schema="city string, people long", key="city"))
        with another_instance(rig, spark, other) as instance:
            run_out(instance.step)
        assert shown(Rig.query(_of(rig, other), "select * from cities")) == expected


def _of(rig: Rig, app: ps.App) -> Rig:
    """The rig with the views of another app."""
    rig.app = app
    return rig


def test_a_window_that_is_corrected_is_written_again(spark: SparkSession) -> None:
    app = ps.App("shop", settings=SMALL)
    minutes = events_of(app).window(ps.tumbling("1 minute")).group_by("kind").agg(events="count(*)")
    app.sink("minutes", minutes)
    with Rig(app, spark=spark) as rig:
        rig.append("events", [event(1, 0), event(2, 70)])
        rig.run()
        rig.append("events", [event(3, 10)])
        rig.run()
        assert [(row["events"], row["revision"]) for row in rig.rows("minutes")] == [(1, 0), (2, 1)]


def test_a_row_that_stands_in_a_stream_twice_is_written_twice(spark: SparkSession) -> None:
    app = ps.App("shop", settings=SMALL)
    events = events_of(app).select("kind")
    app.sink("kinds", events.union(events))
    with Rig(app, spark=spark) as rig:
        rig.append("events", some_events(0, 3))
        rig.run()
        assert Counter(row["kind"] for row in rig.rows("kinds")) == {"a": 2, "b": 2, "c": 2}


def test_changes_of_a_table_without_a_key_are_a_stream(spark: SparkSession) -> None:
    app = ps.App("shop", settings=SMALL)
    app.sink("totals", events_of(app).group_by().agg(events="count(*)").changes())
    with Rig(app, spark=spark) as rig:
        for start in (0, 3):
            rig.append("events", some_events(start, 3))
            rig.run()
        written = [(row["events"], row["change"]) for row in rig.rows("totals")]
        assert sorted(written) == [(3, "added"), (3, "removed"), (6, "added")]


def test_a_key_that_is_null_stops_the_app_and_is_named(spark: SparkSession) -> None:
    app = ps.App("shop", settings=SMALL)
    app.sink("kinds", events_of(app).group_by("kind").agg(events="count(*)"))
    with Rig(app, spark=spark) as rig:
        rig.append("events", [{**event(1, 0), "kind": None}])
        with pytest.raises(RowError, match="sink 'kinds': a row has no 'kind'") as refused:
            rig.run()
        assert '.where("kind is not null")' in str(refused.value.hint)


@pytest.mark.parametrize(
    "notes",
    [
        pytest.param([f"{one:03}" * 1000 for one in range(200)], id="many"),
        pytest.param(["long" * 5_000 if one < 9 else "short" for one in range(2_000)], id="of different sizes"),
    ],
)
def test_more_rows_than_fit_into_one_frame_are_written_in_pieces(
    spark: SparkSession, tmp_path: Path, notes: list[str]
) -> None:
    app = ps.App("shop", settings=AppSettings(state_partitions=2))
    app.sink("copies", events_of(app).select("id", "note"))
    with Log(tmp_path / "log") as log:
        log.create_topic("copies", "id long, note string", settings=TopicSettings(max_batch_bytes=100_000))
    with Rig(app, spark=spark, folder=tmp_path / "log") as rig:
        rig.append("events", [event(one, 0, note=note) for one, note in enumerate(notes)])
        rig.run()
        assert sorted(row["id"] for row in rig.rows("copies")) == list(range(len(notes)))


# -- exactly once -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["plan", "run", "publish", "commit"])
def test_an_epoch_that_crashes_is_written_once(rig: Rig, step: Any) -> None:
    rig.append("events", some_events(ROWS, 6))
    rig.crash_at(step)
    with pytest.raises(Crash):
        rig.step()
    rig.restart()
    rig.run()
    assert_right(rig)
    goes_on_right(rig)


def dies(*_: object, **__: object) -> None:
    raise Crash


@contextmanager
def dying_before_commit() -> Iterator[None]:
    """Let an epoch die when its sinks are written and nothing is committed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ledger, "commit", dies)
        with pytest.raises(Crash):
            yield


def crashed_between(rig: Rig) -> None:
    rig.append("events", some_events(ROWS, 6))
    with dying_before_commit():
        rig.step()
    assert_right(rig)


@pytest.mark.parametrize("changed", [{}, {"factor": 10}, {"more": True}])
def test_an_epoch_that_dies_between_sinks_and_commit_is_written_once(rig: Rig, changed: dict[str, Any]) -> None:
    crashed_between(rig)
    rig.restart(program(**changed))
    rig.run()
    assert_right(rig)
    goes_on_right(rig)


def test_an_epoch_that_dies_so_is_finished_also_without_one_of_the_sinks(rig: Rig) -> None:
    crashed_between(rig)
    before = rig.rows("large")
    rig.restart(program(minimum=None))
    rig.append("events", some_events(100, 10))
    rig.run()
    assert rig.rows("large") == before
    assert shown(table(rig, "kinds", "kind")) == shown(asked(rig.log, TOTALS))


def test_an_instance_that_was_replaced_writes_nothing_more(rig: Rig, spark: SparkSession) -> None:
    rig.append("events", some_events(ROWS, 4))
    with another_instance(rig, spark) as second:
        with pytest.raises(FencedError, match="was replaced by instance"):
            rig.step()
        run_out(second.step)
    assert_right(rig)


@pytest.mark.parametrize("sinks", [True, False])
def test_an_instance_that_is_replaced_while_it_publishes_is_refused_by_the_log(
    rig: Rig, spark: SparkSession, sinks: bool
) -> None:
    rig.append("events", some_events(ROWS, 4))
    written = rig.topic("large").ends()
    first = rig._instance
    assert first is not None

    def replaced(step: str) -> None:
        if step == "run":
            with another_instance(rig, spark, program() if sinks else program(minimum=None, totals=False)) as second:
                run_out(second.step)

    first._reached = replaced
    with pytest.raises(FencedError, match="was replaced by instance"):
        first.step()
    if sinks:
        assert_right(rig)
    else:
        assert rig.topic("large").ends() == written


Happening = tuple[str, int]


@settings(max_examples=8)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 12)),
            st.tuples(st.sampled_from(["plan", "run", "publish", "commit"]), st.just(0)),
            st.tuples(st.sampled_from(["step", "restart", "change"]), st.just(0)),
        ),
        max_size=10,
    )
)
def test_whatever_happens_the_topics_are_the_answers(spark: SparkSession, happenings: list[Happening]) -> None:
    factor, number = 1, 2
    with Rig(program(), spark=spark) as rig:
        rig.append("events", some_events(0, number))
        rig.step()
        for what, count in happenings:
            if what == "append":
                rig.append("events", some_events(number, count))
                number += count
            elif what == "step":
                rig.step()
            elif what in ("restart", "change"):
                factor += what == "change"
                rig.restart(program(factor=factor))
            else:
                rig.crash_at(what)  # type: ignore[arg-type]
                with suppress(Crash):
                    rig.step()
                rig.restart(program(factor=factor))
        rig.run()
        assert_right(rig)


# -- programs that change ---------------------------------------------------------------------------------------------


def test_a_new_sink_is_written_from_the_beginning_of_the_log(rig: Rig) -> None:
    rig.restart(program(more=True))
    rig.run()
    assert len(rig.rows("notes")) == ROWS
    goes_on_right(rig)
    assert len(rig.rows("notes")) == ROWS + 10


@pytest.mark.parametrize("step", ["plan", "run", "publish", "commit"])
@pytest.mark.parametrize("epoch", [1, 3])
def test_a_new_sink_is_written_once_though_building_it_crashes(rig: Rig, step: Any, epoch: int) -> None:
    rig.restart(program(more=True, factor=10))
    for _ in range(epoch - 1):
        rig.step()
    rig.crash_at(step)
    with pytest.raises(Crash):
        rig.step()
    rig.restart(program(more=True, factor=10))
    rig.run()
    assert sorted(row["id"] for row in rig.rows("notes")) == list(range(ROWS))
    goes_on_right(rig)


def test_a_program_that_changes_before_its_first_epoch_is_committed_needs_empty_topics(spark: SparkSession) -> None:
    with Rig(program(), spark=spark) as rig:
        rig.append("events", some_events(0, 8))
        rig.crash_at("publish")
        with pytest.raises(Crash):
            rig.step()
        assert "sink 'large'" in refused(rig, program(factor=10)).message
        rig.log.drop_topic("large")
        rig.log.drop_topic("kinds")
        rig.restart(program(factor=10))
        rig.run()
        goes_on_right(rig)


def test_a_changed_view_does_not_touch_the_sinks(rig: Rig) -> None:
    before = rig.topic("large").ends()
    rig.restart(program(factor=10))
    rig.run()
    assert rig.topic("large").ends() == before
    goes_on_right(rig)


def refused(rig: Rig, app: ps.App) -> DeclarationError:
    with pytest.raises(DeclarationError) as error:
        rig.restart(app)
    return error.value


def test_a_sink_that_changed_needs_an_empty_topic(rig: Rig) -> None:
    error = refused(rig, program(minimum=7))
    assert "test_sinks.py" in error.message
    assert "sink 'large': it is new or has changed, and topic 'large' has rows" in error.message
    assert "penstock topic drop large" in str(error.hint)
    rig.log.drop_topic("large")
    rig.restart(program(minimum=7))
    rig.run()
    assert_right(rig, 7)
    rig.append("events", some_events(100, 10))
    rig.run()
    assert_right(rig, 7)


def test_a_sink_that_was_left_out_for_a_while_needs_an_empty_topic(rig: Rig) -> None:
    rig.restart(program(minimum=None))
    goes = program()
    rig.restart(goes)  # nothing has happened meanwhile
    rig.restart(program(minimum=None))
    rig.append("events", some_events(ROWS, 3))
    rig.run()
    assert "sink 'large': it is new or has changed" in refused(rig, program()).message
    rig.log.drop_topic("large")
    rig.restart(program())
    rig.run()
    goes_on_right(rig)


def test_a_half_built_sink_of_a_program_that_changes_again_needs_an_empty_topic(rig: Rig) -> None:
    rig.restart(program(more=True))
    rig.step()
    assert "sink 'notes'" in refused(rig, program(more=True, factor=10)).message
    rig.log.drop_topic("notes")
    rig.restart(program(more=True, factor=10))
    rig.run()
    assert len(rig.rows("notes")) == ROWS
    goes_on_right(rig)


def test_a_topic_that_was_dropped_is_written_again_on_request(rig: Rig, spark: SparkSession) -> None:
    rig._stop()
    rig.log.drop_topic("kinds")
    error = refused(rig, program())
    assert "sink 'totals': topic 'kinds', which it has written, was dropped" in error.message
    assert "--rebuild" in str(error.hint)
    with another_instance(rig, spark, program(), rebuild=True) as instance:
        run_out(instance.step)
    assert_right(rig)
    rig.restart(program())
    goes_on_right(rig)


def rebuilding(rig: Rig, spark: SparkSession, app: ps.App, crash: Callable[[str], None] | None = None) -> None:
    options = {} if crash is None else {"reached": crash}
    with another_instance(rig, spark, app, rebuild=True, **options) as instance:
        run_out(instance.step)


def crashing(step: str, number: int) -> Callable[[str], None]:
    left = [number]

    def reached(name: str) -> None:
        left[0] -= name == step
        if not left[0]:
            raise Crash

    return reached


def test_what_is_built_again_is_not_written_again(rig: Rig, spark: SparkSession) -> None:
    before = rig.topic("large").ends(), rig.topic("kinds").ends()
    rig.append("events", some_events(ROWS, 4))
    rig._stop()
    rebuilding(rig, spark, program())
    assert_right(rig)
    assert (rig.topic("large").ends(), rig.topic("kinds").ends()) != before
    rig.restart()
    goes_on_right(rig)


@pytest.mark.parametrize("changed", [{}, {"factor": 10}])
@pytest.mark.parametrize(("step", "number"), [("plan", 1), ("publish", 2), ("commit", 1), ("publish", 3)])
def test_building_again_may_crash(
    rig: Rig, spark: SparkSession, step: str, number: int, changed: dict[str, Any]
) -> None:
    rig.append("events", some_events(ROWS, 4))
    rig._stop()
    with pytest.raises(Crash):
        rebuilding(rig, spark, program(), crashing(step, number))
    rig.restart(program(**changed))
    rig.run()
    assert_right(rig)
    goes_on_right(rig)


@pytest.mark.parametrize("written", [False, True])
def test_an_epoch_that_was_planned_and_then_everything_built_again_is_written_once(
    rig: Rig, spark: SparkSession, written: bool
) -> None:
    if written:
        crashed_between(rig)
    else:
        rig.append("events", some_events(ROWS, 6))
        rig.crash_at("run")
        with pytest.raises(Crash):
            rig.step()
    rig._stop()
    rebuilding(rig, spark, program())
    assert_right(rig)
    rig.restart()
    goes_on_right(rig)


def test_an_epoch_of_a_half_built_sink_that_is_gone_uses_up_its_number(rig: Rig) -> None:
    rig.restart(program(more=True))
    with dying_before_commit():
        rig.step()
    assert rig.rows("notes")
    rig.restart(program())  # the epoch with this number is in the log, for another sink
    goes_on_right(rig)


def test_an_app_that_is_begun_again_in_an_empty_folder_writes_everything(rig: Rig, spark: SparkSession) -> None:
    rig._stop()
    shutil.rmtree(rig.directory)
    assert "sink 'large': it is new" in refused(rig, program()).message
    rig.log.drop_topic("large")
    rig.log.drop_topic("kinds")
    rig.advance("1 hour")
    rig.restart(program())
    rig.run()
    goes_on_right(rig)


def test_an_output_that_comes_back_after_an_epoch_without_it_writes_nothing_twice(rig: Rig) -> None:
    """The epoch is in the topics, and not in what comes back: that is built again."""
    without = ps.App("shop", settings=SMALL)
    events = events_of(without)
    without.sink("large", events.where("amount >= 5").select("id", "amount", "at"), to=ps.topic("large", partitions=2))
    without.sink("totals", events.group_by("kind").agg(events="count(*)", amount="sum(amount)"), to=ps.topic("kinds"))
    rig.restart(without)
    crashed_between(rig)
    rig.restart(program())
    rig.run()
    assert_right(rig)
    goes_on_right(rig)
    sums = asked(rig.log, "select kind, sum(amount) as amount from events group by kind")
    assert shown(rig.view("sums")) == shown(sums)


def test_a_sink_that_comes_back_after_an_epoch_without_it_is_refused(rig: Rig) -> None:
    rig.restart(program(totals=False))
    with dying_before_commit():
        rig.append("events", some_events(ROWS, 6))
        rig.step()
    assert "sink 'totals': it is new or has changed" in refused(rig, program()).message


def test_a_view_behind_the_same_join_does_not_change_a_sink(spark: SparkSession) -> None:
    def joined(*, view: bool) -> ps.App:
        app = ps.App("shop", settings=SMALL)
        people = app.table("people", schema="id long, name string, city string", key="id")
        both = people.join(app.table("jobs", schema="id long, job string", key="id"), on="id")
        app.sink("workers", both.where("name > 'a'").select("id", "name", "job"))
        if view:
            app.view("cities", both.select("id", "city"))
        return app

    with Rig(joined(view=False), spark=spark) as rig:
        rig.append("people", [{"id": 1, "name": "Eve", "city": "Ulm"}])
        rig.append("people", [{"id": 2, "name": "eve", "city": "Ulm"}])
        rig.append("jobs", [{"id": 1, "job": "baker"}, {"id": 2, "job": "smith"}])
        rig.run()
        for view in (True, False):
            rig.restart(joined(view=view))
            rig.run()
            assert [row["id"] for row in rig.rows("workers")] == [2]
        rig.append("people", [{"id": 3, "name": "fay", "city": "Bonn"}])
        rig.append("jobs", [{"id": 3, "job": "cook"}])
        rig.run()
        assert [row["id"] for row in rig.rows("workers")] == [2, 3]


def test_a_view_that_becomes_a_sink_is_no_view_any_more(spark: SparkSession) -> None:
    def totals(declare: str) -> ps.App:
        app = ps.App("shop", settings=SMALL)
        getattr(app, declare)("totals", events_of(app).group_by("kind").agg(events="count(*)"))
        return app

    with Rig(totals("view"), spark=spark) as rig:
        rig.append("events", some_events(0, 3))
        rig.run()
        rig.restart(totals("sink"))
        rig.run()
        assert len(rig.rows("totals")) == 3
        with pytest.raises(DeclarationError, match="totals"):
            rig.view("totals")


def test_an_input_that_was_made_again_is_not_taken_for_what_was_written(rig: Rig, spark: SparkSession) -> None:
    settings = rig.topic("events").settings
    rig._stop()
    rig.log.drop_topic("events")
    rig.log.create_topic("events", SCHEMA, settings=settings)
    rig.append("events", some_events(50, 20))
    with pytest.raises(DeclarationError, match="sink 'large': it is new or has changed"):
        rebuilding(rig, spark, program())
    rig.log.drop_topic("large")
    rig.log.drop_topic("kinds")
    rebuilding(rig, spark, program())
    assert_right(rig)


# -- topics that are dropped meanwhile --------------------------------------------------------------------------------


def test_a_topic_that_is_dropped_while_its_sink_is_being_built_is_written_from_the_beginning(rig: Rig) -> None:
    rig.restart(program(more=True))
    rig.step()
    rig._stop()
    rig.log.drop_topic("notes")
    rig.restart(program(more=True))
    rig.run()
    assert sorted(row["id"] for row in rig.rows("notes")) == list(range(ROWS))
    goes_on_right(rig)


def test_a_topic_that_is_dropped_while_everything_is_built_again_is_written_again(
    rig: Rig, spark: SparkSession
) -> None:
    rig._stop()
    with pytest.raises(Crash):
        rebuilding(rig, spark, program(), crashing("commit", 1))
    rig.log.drop_topic("large")
    rig.restart(program())
    rig.run()
    assert_right(rig)
    goes_on_right(rig)


def test_a_topic_that_is_dropped_before_its_first_epoch_is_committed_is_written_again(spark: SparkSession) -> None:
    with Rig(program(), spark=spark) as rig:
        rig.append("events", some_events(0, 8))
        with dying_before_commit():
            rig.step()
        rig._stop()
        rig.log.drop_topic("large")
        rig.log.drop_topic("kinds")
        rig.restart(program())
        rig.run()
        goes_on_right(rig)


# -- savepoints -------------------------------------------------------------------------------------------------------


def savepoints(rig: Rig) -> Savepoints:
    return Savepoints(Ledger(rig.directory), Registration(rig.log, "shop"))


def restore(rig: Rig, name: str) -> None:
    rig._stop()
    savepoints(rig).restore(name, lambda: rig.log.writer(instance_name("shop")).token, restored_at=2)


def test_after_a_restore_what_comes_behind_the_savepoint_is_written_again(rig: Rig) -> None:
    savepoints(rig).create("before", created=1)
    rig.append("events", some_events(ROWS, 4))
    rig.run()
    restore(rig, "before")
    rig.restart()
    rig.run()
    written = Counter(row["id"] for row in rig.rows("large"))
    assert written == {number: 1 + (number >= ROWS) for number in range(5, ROWS + 4)}
    assert shown(table(rig, "kinds", "kind")) == shown(asked(rig.log, TOTALS))


@pytest.mark.parametrize("finished", [True, False])
def test_a_sink_that_a_restored_savepoint_does_not_know_is_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    savepoints(rig).create("before", created=1)
    rig.restart(program(more=True))
    rig.run()
    if not finished:
        monkeypatch.setattr(Savepoints, "_commit_restore", dies)
        with pytest.raises(Crash):
            restore(rig, "before")
        monkeypatch.undo()
    else:
        restore(rig, "before")
    assert "sink 'notes': it is new or has changed" in refused(rig, program(more=True)).message
    rig.restart(program())
    rig.run()
    goes_on_right(rig)


# -- more than fits ---------------------------------------------------------------------------------------------------


def test_an_epoch_with_more_than_fits_into_a_transaction_is_cut_smaller(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topics, "MOST_BYTES", 250)
    rig.append("events", some_events(ROWS, 30))
    rig.run()
    assert_right(rig)
    assert "epochs are too large for its sinks" in caplog.text
    monkeypatch.setattr(topics, "MOST_BYTES", 1)
    rig.append("events", some_events(60, 1))
    with pytest.raises(RowError, match="sinks large, totals: the rows of epoch") as error:
        rig.run()
    assert "fewer columns" in str(error.value.hint)


def test_a_function_may_leave_out_the_time(spark: SparkSession) -> None:
    app = ps.App("shop", settings=SMALL)
    app.sink("timeless", events_of(app).map(lambda rows: rows.drop("at")))
    with Rig(app, spark=spark) as rig:
        rig.append("events", some_events(0, 3))
        rig.run()
        assert len(rig.rows("timeless")) == 3


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_topic_of_other_columns_is_refused(spark: SparkSession) -> None:
    app = ps.App("shop", settings=SMALL)
    app.sink("large", events_of(app).select("id", "amount"))
    with Rig(program(minimum=None, totals=False), spark=spark) as rig:
        rig.log.create_topic("large", "id long, amount string")
        error = refused(rig, app)
        assert (
            "sink 'large': topic 'large' has the columns amount string, id bigint and no key; the rows" in error.message
        )


def test_a_key_that_a_topic_cannot_have_is_refused(spark: SparkSession) -> None:
    app = ps.App("shop", settings=SMALL)
    app.sink("amounts", events_of(app).group_by(half="amount / 2").agg(n="count(*)"))
    with pytest.raises(DeclarationError, match="sink 'amounts': topic 'amounts': column 'half' of type") as refused:
        Rig(app, spark=spark)
    assert "a key is one of" in str(refused.value.hint)
