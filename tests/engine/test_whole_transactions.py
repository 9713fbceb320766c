"""Apps never show half a transaction of the log, whatever the limits of their epochs are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.app import App
from penstock.contracts import TopicRows
from penstock.errors import TooMuchError
from penstock.flow.settings import AppSettings
from penstock.testing import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id bigint not null, account bigint, amount bigint"


def bank(max_rows: int) -> App:
    app = App("bank", settings=AppSettings(max_rows=max_rows))
    sides = [app.topic(name, schema=SCHEMA, key="id", partitions=2) for name in SIDES]
    moved = sides[0].union(sides[1])
    app.view("total", moved.group_by().agg(total="sum(amount)", n="count(*)"))
    app.view("accounts", moved.group_by("account").agg(balance="sum(amount)"))
    return app


SIDES = ("debits", "credits")


def transfer(rig: Rig, first: int, rows: int) -> None:
    """A transaction that takes from one account and gives to others. Half of it is staged."""
    writer = rig.log.writer("transfers")
    ids = range(first, first + rows)
    debits = [{"id": number, "account": number % 5, "amount": -number} for number in ids]
    credits_ = [{"id": number, "account": number % 7, "amount": number} for number in ids]
    writer.stage([TopicRows("debits", debits)])
    writer.write([TopicRows("credits", credits_)], first)


@pytest.mark.parametrize("max_rows", [7, 60])
def test_no_committed_epoch_shows_half_a_transaction(spark: SparkSession, max_rows: int) -> None:
    with Rig(bank(max_rows), spark=spark) as rig:
        first = 1
        for rows in (20, 1, 9, 30):
            transfer(rig, first, rows)
            rig.append("debits", [{"id": -first, "account": 1, "amount": 0}])
            first += rows
        epochs, seen = 0, 0
        while (progress := rig.step()) is not None:
            (shown,) = rig.view("total")
            assert shown["total"] == 0
            assert sum(row["balance"] for row in rig.view("accounts")) == 0
            assert shown["n"] > seen
            epochs, seen = epochs + 1, shown["n"]
            assert progress.rows <= max_rows + 2 * 30
        assert (seen, epochs > 2) == (2 * 60 + 4, True)


def test_a_view_that_is_built_later_never_shows_half_a_transaction_either(spark: SparkSession) -> None:
    with Rig(bank(15), spark=spark) as rig:
        for number in range(4):
            transfer(rig, 1 + 10 * number, 10)
        rig.run()
        app = bank(15)
        sides = [app.topic(name, schema=SCHEMA, key="id", partitions=2) for name in SIDES]
        both = sides[0].union(sides[1])
        app.view("again", both.group_by().agg(total="sum(amount)", largest="max(amount)"))
        transfer(rig, 41, 10)
        rig.restart(app)
        shown = []
        while (progress := rig.step()) is not None:
            assert rig.view("total")[0]["total"] == 0
            if not progress.building:
                shown += [row["total"] for row in rig.view("again")]
        assert set(shown) == {0}


def test_a_transaction_that_is_too_large_for_a_target_is_named(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = bank(1_000)
    app.sink("copies", app.topic("debits", schema=SCHEMA, key="id", partitions=2).select("id", "amount"))
    monkeypatch.setattr("penstock.engine.publish.topics.TopicTarget.most_bytes", lambda target: 400)
    with Rig(app, spark=spark) as rig:
        for number in range(3):
            transfer(rig, 1 + 10 * number, 10)
        while rig.positions("debits") != rig.topic("debits").ends():
            progress = rig.step()
            assert progress is not None
            assert progress.rows == 20
        transfer(rig, 100, 200)
        with pytest.raises(TooMuchError, match="it reads one transaction of the log, of 400 rows"):
            rig.step()
