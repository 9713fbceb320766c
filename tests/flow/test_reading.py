"""Reading an expression: columns and calls with their places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DeclarationError
from penstock.flow.reading import read, top_level_parts


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("price * quantity", {"price", "quantity"}),
        ("address.city = 'Ulm'", {"address"}),
        ("a.b.c.d.e.f", {"a"}),
        ("tags[n]", {"tags", "n"}),
        ("transform(tags, x -> concat(x, suffix))", {"tags", "suffix"}),
        ("aggregate(xs, 0, (acc, x) -> acc + x.n)", {"xs"}),
        ("transform(xs, x -> transform(x, y -> y + x[0] + z))", {"xs", "z"}),
        ("`order-id` + `from`", {"order-id", "from"}),
        ("extract(year from t)", {"t"}),
        ("timestampadd(DAY, 1, t)", {"t"}),
        ("timestampdiff(month, a, b)", {"a", "b"}),
        ("dateadd(day, 1, t)", {"t"}),
        ("date_diff(day, a, b)", {"a", "b"}),
        ("make_interval(days => n)", {"n"}),
        ("named_struct('a', x)", {"x"}),
        ("struct(x as y).y", {"x"}),
        ("cast(a as struct<b: decimal(10,2)>)", {"a"}),
        ("t + interval 1 day", {"t"}),
        ("date '2026-01-01' < d", {"d"}),
        ("case when a then b else c end", {"a", "b", "c"}),
        ("x between lo and hi", {"x", "lo", "hi"}),
        ("name like any ('a%', b)", {"name", "b"}),
        ("position('a' in s)", {"s"}),
        ("trim(both 'x' from s)", {"s"}),
        ("count(*)", set()),
        ("sum(a) filter (where b > 1)", {"a", "b"}),
        ("percentile_cont(0.5) within group (order by x desc)", {"x"}),
        ('"text"', set()),
        ("5L + 1.5BD + 2e3", set()),
        (
            "year + month + day + date + type + key + value + status + name + level",
            set(
                "year month day date type key value status name level".split()  # noqa: SIM905
            ),
        ),
    ],
)
def test_the_columns_are_the_names_that_are_no_functions_variables_units_or_types(text: str, columns: set[str]) -> None:
    assert read(text).columns == columns


def test_a_call_is_cut_out_as_it_was_written() -> None:
    text = "1 + Sum( DISTINCT a,  f(b, c) ) FILTER ( WHERE d > 0 ) / 2"
    call = next(call for call in read(text).calls if call.function == "sum")
    assert text[call.start : call.end] == "Sum( DISTINCT a,  f(b, c) ) FILTER ( WHERE d > 0 )"
    assert call.arguments == ("a", "f(b, c)")
    assert call.distinct
    assert call.filter == "d > 0"


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        ("a in (1, 2) and not (b or (c))", []),
        ("case when (a) then (b) else (c) end", []),
        ("filter(xs, x -> x > 1)", ["filter"]),
        ("count(a) filter (where (b))", ["count"]),
        ("a like any ('x')", []),
        ("any(a)", ["any"]),
        ("cast(a as decimal(10,2))", ["cast", "decimal"]),
        ("cast(a as varchar(10))", ["cast"]),
        ("`sum`(a)", ["sum"]),
        ("first(a) ignore nulls", ["first"]),
        ("my.fn(a)", ["my.fn"]),
        ("'sum(a)' || \"max(b)\"", []),
    ],
)
def test_a_word_before_a_parenthesis_is_a_call_unless_it_belongs_to_the_grammar(
    text: str, functions: list[str]
) -> None:
    assert [call.function for call in read(text).calls] == functions


@pytest.mark.parametrize(
    ("text", "wrong", "caret"),
    [
        ("amount >) 3", "something is missing at ')' at character 9", "        ^"),
        ("sum(amount", "a ')' is missing after 'amount' at character 5", "    ^"),
        ("amount amount", "unexpected 'amount' at character 8", "       ^"),
        ("foo(a,,b)", "something is missing before ',' at character 7", "      ^"),
        ("amount = 'x", "a quote is not closed at character 11", "          ^"),
        ("case when a then b", "an 'end' is missing after 'b' at character 18", "                 ^"),
        ("amount as total", "unexpected 'as' at character 8", "       ^"),
        ("a,b", "unexpected ',' at character 2", " ^"),
    ],
)
def test_what_cannot_be_read_is_shown_with_a_caret_under_the_place(text: str, wrong: str, caret: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        read(text)
    message, line, below = refused.value.message.split("\n")
    assert message == f"Spark SQL cannot read this expression; {wrong}"
    assert line == f"    {text}"
    assert below == f"    {caret}"


def test_in_a_text_of_several_lines_only_the_line_in_question_is_shown() -> None:
    with pytest.raises(DeclarationError) as refused:
        read("amount > 1\n  and amount <")
    assert refused.value.message.endswith("\n      and amount <\n                 ^")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is missing"),
        ("a; b", "one expression"),
        ("(select 1)", "no subqueries"),
        ("a in (select b from c)", "no subqueries"),
        ("exists(select 1)", "no subqueries"),
        ("a = :b", "no parameters"),
        ("a = ?", "no parameters"),
        ("struct(*)", "is not allowed here"),
        ("*", "is not allowed here"),
        ("count(distinct *)", "is not allowed here"),
        ("a -- more", "no comments"),
        ("select 1", "cannot read|no subqueries"),
    ],
)
def test_what_is_no_expression_over_rows_is_refused(text: str, what: str) -> None:
    with pytest.raises(DeclarationError, match=what):
        read(text)


WORDS = st.sampled_from(["a", "b", "`a b`", "1", "'x,('", '"y)"', "f(a, b)", "xs[1]", "g((a), (b, c))"])


@given(st.lists(WORDS, min_size=1, max_size=6))
def test_parts_are_cut_at_the_commas_outside_of_brackets_and_quotes(parts: list[str]) -> None:
    assert top_level_parts(" , ".join(parts)) == parts
    assert read(f"array({', '.join(parts)})").calls[0].arguments == tuple(parts)
