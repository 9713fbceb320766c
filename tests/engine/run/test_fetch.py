"""Columns that the tasks of large epochs fetch from the log: the views are the same as those of small ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.app import App
from penstock.engine.run import compiled
from penstock.flow.event_time import event_time
from penstock.flow.settings import AppSettings
from penstock.testing import Crash, Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "id bigint, Kind string, amount decimal(38,10), tags array<string>, point struct<x: double, y: double>, "
    "raw binary, at timestamp"
)
NOON = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)


def declared() -> App:
    app = App("shop", settings=AppSettings(state_partitions=2, max_rows=700))
    events = app.topic("events", schema=SCHEMA, key="id", time=event_time("at", max_ahead="1 hour"), partitions=3)
    app.view("whole", events)
    app.view("few", events.where("id % 7 = 3").select("id", "tags", "raw", kind="Kind", twice="amount * 2"))
    app.view("empty", events.where("id < 0"))
    app.view("nested", events.select("point", "at", again="at", first="try_element_at(tags, 1)").where("first = 'b'"))
    return app


def rows_of(seed: int, count: int) -> list[dict[str, Any]]:
    """Events, of which some have nulls and some are set aside because their clock is far ahead."""
    dice = Random(seed)
    return [
        {
            "id": seed * 1_000_000 + number,
            "Kind": dice.choice([None, "a", "bb", ""]),
            "amount": dice.choice([None, Decimal("1234567890123456789012345678.0000000001"), Decimal("-0.5")]),
            "tags": dice.choice([None, [], ["b"], ["b", None, "c"]]),
            "point": dice.choice([None, {"x": 0.5, "y": None}]),
            "raw": dice.choice([None, b"", b"\x00\xff"]),
            "at": NOON + timedelta(microseconds=number, days=dice.choice([0, 0, 0, 0, 9])),
        }
        for number in range(count)
    ]


def play(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """Rounds of events, delete markers, a crash and a compaction, and what all views have then."""
    with Rig(declared(), start=NOON, spark=spark) as rig:
        for number in range(4):
            rig.append("events", rows_of(number, 500))
            rig.append("events", [{"id": number * 1_000_000 + gone} for gone in range(0, 60, 7)], deleted=True)
            if number == 1:
                rig.topic("events").compact()
            if number == 2:
                rig.crash_at("run")
                with pytest.raises(Crash):
                    rig.run()
                rig.restart()
            if number != 0:  # the first two rounds are one epoch, of which compaction has removed rows
                rig.run()
        return {name: rig.view(name) for name in ("whole", "few", "empty", "nested")}


def test_views_of_large_epochs_equal_those_of_small_ones(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    small = play(spark)
    monkeypatch.setattr(compiled, "SMALL_ROWS", 0)
    assert play(spark) == small
    assert len(small["whole"]) > 1_000
    assert small["few"]
    assert small["nested"]
    assert not small["empty"]
