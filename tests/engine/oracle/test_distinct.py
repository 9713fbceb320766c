"""`distinct` before what goes by time: of the events that were not too late, the first of each kind, nowhere twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.flow.settings import AppSettings
from penstock.testing import Rig
from tests.engine.app_world import at, event, events_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = ps.Stream | ps.Table
Made = Callable[[ps.App, ps.Stream], Rows]
WITHIN = 60


def windowed(window: Any, **options: Any) -> Made:
    return lambda app, rows: rows.window(window, **options).group_by("id").agg(n="count(*)")


def clicked(app: ps.App, rows: ps.Stream) -> Rows:
    clicks = app.topic("clicks", schema="kind string, clicked timestamp", time="clicked")
    joined = rows.join(clicks, on="kind", within="10 seconds", before="5 seconds", how="left", keep="50 seconds")
    return joined.select("id", n="1")


def looked_up(app: ps.App, rows: ps.Stream) -> Rows:
    kinds = app.table("kinds", schema="kind string, name string, since timestamp", key="kind", time="since")
    return rows.join(kinds, on="kind", as_of="at", how="left", keep="50 seconds").select("id", "name", n="1")


def united(app: ps.App, rows: ps.Stream) -> Rows:
    """With a topic that is behind: time goes by the one that is."""
    others = events_of(app, "others")
    return windowed(ps.tumbling("10 seconds"), keep="50 seconds")(app, rows.where("kind <> 'x'").union(others))


def newest(app: ps.App, rows: ps.Stream) -> Rows:
    return windowed(ps.tumbling("10 seconds"), keep="50 seconds")(app, rows.latest("kind"))  # type: ignore[arg-type]


def in_bursts(app: ps.App, rows: ps.Stream) -> Rows:
    return rows.distinct("id", within="10 minutes").select("id", n="1")


# What lies behind, and in how many rows of it an event is.
BEHIND: dict[str, tuple[Made, int]] = {
    "tumbling": (windowed(ps.tumbling("10 seconds"), keep="50 seconds"), 1),
    "dropping": (windowed(ps.tumbling("10 seconds"), late="drop"), 1),
    "changing": (windowed(ps.tumbling("10 seconds"), emit="changes", keep="20 seconds"), 1),
    "hopping": (windowed(ps.hopping("20 seconds", "10 seconds"), keep="50 seconds"), 2),
    "sliding": (windowed(ps.sliding("10 seconds"), keep="50 seconds"), 1),
    "session": (windowed(ps.session("10 seconds"), keep="50 seconds"), 1),
    "days": (windowed(ps.tumbling("1 day", zone="Europe/Berlin"), keep="50 seconds"), 1),
    "clicked": (clicked, 1),
    "looked up": (looked_up, 1),
    "united": (united, 1),
    "newest": (newest, 1),
    "bursts": (in_bursts, 1),
}

Events = list[tuple[str, int]]
batches = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-150, 150)), min_size=1, max_size=4), min_size=2, max_size=5
)


def firsts(living: list[dict[str, Any]], within: int | None) -> list[int]:
    """The ids of the events that count: none of their kind happened less than `within` before."""
    found = []
    for kind in sorted({row["kind"] for row in living}):
        before = None
        for row in sorted((one for one in living if one["kind"] == kind), key=lambda one: (one["at"], one["id"])):
            if before is None or (within is not None and (row["at"] - before).total_seconds() >= within):
                found.append(row["id"])
            before = row["at"]
    return found


@pytest.mark.parametrize("behind", BEHIND)
@settings(max_examples=4)
@given(batches=batches, bursts=st.booleans())
@example(batches=[[("a", 0)], [("a", -70)], [("a", -59)], [("b", -100)], [("a", -1)]], bursts=False)
@example(batches=[[("a", 0)], [("a", -70)], [("a", -59)], [("b", -100)], [("a", -1)]], bursts=True)
@example(batches=[[("a", 5)], [("b", 61)], [("a", 0)], [("a", -7300)]], bursts=False)
def test_the_first_of_those_that_are_not_late_counts_once(
    spark: SparkSession, behind: str, batches: list[Events], bursts: bool
) -> None:
    made, times = BEHIND[behind]
    bursts = bursts and behind != "newest"  # there is one for each kind
    app = ps.App("shop", settings=AppSettings(state_partitions=2))
    rows = events_of(app, partitions=1).distinct("kind", within=f"{WITHIN} seconds" if bursts else None)
    app.view("behind", made(app, rows))
    with Rig(app, spark=spark) as rig:
        number = 0
        for batch in batches:
            rig.append("events", [event(number + at, time, kind=kind) for at, (kind, time) in enumerate(batch)])
            number += len(batch)
            rig.run()
        rig.advance("3 days")
        rig.run()
        late = [row["id"] for row in rig.rows("events.late")]
        living = [row for row in rig.rows("events") if row["id"] not in late]
        counted = Counter(row["id"] for row in rig.view("behind"))
        assert counted == dict.fromkeys(firsts(living, WITHIN if bursts else None), times)
        assert all(row["n"] == 1 for row in rig.view("behind"))
        account = rig.account("behind")
        assert (account.came, account.late, account.counted) == (number, len(late), number - len(late))


def test_bursts_are_remembered_as_long_as_their_rows_are_corrected(spark: SparkSession) -> None:
    app = ps.App("shop", settings=AppSettings(state_partitions=2))
    clicks = app.topic("clicks", schema="kind string, clicked timestamp", time="clicked")
    joined = events_of(app).join(clicks, on="kind", within="10 seconds", how="left", keep="5 hours")
    app.view("bursts", joined.distinct("kind", within="10 minutes").select("id", "clicked"))
    with Rig(app, spark=spark) as rig:
        rig.append("events", [event(1, 0)])
        rig.run()
        rig.advance("2 hours")
        rig.append("events", [event(2, 7200, kind="b")])
        rig.append("clicks", [{"kind": "b", "clicked": at(7200)}])
        rig.run()
        rig.advance("1 hour")
        rig.run()
        assert rig.view("bursts")[0]["clicked"] is None
        rig.append("clicks", [{"kind": "a", "clicked": at(5)}])
        rig.run()
        assert [(row["id"], row["clicked"]) for row in rig.view("bursts")] == [(1, at(5)), (2, at(7200))]
