"""Parts of expressions that are replaced by names, names by parts, and aliases of the SELECT list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App
from penstock.errors import DeclarationError
from penstock.sql.substitute import fill_in, replace_part

VALUES = {"a": 3, "b": -5, "c": 7}
EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "b", "c", "1", "2"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(" ".join),
        inner.map("({})".format),
        inner.map("- {}".format),
    ),
    max_leaves=6,
)


def value(text: str, **others: int) -> int:
    return int(eval(text, {"__builtins__": {}}, {**VALUES, **others}))


@given(text=EXPRESSIONS, part=EXPRESSIONS)
def test_what_is_cut_out_has_the_value_of_its_name(text: str, part: str) -> None:
    assert value(replace_part(text, part, "_key"), _key=value(part)) == value(text)


@given(text=EXPRESSIONS, part=EXPRESSIONS)
def test_what_is_put_in_has_the_value_of_its_name(text: str, part: str) -> None:
    named = text.replace("c", "_name")
    new = fill_in(named, {"_name": part})
    assert new is not None
    assert value(new) == value(named, _name=value(part))


@pytest.mark.parametrize(
    ("text", "part", "expected"),
    [
        ("V+1 > 2", "v + 1", "_key > 2"),
        ("`v` + 1 > 2", "v + 1", "_key > 2"),
        ("v + 1 * 2", "v + 1", "v + 1 * 2"),
        ("w - v + 1", "v + 1", "w - v + 1"),
        ("t.v + v", "v", "t.v + _key"),
        ("v.a + 1", "v", "_key.a + 1"),
        ("extract(day FROM day)", "day", "extract(day FROM _key)"),
        ("day + INTERVAL 1 day", "day", "_key + INTERVAL 1 day"),
        ("CAST(date AS date) > DATE '2024-01-01'", "date", "CAST(_key AS date) > DATE '2024-01-01'"),
        ("transform(v, v -> v + 1)", "v", "transform(_key, v -> v + 1)"),
        ("date(date)", "date", "date(_key)"),
    ],
)
def test_only_a_whole_part_is_cut_out(text: str, part: str, expected: str) -> None:
    assert replace_part(text, part, "_key") == expected


def test_nothing_is_put_in_where_it_would_mean_something_else() -> None:
    assert fill_in("transform(tags, x -> x + _name)", {"_name": "x"}) is None
    assert fill_in("_name.city > 'a'", {"_name": "first(address)"}) == "first(address).city > 'a'"


# -- aliases ----------------------------------------------------------------------------------------------------------

# Of a topic with columns that are also units, types and words of SQL.
WORDS: list[tuple[str, Callable[[Any], Any]]] = [
    (
        "SELECT month AS m, extract(month FROM max(at)) AS x FROM words GROUP BY m",
        lambda words: words.group_by(m="month").agg(x="extract(month FROM max(at))"),
    ),
    (
        "SELECT day AS d, max(at) + INTERVAL 1 day AS x FROM words GROUP BY d",
        lambda words: words.group_by(d="day").agg(x="max(at) + INTERVAL 1 day"),
    ),
    (
        "SELECT date AS d, CAST(max(at) AS date) AS x FROM words GROUP BY d HAVING date > DATE '2024-01-01'",
        lambda words: words.group_by(d="date").agg(x="CAST(max(at) AS date)").where("d > DATE '2024-01-01'"),
    ),
    (
        "SELECT day AS x, transform(tags, day -> day + 1) AS t, count(*) AS n FROM words GROUP BY x, tags",
        lambda words: (
            words.group_by(x="day", tags="tags")
            .agg(n="count(*)")
            .select(x="x", t="transform(tags, day -> day + 1)", n="n")
        ),
    ),
    (
        "SELECT tags, count(*) AS n FROM words GROUP BY tags HAVING exists(tags, n -> n > 1) AND n > 2",
        lambda words: words.group_by("tags").agg(n="count(*)").where("exists(tags, n -> n > 1) AND n > 2"),
    ),
    (
        "SELECT `group`, count(*) AS n FROM words GROUP BY `group` HAVING `group` > 'a'",
        lambda words: words.group_by("group").agg(n="count(*)").where("group > 'a'"),
    ),
    (
        "SELECT first(s) AS f, day FROM words GROUP BY day HAVING f.a > 2",
        lambda words: words.group_by("day").agg(f="first(s)").where("f.a > 2").select("f", "day"),
    ),
]


def words() -> tuple[App, Any]:
    app = App("words")
    schema = "month bigint, day bigint, date date, `group` string, tags array<bigint>, s struct<a: int>, at timestamp"
    return app, app.topic("words", schema=schema, time="at")


@pytest.mark.parametrize(("query", "python"), WORDS, ids=[query for query, _ in WORDS])
def test_words_that_are_no_columns_stay_as_they_are(query: str, python: Callable[[Any], Any]) -> None:
    (in_sql, _), (in_python, topic) = words(), words()
    in_sql.sql(f"CREATE VIEW answer AS {query}")
    in_python.view("answer", python(topic))
    assert in_sql.plan == in_python.plan


def test_a_column_is_not_taken_for_the_variable_of_a_lambda() -> None:
    app, _ = words()
    with pytest.raises(DeclarationError, match=r"something else in 'transform\(tags, x -> x \+ day\)'") as raised:
        app.sql("SELECT day AS x, transform(tags, x -> x + day) AS t FROM words GROUP BY x, tags")
    assert "test_substitute.py:" in raised.value.message
    assert raised.value.hint is not None
    assert "give the variable of the lambda a name" in raised.value.hint


JOINED = "FROM orders o JOIN customers c ON o.customer_id = c.id"


def joined(shop: Any) -> Any:
    renamed = shop.customers.select(id="id", name="name", c_country="country", since="since")
    return shop.orders.join(renamed, on={"customer_id": "id"})


def test_a_column_with_its_table_is_never_a_name_of_the_list(same: Callable[..., None]) -> None:
    same(
        f"SELECT o.country AS x, c.country, count(*) AS n {JOINED} GROUP BY o.country, c.country "
        "HAVING c.country > o.country",
        lambda shop: (
            joined(shop)
            .group_by("country", "c_country")
            .agg(n="count(*)")
            .where("c_country > country")
            .select(x="country", country="c_country", n="n")
        ),
    )
    same(
        f"SELECT c.country, max(o.country) AS c_country {JOINED} GROUP BY c.country HAVING max(o.country) > c.country",
        lambda shop: (
            joined(shop)
            .group_by("c_country")
            .agg(c_country_1="max(country)")
            .where("c_country_1 > c_country")
            .select(country="c_country", c_country="c_country_1")
        ),
    )


def test_a_ranking_behind_groups_tells_columns_of_one_name_apart(same: Callable[..., None]) -> None:
    same(
        f"SELECT o.country AS x, c.country, count(*) AS n {JOINED} GROUP BY o.country, c.country "
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY o.country ORDER BY c.country) <= 1",
        lambda shop: (
            joined(shop)
            .group_by("country", "c_country")
            .agg(n="count(*)")
            .top(1, by="c_country", per=["country"])
            .select(x="country", country="c_country", n="n")
        ),
    )
