"""The verbs that streams and tables share: what they give, and what they refuse."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock import App, Stream, Table
from penstock.errors import DeclarationError
from penstock.flow.plan import Map, Named, Select, Top, Union, Where


def test_a_verb_gives_a_new_stream_and_leaves_the_old_one(orders: Stream) -> None:
    few = orders.where("amount > 100")
    assert isinstance(few.node, Where)
    assert few.node.input is orders.node
    assert few.node.condition == "amount > 100"
    assert few.node.shape == orders.node.shape


def test_a_mistake_is_told_with_the_users_line_and_the_verb(orders: Stream) -> None:
    with pytest.raises(DeclarationError) as refused:
        orders.where("ammount > 100")
    message = r".*test_rows\.py:\d+: where: there is no column 'ammount'; there are order_id, .*"
    assert re.fullmatch(message, refused.value.message)
    assert refused.value.hint == "did you mean 'amount'?"


def test_select_takes_names_and_named_expressions(orders: Stream) -> None:
    chosen = orders.select("order_id", "placed_at", total="price * quantity")
    assert isinstance(chosen.node, Select)
    assert chosen.columns == ("order_id", "placed_at", "total")
    assert chosen.node.columns[2] == Named("total", "price * quantity")
    assert chosen.node.shape.time == "placed_at"


def test_a_mistake_in_one_of_several_expressions_names_it(orders: Stream) -> None:
    with pytest.raises(DeclarationError, match="with_columns: twice: there is no column 'pric'"):
        orders.with_columns(once="price", twice="pric * 2")
    with pytest.raises(DeclarationError, match="select: total: an aggregate is not allowed here"):
        orders.select(total="sum(price)")


def test_the_time_survives_under_another_name_but_not_when_it_is_computed(orders: Stream) -> None:
    assert orders.select("order_id", at="placed_at").node.shape.time == "at"
    assert orders.rename(at="placed_at").node.shape.time == "at"
    assert orders.select("placed_at", at="placed_at").node.shape.time == "placed_at"
    assert orders.drop("placed_at").node.shape.time is None
    assert orders.with_columns(placed_at="placed_at + interval 1 hour").node.shape.time is None


def test_the_key_of_a_table_survives_while_all_its_columns_do(customers: Table) -> None:
    assert customers.where("country = 'DE'").node.shape.key == ("id",)
    assert customers.rename(customer="id").node.shape.key == ("customer",)
    assert customers.select("id", "name").node.shape.key == ("id",)
    assert customers.select("name").node.shape.key is None
    assert customers.with_columns(id="id + 1").node.shape.key is None


def test_with_columns_replaces_in_place_and_adds_at_the_end(customers: Table) -> None:
    changed = customers.with_columns(name="upper(name)", initial="left(name, 1)")
    assert changed.columns == ("id", "name", "country", "initial")
    assert isinstance(changed.node, Select)
    assert changed.node.columns[1] == Named("name", "upper(name)")


def test_drop_and_rename_keep_the_order(customers: Table) -> None:
    assert customers.drop("name").columns == ("id", "country")
    assert customers.rename(land="country", number="id").columns == ("number", "name", "land")


def test_names_with_odd_characters_are_quoted_in_expressions(app: App) -> None:
    odd = app.topic("odd", schema="`order-id` bigint, b string")
    assert isinstance(odd.drop("b").node, Select)
    assert odd.drop("b").node.columns == (Named("order-id", "`order-id`"),)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rows: rows.select(), "at least one column"),
        (lambda rows: rows.select("id", "id"), "same name"),
        (lambda rows: rows.select("id", ID="name"), "same name"),
        (lambda rows: rows.select(_hidden="id"), "begin with '_'"),
        (lambda rows: rows.select("id + 1"), "no column 'id \\+ 1'"),
        (lambda rows: rows.select(3), "given by its name"),
        (lambda rows: rows.with_columns(), "at least one column"),
        (lambda rows: rows.drop("nam"), "no column 'nam'"),
        (lambda rows: rows.drop("id", "name", "country"), "no column would be left"),
        (lambda rows: rows.drop(), "at least one column"),
        (lambda rows: rows.rename(a="id", b="id"), "one new name"),
        (lambda rows: rows.rename(name="id"), "same name"),
        (lambda rows: rows.rename(), "one new name"),
        (lambda rows: rows.union(), "at least one other"),
        (lambda rows: rows.union("other"), "others of its kind"),
        (lambda rows: rows.union(rows.drop("name")), "number 2 differs in name"),
        (lambda rows: rows.map("function"), "a function from DataFrame"),
        (lambda rows: rows.map(len, schema="a strin"), "unknown type 'strin'"),
        (lambda rows: rows.map(len, schema="_a string"), "begin with '_'"),
        (lambda rows: rows.top(0, by="id"), "at least 1"),
        (lambda rows: rows.top(3, by="idd desc"), "no column 'idd'"),
        (lambda rows: rows.top(3, by=""), "an order is needed"),
        (lambda rows: rows.top(3, by="id", per=["nam"]), "no column 'nam'"),
        (lambda rows: rows.top(3, by="id", ties="some"), "'break' or 'keep'"),
        (lambda rows: rows.top(3, by="id nulls last"), "nulls are always the smallest"),
        (lambda rows: rows.rename(rank="name").top(3, by="id"), "a column 'rank' already"),
        (lambda rows: rows.rename(change="name").changes(), "a column 'change' already"),
    ],
)
def test_what_makes_no_sense_is_refused(customers: Table, call: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        call(customers)


def test_a_union_has_the_columns_of_the_first_in_its_order(orders: Stream) -> None:
    left = orders.select("order_id", "placed_at", "country")
    both = left.union(orders.select("country", "order_id", "placed_at"), left)
    assert isinstance(both.node, Union)
    assert both.columns == ("order_id", "placed_at", "country")
    assert both.node.shape.time == "placed_at"


def test_a_union_has_a_time_only_if_all_parts_have_the_same(app: App, orders: Stream) -> None:
    renamed = orders.select("order_id", "placed_at").union(orders.select("order_id", placed_at="date(placed_at)"))
    assert renamed.node.shape.time is None


def test_a_union_of_tables_has_no_key(customers: Table) -> None:
    assert customers.union(customers).node.shape.key is None


def test_a_stream_and_a_table_are_not_united(orders: Stream, customers: Table) -> None:
    with pytest.raises(DeclarationError) as refused:
        orders.union(customers)  # type: ignore[arg-type]
    assert refused.value.hint is not None
    assert ".changes()" in refused.value.hint


def test_a_map_with_a_schema_gives_its_columns(orders: Stream, customers: Table) -> None:
    mapped = orders.map(lambda rows: rows, schema="order_id long, placed_at timestamp")
    assert isinstance(mapped.node, Map)
    assert mapped.columns == ("order_id", "placed_at")
    assert mapped.node.schema == "order_id bigint, placed_at timestamp"
    assert mapped.node.shape.time == "placed_at"
    assert customers.map(lambda rows: rows, schema="id long").node.shape.key == ("id",)
    assert customers.map(lambda rows: rows, schema="name string").node.shape.key is None


def test_behind_a_map_without_a_schema_columns_are_not_checked(orders: Stream, customers: Table) -> None:
    unknown = orders.map(lambda rows: rows)
    assert unknown.columns is None
    assert unknown.node.shape.time == "placed_at"
    assert unknown.where("whatever > 3").select("some", other="thing + 1").columns == ("some", "other")
    assert customers.map(lambda rows: rows).node.shape.key == ("id",)


def test_behind_a_map_without_a_schema_all_other_columns_are_kept(customers: Table) -> None:
    unknown = customers.map(lambda rows: rows)
    added = unknown.with_columns(total="a + b").node
    assert isinstance(added, Select)
    assert (added.rest, added.without, added.columns) == (True, ("total",), (Named("total", "a + b"),))
    assert added.shape.key == ("id",)
    renamed = unknown.rename(customer="id").node
    assert isinstance(renamed, Select)
    assert (renamed.rest, renamed.without, renamed.shape.key) == (True, ("id",), ("customer",))
    dropped = unknown.drop("id").node
    assert isinstance(dropped, Select)
    assert (dropped.rest, dropped.without, dropped.shape.key) == (True, ("id",), None)


def test_top_gives_a_table_with_ranks(orders: Stream) -> None:
    best = orders.top(3, by="price desc, coalesce(quantity, 0), order_id asc", per=["country"])
    assert isinstance(best, Table)
    assert isinstance(best.node, Top)
    assert [(order.expression, order.descending) for order in best.node.order] == [
        ("price", True),
        ("coalesce(quantity, 0)", False),
        ("order_id", False),
    ]
    assert best.columns is not None
    assert best.columns[-1] == "rank"
    assert best.node.shape.key == ("country", "rank")
    assert best.node.shape.retracts


def test_where_equal_rows_share_a_rank_there_is_no_key(orders: Stream) -> None:
    assert orders.top(3, by="price desc", ties="keep").node.shape.key is None
    assert orders.top(3, by="price desc").node.shape.key == ("rank",)
