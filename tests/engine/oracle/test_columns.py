"""Columns of any name and type go through every kind of node as they are."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock.app import App
from penstock.flow.windows import session, sliding, tumbling
from penstock.testing import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """
    `Some Key` string, `value.x` bigint, `tick``s` double, day date, seen timestamp_ntz, raw binary, ok boolean,
    tags array<string>, attributes map<string,bigint>, place struct<x:bigint,y:string>, happened timestamp
"""


def row(number: int, at: datetime) -> dict[str, Any]:
    return {
        "Some Key": "ab"[number % 2],
        "value.x": number,
        "tick`s": number / 4,
        "day": date(2024, 5, 1 + number),
        "seen": datetime(2024, 5, 1, number),  # noqa: DTZ001 - it is one without a zone
        "raw": bytes([number]),
        "ok": number > 2,
        "tags": ["t"] * number,
        "attributes": {"n": number},
        "place": {"x": number, "y": str(number)},
        "happened": at + timedelta(seconds=number),
    }


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    app = App("columns")
    events = app.topic("events", schema=SCHEMA, time="happened", lateness="1 minute")
    app.view("as_is", events)
    app.view("distinct_rows", events.distinct())
    app.view("newest", events.latest("Some Key"))
    app.view("best", events.top(1, by="`value.x` desc", per=["Some Key"]))
    app.view("by_types", events.group_by("day", "seen", "raw", "ok", "tags", "place").agg(n="count(*)"))
    both = {"most": "max(`value.x`)", "half": "median(`tick``s`)"}
    app.view("groups", events.group_by("Some Key").agg(**both))
    app.view("sums", events.group_by("Some Key").agg(**{"sum of x": "sum(`value.x`)"}))
    app.view("windows", events.window(tumbling("1 minute")).group_by("Some Key").agg(**both))
    app.view("visits", events.window(session("1 minute")).group_by("Some Key").agg(most="max(`value.x`)"))
    app.view("slid", events.window(sliding("1 minute")).group_by("Some Key").agg(**both))
    with Rig(app, spark=spark) as rig:
        for numbers in ([0, 1, 2], [3, 4, 4]):
            rig.append("events", [row(number, rig.now) for number in numbers])
            rig.run()
        rig.advance("1 hour")
        rig.run()
        return {view.name: rig.view(view.name) for view in app.plan.views}


def test_rows_come_out_as_they_went_in(views: dict[str, list[dict[str, Any]]]) -> None:
    found = {one["value.x"]: one for one in views["as_is"]}
    assert len(views["as_is"]) == 6
    assert found[3]["tags"] == ["t", "t", "t"]
    assert found[3]["attributes"] == {"n": 3}
    assert found[3]["place"] == {"x": 3, "y": "3"}
    assert found[3]["raw"] == b"\x03"


def test_equal_rows_are_found_by_columns_of_every_type(views: dict[str, list[dict[str, Any]]]) -> None:
    assert sorted(one["value.x"] for one in views["distinct_rows"]) == [0, 1, 2, 3, 4]
    assert sorted(one["n"] for one in views["by_types"]) == [1, 1, 1, 1, 2]


def test_names_need_quotes_only_in_expressions(views: dict[str, list[dict[str, Any]]]) -> None:
    assert [(one["Some Key"], one["value.x"]) for one in views["newest"]] == [("a", 4), ("b", 3)]
    assert [(one["Some Key"], one["value.x"]) for one in views["best"]] == [("a", 4), ("b", 3)]
    assert views["groups"] == [{"Some Key": "a", "most": 4, "half": 0.75}, {"Some Key": "b", "most": 3, "half": 0.5}]
    assert views["sums"] == [{"Some Key": "a", "sum of x": 10}, {"Some Key": "b", "sum of x": 4}]
    assert [one["most"] for one in views["windows"]] == [4, 3]
    assert [one["most"] for one in views["visits"]] == [4, 3]
    assert [one["most"] for one in views["slid"]] == [0, 2, 4, 1, 3]
