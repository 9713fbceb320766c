"""What is declared of a join's rows is true of them, whatever is in its tables: compared with a join written out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, Stream, Table
from penstock.flow.plan import JoinKey
from penstock.flow.shapes import joined_columns

Row = Mapping[str, int | None]
KINDS = ("inner", "left", "right", "full", "semi", "anti")


@st.composite
def tables(draw: st.DrawFn, name: str, columns: tuple[str, ...]) -> tuple[Table, list[Row]]:
    """A table of these columns with some key, some of them not null, and rows that no two of share the key."""
    key = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique=True))
    filled = draw(st.sets(st.sampled_from(columns), max_size=2))
    schema = ", ".join(f"{name} bigint" + (" not null" if name in filled else "") for name in columns)
    values = {name: st.sampled_from([0, 1] if name in filled else [None, 0]) for name in columns}
    rows = draw(st.lists(st.fixed_dictionaries(values), max_size=6, unique_by=lambda row: tuple(row[k] for k in key)))
    return App("shop").table(name, schema=schema, key=key), rows


ON: list[Any] = ["k", ["k", "both"], {"k": "k", "both": "both", "a": "c"}]
PAIRS: list[Any] = [{"a": "c"}, {"k": "j", "a": "c"}, {"b": "j"}]
SHARING = st.tuples(tables("left", ("k", "both", "a", "b")), tables("right", ("k", "both", "c")), st.sampled_from(ON))
APART = st.tuples(tables("left", ("k", "a", "b")), tables("right", ("j", "c", "d")), st.sampled_from(PAIRS))


def written_out(left: list[Row], right: list[Row], on: tuple[JoinKey, ...], how: str, nulls: bool) -> Iterator[Row]:
    """The rows of a join as SQL has them."""
    pairs = [(a, b) for a in left for b in right if all(_equal(a[key.left], b[key.right], nulls) for key in on)]
    with_partner = [a for a in left if any(a is left_row for left_row, _ in pairs)]
    alone = [a for a in left if not any(a is left_row for left_row, _ in pairs)]
    alone_right = [b for b in right if not any(b is right_row for _, right_row in pairs)]
    if how in ("semi", "anti"):
        yield from with_partner if how == "semi" else alone
        return
    yield from ({**b, **a} for a, b in pairs)
    if how in ("left", "full"):
        yield from alone
    if how in ("right", "full"):
        yield from alone_right


def _equal(left: int | None, right: int | None, nulls: bool) -> bool:
    return left == right if nulls else left is not None and left == right


@pytest.mark.parametrize("how", KINDS)
@given(world=st.one_of(SHARING, APART), nulls=st.booleans())
def test_no_two_rows_of_a_join_share_its_key(world: Any, how: Any, nulls: bool) -> None:
    (left, left_rows), (right, right_rows), on = world
    # Only what is joined on has one name.
    if "both" in (right.columns or ()) and "both" not in on:
        right = right.rename(other="both")
        right_rows = [{"other" if name == "both" else name: value for name, value in row.items()} for row in right_rows]
    node: Any = left.join(right, on=on, how=how, nulls_match=nulls).node
    rows = list(written_out(left_rows, right_rows, node.on, how, nulls))
    assert all(set(row) <= set(node.shape.columns) for row in rows)
    if node.shape.key is not None:
        found = Counter(tuple(row.get(name) for name in node.shape.key) for row in rows)
        assert max(found.values(), default=1) == 1


EVENTS = st.lists(st.tuples(st.booleans(), st.sampled_from([None, 0, 1]), st.integers(0, 2)), max_size=8)


@given(EVENTS, st.sampled_from(KINDS), st.booleans())
def test_rows_that_are_never_taken_back_stay_when_more_events_come(events: Any, how: Any, nulls: bool) -> None:
    app = App("shop")
    left = app.topic("left", schema="k bigint, a bigint")
    right = app.topic("right", schema="k bigint, c bigint")
    node: Any = left.join(right, on="k", how=how, nulls_match=nulls, within="forever").node
    sides: tuple[list[Row], list[Row]] = ([], [])
    before: Counter[tuple[Any, ...]] = Counter()
    for is_right, key, value in events:
        sides[is_right].append({"k": key, "c" if is_right else "a": value})
        rows = written_out(*sides, node.on, how, nulls)
        now = Counter(tuple(row.get(name) for name in ("k", "a", "c")) for row in rows)
        assert node.shape.retracts or before <= now
        before = now


def test_a_key_is_as_small_as_partners_allow(customers: Table, orders: Stream) -> None:
    bought = orders.group_by("customer_id", "quantity").agg(n="count(*)")
    one_each = bought.join(customers, on={"customer_id": "id"})
    assert one_each.node.shape.key == ("customer_id", "quantity")
    assert customers.join(bought, on={"id": "customer_id"}).node.shape.key == ("customer_id", "quantity")
    assert customers.join(bought, on={"id": "customer_id"}, how="left").node.shape.key == (
        "id",
        "customer_id",
        "quantity",
    )
    assert customers.join(bought, on={"id": "customer_id"}, how="right").node.shape.key == ("customer_id", "quantity")
    many = customers.join(bought.with_columns(label="string(n)"), on={"name": "label"})
    assert many.node.shape.key == ("id", "customer_id", "quantity")
    assert customers.join(bought, on={"id": "customer_id"}, how="anti").node.shape.key == ("id",)
    assert orders.join(customers.drop("country"), on={"customer_id": "id"}).node.shape.key is None


def test_a_full_join_has_a_key_only_where_its_unmatched_rows_differ(app: App, customers: Table, orders: Stream) -> None:
    names = app.table("names", schema="id bigint not null, nick string", key="id")
    assert customers.join(names, on="id", how="full").node.shape.key == ("id",)
    by_country = orders.group_by("country").agg(n="count(*)")
    customers_by_country = customers.group_by("country").agg(m="count(*)")
    assert by_country.join(customers_by_country, on="country", how="full").node.shape.key is None
    nulls = by_country.join(customers_by_country, on="country", how="full", nulls_match=True)
    assert nulls.node.shape.key == ("country",)


def test_the_columns_of_a_join_can_be_worked_out_when_they_are_known() -> None:
    on = (JoinKey("id", "id"), JoinKey("a", "b"))
    assert joined_columns(("id", "a"), ("b", "id", "c"), on, "full") == ("id", "a", "b", "c")
    assert joined_columns(None, ("b", "id", "c"), on, "full") is None
