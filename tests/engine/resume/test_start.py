"""Starting an app: what is refused before anybody is replaced, and savepoints of a real app."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import penstock as ps
from penstock.engine.ledger.ledger import Ledger, instance_name
from penstock.engine.ledger.registration import Registration
from penstock.engine.ledger.savepoints import Savepoints
from penstock.errors import DeclarationError, FencedError
from penstock.flow.settings import AppSettings
from penstock.testing import Crash, Rig
from tests.engine.app_world import (
    SCHEMA,
    TWO,
    another_instance,
    assert_right,
    events_of,
    shop,
    some_events,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def rig(spark: SparkSession) -> Iterator[Rig]:
    with Rig(shop(), spark=spark) as started:
        started.append("events", some_events(0, 10))
        started.step()
        yield started


# -- refused ----------------------------------------------------------------------------------------------------------


def other_type(app: ps.App) -> None:
    schema = SCHEMA.replace("amount long", "amount string")
    app.view("v", app.topic("events", schema=schema, key="id", time="at").select(id="id"))


def other_column(app: ps.App) -> None:
    app.view("v", app.topic("events", schema=f"{SCHEMA}, place string", key="id", time="at").select(id="id"))


def other_key(app: ps.App) -> None:
    app.view("v", app.topic("events", schema=SCHEMA, key="kind", time="at").select(id="id"))


def wrong_sum(app: ps.App) -> None:
    app.view("w", events_of(app).group_by("kind").agg(n="sum(array(amount))"))


def no_views(app: ps.App) -> None:
    events_of(app)


HINTS = {
    other_type: "or write such rows to another topic: stored columns can only become wider",
    other_column: "or change it: penstock topic evolve events --schema 'id bigint, kind string, amount bigint, "
    "note string, at timestamp, place string'",
    other_key: "or create another topic with this key",
    wrong_sum: "cast(... as ...)",
}


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (other_type, "its column 'amount' in the log is amount bigint; this app declares amount string"),
        (other_column, "its columns in the log are id, kind, amount, note, at; this app declares place"),
        (other_key, "topic 'events': its key in the log is id; this app declares kind"),
        (wrong_sum, "the types do not fit in 'sum(array(amount))': "),
        (no_views, "app 'shop': it declares no views"),
    ],
)
def test_a_wrong_program_replaces_nobody(rig: Rig, spark: SparkSession, declare: Any, message: str) -> None:
    app = ps.App("shop", settings=TWO)
    declare(app)
    with pytest.raises(DeclarationError) as refused, another_instance(rig, spark, app):
        pass
    assert message in refused.value.message
    assert HINTS.get(declare, "") in str(refused.value.hint)
    assert "\n" not in refused.value.message
    if declare is not no_views:
        assert "test_start.py:" in refused.value.message
    rig.append("events", some_events(10, 5))
    assert rig.step() is not None


def test_another_number_of_state_partitions_replaces_nobody(rig: Rig, spark: SparkSession) -> None:
    other = shop(AppSettings(state_partitions=3))
    with pytest.raises(DeclarationError, match="its state has 2 partitions"), another_instance(rig, spark, other):
        pass
    rig.append("events", some_events(10, 5))
    assert rig.step() is not None
    rig.restart(shop(AppSettings()))  # none is asked for: it has those it has
    rig.run()
    assert rig.account("totals").came == 15


# -- savepoints -------------------------------------------------------------------------------------------------------


def savepoints(rig: Rig) -> Savepoints:
    return Savepoints(Ledger(rig.directory), Registration(rig.log, "shop"))


def restore(rig: Rig, name: str) -> None:
    savepoints(rig).restore(name, lambda: rig.log.writer(instance_name("shop")).token, restored_at=1)


def test_an_app_goes_back_to_a_savepoint_and_reads_again_what_came_since(rig: Rig) -> None:
    savepoints(rig).create("before", created=0)
    rig.append("events", [*some_events(10, 20, 70), *some_events(30, 1, 365 * 86_400)])
    rig.run()
    assert len(rig.rows("shop.dead")) == 1
    restore(rig, "before")
    with pytest.raises(FencedError, match="app 'shop': instance 1 was replaced by instance 2"):
        rig.step()
    assert rig.query("select sum(events) as n from totals") == [{"n": 10}]
    rig.restart()
    rig.append("events", some_events(40, 5, 100))
    rig.run()
    rig.advance("20 minutes")
    rig.run()
    account = rig.account("totals")
    assert (account.came, account.counted, account.dead) == (36, 35, 1)
    assert len(rig.rows("shop.dead")) == 1  # it was set aside before, and a restore takes nothing out of a topic
    rig.log.topic("events")
    assert rig.query("select sum(events) as n from totals") == rig.query("select sum(events) as n from minutes")


def test_a_savepoint_of_an_app_that_is_building_holds_what_is_half_built(rig: Rig) -> None:
    small = AppSettings(state_partitions=2, max_rows=4)
    app = shop(small)
    app.view("kinds", events_of(app).group_by("kind").agg(n="max(amount)"))
    rig.restart(app)
    rig.step()
    savepoints(rig).create("half", created=0)
    rig.run()
    rig.append("events", some_events(10, 6, 70))
    rig.run()
    restore(rig, "half")
    rig.restart(app)
    first = rig.step()
    assert first is not None
    assert first.building
    rig.run()
    rig.advance("20 minutes")
    rig.run()
    assert_right(rig)
    assert sum(row["n"] for row in rig.view("kinds")) == 13 + 14 + 15


def test_a_restore_over_an_unfinished_epoch_leaves_nothing_of_it(rig: Rig) -> None:
    savepoints(rig).create("before", created=0)
    rig.append("events", some_events(10, 5))
    rig.crash_at("publish")
    with pytest.raises(Crash):
        rig.step()
    restore(rig, "before")
    rig.restart()
    rig.run()
    rig.advance("20 minutes")
    rig.run()
    assert_right(rig)
