"""What is read of topics, what is worked out once, and which old rows need not be taken back."""

from __future__ import annotations

from penstock.app import App
from penstock.engine.build.needs import needs_of, shared_nodes, upserted_nodes
from penstock.flow.plan import Plan
from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.flow.windows import tumbling

SCHEMA = "id bigint, k string, v bigint, Price double, at timestamp"


def shop() -> tuple[App, Stream, Table]:
    app = App("shop")
    return app, app.topic("orders", schema=SCHEMA, time="at"), app.table("items", schema=SCHEMA, key="id")


def read(plan: Plan, rows: Stream | Table) -> set[str]:
    return set(needs_of(plan).columns[rows.node])


def test_of_a_topic_only_the_columns_are_read_that_an_aggregate_needs() -> None:
    app, orders, _ = shop()
    chosen = orders.where("id > 1").select("id", "k", "v", twice="Price * 2")
    app.view("sums", chosen.group_by("k").agg(s="sum(twice)"))
    assert read(app.plan, orders) == {"id", "k", "price"}


def test_a_window_needs_the_event_time() -> None:
    app, orders, _ = shop()
    app.view("minutes", orders.window(tumbling("1 minute")).group_by().agg(n="count(*)"))
    assert read(app.plan, orders) == {"at"}


def test_readers_of_one_topic_get_the_columns_of_all_of_them() -> None:
    app, orders, _ = shop()
    app.view("sums", orders.group_by("k").agg(s="sum(v)"))
    app.view("most", orders.group_by("id").agg(m="max(Price)"))
    assert read(app.plan, orders) == {"id", "k", "v", "price"}


def test_functions_and_rankings_get_every_column() -> None:
    for rows in (lambda orders: orders.map(lambda frame: frame), lambda orders: orders.top(1, by="v")):
        app, orders, _ = shop()
        app.view("few", rows(orders).group_by("k").agg(n="count(*)"))
        assert read(app.plan, orders) == {"*"}


def test_a_table_keeps_every_column_whoever_reads_it() -> None:
    app, _, items = shop()
    app.view("sums", items.group_by("k").agg(s="sum(v)"))
    assert read(app.plan, items) == {"*"}


def test_the_place_of_rows_is_carried_only_where_the_first_or_newest_is_asked_for() -> None:
    app, orders, _ = shop()
    app.view("sums", orders.group_by("k").agg(s="sum(v)"))
    assert orders.node not in needs_of(app.plan).origin
    app.view("newest", orders.where("v > 1").latest("k"))
    assert orders.node in needs_of(app.plan).origin


def test_what_several_read_is_worked_out_once() -> None:
    app, orders, _ = shop()
    sums = orders.group_by("k").agg(s="sum(v)")
    app.view("sums", sums)
    app.view("large", sums.where("s > 10"))
    assert shared_nodes(app.plan, small=True) == shared_nodes(app.plan, small=False) == {sums.node}


def test_a_topic_that_several_read_is_read_once_in_a_small_epoch_only() -> None:
    app, orders, _ = shop()
    some = orders.where("v > 1")
    for number in range(3):
        app.view(f"view_{number}", some.group_by("k").agg(s=f"sum(v + {number})"))
    assert shared_nodes(app.plan, small=True) == {some.node}
    assert shared_nodes(app.plan, small=False) == frozenset()


def test_old_answers_need_not_be_taken_back_where_only_sinks_replace_them_by_key() -> None:
    app, orders, _ = shop()
    sums = orders.group_by("k").agg(s="sum(v)")
    app.sink("sums", sums.select("k", total="s"))
    assert upserted_nodes(app.plan) == {sums.node}
    app.sink("large", sums.where("s > 10"))
    assert upserted_nodes(app.plan) == frozenset()


def test_whoever_follows_a_view_is_told_which_rows_went() -> None:
    app, orders, _ = shop()
    sums = orders.group_by("k").agg(s="sum(v)")
    app.sink("sums", sums)
    app.view("totals", sums)
    assert upserted_nodes(app.plan) == frozenset()
