"""A schema counts as far as it is used: one more column changes only what uses it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import App, Stream, Table, tumbling
from penstock.flow.fingerprint import fingerprint
from penstock.flow.schemas import Schemas, with_earlier_schemas, with_schemas_of

OLD = "id bigint, country string, amount double, at timestamp"
NEW = "id bigint, country string, note string, amount double, at timestamp"
Rows = Callable[[Stream], Stream | Table]


def app_with(schema: str, rows: Rows, time: str | None = "at") -> App:
    app = App("shop")
    app.view("v", rows(app.topic("orders", schema=schema, key="id", time=time)))
    return app


def fingerprint_of(schema: str, rows: Rows, *, known: Schemas | None = None, time: str | None = "at") -> str:
    return fingerprint(with_earlier_schemas(app_with(schema, rows, time).plan, known or {}).views[0].node)


def is_kept(rows: Rows, new: str = NEW, old: str = OLD) -> bool:
    """Whether a view stays when a program that declared the old schema declares the new one."""
    known = with_schemas_of(app_with(old, rows).plan, {})
    return fingerprint_of(old, rows) == fingerprint_of(new, rows, known=known)


USING_SOME: list[Rows] = [
    lambda orders: orders.group_by("country").agg(n="count(*)"),
    lambda orders: orders.agg(n="count(*)"),
    lambda orders: orders.window(tumbling("1 hour")).group_by("country").agg(total="sum(amount)"),
    lambda orders: orders.where("amount > 1").select("id"),
    lambda orders: orders.select("id", "at").distinct("id"),
    lambda orders: orders.select("id", "amount").latest("id"),
    lambda orders: orders.select("id").union(orders.select(id="cast(amount as bigint)")),
    lambda orders: orders.select("id", "at").join(
        orders.select("id", "at", "country").rename(then="at"), on="id", within="1 hour"
    ),
]
USING_ALL: list[Rows] = [
    lambda orders: orders,
    lambda orders: orders.where("amount > 1"),
    lambda orders: orders.distinct("id"),
    lambda orders: orders.latest("id").select("id"),
    lambda orders: orders.map(lambda rows: rows, schema="id bigint"),
    lambda orders: orders.top(3, by="amount"),
]


@pytest.mark.parametrize("rows", USING_SOME)
def test_a_column_that_is_not_used_changes_nothing(rows: Rows) -> None:
    assert is_kept(rows)
    assert is_kept(rows, new=OLD, old=NEW)


@pytest.mark.parametrize("rows", USING_ALL)
def test_steps_that_use_whole_rows_change_with_every_column(rows: Rows) -> None:
    assert not is_kept(rows)


def test_a_column_that_is_used_counts_with_its_type() -> None:
    rows: Rows = lambda orders: orders.group_by("country").agg(n="count(*)")  # noqa: E731
    assert not is_kept(rows, new=OLD.replace("country string", "country string not null"))
    assert not is_kept(rows, new=OLD.replace("id bigint", "id int"))
    assert is_kept(rows, new=OLD.replace("amount double", "amount float"))


def test_without_earlier_schemas_the_whole_declaration_counts() -> None:
    """As in apps that have run with earlier versions, whose state must stay."""
    rows: Rows = lambda orders: orders.group_by("country").agg(n="count(*)")  # noqa: E731
    assert fingerprint_of(OLD, rows) != fingerprint_of(NEW, rows)
    assert fingerprint_of(OLD, rows) == fingerprint_of(OLD, rows, known={"orders": (OLD,)})


def test_the_oldest_schema_that_agrees_counts_however_many_follow() -> None:
    by_country: Rows = lambda orders: orders.group_by("country").agg(n="count(*)")  # noqa: E731
    by_note: Rows = lambda orders: orders.group_by("note").agg(n="count(*)")  # noqa: E731
    known: Schemas = {}
    for schema in (OLD, NEW, f"{NEW}, more string", OLD, NEW):
        known = with_schemas_of(with_earlier_schemas(app_with(schema, by_country).plan, known), known)
        assert fingerprint_of(schema, by_country, known=known) == fingerprint_of(OLD, by_country)
    assert known["orders"] == (OLD, NEW, f"{NEW}, more string")
    last = fingerprint_of(f"{NEW}, more string", by_note, known=known)
    assert last == fingerprint_of(NEW, by_note, known=known)


def test_topics_of_earlier_programs_are_remembered() -> None:
    known = with_schemas_of(app_with(OLD, lambda orders: orders).plan, {"gone": ("id bigint",)})
    assert known == {"gone": ("id bigint",), "orders": (OLD,)}
