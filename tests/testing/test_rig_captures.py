"""Captured tables in a rig: no database, and commit times by its clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock import App
from penstock.testing import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
VISIT = "visit bigint, customer bigint, at timestamp"


def test_a_captured_table_is_filled_by_hand_and_has_the_history_of_the_clock(spark: SparkSession) -> None:
    app = App("shop")
    customers = app.capture(
        "sqlite:///nowhere.db", table="customers", schema="customer bigint not null, country string"
    )
    visits = app.topic("visits", schema=VISIT, time="at", lateness="1 hour")
    seen = visits.join(customers, on="customer", as_of="at", how="left").select("visit", "country")
    app.view("seen", seen)
    with Rig(app, start=NOON, spark=spark) as rig:
        rig.append("customers", [{"customer": 7, "country": "DE", "committed_at": "1970-01-01"}])
        rig.advance("10 minutes")
        rig.append("customers", [{"customer": 7, "country": "FR"}])
        rig.advance("10 minutes")
        # The capture was late: the log stores the delete long after it was committed.
        deleted = {"customer": 7, "committed_at": "2024-05-01 12:15:00"}
        rig.append("customers", [deleted], deleted=True)
        times = ["11:00", "12:05", "12:10", "12:14", "12:16"]
        rig.append(
            "visits", [{"visit": n, "customer": 7, "at": f"2024-05-01 {time}:00"} for n, time in enumerate(times)]
        )
        rig.run()
        assert [row["country"] for row in rig.view("seen")] == ["DE", "DE", "FR", "FR", None]
