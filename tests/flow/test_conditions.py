"""Conditions as text: how they are split, and how their columns are renamed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.flow.conditions import cannot_fail, conjuncts, rename_columns
from penstock.schema.arrow import parse_schema


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a > 1", ["a > 1"]),
        ("a > 1 and b < 2 AND\n c is not null", ["a > 1", "b < 2", "c is not null"]),
        ("a between 1 and 2 and b not between c and d and e", ["a between 1 and 2", "b not between c and d", "e"]),
        ("not a and b", ["not a", "b"]),
        ("(a and b) and c", ["(a and b)", "c"]),
        ("if(a and b, c, d) and e", ["if(a and b, c, d)", "e"]),
        ("case when a and b then c end and d", ["case when a and b then c end", "d"]),
        ("(a or b) and c", ["(a or b)", "c"]),
        ("`and` = 1 and a = ' and '", ["`and` = 1", "a = ' and '"]),
        (
            "end > 1 and shift.end < 2 and case when a then b end",
            ["end > 1", "shift.end < 2", "case when a then b end"],
        ),
        ("exists(tags, x -> x = 1 and a) and m['and'] = 1", ["exists(tags, x -> x = 1 and a)", "m['and'] = 1"]),
    ],
)
def test_a_condition_is_taken_apart_at_its_outermost_ands(text: str, parts: list[str]) -> None:
    assert list(conjuncts(text)) == parts


@pytest.mark.parametrize(
    "text",
    [
        "a or b and c",
        "a and b or c",
        "case when case when a and b then c end and d then e and f end",
        "case when end > 1 and a then b end",
    ],
)
def test_a_condition_without_an_outermost_and_stays_whole(text: str) -> None:
    assert conjuncts(text) == (text,)


ATOMS = ("a = 1", "b between 1 and 2", "(c or d)", "case when a and b then c end", "not d", "e in (1, 2)")


@given(st.lists(st.sampled_from(ATOMS), min_size=1), st.sampled_from([" and ", " AND\n", "  And "]))
def test_what_was_joined_by_and_comes_back(parts: list[str], joined_by: str) -> None:
    assert list(conjuncts(joined_by.join(parts))) == parts


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("a > 1 and b = 'a'", "x > 1 and b = 'a'"),
        ("`a` > 1", "x > 1"),
        ("`b` > a.b.a", "`b` > x.b.a"),
        ("a(a) = a + abs(a)", "a(x) = x + abs(x)"),
        ("exists(b, a -> a = 1) or a = 2", "exists(b, a -> a = 1) or x = 2"),
        (
            "date > cast(date as date) or date = date '2020-01-01'",
            "`a b` > cast(`a b` as date) or `a b` = date '2020-01-01'",
        ),
        ("order_ + a", "`order` + x"),
        ("b[a] + day > interval 1 day", "b[x] + night > interval 1 day"),
    ],
)
def test_only_columns_are_renamed(text: str, new: str) -> None:
    names = {"a": "x", "b": "b", "date": "`a b`", "order_": "`order`", "day": "night"}
    assert rename_columns(text, names) == new


def test_a_column_without_a_new_name_is_not_renamed() -> None:
    assert rename_columns("a = c", {"a": "x"}) is None


def test_a_new_name_must_not_be_that_of_a_variable() -> None:
    assert rename_columns("a = 1 or exists(b, x -> x = a)", {"a": "x", "b": "b"}) is None


def test_names_can_be_exchanged() -> None:
    assert rename_columns("a > b and b > 1", {"a": "b", "b": "a"}) == "b > a and a > 1"


SCHEMA = parse_schema(
    "n bigint, d decimal(10,2), x double, t string, b boolean, at timestamp, day date, tags array<int>"
)
TYPES = {field.name: field.type for field in SCHEMA}


@pytest.mark.parametrize(
    "text",
    [
        "n = 1",
        "n > -1.5 and not (d <= x or b)",
        "t in ('a', 'b') and t <=> 'c'",
        "n between 1 and d",
        "at is null or day is not null",
        "n % 123 = 0",
        "b",
        "true",
    ],
)
def test_comparisons_of_one_kind_cannot_fail(text: str) -> None:
    assert cannot_fail(text, TYPES)


@pytest.mark.parametrize(
    "text",
    [
        "cast(t as int) = 1",
        "t = 1",
        "n = '1'",
        "n in (1, 'b')",
        "n + 1 > 2",
        "n % 0 = 1",
        "n / 2 > 1",
        "at > '2024-01-01'",
        "at = day",
        "unknown = 1",
        "length(t) > 1",
        "tags[1] = 1",
        "n",
        "t and b",
    ],
)
def test_whatever_is_cast_or_computed_may_fail(text: str) -> None:
    assert not cannot_fail(text, TYPES)
