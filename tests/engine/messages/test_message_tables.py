"""Apps over topics that Debezium and Maxwell write: order, deletes, what is set aside, and what follows from it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import penstock as ps
from penstock.errors import DeclarationError
from penstock.flow.settings import AppSettings
from penstock.testing import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "dbserver1.public.customers"
SETTINGS = AppSettings(state_partitions=2)


def customers_app(**options: Any) -> ps.App:
    app = ps.App("shop", settings=SETTINGS)
    declared = {"schema": "id bigint not null, name string, city string", "key": "id", "format": "debezium"}
    customers = app.table("customers", **{**declared, "topic": TOPIC, **options})
    app.view("customers", customers)
    app.view("cities", customers.group_by("city").agg(customers="count(*)"))
    return app


def message(op: str, row: dict[str, object] | None, before: dict[str, object] | None = None) -> dict[str, object]:
    key = {"id": (row or before or {})["id"]}
    return {"key": json.dumps(key), "value": json.dumps({"op": op, "before": before, "after": row})}


def customer(number: int, name: str, city: str) -> dict[str, object]:
    return {"id": number, "name": name, "city": city}


def view(rig: Rig, name: str) -> list[dict[str, Any]]:
    return sorted(rig.view(name), key=str)


def test_changes_of_debezium_are_a_table_whose_answers_follow(spark: SparkSession) -> None:
    with Rig(customers_app(), spark=spark) as rig:
        rig.append(TOPIC, [message("r", customer(1, "Ada", "Rome")), message("c", customer(2, "Bob", "Oslo"))])
        rig.run()
        assert view(rig, "customers") == [customer(1, "Ada", "Rome"), customer(2, "Bob", "Oslo")]
        moved = message("u", customer(3, "Bob", "Rome"), before=customer(2, "Bob", "Oslo"))
        rig.append(TOPIC, [message("u", customer(1, "Ada", "Lima")), message("u", customer(1, "Ada", "Bonn")), moved])
        rig.run()
        assert view(rig, "customers") == [customer(1, "Ada", "Bonn"), customer(3, "Bob", "Rome")]
        assert view(rig, "cities") == [{"city": "Bonn", "customers": 1}, {"city": "Rome", "customers": 1}]
        rig.append(TOPIC, [message("d", None, before={"id": 1}), {"key": '{"id": 1}', "value": None}])
        rig.append(TOPIC, [{"key": '{"id": 3}'}], deleted=True)
        rig.run()
        assert view(rig, "customers") == view(rig, "cities") == []
        account = rig.account("customers")
        assert account.dead == account.late == 0
        assert account.came == account.counted + account.filtered


def test_what_cannot_be_read_is_set_aside_with_its_message_and_reason(spark: SparkSession) -> None:
    with Rig(customers_app(), spark=spark) as rig:
        unavailable = customer(1, "Ada", "__debezium_unavailable_value")
        broken = {"key": '{"id": 9}', "value": "{"}
        rig.append(TOPIC, [message("c", customer(1, "Ada", "Rome")), message("u", unavailable), broken])
        rig.append(TOPIC, [message("c", customer(2, "Bob", "Oslo"))])
        rig.run()
        assert view(rig, "customers") == [customer(1, "Ada", "Rome"), customer(2, "Bob", "Oslo")]
        dead = sorted(rig.rows("shop.dead"), key=lambda row: row["offset"])
        assert [(row["topic"], row["offset"]) for row in dead] == [(TOPIC, 1), (TOPIC, 2)]
        assert "column 'city' is as before and was not sent by the database" in dead[0]["error"]
        assert "its value is not JSON" in dead[1]["error"]
        assert json.loads(dead[1]["row"]) == broken
        assert rig.account("customers").dead == 2


def test_a_row_that_fails_an_expression_is_set_aside_and_the_others_stay(spark: SparkSession) -> None:
    app = ps.App("shop", settings=SETTINGS)
    customers = app.table("customers", schema="id bigint not null, name string", key="id", format="debezium")
    app.view("numbers", customers.with_columns(number="cast(name as int)"))
    with Rig(app, spark=spark) as rig:
        rig.append("customers", [message("c", {"id": 1, "name": "one"}), message("c", {"id": 2, "name": "2"})])
        rig.run()
        assert view(rig, "numbers") == [{"id": 2, "name": "2", "number": 2}]
        (dead,) = rig.rows("shop.dead")
        assert json.loads(dead["row"])["key"] == '{"id": 1}'


def test_the_last_message_of_a_key_counts_in_every_partition_and_epoch(spark: SparkSession) -> None:
    app = customers_app(partitions=3)
    with Rig(app, spark=spark) as rig:
        for round_ in range(3):
            changes = [
                message("u", customer(number, f"{step}", f"{round_}")) for step in range(4) for number in range(20)
            ]
            rig.append(TOPIC, changes)
            rig.run()
        assert view(rig, "cities") == [{"city": "2", "customers": 20}]
        assert {row["name"] for row in rig.view("customers")} == {"3"}


def test_a_restart_continues_with_the_state_it_has(spark: SparkSession) -> None:
    with Rig(customers_app(), spark=spark) as rig:
        rig.append(TOPIC, [message("c", customer(1, "Ada", "Rome"))])
        rig.run()
        rig.restart(customers_app())
        rig.append(TOPIC, [message("u", customer(1, "Ada", "Oslo"))])
        rig.run()
        assert view(rig, "cities") == [{"city": "Oslo", "customers": 1}]


def test_a_table_of_maxwell_is_one_of_those_in_its_topic(spark: SparkSession) -> None:
    app = ps.App("shop", settings=SETTINGS)
    schema = "id bigint not null, name string"
    app.view(
        "orders",
        app.table("orders", schema=schema, key="id", format="maxwell", topic="maxwell", source_table="shop.orders"),
    )

    def row(table: str, kind: str, **data: object) -> dict[str, object]:
        key = {"database": "shop", "table": table, "pk.id": data["id"]}
        return {
            "key": json.dumps(key),
            "value": json.dumps({"database": "shop", "table": table, "type": kind, "data": data}),
        }

    with Rig(app, spark=spark) as rig:
        rig.append("maxwell", [row("orders", "insert", id=1, name="a"), row("customers", "insert", id=1, name="b")])
        rig.append("maxwell", [row("orders", "insert", id=2, name="c"), row("orders", "delete", id=1, name="a")])
        rig.run()
        assert rig.view("orders") == [{"id": 2, "name": "c"}]
        assert rig.account("orders").filtered == 1


def test_declarations_that_mean_nothing_are_refused() -> None:
    for options, what in (
        ({"format": "canal"}, "format is one of debezium, maxwell; found 'canal'"),
        ({"format": None}, "topic is for tables whose changes are messages of another tool"),
        ({"source_table": "a.b"}, "source_table chooses among the tables in a topic of Maxwell"),
        ({"time_unit": "minutes"}, "time_unit is one of s, ms, us, ns"),
        ({"topic": "a b"}, "this is not a name for a topic"),
        ({"key": "nothing"}, "there is no column 'nothing'"),
    ):
        with pytest.raises(DeclarationError, match=what):
            customers_app(**options)


def test_sql_declares_the_same_table() -> None:
    app = ps.App("shop")
    app.sql(
        "CREATE TABLE customers (id bigint not null, name string, city string) "
        f"WITH (key = 'id', format = 'debezium', topic = '{TOPIC}', time_unit = 'ms')"
    )
    declared = customers_app(time_unit="ms").named["customers"].node
    assert app.named["customers"].node == declared


def test_a_second_table_of_a_topic_is_refused_with_the_way_out() -> None:
    app = customers_app()
    with pytest.raises(DeclarationError, match="it was declared differently at") as caught:
        app.table("names", schema="id bigint, name string", key="id", format="debezium", topic=TOPIC)
    assert caught.value.hint == "an app can read one table of each topic; read the others in apps of their own"


def test_a_topic_without_the_columns_of_messages_is_refused(spark: SparkSession) -> None:
    with Rig(customers_app(), spark=spark) as rig:
        rig.log.create_topic("rows", "id bigint, name string", key="id")
        with pytest.raises(
            DeclarationError, match="topic 'rows': its columns in the log are id, name; this app declares key"
        ):
            rig.restart(customers_app(topic="rows"))
