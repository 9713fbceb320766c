"""CREATE TOPIC, TABLE, VIEW and SINK: each beside the method of the app that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import App, event_time, topic
from penstock.errors import DeclarationError

SCHEMA = "order_id bigint not null, tags array<string>, placed_at timestamp, sent_at timestamp"
COLUMNS = "order_id BIGINT NOT NULL, tags ARRAY<STRING>, placed_at TIMESTAMP, sent_at TIMESTAMP"

CREATED: list[tuple[str, Callable[[App], Any]]] = [
    (f"CREATE TOPIC orders ({COLUMNS})", lambda app: app.topic("orders", schema=SCHEMA)),
    (
        (
            f"CREATE TOPIC orders ({COLUMNS}) WITH (key = 'order_id', time = 'placed_at', lateness = '5 "
            "seconds', partitions = 4)"
        ),
        lambda app: app.topic(
            "orders", schema=SCHEMA, key="order_id", time="placed_at", lateness="5 seconds", partitions=4
        ),
    ),
    (
        (
            f"CREATE TOPIC orders ({COLUMNS}) WITH (time = 'placed_at', sent = 'sent_at', idle = '1 "
            "minute', MAX_AHEAD = '1 hour')"
        ),
        lambda app: app.topic(
            "orders",
            schema=SCHEMA,
            time=event_time("placed_at", sent="sent_at", idle="1 minute", max_ahead="1 hour"),
        ),
    ),
    (
        f"CREATE TABLE orders ({COLUMNS}) WITH (key = 'order_id, placed_at', 'time' = 'placed_at')",
        lambda app: app.table("orders", schema=SCHEMA, key=["order_id", "placed_at"], time="placed_at"),
    ),
    (
        "CREATE TABLE `orders` (\n  a int COMMENT 'the first', -- and last\n  `b c` decimal(10, 2)\n) WITH (key = 'a')",
        lambda app: app.table("orders", schema="a int comment 'the first', `b c` decimal(10,2)", key="a"),
    ),
]


@pytest.mark.parametrize(("statement", "python"), CREATED, ids=[statement for statement, _ in CREATED])
def test_a_source_is_declared_as_in_python(statement: str, python: Callable[[App], Any]) -> None:
    declared = App("shop").sql(statement)
    expected = python(App("shop"))
    assert type(declared) is type(expected)
    assert declared.node == expected.node


def test_a_view_is_declared_and_given_back(declared: Callable[[], Any]) -> None:
    app = declared().app
    large = app.sql("CREATE VIEW large AS SELECT * FROM orders WHERE amount > 9")
    assert [(view.name, view.node) for view in app.plan.views] == [("large", large.node)]


@pytest.mark.parametrize(
    ("statement", "options"),
    [
        ("CREATE SINK large AS", {}),
        ("CREATE SINK large WITH (to = topic('big')) AS", {"to": topic("big")}),
        ("CREATE SINK large WITH (TO = TOPIC('big', partitions = 4)) AS", {"to": topic("big", partitions=4)}),
        ("CREATE SINK large WITH (to = 'sqlite:///r.db') AS", {"to": "sqlite:///r.db"}),
    ],
)
def test_a_sink_is_declared_as_in_python(declared: Callable[[], Any], statement: str, options: dict[str, Any]) -> None:
    in_sql, in_python = declared().app, declared().app
    rows = in_sql.sql(f"{statement} SELECT * FROM orders WHERE amount > 9")
    in_python.sink("large", in_python.named["orders"].where("amount > 9"), **options)
    assert in_sql.plan == in_python.plan
    assert in_sql.plan.all_sinks[0].node is rows.node
    assert "large" not in in_sql.named


def test_what_is_declared_in_sql_is_found_in_python_and_the_other_way_round() -> None:
    app = App("shop")
    app.sql("CREATE TOPIC orders (order_id BIGINT, amount INT)")
    assert app.topic("orders", schema="order_id bigint, amount int").node is app.named["orders"].node
    app.view("large", app.named["orders"].where("amount > 9"))
    assert app.sql("SELECT order_id FROM large").columns == ("order_id",)
    assert list(app.named) == ["orders", "large"]


REFUSED = [
    ("CREATE TOPIC t (a int) WITH (partition = 4)", "there is no option 'partition'", "did you mean 'partitions'?"),
    ("CREATE TABLE t (a int) WITH (key = 'a', lateness = '1 second')", "there is no option 'lateness'", None),
    ("CREATE TOPIC t (a int) WITH (key = 'a', key = 'a')", "option 'key' is given twice", None),
    ("CREATE TOPIC t (a int) WITH (key)", "an option is written name = value", "WITH (key = 'id'"),
    ("CREATE TOPIC t (a int) WITH (key = a)", "a value is a text in quotes or a whole number; found 'a'", None),
    (
        "CREATE TOPIC t (a int) WITH (partitions = '2')",
        "option 'partitions' is a whole number; found the text '2'",
        "without quotes: partitions = 4",
    ),
    (
        "CREATE TOPIC t (a int) WITH (time = 5)",
        "option 'time' is a text; found the number 5",
        "in quotes: time = '...'",
    ),
    ("CREATE TOPIC t (a int) WITH (key = 'b')", "topic 't': there is no column 'b'", None),
    ("CREATE TOPIC t (a strin)", "topic 't': schema: unknown type 'strin'", "did you mean 'string'?"),
    ("CREATE TABLE t (a int)", "table 't': a table needs a key", "WITH (key = 'id')"),
    ("CREATE TABLE t (a int PRIMARY KEY)", "PRIMARY KEY is not supported", "WITH (key = 'id')"),
    ("CREATE TABLE t (a int, PRIMARY KEY (a) NOT ENFORCED)", "PRIMARY KEY is not supported", "WITH (key = 'id')"),
    (
        "CREATE TOPIC t (a timestamp, WATERMARK FOR a AS a - INTERVAL 5 SECONDS)",
        "WATERMARK FOR is not supported",
        "lateness",
    ),
    ("CREATE TOPIC t (a int) PARTITIONED BY (a)", "PARTITIONED BY is not supported", "partitions = 4"),
    ("CREATE TABLE t (a int) USING parquet", "USING is not supported", "WITH (...)"),
    ("CREATE TABLE t AS SELECT * FROM orders", "CREATE TABLE ... AS SELECT is not supported", "CREATE VIEW"),
    ("CREATE OR REPLACE VIEW v AS SELECT * FROM orders", "CREATE OR REPLACE is not supported", "without OR REPLACE"),
    ("CREATE VIEW IF NOT EXISTS v AS SELECT * FROM orders", "IF NOT EXISTS is not needed", "leave it out"),
    ("CREATE TEMPORARY VIEW v AS SELECT * FROM orders", "CREATE TEMPORARY is not supported", "WITH name AS"),
    ("CREATE MATERIALIZED VIEW v AS SELECT * FROM orders", "CREATE MATERIALIZED is not supported", "CREATE VIEW"),
    ("CREATE SINK s (a) AS SELECT * FROM orders", "expected AS; found '('", "CREATE SINK name"),
    ("CREATE SINK s WITH (table = 'x') AS SELECT * FROM orders", "there is no option 'table'; there are to", None),
    (
        "CREATE SINK s WITH (topic = 'big', partitions = 2) AS SELECT * FROM orders",
        "there is no option 'topic'; there is to",
        "WITH (to = topic('name', partitions = 2))",
    ),
    (
        "CREATE SINK s WITH (to = topic('orders')) AS SELECT * FROM orders",
        "the app reads topic 'orders' itself",
        None,
    ),
    ("CREATE SINK s WITH (to = topic(big)) AS SELECT * FROM orders", "a text in quotes; found 'big'", "topic('name'"),
    ("CREATE SINK s WITH (to = topic()) AS SELECT * FROM orders", "a text in quotes; found ''", "topic('name'"),
    (
        "CREATE SINK s WITH (to = topic('big', parts = 2)) AS SELECT * FROM orders",
        "there is no option 'parts'; there are partitions",
        None,
    ),
    (
        "CREATE SINK s WITH (to = topic('big', partitions = '2')) AS SELECT * FROM orders",
        "option 'partitions' is a whole number",
        None,
    ),
    ("CREATE SINK s WITH (to = topic('a b')) AS SELECT * FROM orders", "this is not a name for a topic", None),
    ("CREATE SINK s WITH (to = 'big') AS SELECT * FROM orders", "a target is a URL; found 'big'", "to = topic('big')"),
    ("CREATE SINK s WITH (to = 5) AS SELECT * FROM orders", "to is a topic or the URL of a target; found '5'", None),
    ("CREATE SINK s WITH (to = 'ftp://x') AS SELECT * FROM orders", "there is no target for 'ftp:'", None),
    (
        "CREATE SINK s WITH (to = 'sqlite:///a', to = 'sqlite:///b') AS SELECT * FROM orders",
        "'to' is given twice",
        None,
    ),
    ("CREATE SINK s WITH () AS SELECT * FROM orders", "an option is written name = value", None),
    ("CREATE TOPIC t (a timestamp) WITH (idle = '1 minute')", "topic 't': idle needs events with a time", "WITH (time"),
    (
        "CREATE TOPIC t (a timestamp) WITH (time = 'a', lateness = 'soon')",
        "topic 't': lateness: 'soon' is not a duration",
        None,
    ),
    (
        "CREATE SINK s AS SELECT count(*) AS n FROM orders",
        "sink 's': its rows can be retracted but have no key",
        ".changes()",
    ),
    ("CREATE FUNCTION f AS 'x'", "CREATE FUNCTION is not supported", ".map("),
    ("CREATE STREAM s (a int)", "CREATE STREAM is not supported", "CREATE TOPIC"),
    (
        "CREATE VEIW v AS SELECT * FROM orders",
        "expected TOPIC, TABLE, VIEW or SINK; found 'VEIW'",
        "did you mean 'view'?",
    ),
    ("CREATE VIEW v (a) AS SELECT * FROM orders", "the columns of a view are named in its query", "SELECT a AS b"),
    ("CREATE VIEW orders AS SELECT * FROM searches", "there is a topic or a table of this name", None),
    ("CREATE VIEW `by day` AS SELECT * FROM orders", "view 'by day': this is not a name for a view", None),
    ("CREATE VIEW v SELECT * FROM orders", "expected AS; found 'SELECT'", "CREATE VIEW name AS SELECT"),
]


@pytest.mark.parametrize(("statement", "message", "hint"), REFUSED, ids=[statement for statement, _, _ in REFUSED])
def test_what_cannot_be_created_is_refused_with_what_to_write_instead(
    statement: str, message: str, hint: str | None, refused: Callable[[str], DeclarationError]
) -> None:
    error = refused(statement)
    assert message in error.message
    assert "conftest.py:" in error.message
    assert (hint is None) or (error.hint is not None and hint in error.hint)


def test_a_topic_does_not_take_the_name_of_a_view(declared: Callable[[], Any]) -> None:
    app = declared().app
    app.sql("CREATE VIEW large AS SELECT * FROM orders")
    with pytest.raises(DeclarationError, match="topic 'large': there is a view of this name"):
        app.sql("CREATE TOPIC large (a int)")
    with pytest.raises(DeclarationError, match="there is a view of this name already"):
        app.sql("CREATE VIEW large AS SELECT * FROM orders")
