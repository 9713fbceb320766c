"""Which names apps, views and columns may have."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.app import App
from penstock.errors import DeclarationError
from penstock.flow.expressions import columns_of
from penstock.flow.names import (
    EXPRESSION_WORDS,
    SQL_WORDS,
    check_app_name,
    check_columns,
    check_output_name,
    quote,
    unquote,
)

# All words of SQLite's grammar, from https://sqlite.org/lang_keywords.html.
KEYWORDS = """
    abort action add after all alter always analyze and as asc attach autoincrement before begin between by cascade case
    cast check collate column commit conflict constraint create cross current current_date current_time
    current_timestamp database default deferrable deferred delete desc detach distinct do drop each else end escape
    except exclude exclusive exists explain fail filter first following for foreign from full generated glob group
    groups having if ignore immediate in index indexed initially inner insert instead intersect into is isnull join key
    last left like limit match materialized natural no not nothing notnull null nulls of offset on or order others outer
    over partition plan pragma preceding primary query raise range recursive references regexp reindex release rename
    replace restrict returning right rollback row rows savepoint select set table temp temporary then ties to
    transaction trigger unbounded union unique update using vacuum values view virtual when where window with without
"""


@pytest.mark.parametrize("word", [word for word in KEYWORDS.split() if word not in SQL_WORDS])
def test_every_name_of_a_view_is_a_table_name_without_quotes(word: str) -> None:
    check_output_name(word, "view")
    store = sqlite3.connect(":memory:")
    store.execute(f"create table {word} (a)")
    assert store.execute(f"select {word}.a from {word} order by a limit 5").fetchall() == []
    store.close()


@pytest.mark.parametrize(
    "name", ["", "1st", "a-b", "a b", "order", "SELECT", "penstock_epochs", "Penstock_x", "sqlite_x", 7]
)
def test_what_would_need_quotes_or_is_reserved_is_no_name_for_a_view(name: object) -> None:
    with pytest.raises(DeclarationError):
        check_output_name(name, "view")


@pytest.mark.parametrize("name", ["shop", "shop-2", "Shop_3", "3"])
def test_an_app_is_named_with_letters_digits_dashes_and_underscores(name: str) -> None:
    check_app_name(name)


@pytest.mark.parametrize("name", ["", "-shop", "shop.eu", "my shop", "ä", "x" * 101, None])
def test_nothing_else_is_a_name_for_an_app(name: object) -> None:
    with pytest.raises(DeclarationError, match="not a name for an app"):
        check_app_name(name)


@pytest.mark.parametrize("names", [["_a"], ["a", "A"], ["a", "a"], [""]])
def test_columns_that_spark_or_the_engine_would_mix_up_are_refused(names: list[str]) -> None:
    with pytest.raises(DeclarationError):
        check_columns(names)


@given(st.text(min_size=1).filter(lambda name: "\0" not in name))
def test_a_name_that_was_quoted_is_read_back_the_same(name: str) -> None:
    assert unquote(quote(name)) == name


@pytest.mark.parametrize("name", sorted(EXPRESSION_WORDS))
def test_a_column_may_have_the_name_of_a_word_of_sql(name: str) -> None:
    rows = App("shop").topic("events", schema=f"`{name}` bigint, other bigint")
    assert columns_of(quote(name)) == {name}
    assert rows.drop("other").rename(new=name).columns == ("new",)
    assert rows.group_by(name).agg(n="count(*)").columns == (name, "n")


@pytest.mark.parametrize("text", ["a + b", "null", "true", "a.b", "`a`.`b`", "1", "f(a)", "'a'", "``", ""])
def test_what_is_more_than_a_name_is_not_taken_for_one(text: str) -> None:
    assert unquote(text) is None
