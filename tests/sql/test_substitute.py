"""Parts of expressions that are cut out and put in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.substitute import cut_out, filled

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
    assert value(cut_out(text, part, "_key"), _key=value(part)) == value(text)


@given(text=EXPRESSIONS, part=EXPRESSIONS)
def test_what_is_put_in_has_the_value_of_its_name(text: str, part: str) -> None:
    named = text.replace("c", "_name")
    new = filled(named, {"_name": part})
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
    assert cut_out(text, part, "_key") == expected


def test_nothing_is_put_in_where_it_would_mean_something_else() -> None:
    assert filled("transform(tags, x -> x + _name)", {"_name": "x"}) is None
    assert filled("_name.city > 'a'", {"_name": "first(address)"}) == "first(address).city > 'a'"
