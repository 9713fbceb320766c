"""How far time has come for an app: quiet streams, wrong clocks, silent producers, promises, several topics."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import penstock as ps
from penstock.testing import Rig
from tests.engine.app_world import MINUTES, TWO, asked, assert_right, at, event, events_of, shop, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

YEAR = 365 * 86_400


def minutes_of(rows: Any, **options: Any) -> Any:
    windows = rows.window(ps.tumbling("1 minute"), **options)
    return windows.group_by("kind").agg(amount="sum(amount)", events="count(*)")


def starts(rig: Rig, view: str = "minutes") -> list[int]:
    """The minutes that have an answer, counted from noon."""
    return sorted(round((row["window_start"] - at(0)) / timedelta(minutes=1)) for row in rig.view(view))


def test_a_quiet_stream_finishes(spark: SparkSession) -> None:
    with Rig(shop(lateness="10 seconds"), spark=spark) as rig:
        rig.append("events", [event(0, 0), event(1, 61)])
        rig.run()
        assert starts(rig) == []
        rig.advance("25 seconds")
        assert rig.run() == 0
        rig.advance("3 minutes")
        assert rig.run() == 1
        assert starts(rig) == [0, 1]
        rig.advance("1 day")
        assert rig.run() == 0
        assert_right(rig)


def test_a_producer_a_year_ahead_drops_nobody_elses_events(spark: SparkSession) -> None:
    with Rig(shop(), spark=spark) as rig:
        for number in range(5):
            rig.append("events", [event(10 * number, 60 * number)], producer="honest")
            rig.append("events", [event(10 * number + 1, YEAR + 60 * number)], producer="wrong")
            rig.run()
            rig.advance("1 minute")
        assert starts(rig) == [0, 1, 2, 3]
        account = rig.account("minutes")
        assert (account.came, account.counted, account.dead, account.late) == (10, 5, 5, 0)
        errors = {row["error"] for row in rig.rows("shop.dead")}
        assert errors == {"its event time is too far ahead of when it was stored"}


def test_an_idle_producer_does_not_hold_the_others_back(spark: SparkSession) -> None:
    with Rig(shop(time=ps.event_time("at", idle="1 minute")), spark=spark) as rig:
        rig.append("events", [event(0, 0)], producer="silent")
        rig.append("events", [event(1, 90)], producer="busy")
        rig.run()
        assert starts(rig) == []
        rig.advance("50 seconds")
        rig.append("events", [event(2, 130)], producer="busy")
        rig.run()
        assert starts(rig) == []
        rig.advance("20 seconds")
        rig.append("events", [event(3, 140)], producer="busy")
        rig.run()
        assert starts(rig) == [0, 1]
        rig.append("events", [event(4, 5)], producer="silent")  # it returns, and corrects
        rig.run()
        first = rig.view("minutes")[0]
        assert (first["events"], first["revision"]) == (2, 1)


def test_a_promise_closes_windows_early(spark: SparkSession) -> None:
    with Rig(shop(lateness="1 hour"), spark=spark) as rig:
        rig.append("events", [event(0, 0)], producer="one")
        rig.run()
        rig.producer("one").promise(rig.topic("events"), at(60))
        rig.run()
        assert starts(rig) == [0]
        rig.append("events", [event(1, 30)], producer="one")  # a promise that is broken loses nothing
        rig.run()
        assert rig.view("minutes")[0]["events"] == 2


def test_the_clock_of_a_device_is_corrected(spark: SparkSession) -> None:
    """Its clock is an hour ahead: an event of five past noon says five past one, and was sent a minute later."""
    app = ps.App("shop", settings=TWO)
    schema = "id long, kind string, amount long, occurred timestamp, sent timestamp, received timestamp"
    events = app.topic("events", schema=schema, time=ps.event_time("occurred", sent="sent", received="received"))
    app.view("minutes", minutes_of(events))
    with Rig(app, spark=spark) as rig:
        ahead = timedelta(hours=1)
        for number, seconds in enumerate((300, 360, 420)):
            sent = at(seconds) + timedelta(minutes=1)
            times = {"occurred": at(seconds) + ahead, "sent": sent + ahead, "received": sent}
            rig.append("events", [{"id": number, "kind": "a", "amount": 1, **times}])
        rig.run()
        assert starts(rig) == [5, 6]
        assert rig.account("minutes").dead == 0


def test_the_time_of_storing_stands_in_for_that_of_receiving(spark: SparkSession) -> None:
    app = ps.App("shop", settings=TWO)
    schema = "id long, kind string, amount long, occurred timestamp, sent timestamp"
    events = app.topic("events", schema=schema, time=ps.event_time("occurred", sent="sent"))
    app.view("rows", events.select(id="id", event_time="event_time"))
    with Rig(app, spark=spark) as rig:
        rig.advance("1 hour")
        rig.append("events", [{"id": 1, "kind": "a", "amount": 1, "occurred": at(0), "sent": at(7)}])
        rig.run()
        assert rig.view("rows") == [{"id": 1, "event_time": at(3_600 - 7)}]


# -- several topics ---------------------------------------------------------------------------------------------------


def two_topics() -> ps.App:
    app = ps.App("shop", settings=TWO)
    here, there = events_of(app, "here"), events_of(app, "there")
    app.view("minutes", minutes_of(here.union(there)))
    app.view("minutes_there", minutes_of(there))
    return app


def test_windows_over_two_topics_wait_for_both(spark: SparkSession) -> None:
    with Rig(two_topics(), spark=spark) as rig:
        rig.append("here", [event(0, 0), event(1, 200)])
        rig.append("there", [event(2, 30), event(3, 70)])
        rig.run()
        assert starts(rig) == [0]
        rig.append("there", [event(4, 190)])
        rig.run()
        assert starts(rig) == [0, 1]
        rig.advance("1 hour")
        rig.run()
        both = MINUTES.replace("from events", "from (from here union all from there)")
        assert shown(rig.view("minutes")) == shown(asked(rig.log, both, "here", "there"))


def test_a_topic_that_is_empty_holds_nobody_up_and_time_never_goes_back_when_it_is_not(spark: SparkSession) -> None:
    with Rig(two_topics(), spark=spark) as rig:
        rig.append("here", [event(0, 0), event(1, 200)])
        rig.run()
        assert starts(rig) == [0]
        rig.append("there", [event(2, 30), event(3, 130)])
        rig.append("here", [event(4, 201)])
        rig.run()
        # For both together it was past three minutes already: their first minute is corrected, not opened again.
        assert [(row["events"], row["revision"]) for row in rig.view("minutes")] == [(2, 1), (1, 0)]
        # Of the second topic alone nothing was closed before.
        assert [(row["events"], row["revision"]) for row in rig.view("minutes_there")] == [(1, 0)]
        rig.append("there", [event(5, 300)])
        rig.append("here", [event(6, 300)])
        rig.run()
        rig.advance("1 hour")
        rig.run()
        assert starts(rig) == [0, 2, 3, 5]
        assert starts(rig, "minutes_there") == [0, 2, 5]


def test_a_final_answer_over_joined_events_waits_for_their_partners(spark: SparkSession) -> None:
    app = ps.App("shop", settings=TWO)
    here, there = events_of(app, "here"), events_of(app, "there").select(other="id", kind="kind", then="at")
    pairs = here.join(there, on="kind", within="5 minutes", how="left")
    minutes = pairs.window(ps.tumbling("1 minute")).group_by().agg(n="count(*)", found="count(other)")
    app.view("minutes", minutes)
    with Rig(app, spark=spark) as rig:

        def answers() -> list[tuple[int, int, int]]:
            return [(row["n"], row["found"], row["revision"]) for row in rig.view("minutes")]

        rig.append("here", [event(0, 10, kind="a"), event(1, 20, kind="b")])
        rig.append("there", [event(2, 15, kind="a"), event(3, 300, kind="z")])
        rig.append("here", [event(4, 300, kind="z")])
        rig.run()
        assert answers() == []  # a partner of the second event may still come
        rig.append("there", [event(5, 310, kind="b")])
        rig.run()
        rig.append("here", [event(6, 361, kind="z")])
        rig.append("there", [event(7, 361, kind="z")])
        rig.run()
        assert answers() == [(2, 2, 0)]


def test_answers_over_joined_events_follow_the_latest_partner_that_is_not_late(spark: SparkSession) -> None:
    app = ps.App("shop", settings=TWO)
    here, there = events_of(app, "here"), events_of(app, "there").select(other="id", kind="kind", then="at")
    pairs = here.join(there, on="kind", within="0 seconds", before="2 hours", keep="1 hour", how="left")
    app.view("minutes", pairs.window(ps.tumbling("1 minute")).group_by().agg(n="count(*)", found="count(other)"))
    with Rig(app, spark=spark) as rig:
        rig.append("here", [event(0, 0, kind="a")])
        rig.advance("160 minutes")
        rig.append("here", [event(1, 150 * 60, kind="b")])
        rig.append("there", [event(2, 150 * 60, kind="c")])
        rig.run()
        rig.append("there", [event(3, 0, kind="a")])  # it could have a partner that is two hours younger
        rig.run()
        assert [(row["n"], row["found"], row["revision"]) for row in rig.view("minutes")] == [(1, 1, 1)]
        assert rig.account("minutes").late == 0


def test_a_topic_whose_events_wait_to_be_read_is_waited_for(spark: SparkSession) -> None:
    """With epochs of one row, the topics are read in turn."""
    app = ps.App("shop", settings=type(TWO)(state_partitions=2, max_rows=1))
    here, there = events_of(app, "here", partitions=1), events_of(app, "there", partitions=1)
    app.view("minutes", minutes_of(here.union(there), late="drop"))
    with Rig(app, spark=spark) as rig:
        rig.append("here", [event(0, 0), event(1, 200)])
        rig.append("there", [event(2, 10), event(3, 200)])
        rig.run()
        assert rig.account("minutes").late == 0
        assert [row["events"] for row in rig.view("minutes")] == [2]


def test_time_that_moves_within_a_window_makes_no_epochs(spark: SparkSession) -> None:
    with Rig(shop(), spark=spark) as rig:
        rig.append("events", [event(0, 10)])
        rig.run()
        epochs = []
        for _ in range(6):
            rig.advance("15 seconds")
            epochs.append(rig.run())
        assert sum(epochs) == 1
        assert starts(rig) == [0]
