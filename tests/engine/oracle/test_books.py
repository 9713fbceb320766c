"""The books where a union brings events together with rows that were counted before: every event counts once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.flow.settings import AppSettings
from penstock.testing import Rig
from tests.engine.app_world import event, events_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEEP = "20 seconds"
# Those for which an event can be too late.
TIMED = ("minutes", "lists", "hops", "sliding", "sessions", "bursts", "clicked", "looked_up")


def only_even(rows: DataFrame) -> DataFrame:
    return rows.where("amount % 2 = 0")


def declared() -> ps.App:
    """Events of one topic as they come, without small ones, beside those of another of which duplicates were left out.

    Behind the union only even amounts go on: those of the first topic are filtered out there, the others were counted.
    """
    app = ps.App("shop", settings=AppSettings(state_partitions=2))
    free = events_of(app).where("amount >= 5").drop("note")
    counted = events_of(app, "others").drop("note").distinct("id")
    both = free.union(counted).where("amount % 2 = 0")
    kinds = app.table("kinds", schema="kind string, name string, since timestamp", key="kind", time="since")
    clicks = app.topic("clicks", schema="kind string, clicked timestamp", time="clicked")
    sums = {"n": "count(*)", "amount": "sum(amount)"}
    app.view("staged", both.select("id", "amount"))
    app.view("staged_last", counted.union(free).where("amount % 2 = 0").select("id", "amount"))
    app.view("nested", both.union(both).select("id", "amount"))
    app.view("mapped", free.union(counted).map(only_even, schema="id long, kind string, amount long, at timestamp"))
    app.view("totals", both.group_by("kind").agg(**sums))
    app.view("different", both.group_by("kind").agg(n="count(distinct amount)"))
    app.view("rows", both.group_by("kind").agg(ids="sort_array(collect_list(id))"))
    app.view("firsts", both.distinct("amount"))
    app.view(
        "bursts",
        both.distinct("kind", within="5 seconds")
        .window(ps.tumbling("1 minute"), keep=KEEP)
        .group_by()
        .agg(n="count(*)"),
    )
    app.view("newest", both.latest("kind"))
    app.view("best", both.top(2, by="amount desc", per=["kind"]))
    app.view("minutes", both.window(ps.tumbling("10 seconds"), keep=KEEP).group_by("kind").agg(**sums))
    app.view("lists", both.window(ps.tumbling("10 seconds"), keep=KEEP).group_by("kind").agg(ids="collect_list(id)"))
    app.view("hops", both.window(ps.hopping("20 seconds", "10 seconds"), keep=KEEP).group_by("kind").agg(**sums))
    app.view("sliding", both.window(ps.sliding("10 seconds"), keep=KEEP).group_by("kind").agg(n="count(*)"))
    app.view("sessions", both.window(ps.session("10 seconds"), keep=KEEP).group_by("kind").agg(n="count(*)"))
    app.view("named", both.join(kinds, on="kind", how="left").select("id", "name"))
    app.view(
        "clicked", both.join(clicks, on="kind", within="10 seconds", how="left", keep=KEEP).select("id", "clicked")
    )
    app.view("looked_up", both.join(kinds, on="kind", as_of="at", how="left", keep=KEEP).select("id", "name"))
    return app


batches = st.lists(
    st.lists(st.tuples(st.integers(0, 12), st.integers(-60, 60)), min_size=1, max_size=4), min_size=2, max_size=4
)


def test_every_event_counts_once(spark: SparkSession) -> None:
    check_books(spark, [[(6, 0), (7, 0), (2, 0)], [(8, -50), (9, -50)], [(10, 50), (4, -50), (6, -50)], [(12, -5)]])


@pytest.mark.long
@pytest.mark.timeout(1800)
@settings(max_examples=10)
@given(batches=batches)
def test_every_event_counts_once_whatever_comes(spark: SparkSession, batches: list[list[tuple[int, int]]]) -> None:
    check_books(spark, batches)


def check_books(spark: SparkSession, batches: list[list[tuple[int, int]]]) -> None:
    app = declared()
    with Rig(app, spark=spark) as rig:
        number = 0
        for batch in batches:
            rows = [
                event(number + at, time, kind="ab"[amount % 2], amount=amount)
                for at, (amount, time) in enumerate(batch)
            ]
            rig.append("events", rows)
            rig.append("others", [{**row, "id": row["id"] // 2} for row in rows])
            number += len(batch)
            rig.run()
        amounts = [row["amount"] for row in rig.rows("events")]
        arrived = sum(amount >= 5 and amount % 2 == 0 for amount in amounts)
        for view in app.plan.views:
            account = rig.account(view.name)
            late = lateness(rig, view.name)
            came, counted = 2 * number, number + arrived - late["events"] - late["others"]
            filtered = number - arrived
            if view.name == "nested":  # all of it goes two ways
                came, counted, filtered = 2 * came, 2 * counted, 2 * filtered
            found = (account.came, account.counted, account.late, account.dead, account.filtered)
            assert found == (came, counted, sum(late.values()), 0, filtered), view.name
            if view.name not in TIMED:
                assert not any(late.values())


def lateness(rig: Rig, view: str) -> dict[str, int]:
    """How many events of each topic were set aside as too late for a view."""
    return {topic: sum(view in late_for(row) for row in rig.rows(f"{topic}.late")) for topic in ("events", "others")}


def late_for(row: dict[str, Any]) -> list[str]:
    return str(row["late_for"]).split(", ")
