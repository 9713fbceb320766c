"""One statement given to an app, and files of statements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import App, AppSettings
from penstock.app import load_app
from penstock.errors import DeclarationError
from penstock.flow.explain import explain
from penstock.flow.plan import Plan

SHOP = """-- A shop.
SET max_rows = 100000;
SET on_bad_row = 'stop';

CREATE TOPIC orders (order_id BIGINT, country STRING, amount INT, placed_at TIMESTAMP)
WITH (key = 'order_id', time = 'placed_at');

/* Those that matter; all others
   are left out. */
CREATE VIEW large AS
SELECT order_id, amount
FROM orders
WHERE amount > 9;  -- not ';' here
;
CREATE VIEW by_country AS SELECT country, count(*) AS orders FROM orders GROUP BY country
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a program into the current folder."""
    monkeypatch.chdir(tmp_path)

    def program(text: str, name: str = "shop.sql") -> Path:
        Path(name).write_text(text)
        return Path(name)

    return program


def test_a_file_declares_an_app_of_its_own_name(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LOG", "/data/log")
    app = load_app(write(SHOP))
    assert (app.name, app.log) == ("shop", Path("/data/log"))
    assert app.settings == AppSettings(max_rows=100_000, on_bad_row="stop")
    assert [view.name for view in app.plan.views] == ["large", "by_country"]


def test_a_file_gives_the_plan_of_the_same_app_in_python(write: Callable[..., Path]) -> None:
    app = App("shop")
    schema = "order_id bigint, country string, amount int, placed_at timestamp"
    orders = app.topic("orders", schema=schema, key="order_id", time="placed_at")
    app.view("large", orders.where("amount > 9").select("order_id", "amount"))
    app.view("by_country", orders.group_by("country").agg(orders="count(*)"))
    assert load_app(write(SHOP)).plan == app.plan


def test_everything_has_the_line_of_the_file(write: Callable[..., Path]) -> None:
    large = load_app(write(SHOP)).plan.views[0]
    assert str(large.location) == "shop.sql:10"
    assert str(large.node.location) == "shop.sql:11"
    assert str(large.node.input.location) == "shop.sql:13"  # type: ignore[union-attr]
    assert str(large.node.input.input.location) == "shop.sql:5"  # type: ignore[union-attr]


REFUSED = [
    (SHOP.replace("WHERE amount", "WHERE amonut"), "shop.sql:13: where: there is no column 'amonut'", "'amount'"),
    (
        SHOP.replace("country, count(*)", "contry, count(*)"),
        "shop.sql:15: select: there is no column 'contry'",
        "country",
    ),
    (SHOP + "; SELECT * FROM large", "shop.sql:16: sql: a SELECT alone declares nothing", "CREATE VIEW"),
    (SHOP + ";\nEXPLAIN large", "shop.sql:17: sql: EXPLAIN declares nothing", "penstock explain shop.sql"),
    (SHOP + ";\nSET max_rows = 3", "shop.sql:17: set: SET belongs at the beginning", None),
    ("SET max_row = 3;", "shop.sql:1: set: there is no setting 'max_row'", "did you mean 'max_rows'?"),
    ("SET dead = 'stop';", "shop.sql:1: set: there is no setting 'dead'", "on_bad_row"),
    ("SET max_rows = 'many';", "shop.sql:1: set: settings: max_rows must be a whole number", None),
    ("SET max_rows = 3;\nSET max_rows = 4;", "shop.sql:2: set: 'max_rows' is set twice", None),
    ("SET max_rows 3;", "shop.sql:1: set: expected =; found '3'", "SET max_rows = 100000"),
    ("\n\nINSERT INTO orders VALUES (1)", "shop.sql:3: sql: INSERT is not supported", "penstock produce"),
    ("UPDATE orders SET amount = 1", "shop.sql:1: sql: UPDATE is not supported", "penstock produce"),
    ("DELETE FROM orders", "shop.sql:1: sql: DELETE is not supported", "penstock produce"),
    ("MERGE INTO orders", "shop.sql:1: sql: MERGE is not supported", "CREATE VIEW"),
    ("DROP VIEW large", "shop.sql:1: sql: DROP is not supported", "leave the declaration out"),
    ("ALTER TABLE orders ADD COLUMN x INT", "shop.sql:1: sql: ALTER is not supported", "change the declaration"),
    ("SHOW TABLES", "shop.sql:1: sql: SHOW is not supported", "penstock views"),
    ("MAKE it so", "shop.sql:1: sql: a statement begins with CREATE, SELECT", None),
    ("CREATE TOPIC t (a int);\nCREATE VIEW v AS SELECT 'x FROM t", "shop.sql:2: sql: a quote is not closed", None),
    ("CREATE TOPIC t (a int);\n/* never\nclosed", "shop.sql:2: sql: a comment is not closed", None),
]


@pytest.mark.parametrize(("text", "message", "hint"), REFUSED, ids=[message for _, message, _ in REFUSED])
def test_a_mistake_is_told_with_the_line_of_the_file(
    text: str, message: str, hint: str | None, write: Callable[..., Path]
) -> None:
    with pytest.raises(DeclarationError) as refused:
        load_app(write(text))
    assert refused.value.message.startswith(message)
    assert (hint is None) or (refused.value.hint is not None and hint in refused.value.hint)


def test_a_file_whose_name_is_none_for_an_app_is_refused(write: Callable[..., Path]) -> None:
    with pytest.raises(DeclarationError) as refused:
        load_app(write(SHOP, "my shop.sql"))
    assert refused.value.message == "my shop.sql: an app in SQL has the name of its file, and 'my shop' cannot be one"
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("rename the file: ")


def test_a_file_has_one_app_which_may_be_named(write: Callable[..., Path]) -> None:
    path = write(SHOP)
    assert load_app(path, name="shop").name == "shop"
    with pytest.raises(DeclarationError, match=r"shop.sql: there is no app 'store'; found shop"):
        load_app(path, name="store")


def test_a_file_that_cannot_be_read_is_refused(write: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"nowhere.sql: there is no such file"):
        load_app(Path("nowhere.sql"))
    (tmp_path / "latin.sql").write_bytes("-- für alle".encode("latin-1"))
    with pytest.raises(DeclarationError, match=r"latin.sql: it is not text in UTF-8"):
        load_app(Path("latin.sql"))


def test_a_file_without_statements_is_an_app_without_views(write: Callable[..., Path]) -> None:
    assert load_app(write("-- nothing yet\n")).plan == Plan("shop", ())


# -- one statement ----------------------------------------------------------------------------------------------------


def test_an_app_takes_one_statement_at_a_time(declared: Callable[[], Any]) -> None:
    app = declared().app
    assert app.sql("SELECT order_id FROM orders;").columns == ("order_id",)
    for text, found in (("", 0), ("-- nothing", 0), ("SELECT * FROM orders; SELECT * FROM orders", 2)):
        with pytest.raises(DeclarationError, match=f"one statement is needed; found {found}"):
            app.sql(text)
    with pytest.raises(DeclarationError, match=r"test_program.py:\d+: sql: a text is needed; found 3"):
        app.sql(3)
    with pytest.raises(DeclarationError, match="SET is for files") as refused:
        app.sql("SET max_rows = 3")
    assert refused.value.hint == "App(name, settings=AppSettings(max_rows=...))"


def test_the_place_in_a_python_program_is_the_call(declared: Callable[[], Any]) -> None:
    node = declared().app.sql("SELECT order_id\nFROM orders").node
    assert Path(node.location.file).name == "test_program.py"


def test_explain_gives_what_the_command_prints(declared: Callable[[], Any]) -> None:
    app = declared().app
    app.sql("CREATE VIEW large AS SELECT * FROM orders WHERE amount > 9")
    assert app.explain("large") == explain(app.plan)
    shown = app.explain("SELECT country, count(*) AS n FROM large GROUP BY country")
    assert shown.startswith("app shop\n")
    assert "group by country: n = count(*)" in shown
    assert "view select  <- 3" in shown
    with pytest.raises(DeclarationError, match="explain: there is no 'lrage'") as refused:
        app.explain("lrage")
    assert refused.value.hint == "did you mean 'large'?"


def test_a_sink_is_explained_with_its_topic(declared: Callable[[], Any]) -> None:
    app = declared().app
    app.sql("CREATE SINK large WITH (to = topic('big')) AS SELECT * FROM orders WHERE amount > 9")
    assert app.explain("large") == explain(app.plan)
    assert "sink large -> topic big  <- 2" in app.explain("large")


def test_explain_belongs_to_app_explain(declared: Callable[[], Any]) -> None:
    app = declared().app
    with pytest.raises(DeclarationError, match=r"test_program.py:\d+: sql: EXPLAIN gives text, not rows") as refused:
        app.sql("EXPLAIN SELECT * FROM orders")
    assert refused.value.hint == 'app.explain("SELECT * FROM orders")'
    assert app.explain("EXPLAIN SELECT * FROM orders") == app.explain("SELECT * FROM orders")


def test_without_a_name_the_whole_app_is_explained(declared: Callable[[], Any]) -> None:
    app = declared().app
    app.sql("CREATE VIEW large AS SELECT * FROM orders WHERE amount > 9")
    app.sql(
        "CREATE SINK report WITH (to = 'sqlite:///r.db') AS SELECT country, count(*) AS n FROM orders GROUP BY country"
    )
    assert app.explain() == explain(app.plan)
    assert "sink report -> sqlite:///r.db  <- " in app.explain()
    assert "sink report -> sqlite:///r.db  <- " in app.explain("report")
    assert "view large" not in app.explain("report")


def test_what_cannot_be_explained_is_refused(declared: Callable[[], Any]) -> None:
    app = declared().app
    for what, message in (
        (7, "the text of a query or a name is needed; found 7"),
        ("", "one name or one query is needed; found 0"),
        ("CREATE VIEW v AS SELECT * FROM orders", "expected the end; found 'VIEW'"),
    ):
        with pytest.raises(DeclarationError, match=f"explain: {message}"):
            app.explain(what)
