"""Declaring captured tables: what `app.capture` gives, where it takes columns from, and its errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import App, Log, Stream, Table, event_time
from penstock.captures import default_capture, default_topic
from penstock.errors import DeclarationError
from penstock.flow.explain import document, explain
from penstock.flow.fingerprint import fingerprint
from penstock.flow.plan import Changelog, Timing, Topic

CUSTOMERS = "id bigint not null, name string, tier string"
EVENTS = "id bigint not null, aggregatetype string, aggregateid string, type string, payload string"
SECOND = 1_000_000


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A database with customers, a table without a key, and an outbox."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, tier TEXT)")
        connection.execute("CREATE TABLE keyless (name TEXT)")
        connection.execute(
            "CREATE TABLE events (id INTEGER PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, type TEXT,"
            " payload TEXT)"
        )
    connection.close()
    return f"sqlite:///{path}"


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App("shop", log=tmp_path / "log")


def test_a_captured_table_is_a_table_whose_time_is_when_its_rows_were_committed(app: App) -> None:
    customers = app.capture("sqlite:///shop.db", table="customers", schema=CUSTOMERS, partitions=4)
    assert isinstance(customers, Table)
    node = customers.node
    assert isinstance(node, Changelog)
    assert (node.name, node.key, node.time, node.partitions) == ("customers", ("id",), "committed_at", 4)
    assert node.shape.columns == ("id", "name", "tier", "committed_at")
    orders = app.topic("orders", schema="number bigint, customer bigint, placed_at timestamp", time="placed_at")
    app.view("named", orders.join(customers, on={"customer": "id"}, as_of="placed_at"))


def test_the_key_is_what_cannot_be_null_unless_it_is_named(app: App) -> None:
    lines = app.capture("sqlite:///shop.db", table="lines", schema="n int not null, order bigint not null, sku string")
    named = app.capture("sqlite:///shop.db", table="named", schema="a int, b int", key=["b", "a"])
    assert (lines.node.shape.key, named.node.shape.key) == (("n", "order"), ("b", "a"))


def test_an_outbox_is_a_stream_of_events_in_the_order_of_each_aggregate(app: App) -> None:
    events = app.capture("sqlite:///shop.db", outbox="events", schema=EVENTS)
    assert isinstance(events, Stream)
    assert isinstance(events.node, Topic)
    assert events.node.key == ("aggregateid",)
    assert events.node.timing == Timing("committed_at", 5 * SECOND)
    (declared,) = app.captures
    assert declared.tables[0].inserts_only


def test_the_events_of_an_outbox_may_have_a_time_of_their_own(app: App) -> None:
    columns = f"{EVENTS}, at timestamp"
    events = app.capture(
        "sqlite:///shop.db", outbox="events", schema=columns, time=event_time("at", lateness="1 minute")
    )
    assert isinstance(events.node, Topic)
    assert events.node.timing == Timing("at", 60 * SECOND)
    assert events.node.shape.time == "at"


def test_tables_of_one_url_share_a_capture(app: App) -> None:
    app.capture("sqlite:///shop.db", table="customers", schema=CUSTOMERS)
    app.capture("sqlite:///shop.db", table="main.orders", schema=CUSTOMERS, as_text="name", columns=["id", "name"])
    app.capture("sqlite:///other.db", table="parts", schema=CUSTOMERS, name="spare_parts")
    shop, other = app.captures
    assert (shop.name, [table.topic for table in shop.tables]) == ("shop", ["customers", "orders"])
    assert (shop.tables[1].table, shop.tables[1].as_text, shop.tables[1].columns) == (
        "main.orders",
        ("name",),
        ("id", "name"),
    )
    assert (other.name, other.topics) == ("other", {"parts": "spare_parts"})


def test_the_first_name_of_a_capture_is_that_of_its_url(app: App) -> None:
    app.capture("sqlite:///shop.db", table="customers", schema=CUSTOMERS, capture="crm")
    app.capture("sqlite:///shop.db", table="orders", schema=CUSTOMERS)
    assert [declared.name for declared in app.captures] == ["crm"]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://ada:secret@localhost:5433/shop?sslmode=require", "shop"),
        ("sqlite:///data/my shop.db", "my_shop"),
        ("sqlite:////var/data/shop.sqlite3", "shop"),
        ("mysql://db.example/", "db.example"),
    ],
)
def test_a_capture_is_named_after_its_database(url: str, name: str) -> None:
    assert default_capture(url) == name


def test_the_usual_schemas_of_databases_are_not_part_of_the_name_of_a_topic() -> None:
    tables = ["customers", "public.customers", "main.customers", "sales.customers"]
    assert list(map(default_topic, tables)) == ["customers", "customers", "customers", "sales.customers"]


def test_to_declare_a_table_again_in_the_same_way_gives_the_same(app: App) -> None:
    first = app.capture("sqlite:///shop.db", table="customers", schema=CUSTOMERS)
    again = app.capture("sqlite:///shop.db", table="customers", schema=CUSTOMERS)
    assert again.node is first.node
    assert len(app.captures[0].tables) == 1


# -- columns ----------------------------------------------------------------------------------------------------------


def test_without_a_schema_the_database_is_asked(app: App, database: str) -> None:
    customers = app.capture(database, table="customers")
    assert customers.node.shape.columns == ("id", "name", "tier", "committed_at")
    assert customers.node.shape.key == ("id",)


def test_a_topic_that_is_there_is_asked_before_the_database(app: App) -> None:
    with Log(app.log) as log:
        log.create_topic("customers", f"{CUSTOMERS}, committed_at timestamp", key="id")
    customers = app.capture("sqlite:///none.db", table="customers")
    assert customers.node.shape.columns == ("id", "name", "tier", "committed_at")
    narrow = App("narrow", log=app.log).capture("sqlite:///none.db", table="customers", columns=["name"])
    assert narrow.node.shape.columns == ("id", "name", "committed_at")


def test_a_database_that_cannot_be_asked_is_an_error_that_says_how_to_do_without(app: App, tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as raised:
        app.capture(f"sqlite:///{tmp_path}/none.db", table="customers")
    assert "test_captures.py" in raised.value.message
    assert raised.value.hint is not None


# -- what is wrong ----------------------------------------------------------------------------------------------------

WRONG: list[tuple[Callable[[App], Any], str, str]] = [
    (lambda app: app.capture("sqlite:///a.db"), "a table or an outbox; found neither", 'table="customers"'),
    (
        lambda app: app.capture("sqlite:///a.db", table="a", outbox="b"),
        "found table='a' and outbox='b'",
        'outbox="events"',
    ),
    (lambda app: app.capture("sqlte:///a.db", table="a"), "sqlte", "sqlite"),
    (lambda app: app.capture("sqlite:///a.db", table=3), "a table is named by a text; found 3", "table="),
    (
        lambda app: app.capture("sqlite:///a.db", table="a", schema="id bigint, name string"),
        "a captured table has a key, which are its columns that cannot be null; found none",
        'key="id"',
    ),
    (
        lambda app: app.capture("sqlite:///a.db", table="a", schema=CUSTOMERS, key="idd"),
        "key: there is no column 'idd'; there are id, name, tier, committed_at",
        "did you mean 'id'?",
    ),
    (
        lambda app: app.capture("sqlite:///a.db", table="a", schema=CUSTOMERS, as_text=["nmae"]),
        "as_text: there is no column 'nmae'",
        "did you mean 'name'?",
    ),
    (
        lambda app: app.capture("sqlite:///a.db", table="a", schema=CUSTOMERS, columns=["nmae"]),
        "columns: there is no column 'nmae'",
        "did you mean 'name'?",
    ),
    (
        lambda app: app.capture("sqlite:///a.db", outbox="events", schema="id bigint, type string"),
        "an outbox has the columns id, aggregatetype, aggregateid, type, payload; aggregatetype, aggregateid, payload",
        'table="..."',
    ),
    (
        lambda app: app.capture("sqlite:///a.db", outbox="events", schema=EVENTS, key="id"),
        "the events of an outbox have the key aggregateid",
        "leave out key",
    ),
    (
        lambda app: app.capture("sqlite:///a.db", table="a", schema=CUSTOMERS, time="since"),
        "the time of a table is when its rows were committed",
        "",
    ),
    (lambda app: app.capture("sqlite:///a.db", table="my table", schema=CUSTOMERS), "my table", "letters"),
    (lambda app: app.capture("sqlite:///a.db", table="a", capture="a/b"), "capture: this is not a name", "letters"),
    (lambda app: app.capture("sqlite:///a.db", table="a", tpoic="b"), "there is no parameter 'tpoic'", ""),
    (lambda app: app.capture("sqlite:///a.db", table="a", slot="b"), "no parameter 'slot'", "capture="),
]


@pytest.mark.parametrize(("declare", "message", "hint"), WRONG)
def test_a_mistake_is_an_error_with_a_hint(app: App, declare: Callable[[App], Any], message: str, hint: str) -> None:
    with pytest.raises(DeclarationError) as raised:
        declare(app)
    assert message in raised.value.message
    assert hint in (raised.value.hint or "")
    assert app.captures == ()


def test_two_captures_of_one_name_are_refused(app: App) -> None:
    app.capture("postgresql://ada:secret@one/shop", table="customers", schema=CUSTOMERS)
    with pytest.raises(
        DeclarationError, match="capture 'shop' captures from postgresql://ada:\\*\\*\\*@one/shop"
    ) as raised:
        app.capture("postgresql://ada:secret@two/shop", table="orders", schema=CUSTOMERS)
    assert "secret" not in str(raised.value)
    assert raised.value.hint == 'give this one another name: capture="..."'
    app.capture("postgresql://ada:secret@two/shop", table="orders", schema=CUSTOMERS, capture="second_shop")


def test_a_table_has_one_topic_and_a_topic_one_table(app: App) -> None:
    app.capture("sqlite:///shop.db", table="customers", schema=CUSTOMERS)
    for table, name in (("customers", "people"), ("people", "customers")):
        with pytest.raises(DeclarationError, match="writes table 'customers' to topic 'customers'"):
            app.capture("sqlite:///shop.db", table=table, name=name, schema=CUSTOMERS)


def test_a_topic_is_not_both_captured_and_declared_otherwise(app: App) -> None:
    app.table("customers", schema=f"{CUSTOMERS}, committed_at timestamp", key="id", time="committed_at")
    with pytest.raises(DeclarationError, match="it was declared differently"):
        app.capture("sqlite:///shop.db", table="customers", schema=CUSTOMERS)


def test_a_table_that_the_database_does_not_have_is_an_error(app: App, database: str) -> None:
    with pytest.raises(DeclarationError, match="customer"):
        app.capture(database, table="customer")


def test_a_table_without_a_key_is_an_error_with_the_statement_that_mends_it(app: App, database: str) -> None:
    with pytest.raises(DeclarationError, match="keyless") as raised:
        app.capture(database, table="keyless")
    assert raised.value.hint


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_explain_says_where_a_table_comes_from_without_the_password(app: App) -> None:
    url = "postgresql://ada:secret@localhost/shop"
    customers = app.capture(url, table="public.customers", schema=CUSTOMERS)
    app.view("tiers", customers.group_by("tier").agg(n="count(*)"))
    text = explain(app.plan)
    assert "captured from postgresql://ada:***@localhost/shop, table public.customers" in text
    assert "secret" not in text
    assert "secret" not in str(document(app.plan))
    assert "secret" not in repr(app.plan)
    nodes: Any = document(app.plan)["nodes"]
    assert nodes[0]["captured"]["capture"] == "shop"


def test_a_database_that_has_moved_changes_no_fingerprint() -> None:
    def node(url: str) -> Any:
        return App("shop").capture(url, table="customers", schema=CUSTOMERS).node

    here, there = node("postgresql://ada:secret@localhost/shop"), node("postgresql://bob:other@db.example:5433/crm")
    assert fingerprint(here) == fingerprint(there)
    assert here == there
    plain = App("shop").table("customers", schema=f"{CUSTOMERS}, committed_at timestamp", key="id", time="committed_at")
    assert fingerprint(plain.node) == fingerprint(here)


# -- SQL --------------------------------------------------------------------------------------------------------------

STATEMENTS: list[tuple[str, Callable[[App], Any]]] = [
    (
        "CREATE TABLE customers (id BIGINT NOT NULL, name STRING) WITH (url = 'sqlite:///shop.db')",
        lambda app: app.capture("sqlite:///shop.db", table="customers", schema="id bigint not null, name string"),
    ),
    (
        (
            "CREATE TABLE people (id BIGINT NOT NULL, name STRING) WITH (url = 'sqlite:///shop.db', "
            "table = 'crm.customers', as_text = 'name', columns = 'id, name', partitions = 2, capture = 'crm')"
        ),
        lambda app: app.capture(
            "sqlite:///shop.db",
            table="crm.customers",
            name="people",
            schema="id bigint not null, name string",
            as_text=["name"],
            columns=["id", "name"],
            partitions=2,
            capture="crm",
        ),
    ),
    (
        (
            f"CREATE TOPIC happened ({EVENTS}, at timestamp) "
            "WITH (url = 'sqlite:///shop.db', outbox = 'events', time = 'at', lateness = '1 minute')"
        ),
        lambda app: app.capture(
            "sqlite:///shop.db",
            outbox="events",
            name="happened",
            schema=f"{EVENTS}, at timestamp",
            time="at",
            lateness="1 minute",
        ),
    ),
]


@pytest.mark.parametrize(("statement", "python"), STATEMENTS)
def test_sql_declares_what_python_declares(statement: str, python: Callable[[App], Any]) -> None:
    in_sql, in_python = App("shop"), App("shop")
    declared, expected = in_sql.sql(statement), python(in_python)
    assert (type(declared), declared.node) == (type(expected), expected.node)
    assert in_sql.captures == in_python.captures


def test_sql_needs_no_columns_where_the_database_has_them(app: App, database: str) -> None:
    customers = app.sql(f"CREATE TABLE customers WITH (url = '{database}')")
    assert customers.node.shape.columns == ("id", "name", "tier", "committed_at")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE customers WITH (key = 'id')", "its columns are missing"),
        ("CREATE TABLE customers (id BIGINT) WITH (key = 'id', capture = 'crm')", "there is no url"),
        ("CREATE TABLE c (id BIGINT) WITH (url = 'sqlite:///a.db', outbox = 'e')", "there is no option 'outbox'"),
        ("CREATE TOPIC c (id BIGINT) WITH (url = 'sqlite:///a.db')", "a table or an outbox; found neither"),
        ("CREATE TABLE customers", "("),
    ],
)
def test_a_mistake_in_sql_is_an_error(app: App, statement: str, message: str) -> None:
    with pytest.raises(DeclarationError) as raised:
        app.sql(statement)
    assert message in raised.value.message
