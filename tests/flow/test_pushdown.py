"""Plans in which joins remember less: what is moved before them, and what is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import App, Stream, Table, tumbling
from penstock.flow import plan as flow
from penstock.flow.plan import Plan
from penstock.flow.pushdown import push_down


class Shop:
    """An app with two streams and two tables."""

    def __init__(self) -> None:
        self.app = App("shop")
        orders = "order_id bigint, customer_id bigint, amount bigint, note string, placed_at timestamp"
        self.orders = self.app.topic("orders", schema=orders, time="placed_at")
        clicks = "order_id bigint, url string, agent string, clicked_at timestamp"
        self.clicks = self.app.topic("clicks", schema=clicks, time="clicked_at")
        customers = "customer_id bigint not null, name string, country string, since timestamp"
        self.customers = self.app.table("customers", schema=customers, key="customer_id", time="since")
        cities = "city string not null, mayor string, area double, country string"
        self.cities = self.app.table("cities", schema=cities, key="city")


def plan(*views: Callable[[Shop], Any]) -> Plan:
    """The plan of an app with these views."""
    shop = Shop()
    for number, view in enumerate(views):
        shop.app.view(f"view_{number}", view(shop))
    return shop.app.plan


def is_narrow(given: Plan, expected: Plan) -> bool:
    """Whether the plan becomes the other one, in which nothing is left to do."""
    return push_down(given) == expected and push_down(expected) == expected


# -- conditions -------------------------------------------------------------------------------------------------------


def test_a_plan_without_joins_stays_as_it_is() -> None:
    given = plan(
        lambda s: s.orders.select("amount", "note").where("amount > 1 and note = 'x'").where("amount < 5"),
        lambda s: s.orders.with_columns(twice="amount * 2").group_by("note").agg(n="count(*)"),
    )
    assert push_down(given) is given


def test_each_condition_moves_to_the_side_it_is_about() -> None:
    condition = "amount > 1 and country = 'DE' AND note is not null and name <> note and amount between 1 and 2"
    assert is_narrow(
        plan(lambda s: s.orders.join(s.customers, on="customer_id").where(condition)),
        plan(
            lambda s: (
                s.orders.where("amount > 1 and note is not null and amount between 1 and 2")
                .join(s.customers.where("country = 'DE'"), on="customer_id")
                .where("name <> note")
            )
        ),
    )


def test_a_condition_about_what_is_joined_on_moves_to_both_sides() -> None:
    assert is_narrow(
        plan(lambda s: s.orders.join(s.customers, on="customer_id").where("customer_id > 7")),
        plan(lambda s: s.orders.where("customer_id > 7").join(s.customers.where("customer_id > 7"), on="customer_id")),
    )


def test_columns_that_are_joined_on_by_two_names_belong_to_their_sides() -> None:
    def joined(orders: Stream, customers: Table) -> Table:
        return orders.join(customers.rename(id="customer_id"), on={"customer_id": "id"})

    assert is_narrow(
        plan(lambda s: joined(s.orders, s.customers).where("customer_id > 7")),
        plan(lambda s: joined(s.orders.where("customer_id > 7"), s.customers)),
    )


def test_a_condition_that_can_fail_is_not_asked_of_rows_without_a_partner() -> None:
    def joined(s: Shop) -> Table:
        return s.cities.select("city", "area").join(s.cities.select("mayor", "area"), on="area")

    text = "cast(area as string) = '-0.0' and cast(mayor as int) > 1"
    asked = plan(lambda s: joined(s).where(text))
    assert is_narrow(asked, asked)


def test_conditions_without_columns_and_alternatives_stay() -> None:
    for condition in ("1 = 1", "amount > 1 or country = 'DE'", "not (amount > 1 and country = 'DE')"):
        given = plan(lambda s, text=condition: s.orders.join(s.customers, on="customer_id").where(text))
        assert push_down(given) == given


def test_an_alternative_about_one_side_moves_as_a_whole_and_by_itself() -> None:
    assert is_narrow(
        plan(
            lambda s: s.orders.join(s.customers, on="customer_id").where("amount > 1 or note = 'x'").where("amount < 9")
        ),
        plan(
            lambda s: s.orders.where("amount > 1 or note = 'x'").where("amount < 9").join(s.customers, on="customer_id")
        ),
    )


def test_conditions_move_past_others_that_stay() -> None:
    assert is_narrow(
        plan(lambda s: s.orders.join(s.customers, on="customer_id").where("name <> note").where("amount > 1")),
        plan(lambda s: s.orders.where("amount > 1").join(s.customers, on="customer_id").where("name <> note")),
    )


@pytest.mark.parametrize("within", [None, "1 hour"])
@pytest.mark.parametrize(
    ("how", "left", "right", "stays"),
    [
        ("inner", "amount > 1 and order_id = 1", "url = 'x' and order_id = 1", None),
        ("left", "amount > 1 and order_id = 1", "order_id = 1", "url = 'x'"),
        ("right", "order_id = 1", "url = 'x' and order_id = 1", "amount > 1"),
        ("full", None, None, "amount > 1 and url = 'x' and order_id = 1"),
    ],
)
def test_only_what_a_kind_of_join_lets_through_moves(
    within: str | None, how: Any, left: str | None, right: str | None, stays: str | None
) -> None:
    def joined(orders: Stream, clicks: Stream) -> Any:
        return orders.join(clicks, on="order_id", how=how, within=within or "forever")

    assert is_narrow(
        plan(lambda s: joined(s.orders, s.clicks).where("amount > 1 and url = 'x' and order_id = 1")),
        plan(lambda s: where(joined(where(s.orders, left), where(s.clicks, right)), stays)),
    )


def where(rows: Any, condition: str | None) -> Any:
    return rows if condition is None else rows.where(condition)


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_all_conditions_move_before_semi_and_anti_joins(how: Any) -> None:
    def joined(customers: Table, countries: Table) -> Table:
        return customers.join(countries, on="country", how=how)

    condition = "name = 'x' and country = 'DE'"
    assert is_narrow(
        plan(lambda s: joined(s.customers, s.cities.select("country")).where(condition)),
        plan(lambda s: joined(s.customers.where(condition), s.cities.select("country").where("country = 'DE'"))),
    )


def test_a_column_of_the_other_side_that_a_semi_join_does_not_give_is_another_one() -> None:
    assert is_narrow(
        plan(
            lambda s: s.customers.join(s.cities.select("city", "country"), on={"name": "city"}, how="semi").where(
                "country = 'DE'"
            )
        ),
        plan(
            lambda s: s.customers.where("country = 'DE'").join(s.cities.select("city"), on={"name": "city"}, how="semi")
        ),
    )


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("as_of", [True, False])
def test_where_rows_are_looked_up_only_conditions_about_events_move(how: Any, as_of: bool) -> None:
    def joined(orders: Stream, customers: Table) -> Stream:
        return orders.join(customers, on="customer_id", how=how, as_of="placed_at" if as_of else "now")

    assert is_narrow(
        plan(lambda s: joined(s.orders, s.customers).where("country = 'DE' and amount > 1 and customer_id = 2")),
        plan(lambda s: joined(s.orders.where("amount > 1 and customer_id = 2"), s.customers).where("country = 'DE'")),
    )


def test_conditions_move_through_a_chain_of_joins() -> None:
    def joined(orders: Any, clicks: Any, customers: Any) -> Table:
        return orders.join(clicks, on="order_id", within="forever").join(customers, on="customer_id")

    assert is_narrow(
        plan(lambda s: joined(s.orders, s.clicks, s.customers).where("name = 'n' and url = 'u' and url <> note")),
        plan(
            lambda s: (
                s.orders.join(s.clicks.where("url = 'u'"), on="order_id", within="forever")
                .where("url <> note")
                .join(s.customers.where("name = 'n'"), on="customer_id")
            )
        ),
    )


def test_conditions_move_through_selects_in_the_names_they_have_there() -> None:
    def shown(table: Table) -> Table:
        return table.rename(total="amount", land="country").with_columns(note="upper(note)")

    assert is_narrow(
        plan(
            lambda s: shown(s.orders.join(s.customers, on="customer_id")).where(
                "total > 1 and note = 'X' and `land` = 'total' and total < length(land)"
            )
        ),
        plan(
            lambda s: shown(
                s.orders.where("amount > 1").join(s.customers.where("country = 'total'"), on="customer_id")
            ).where("note = 'X' and total < length(land)")
        ),
    )


def test_a_join_that_others_read_keeps_its_rows() -> None:
    def declared(s: Shop) -> Table:
        return s.orders.join(s.customers, on="customer_id")

    given = plan(declared, lambda s: declared(s).where("amount > 1"))
    assert push_down(given) == given
    given = plan(lambda s: declared(s).where("amount > 1"), lambda s: declared(s).where("amount > 2"))
    assert push_down(given) == given


def test_a_condition_moves_out_of_a_filtered_join_that_several_read() -> None:
    def declared(s: Shop) -> Table:
        return s.orders.join(s.customers, on="customer_id").where("amount > 1")

    def moved(s: Shop) -> Table:
        return s.orders.where("amount > 1").join(s.customers, on="customer_id")

    assert is_narrow(
        plan(declared, lambda s: declared(s).top(3, by="amount")), plan(moved, lambda s: moved(s).top(3, by="amount"))
    )


def test_behind_a_map_without_a_schema_only_what_is_certain_moves() -> None:
    assert is_narrow(
        plan(
            lambda s: s.orders.join(s.clicks.map(len), on="order_id", within="forever").where(
                "amount > 1 and anything = 2"
            )
        ),
        plan(
            lambda s: (
                s.orders.where("amount > 1")
                .join(s.clicks.map(len), on="order_id", within="forever")
                .where("anything = 2")
            )
        ),
    )


# -- columns ----------------------------------------------------------------------------------------------------------


def test_columns_that_nobody_needs_are_left_out_before_a_join() -> None:
    assert is_narrow(
        plan(lambda s: s.orders.join(s.customers, on="customer_id").group_by("country").agg(total="sum(amount)")),
        plan(
            lambda s: (
                s.orders.select("customer_id", "amount")
                .join(s.customers.select("customer_id", "country"), on="customer_id")
                .group_by("country")
                .agg(total="sum(amount)")
            )
        ),
    )


def test_conditions_move_first_so_that_their_columns_are_not_kept() -> None:
    assert is_narrow(
        plan(
            lambda s: (
                s.orders.join(s.customers, on="customer_id")
                .where("note = 'x' and amount < length(name)")
                .select("country")
            )
        ),
        plan(
            lambda s: (
                s.orders.where("note = 'x'")
                .select("customer_id", "amount")
                .join(s.customers.select("customer_id", "name", "country"), on="customer_id")
                .where("amount < length(name)")
                .select("country")
            )
        ),
    )


def test_all_readers_count() -> None:
    def declared(s: Shop) -> Table:
        return s.orders.join(s.customers, on="customer_id")

    def cut(s: Shop) -> Table:
        return s.orders.select("customer_id", "amount", "note").join(
            s.customers.select("customer_id", "name"), on="customer_id"
        )

    assert is_narrow(
        plan(lambda s: declared(s).select("amount"), lambda s: declared(s).select("name", "note")),
        plan(lambda s: cut(s).select("amount"), lambda s: cut(s).select("name", "note")),
    )
    whole = plan(declared, lambda s: declared(s).select("amount"))
    assert push_down(whole) == whole


def test_a_join_within_a_time_keeps_the_times() -> None:
    assert is_narrow(
        plan(lambda s: s.orders.join(s.clicks, on="order_id", within="1 hour").group_by("url").agg(n="count(*)")),
        plan(
            lambda s: (
                s.orders.select("order_id", "placed_at")
                .join(s.clicks.select("order_id", "url", "clicked_at"), on="order_id", within="1 hour")
                .group_by("url")
                .agg(n="count(*)")
            )
        ),
    )


def test_a_window_needs_the_time_of_a_join() -> None:
    def counted(rows: Stream) -> Table:
        return rows.window(tumbling("1 minute")).group_by("note").agg(n="count(*)")

    assert is_narrow(
        plan(lambda s: counted(s.orders.join(s.customers, on="customer_id", as_of="now"))),
        plan(
            lambda s: counted(
                s.orders.select("customer_id", "note", "placed_at").join(s.customers, on="customer_id", as_of="now")
            )
        ),
    )


def test_what_is_looked_up_as_of_a_time_keeps_the_moment_and_the_table() -> None:
    def looked_up(orders: Stream, customers: Table) -> Table:
        return orders.join(customers, on="customer_id", as_of="at").group_by("country").agg(n="count(*)")

    assert is_narrow(
        plan(lambda s: looked_up(s.orders.with_columns(at="placed_at"), s.customers)),
        plan(lambda s: looked_up(s.orders.select("customer_id", "placed_at", at="placed_at"), s.customers)),
    )


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_of_the_right_side_of_a_semi_join_only_what_is_joined_on_is_kept(how: Any) -> None:
    assert is_narrow(
        plan(lambda s: s.orders.join(s.customers, on="customer_id", how=how)),
        plan(lambda s: s.orders.join(s.customers.select("customer_id"), on="customer_id", how=how)),
    )
    assert is_narrow(
        plan(lambda s: s.orders.join(s.clicks, on="order_id", how=how, within="1 hour").select("note")),
        plan(
            lambda s: (
                s.orders.select("order_id", "note", "placed_at")
                .join(s.clicks.select("order_id", "clicked_at"), on="order_id", how=how, within="1 hour")
                .select("note")
            )
        ),
    )


def test_a_select_before_a_join_is_cut_itself() -> None:
    assert is_narrow(
        plan(
            lambda s: (
                s.orders.with_columns(twice="amount * 2", half="amount / 2")
                .join(s.customers, on="customer_id", how="semi")
                .select("twice")
            )
        ),
        plan(
            lambda s: (
                s.orders.select("customer_id", twice="amount * 2")
                .join(s.customers.select("customer_id"), on="customer_id", how="semi")
                .select("twice")
            )
        ),
    )


def test_a_select_that_others_read_whole_gets_another_one() -> None:
    def doubled(s: Shop) -> Stream:
        return s.orders.with_columns(twice="amount * 2")

    assert is_narrow(
        plan(doubled, lambda s: doubled(s).join(s.clicks, on="order_id", within="forever").select("twice", "url")),
        plan(
            doubled,
            lambda s: (
                doubled(s)
                .select("order_id", "twice")
                .join(s.clicks.select("order_id", "url"), on="order_id", within="forever")
                .select("twice", "url")
            ),
        ),
    )


def test_a_select_behind_a_join_loses_what_can_no_longer_be_computed() -> None:
    assert is_narrow(
        plan(
            lambda s: (
                s.orders.join(s.customers, on="customer_id")
                .with_columns(twice="amount * 2", loud="upper(note)")
                .group_by("country")
                .agg(total="sum(twice)")
            )
        ),
        plan(
            lambda s: (
                s.orders.select("customer_id", "amount")
                .join(s.customers.select("customer_id", "country"), on="customer_id")
                .select("country", twice="amount * 2")
                .group_by("country")
                .agg(total="sum(twice)")
            )
        ),
    )


def test_where_no_column_is_needed_one_is_kept() -> None:
    def counted(rows: Any) -> Table:
        return rows.group_by().agg(n="count(*)")

    assert is_narrow(
        plan(
            lambda s: counted(
                s.orders.join(s.clicks, on="order_id", within="forever").select("note", loud="upper(url)")
            )
        ),
        plan(
            lambda s: counted(
                s.orders.select("order_id", "note")
                .join(s.clicks.select("order_id"), on="order_id", within="forever")
                .select("note")
            )
        ),
    )


def test_columns_are_left_out_through_a_chain_of_joins() -> None:
    assert is_narrow(
        plan(
            lambda s: (
                s.orders.join(s.customers, on="customer_id", how="left")
                .join(s.clicks, on="order_id")
                .select("url", "name")
            )
        ),
        plan(
            lambda s: (
                s.orders.select("order_id", "customer_id")
                .join(s.customers.select("customer_id", "name"), on="customer_id", how="left")
                .select("order_id", "name")
                .join(s.clicks.select("order_id", "url"), on="order_id")
                .select("url", "name")
            )
        ),
    )


def test_parts_of_a_union_stay_alike() -> None:
    def named(s: Shop) -> Table:
        return s.customers.join(s.orders, on="customer_id", how="semi").union(s.customers)

    assert is_narrow(
        plan(lambda s: named(s).where("country <> 'x'").select("name")),
        plan(
            lambda s: (
                s.customers.select("customer_id", "name", "country")
                .join(s.orders.select("customer_id"), on="customer_id", how="semi")
                .union(s.customers.select("customer_id", "name", "country"))
                .where("country <> 'x'")
                .select("name")
            )
        ),
    )


def test_parts_of_a_union_stay_alike_where_no_column_is_needed() -> None:
    def counted(some: Table, others: Table) -> Table:
        return some.union(others).group_by().agg(n="count(*)")

    def abroad(customers: Table, s: Shop) -> Table:
        return customers.join(s.cities.select("country"), on="country", how="anti")

    def buying(customers: Table, s: Shop) -> Table:
        return customers.join(s.orders.select("customer_id"), on="customer_id", how="semi")

    assert is_narrow(
        plan(lambda s: counted(abroad(s.customers, s), buying(s.customers, s))),
        plan(
            lambda s: counted(
                abroad(s.customers.select("customer_id", "country"), s).select("customer_id"),
                buying(s.customers.select("customer_id"), s),
            )
        ),
    )


def test_the_key_of_a_join_goes_with_its_columns() -> None:
    def joined(s: Shop) -> Table:
        return s.customers.join(s.cities, on="country")

    (view,) = push_down(plan(lambda s: joined(s).group_by("name").agg(n="count(*)"))).views
    (node,) = flow.inputs(view.node)
    assert node.shape == flow.Shape(("name", "country"), retracts=True)
    (view,) = push_down(plan(lambda s: joined(s).select("customer_id", "city"))).views
    assert flow.inputs(view.node)[0].shape.key == ("customer_id", "city")


def test_unknown_columns_are_not_left_out() -> None:
    assert is_narrow(
        plan(lambda s: s.orders.join(s.clicks.map(len), on="order_id", within="forever").select("note", "url")),
        plan(
            lambda s: (
                s.orders.select("order_id", "note")
                .join(s.clicks.map(len), on="order_id", within="forever")
                .select("note", "url")
            )
        ),
    )


def test_columns_with_names_that_need_quotes_are_left_out_too() -> None:
    def odd(s: Shop) -> Stream:
        return s.app.topic("odd", schema="`from` bigint, `a b` string, other string")

    assert is_narrow(
        plan(
            lambda s: (
                odd(s).join(s.clicks, on={"from": "order_id"}, within="forever").where("`a b` > url").select("a b")
            )
        ),
        plan(
            lambda s: (
                odd(s)
                .select("from", "a b")
                .join(s.clicks.select("order_id", "url"), on={"from": "order_id"}, within="forever")
                .where("`a b` > url")
                .select("a b")
            )
        ),
    )


# -- whole plans ------------------------------------------------------------------------------------------------------


def test_inserted_nodes_stand_where_the_join_does() -> None:
    given = plan(lambda s: s.orders.join(s.customers, on="customer_id").where("amount > 1").select("country"))
    (select,) = flow.inputs(push_down(given).views[0].node)
    left = flow.inputs(select)[0]
    assert isinstance(left, flow.Select)
    assert left.location == left.input.location == select.location


def test_a_shared_node_stays_shared() -> None:
    given = plan(
        lambda s: s.orders.join(s.customers, on="customer_id").where("amount > 1").group_by("note").agg(n="count(*)"),
        lambda s: s.orders.join(s.customers, on="customer_id").where("amount > 1").group_by("name").agg(n="count(*)"),
    )
    found = [node for node in flow.nodes(push_down(given)) if isinstance(node, flow.Join)]
    assert len(found) == 1
    assert found[0].shape.columns == ("customer_id", "note", "name")


def test_a_condition_on_both_sides_of_a_join_with_itself_moves_on() -> None:
    def pairs(rows: Table) -> Table:
        return rows.select("country", "city").join(rows.select("country", "city").rename(other="city"), on="country")

    given = plan(lambda s: pairs(s.cities.join(s.customers, on="country", how="semi")).where("country = 'DE'"))
    pushed = push_down(given)
    assert push_down(pushed) == pushed


def test_unions_of_a_node_with_itself_and_deep_plans_take_no_time() -> None:
    def deep(s: Shop) -> Table:
        rows = s.orders.join(s.customers, on="customer_id")
        for number in range(60):
            rows = rows.union(rows).where(f"amount > {number}").with_columns(note="upper(note)")
        return rows.group_by("country").agg(n="count(*)")

    found = push_down(plan(deep))
    assert len(list(flow.nodes(found))) <= 186
    assert push_down(found) is found


def test_many_conditions_move_at_once() -> None:
    def deep(rows: Any) -> Any:
        for number in range(100):
            rows = rows.where(f"amount > {number}")
        return rows

    assert push_down(plan(lambda s: deep(s.orders.join(s.customers, on="customer_id")))) == plan(
        lambda s: deep(s.orders).join(s.customers, on="customer_id")
    )
