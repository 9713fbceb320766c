"""Events that look up rows of a table: what held then, what is known now, and what becomes known late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import penstock as ps
from penstock.testing import Rig
from tests.engine.app_world import TWO, at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.flow.stream import Stream
    from penstock.flow.table import Table


def declared() -> tuple[ps.App, Stream, Table]:
    app = ps.App("shop", settings=TWO)
    orders = app.topic("orders", schema="id long, customer long, placed timestamp, asked timestamp", time="placed")
    customers = app.table(
        "customers", schema="customer long, name string, rank int, since timestamp", key="customer", time="since"
    )
    return app, orders, customers


def order(number: int, second: float, customer: int | None = 1, asked: float | None = None) -> dict[str, Any]:
    return {"id": number, "customer": customer, "placed": at(second), "asked": None if asked is None else at(asked)}


def customer(name: str, second: float, rank: int = 1, number: int = 1) -> dict[str, Any]:
    return {"customer": number, "name": name, "rank": rank, "since": at(second)}


def names(rig: Rig, view: str = "named") -> dict[int, str | None]:
    return {row["id"]: row["name"] for row in rig.view(view)}


def test_an_event_finds_the_version_that_held_when_it_happened(spark: SparkSession) -> None:
    app, orders, customers = declared()
    app.view("named", orders.join(customers, on="customer", as_of="placed", how="left"))
    app.view("found", orders.join(customers, on="customer", as_of="placed"))
    with Rig(app, spark=spark) as rig:
        rig.append("customers", [customer("Ann", 10), customer("Anna", 20)])
        rig.append("orders", [order(0, 9), order(1, 10), order(2, 19.999999), order(3, 20), order(4, 30, None)])
        rig.run()
        assert names(rig) == {0: None, 1: "Ann", 2: "Ann", 3: "Anna", 4: None}
        assert names(rig, "found") == {1: "Ann", 2: "Ann", 3: "Anna"}
        rig.append("customers", [customer("Annie", 15), customer("Bob", 5, number=2)])
        rig.append("orders", [order(5, 16, 2)])
        rig.run()
        assert names(rig) == {0: None, 1: "Ann", 2: "Annie", 3: "Anna", 4: None, 5: "Bob"}


def test_a_row_is_gone_from_when_its_delete_was_stored(spark: SparkSession) -> None:
    app, orders, customers = declared()
    app.view("named", orders.join(customers, on="customer", as_of="placed", how="left"))
    with Rig(app, spark=spark) as rig:
        rig.append("customers", [customer("Ann", -60)])
        rig.advance("1 minute")
        rig.append("customers", [{"customer": 1}], deleted=True)
        rig.append("orders", [order(0, 59), order(1, 60)])
        rig.run()
        assert names(rig) == {0: "Ann", 1: None}
        rig.append("customers", [customer("Ann again", 90)])
        rig.append("orders", [order(2, 80), order(3, 90)])
        rig.run()
        assert names(rig) == {0: "Ann", 1: None, 2: None, 3: "Ann again"}


def test_the_time_in_a_deleted_row_says_nothing_about_the_delete(spark: SparkSession) -> None:
    app, orders, customers = declared()
    app.view("named", orders.join(customers, on="customer", as_of="placed", how="left"))
    with Rig(app, spark=spark) as rig:
        rig.append("customers", [customer("Ann", -60)])
        rig.append("customers", [customer("Ann", -60)], deleted=True)
        rig.append("orders", [order(0, -1), order(1, 0)])
        rig.run()
        assert names(rig) == {0: "Ann", 1: None}


def test_what_a_condition_hides_ends_the_version_before_it_and_is_not_looked_at_further(spark: SparkSession) -> None:
    app, orders, customers = declared()
    ranked = customers.where("rank <> 0").where("10 div rank > 1").with_columns(share="10 div rank")
    app.view("named", orders.join(ranked, on="customer", as_of="placed", how="left"))
    with Rig(app, spark=spark) as rig:
        rig.append("customers", [customer("a", 0), customer("b", 10, rank=0), customer("c", 20, rank=2)])
        rig.append("orders", [order(0, 5), order(1, 15), order(2, 25)])
        rig.run()
        assert names(rig) == {0: "a", 1: None, 2: "c"}
        assert [row["share"] for row in rig.view("named")] == [10, None, 5]
        assert rig.account("named").dead == 0


def test_a_late_version_corrects_events_for_as_long_as_they_are_kept(spark: SparkSession) -> None:
    app, orders, customers = declared()
    app.view("named", orders.join(customers, on="customer", as_of="placed", keep="1 minute"))
    with Rig(app, spark=spark) as rig:
        rig.append("customers", [customer("old", 0)])
        rig.append("orders", [order(0, 10), order(1, 100)])
        rig.run()
        rig.append("orders", [order(2, 120)])
        rig.run()
        rig.append("customers", [customer("new", 5)])
        rig.append("orders", [order(3, 11), order(4, 61)])
        rig.run()
        assert names(rig) == {0: "old", 1: "new", 2: "new", 4: "new"}
        assert [row["id"] for row in rig.rows("orders.late")] == [3]
        assert rig.account("named").late == 1


def test_the_moment_may_be_another_than_the_time_of_the_event(spark: SparkSession) -> None:
    app, orders, customers = declared()
    app.view("named", orders.join(customers, on="customer", as_of="asked", how="left", keep="1 second"))
    with Rig(app, spark=spark) as rig:
        rig.append("customers", [customer("then", 0), customer("now", 500)])
        rig.append("orders", [order(0, 600, asked=10)])
        rig.run()
        rig.append("orders", [order(1, 600, asked=20), order(2, 600, asked=None), order(3, 600, asked=500)])
        rig.run()
        assert names(rig) == {0: "then", 1: "then", 2: None, 3: "now"}


def test_the_newest_row_is_found_once(spark: SparkSession) -> None:
    app, orders, customers = declared()
    app.view("named", orders.join(customers, on="customer", as_of="now", how="left"))
    with Rig(app, spark=spark) as rig:
        rig.append("orders", [order(0, 0)])
        rig.append("customers", [customer("Ann", 100)])
        rig.run()
        rig.append("customers", [customer("Anna", 200)])
        rig.append("orders", [order(1, 1)])
        rig.run()
        rig.append("customers", [{"customer": 1}], deleted=True)
        rig.append("orders", [order(2, 2)])
        rig.run()
        assert names(rig) == {0: "Ann", 1: "Anna", 2: None}


def test_the_newest_of_joined_events_is_a_table(spark: SparkSession) -> None:
    app, orders, customers = declared()
    found = orders.join(customers, on="customer", as_of="now", how="left").select("id", "customer", "placed", "name")
    app.view("last", found.latest("customer"))
    near = orders.join(orders.select("customer", other="id", then="placed"), on="customer", within="1 second")
    app.view("last_pair", near.select("id", "other", "customer", "placed").latest("customer"))
    with Rig(app, spark=spark) as rig:
        rig.append("customers", [customer("Ann", 0)])
        rig.append("orders", [order(0, 10), order(1, 20), order(2, 15, 2)])
        rig.run()
        assert [(row["customer"], row["id"], row["name"]) for row in rig.view("last")] == [(1, 1, "Ann"), (2, 2, None)]
        assert [(row["customer"], row["id"], row["other"]) for row in rig.view("last_pair")] == [(1, 1, 1), (2, 2, 2)]


def test_unions_of_what_was_counted_and_what_was_not_keep_the_app_running(spark: SparkSession) -> None:
    app, orders, customers = declared()
    more = app.topic("more", schema="id long, customer long, placed timestamp", time="placed")
    found = orders.join(customers, on="customer", as_of="now", how="left").select("id", "customer", "placed")
    both = more.union(found)
    app.view("counts", both.group_by("customer").agg(n="count(*)"))
    app.view("all_of_them", both)
    with Rig(app, spark=spark) as rig:
        rig.append("orders", [order(0, 10), order(1, 20)])
        rig.append("more", [{"id": 2, "customer": 1, "placed": at(5)}])
        rig.run()
        assert rig.view("counts") == [{"customer": 1, "n": 3}]
        for view in ("counts", "all_of_them"):
            account = rig.account(view)
            assert (account.came, account.counted, account.filtered) == (3, 3, 0)


def test_a_topic_that_is_looked_up_waits_for_what_it_looks_up_itself(spark: SparkSession) -> None:
    app = ps.App("shop", settings=ps.AppSettings(state_partitions=2, max_rows=10))
    clicks = app.topic("clicks", schema="who long, customer long, clicked timestamp", time="clicked")
    orders = app.topic("orders", schema="id long, who long, placed timestamp", time="placed")
    customers = app.table("customers", schema="customer long, name string", key="customer")
    named = clicks.join(customers, on="customer", as_of="now", how="left").select("who", "clicked", "name")
    app.view("clicked", named.select("who", "name"))
    app.view("ordered", orders.join(named.latest("who"), on="who", as_of="placed").select("id", "name"))
    with Rig(app, spark=spark) as rig:
        rig.append("clicks", [{"who": 1, "customer": 39, "clicked": at(0)}])
        rig.append("orders", [{"id": 1, "who": 1, "placed": at(1)}])
        rig.append("customers", [{"customer": number, "name": f"c{number}"} for number in range(40)])
        rig.run()
        assert rig.view("clicked") == [{"who": 1, "name": "c39"}]
        assert rig.view("ordered") == [{"id": 1, "name": "c39"}]


def test_the_newest_events_of_a_stream_have_a_history(spark: SparkSession) -> None:
    app, orders, _ = declared()
    moves = app.topic("moves", schema="customer long, name string, moved timestamp", time="moved")
    app.view("named", orders.join(moves.latest("customer"), on="customer", as_of="placed"))
    with Rig(app, spark=spark) as rig:
        rig.append(
            "moves", [{"customer": 1, "name": name, "moved": at(second)} for name, second in (("b", 20), ("a", 5))]
        )
        rig.append("orders", [order(0, 10), order(1, 20)])
        rig.run()
        rig.append("moves", [{"customer": 1, "name": "c", "moved": at(20)}])
        rig.run()
        assert names(rig) == {0: "a", 1: "c"}


def test_corrected_answers_of_a_window_behind_a_lookup_are_counted(spark: SparkSession) -> None:
    app, orders, customers = declared()
    named = orders.join(customers, on="customer", as_of="placed")
    app.view("minutes", named.window(ps.tumbling("1 minute")).group_by("name").agg(n="count(*)"))
    with Rig(app, spark=spark) as rig:
        rig.append("customers", [customer("Ann", -600)])
        rig.append("orders", [order(0, -300), order(1, -100)])
        rig.run()
        assert (rig.view("minutes")[0]["revision"], rig.account("minutes").corrected) == (0, 0)
        rig.append("orders", [order(2, -299)])
        rig.run()
        assert [(row["n"], row["revision"]) for row in rig.view("minutes") if row["n"] == 2] == [(2, 1)]
        assert rig.account("minutes").corrected == 1
