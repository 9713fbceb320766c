"""What people write out of habit gets an answer in their words, or is accepted where it is harmless."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import penstock as ps
from penstock import App, Stream, Table, tumbling
from penstock.errors import DeclarationError
from penstock.flow.habits import INSTEAD


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda rows: rows.groupBy("country"), "Stream has no 'groupBy'", 'write .group_by("country")'),
        (lambda rows: rows.groupby("country"), "Stream has no 'groupby'", ".group_by("),
        (lambda rows: rows.withColumn("x", "1"), "Stream has no 'withColumn'", ".with_columns("),
        (lambda rows: rows.orderBy("price"), "Stream has no 'orderBy'", ".top(10, by="),
        (lambda rows: rows.limit(3), "Stream has no 'limit'", ".top(10, by="),
        (lambda rows: rows.drop_duplicates(), "Stream has no 'drop_duplicates'", '.distinct("id", within="1 hour")'),
        (lambda rows: rows.alias("o"), "Stream has no 'alias'", ".rename("),
        (lambda rows: rows.group_by("country").count(), "has no 'count'", 'agg(n="count(*)")'),
        (lambda rows: rows.window(tumbling("1 hour")).sum("price"), "has no 'sum'", '.agg(sum="sum(amount)")'),
        (lambda rows: rows.country, "Stream has no 'country'", 'a column is text: .select("country")'),
        (lambda rows: rows.wehre("price > 1"), "Stream has no 'wehre'", "did you mean 'where'?"),
        (lambda rows: rows.qqq, "Stream has no 'qqq'", "it has agg, columns, distinct, drop"),
        (lambda rows: rows["price"], r"not taken with brackets; found \['price'\]", 'write .select("price")'),
        (lambda rows: rows[["price", "country"]], "with brackets", 'write .select("price", "country")'),
        (lambda rows: rows.agg("avg(price)"), "every column needs a name; found 'avg", '.agg(avg_price="avg(price)")?'),
        (lambda rows: rows.agg({"price": "sum"}), "every column needs a name", '.agg(sum_price="sum(price)")?'),
        (lambda rows: rows.group_by("country").agg("count(*)"), "needs a name", '.agg(count="count(*)")?'),
        (lambda rows: rows.with_columns("price * 2"), "needs a name", '.with_columns(price_2="price * 2")?'),
        (lambda rows: rows.rename({"price": "cost"}), "columns are renamed as", '.rename(cost="price")?'),
        (lambda rows: rows.rename(columns={"price": "cost"}), "columns are renamed as", '.rename(cost="price")?'),
        (lambda rows: rows.select("price * 2"), "there is no column 'price", 'needs a name: name="price'),
        (lambda rows: rows.where(lambda row: row.price > 1), "an expression is Spark SQL as text", "goes to .map(...)"),
        (lambda rows: rows.window("1 minute"), "a window is needed; found '1 minute'", "tumbling('1 minute')"),
        (lambda rows: rows.join(rows, "order_id", "left_outer", within="1 hour"), "how is one of", "mean 'left'?"),
        (len, "the number of its rows is not known when it is declared", 'agg(n="count(*)")'),
        (list, "its rows cannot be iterated over", "app.query("),
        (bool, "neither true nor false", "app.query("),
    ],
)
def test_a_habit_is_answered_with_what_to_write(orders: Stream, call: Any, message: str, hint: str) -> None:
    with pytest.raises(DeclarationError, match=message) as refused:
        call(orders)
    assert "test_habits.py:" in refused.value.message
    assert hint in str(refused.value.hint)


def test_what_tables_had_before_is_answered_too(customers: Table) -> None:
    removed: Any = customers
    with pytest.raises(DeclarationError, match="Table has no 'latest'") as refused:
        removed.latest()
    assert 'as_of="now"' in str(refused.value.hint)
    with pytest.raises(DeclarationError, match="Table has no 'as_of'") as refused:
        removed.as_of("placed_at")
    assert 'as_of="placed_at"' in str(refused.value.hint)


def test_a_slip_in_the_name_of_a_method_of_an_app_is_answered(app: App) -> None:
    mistaken: Any = app
    with pytest.raises(DeclarationError, match="App has no 'veiw'") as refused:
        mistaken.veiw("orders")
    assert refused.value.hint == "did you mean 'view'?"


def test_a_slip_in_a_public_name_is_answered() -> None:
    with pytest.raises(AttributeError, match="did you mean 'tumbling'"):
        _ = ps.tumblin


def test_filter_and_lists_of_names_are_accepted(orders: Stream) -> None:
    assert orders.filter("price > 1") == orders.where("price > 1")
    names: Any = ["order_id", "country"]
    assert orders.select(names) == orders.select("order_id", "country")
    assert orders.drop(names) == orders.drop("order_id", "country")
    assert orders.latest(names) == orders.latest("order_id", "country")
    assert orders.distinct(names) == orders.distinct("order_id", "country")
    by_list, by_name = orders.group_by(names), orders.group_by("order_id", "country")
    assert by_list.agg(n="count(*)") == by_name.agg(n="count(*)")


def test_no_answer_stands_in_the_way_of_a_verb_of_the_same_name() -> None:
    for name in INSTEAD:
        assert not all(hasattr(kind, name) for kind in (Stream, Table)), name


def test_python_can_still_ask_whether_something_is_there(orders: Stream) -> None:
    assert not hasattr(orders, "groupBy")
    assert getattr(orders, "toPandas", None) is None
    assert copy.deepcopy(orders) == orders
    assert pickle.loads(pickle.dumps(orders)) == orders


def test_a_column_of_pyspark_is_answered_with_the_text_it_means(orders: Stream, spark: Any) -> None:
    from pyspark.sql import functions

    def hint_of(call: Any) -> str:
        with pytest.raises(DeclarationError) as refused:
            call()
        return str(refused.value.hint)

    columns: Any = functions
    assert 'did you mean "country"?' in hint_of(lambda: orders.select(columns.col("country")))
    assert "expressions are text" in hint_of(lambda: orders.where(columns.col("price") > 1))
    assert '.agg(sum_price="sum(price)")' in hint_of(lambda: orders.agg(columns.sum("price")))
    assert 'did you mean "sum(price)"?' in hint_of(lambda: orders.agg(total=columns.sum("price")))


def test_all_rows_are_aggregated_without_a_group(orders: Stream, customers: Table) -> None:
    assert orders.agg(n="count(*)") == orders.group_by().agg(n="count(*)")
    assert customers.agg(n="count(*)") == customers.group_by().agg(n="count(*)")
    windowed = orders.window(ps.tumbling("1 minute"))
    assert windowed.agg(n="count(*)") == windowed.group_by().agg(n="count(*)")
    assert windowed.agg(n="count(*)").columns == ("window_start", "window_end", "revision", "n")
