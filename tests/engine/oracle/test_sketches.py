"""Sketches that are kept from epoch to epoch tell what Spark tells about all events at once.

Approximate counts and bitmaps equal Spark's own to the last digit. What other sketches estimate depends on the order in
which parts of them were put together, so it is compared within the error that they promise.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.app import App
from penstock.flow.windows import hopping, session, tumbling
from penstock.testing import Crash, Rig
from tests.engine.oracle.play import examples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id bigint, k string, v bigint, t string, x double, happened timestamp"
ABOUT = "approx_count_distinct(v)"
HLL = "hll_sketch_estimate(hll_sketch_agg(v, 12))"
THETA = "theta_sketch_estimate(theta_sketch_agg(t, 11) filter (where v % 2 = 0))"
BITS = "hex(bitmap_construct_agg(v % 32768))"
CALLS = {
    "running": {
        "n": "count(*)",
        "fine": "approx_count_distinct(struct(t, x), 0.01) filter (where v % 3 > 0)",
        "bits": BITS,
        "seen": "kll_sketch_get_n_double(kll_sketch_agg_double(x) filter (where v % 2 = 0))",
        "hll": HLL,
        "kll": "kll_sketch_get_rank_bigint(kll_sketch_agg_bigint(v, 400), 500L)",
        "tuple_": "tuple_sketch_estimate_double(tuple_sketch_agg_double(v, x, 11))",
    },
    "tumbled": {"n": "count(*)", "about": ABOUT, "hll": HLL},
    "hopped": {"n": "count(*)", "about": "approx_count_distinct(x, 0.2)", "bits": BITS, "theta": THETA},
    "visits": {"n": "count(*)", "bits": BITS},
}
ESTIMATES = ("hll", "kll", "theta", "tuple_")
# Three times the standard error of the roughest of them, twice over; ranks are between 0 and 1.
TOLERANCE = 0.1


def app_of() -> App:
    app = App("sketches")
    events = app.topic("events", schema=SCHEMA, key="id", time="happened", lateness="20 seconds", partitions=2)
    windows = {
        "running": events,
        "tumbled": events.window(tumbling("1 minute"), keep="1 day"),
        "hopped": events.window(hopping("2 minutes", "1 minute"), emit="changes", keep="1 day"),
        "visits": events.window(session("1 day"), keep="1 day"),
    }
    for name, rows in windows.items():
        app.view(name, rows.group_by("k").agg(**CALLS[name]))
    return app


def play(rig: Rig, seed: int) -> list[dict[str, Any]]:
    """Epochs of many and of few rows, some of them late, one with a crash; all that was appended."""
    dice = Random(seed)
    everything: list[dict[str, Any]] = []
    for number, count in enumerate(dice.sample([2000, 1500, 40, 1], k=3)):
        rows = [_row(dice, rig, len(everything) + one) for one in range(count)]
        rig.append("events", rows)
        everything += rows
        if number == 1:
            rig.crash_at(dice.choice(["run", "publish", "commit"]))
        rig.advance(f"{dice.choice([1, 50, 200])} seconds")
        run(rig)
    rig.advance("3 days")
    run(rig)
    return everything


def _row(dice: Random, rig: Rig, id_: int) -> dict[str, Any]:
    value = dice.randrange(dice.choice([5, 900, 10**6]))
    return {
        "id": id_,
        "k": dice.choice(["a", "b", None]),
        "v": None if value % 50 == 7 else value,
        "t": f"t{value % 1777}",
        "x": dice.choice([value / 2, float("nan"), -0.0, 0.0]),
        "happened": rig.now - timedelta(seconds=dice.randrange(100)),
    }


def run(rig: Rig) -> None:
    while True:
        try:
            if rig.step() is None:
                return
        except Crash:
            rig.restart()


def wanted(rows: DataFrame, name: str) -> list[dict[str, Any]]:
    """What Spark says about all rows in the same groups."""
    windows = {
        "tumbled": "window(happened, '1 minute').start",
        "hopped": "explode(array(window(happened, '2 minutes', '1 minute').start))",
    }
    groups = rows.selectExpr("*", f"{windows.get(name, '0')} AS w").groupBy("k", "w")
    found = groups.agg(*(_named(text, call) for call, text in CALLS[name].items())).collect()
    return [row.asDict() for row in sorted(found, key=lambda row: (str(row.k), str(row.w)))]


def _named(text: str, name: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return F.expr(text).alias(name)


@examples(1)
@given(seed=st.integers(0, 2**32))
def test_sketches_tell_what_spark_tells_about_all_events_at_once(spark: SparkSession, seed: int) -> None:
    with Rig(app_of(), spark=spark) as rig:
        rows = spark.createDataFrame([tuple(row.values()) for row in play(rig, seed)], SCHEMA).persist()
        for name, calls in CALLS.items():
            found = sorted(
                rig.query(f"SELECT * FROM {name}"), key=lambda row: (str(row["k"]), str(row.get("window_start")))
            )
            for one, other in zip(found, wanted(rows, name), strict=True):
                for call in calls:
                    allowed = TOLERANCE * max(1, abs(other[call])) if call in ESTIMATES else 0
                    same = one[call] == other[call] if not allowed else abs(one[call] - other[call]) <= allowed
                    assert same, (name, call, one["k"], one[call], other[call])
