"""Declaring an app: topics, tables and views."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import App, AppSettings, Stream, Table, event_time, topic, tumbling
from penstock.errors import DeclarationError
from penstock.flow.fingerprint import fingerprint
from penstock.flow.plan import Changelog, Plan, Shape, Timing, Topic

SECOND = 1_000_000
SCHEMA = "order_id long not null, amount decimal(10,2), placed_at timestamp, sent_at timestamp, got_at timestamp"


@pytest.fixture
def app() -> App:
    return App("shop")


def test_the_program_of_the_product_page_works(app: App) -> None:
    orders = app.topic(
        "orders",
        schema="order_id long, customer_id long, country string, amount decimal(10,2), placed_at timestamp",
        key="order_id",
        time="placed_at",
        lateness="10 seconds",
    )
    revenue = orders.window(tumbling("1 minute")).group_by("country").agg(revenue="sum(amount)", orders="count(*)")
    app.view("revenue_by_minute", revenue)
    assert isinstance(revenue, Table)
    assert [view.name for view in app.plan.views] == ["revenue_by_minute"]


def test_a_topic_is_a_stream_with_the_timing_it_was_given(app: App) -> None:
    stream = app.topic("orders", schema=SCHEMA, key="order_id", time="placed_at", lateness="10 seconds", partitions=4)
    assert isinstance(stream, Stream)
    node = stream.node
    assert isinstance(node, Topic)
    assert (node.name, node.key, node.partitions) == ("orders", ("order_id",), 4)
    assert node.schema.startswith("order_id bigint not null, amount decimal(10,2)")
    assert node.timing == Timing("placed_at", 10 * SECOND, 30 * SECOND, 600 * SECOND)
    columns = ("order_id", "amount", "placed_at", "sent_at", "got_at")
    assert node.shape == Shape(columns, time="placed_at")


def test_with_three_times_the_corrected_one_is_a_column_of_its_own(app: App) -> None:
    node = app.topic("orders", schema=SCHEMA, time=event_time("placed_at", sent="sent_at", received="got_at")).node
    assert isinstance(node, Topic)
    assert node.timing == Timing("placed_at", sent="sent_at", received="got_at")
    assert node.shape.time == "event_time"
    assert node.shape.columns is not None
    assert node.shape.columns[-1] == "event_time"


def test_a_topic_needs_neither_key_nor_time(app: App) -> None:
    node = app.topic("plain", schema="a int").node
    assert isinstance(node, Topic)
    assert (node.key, node.timing, node.shape) == ((), None, Shape(("a",)))


def test_a_table_has_its_key(app: App) -> None:
    table = app.table("customers", schema="id long, region string, name string", key=["region", "id"])
    assert isinstance(table, Table)
    assert isinstance(table.node, Changelog)
    assert table.node.shape == Shape(("id", "region", "name"), None, ("region", "id"), retracts=True)


def test_a_topic_that_is_declared_twice_in_the_same_way_is_the_same(app: App) -> None:
    first = app.topic("orders", schema="a long, b string", key="a")
    again = app.topic("orders", schema="a bigint, b string", key=["a"])
    assert again.node is first.node


def test_a_topic_that_is_declared_twice_in_other_ways_is_refused(app: App) -> None:
    app.topic("orders", schema="a long", key="a")
    with pytest.raises(DeclarationError, match=r"topic 'orders': it was declared differently at .*test_app.py:\d+"):
        app.topic("orders", schema="a long")
    with pytest.raises(DeclarationError, match="table 'orders': it was declared differently"):
        app.table("orders", schema="a long", key="a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"schema": "a strin"}, "topic 'orders': schema: unknown type 'strin'"),
        ({"schema": "_a string"}, "begin with '_'"),
        ({"key": "order"}, "topic 'orders': there is no column 'order'"),
        ({"time": "amount"}, "the event time 'amount' must be a timestamp"),
        ({"time": "placed"}, "there is no column 'placed'"),
        ({"time": "placed_at", "lateness": "soon"}, "lateness: 'soon' is not a duration"),
        ({"time": 5}, r"time is the name of a column, or ps.event_time\(...\); found 5"),
        ({"time": event_time("placed_at"), "lateness": "1 minute"}, "lateness is given twice"),
        ({"time": event_time("placed_at", sent="sent")}, "sent: there is no column 'sent'"),
        ({"time": event_time("placed_at", sent="amount")}, "sent: 'amount' must be a timestamp"),
        ({"time": "placed_at", "idle": "1 minute"}, "topic 'orders': there is no parameter 'idle'"),
        ({"lateness": "1 minute"}, "lateness needs events with a time"),
        ({"partition": 4}, "there is no parameter 'partition'; there are schema, key, time, lateness, partitions"),
        ({"partitions": "4"}, "partitions is a whole number; found '4'"),
        ({"partitions": 0}, "it cannot have 0 partitions"),
        ({"schema": "t timestamp, s timestamp, event_time int", "time": event_time("t", sent="s")}, "same name"),
    ],
)
def test_what_is_wrong_with_a_topic_is_told_when_it_is_declared(
    app: App, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(DeclarationError, match=message) as refused:
        app.topic("orders", **{"schema": SCHEMA, **arguments})
    assert "test_app.py:" in refused.value.message


def test_the_right_form_of_what_moved_is_shown(app: App) -> None:
    with pytest.raises(DeclarationError) as refused:
        app.topic("orders", schema=SCHEMA, time="placed_at", idle="1 minute")  # type: ignore[call-arg]
    assert refused.value.hint == 'time=ps.event_time("...", idle="...")'
    with pytest.raises(DeclarationError) as refused:
        app.topic("orders", schema=SCHEMA, time=event_time("placed_at", idle="1 minute"), lateness="1 second")
    assert refused.value.hint == 'time=ps.event_time("placed_at", lateness="1 second")'
    with pytest.raises(DeclarationError) as refused:
        app.sink("alerts", app.topic("plain", schema="a int"), partitions=2)  # type: ignore[call-arg]
    assert refused.value.hint == 'to=ps.topic("...", partitions=2)'
    with pytest.raises(DeclarationError) as refused:
        app.sink("alerts", app.topic("plain", schema="a int"), to="alerts")
    assert 'to=ps.topic("alerts")' in str(refused.value.hint)


def test_lateness_alone_has_a_short_form(app: App) -> None:
    long_form = app.topic("orders", schema=SCHEMA, time=event_time("placed_at", lateness="10 seconds"))
    assert app.topic("orders", schema=SCHEMA, time="placed_at", lateness="10 seconds").node is long_form.node


def test_spelling_the_event_time_out_changes_no_fingerprint() -> None:
    """It is what the state of apps in the field is found by."""
    plain = App("shop").topic("orders", schema=SCHEMA, key="order_id", time="placed_at", lateness="10 seconds")
    clocks = event_time("placed_at", idle="1 minute", max_ahead="1 hour", sent="sent_at", received="got_at")
    corrected = App("shop").topic("orders", schema=SCHEMA, key="order_id", time=clocks)
    assert [fingerprint(rows.node) for rows in (plain, corrected)] == ["9334d58fb277e466", "18b8e41b3d4f3cc9"]


def test_the_time_of_a_table_is_a_column(app: App) -> None:
    with pytest.raises(DeclarationError, match="table 'prices': the time of a table is the name of a column"):
        app.table("prices", schema="id long, at timestamp", key="id", time=event_time("at"))  # type: ignore[arg-type]


def test_a_name_that_is_none_for_a_topic_is_refused(app: App) -> None:
    with pytest.raises(DeclarationError, match="topic 'my orders': this is not a name for a topic"):
        app.topic("my orders", schema="a int")


def test_a_table_without_a_key_is_refused(app: App) -> None:
    with pytest.raises(DeclarationError, match="table 'customers': a table needs a key"):
        app.table("customers", schema="a int", key=())


def test_views_are_kept_in_the_order_in_which_they_are_declared(app: App) -> None:
    orders = app.topic("orders", schema="a int")
    app.view("b_first", orders)
    app.view("a_second", orders.where("a > 1"))
    plan = app.plan
    assert isinstance(plan, Plan)
    assert (plan.app, [view.name for view in plan.views]) == ("shop", ["b_first", "a_second"])


def test_two_views_of_one_name_are_refused(app: App) -> None:
    orders = app.topic("orders", schema="a int")
    app.view("counts", orders)
    with pytest.raises(DeclarationError, match=r"view 'Counts': there is a view of this name already"):
        app.view("Counts", orders)


def test_a_sink_writes_a_topic_of_its_own_name_or_of_another(app: App) -> None:
    orders = app.topic("orders", schema="a int")
    app.sink("large", orders.where("a > 1"))
    app.sink("totals", orders.group_by("a").agg(n="count(*)"), to=topic("orders.totals", partitions=3))
    assert [(sink.name, sink.topic, sink.partitions) for sink in app.plan.sinks] == [
        ("large", "large", 1),
        ("totals", "orders.totals", 3),
    ]
    assert app.plan.views == ()


def test_a_sink_that_cannot_be_is_refused(app: App) -> None:
    orders = app.topic("orders", schema="a int, at timestamp", time="at")
    app.view("v", orders)
    app.sink("s", orders, to=topic("written"))
    refused = [
        (lambda: app.sink("V", orders), "there is a view of this name already"),
        (lambda: app.view("S", orders), "there is a sink of this name already"),
        (lambda: app.sink("t", orders, to=topic("written")), "sink 's' writes topic 'written' already"),
        (lambda: app.sink("t", orders, to=topic("orders")), "the app reads topic 'orders' itself"),
        (lambda: app.topic("written", schema="a int"), "sink 's' writes it, see"),
        (lambda: app.sink("by day", orders), "this is not a name for a sink"),
        (lambda: app.sink("t", orders, to=topic("a/b")), "this is not a name for a topic"),
        (lambda: app.sink("t", orders, to=topic("orders.late")), "are for rows that are set aside"),
        (lambda: app.sink("t", orders, to=topic("t", partitions=0)), "it cannot have 0 partitions"),
        (lambda: app.sink("t", orders.group_by().agg(n="count(*)")), "can be retracted but have no key"),
        (lambda: app.sink("t", orders.distinct("a", within="1 hour")), "can be retracted but have no key"),
        (lambda: app.sink("t", orders, to="alerts"), "to: a target is a URL; found 'alerts'"),
        (lambda: app.sink("t", orders, to="ftp://alerts"), "there is no target for 'ftp:'"),
        (lambda: app.sink("t", orders, to=orders), "to is a topic or the URL of a target; found"),  # type: ignore[arg-type]
        (lambda: app.sink("t", orders, topic="t"), "there is no parameter 'topic'"),  # type: ignore[call-arg]
        (lambda: app.sink("t", orders.group_by("a")), "a stream or a table is needed"),  # type: ignore[arg-type]
    ]
    for declare, message in refused:
        with pytest.raises(DeclarationError) as error:
            declare()
        assert message in error.value.message
        assert "test_app.py:" in error.value.message


@pytest.mark.parametrize("name", ["by minute", "order", "penstock_views", "1st"])
def test_a_name_that_is_none_for_a_view_is_refused(app: App, name: str) -> None:
    with pytest.raises(DeclarationError, match=f"view '{name}':"):
        app.view(name, app.topic("orders", schema="a int"))


def test_groups_without_aggregates_are_no_view(app: App) -> None:
    with pytest.raises(DeclarationError) as refused:
        app.view("v", app.topic("orders", schema="a int").group_by("a"))  # type: ignore[arg-type]
    assert "found group_by(...)" in refused.value.message
    assert refused.value.hint == "end group_by(...) with .agg(...)"


def test_the_log_is_the_one_given_or_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LOG", "/data/log")
    assert App("shop").log == Path("/data/log")
    assert App("shop", log="elsewhere").log == Path("elsewhere")
    monkeypatch.delenv("PENSTOCK_LOG")
    assert App("shop").log == Path("penstock-data")


def test_an_app_has_a_name_and_settings() -> None:
    assert App("shop", settings=AppSettings(max_rows=10)).settings.max_rows == 10
    with pytest.raises(DeclarationError, match=r"test_app.py:\d+: app: this is not a name for an app; found 'my shop'"):
        App("my shop")
    with pytest.raises(DeclarationError, match="settings are AppSettings"):
        App("shop", settings={"max_rows": 10})  # type: ignore[arg-type]


def test_declaring_loads_no_spark_and_reads_sql_only_when_it_is_needed() -> None:
    program = """
import sys
from penstock import App, tumbling
orders = App("shop").topic("orders", schema="a int, t timestamp", time="t")
assert "sqlglot" not in sys.modules
orders.where("a > 1").window(tumbling("1 minute")).group_by().agg(n="count(*)")
assert "sqlglot" in sys.modules
assert not {"pyspark", "py4j"} & set(sys.modules)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in penstock.__all__ if getattr(penstock, name, None) is None] == []
