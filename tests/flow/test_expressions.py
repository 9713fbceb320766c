"""Expressions are checked when they are declared, and split into aggregate calls and what is made of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DeclarationError
from penstock.flow.expressions import (
    Aggregates,
    Call,
    check_aggregate,
    check_column,
    check_expression,
    columns_of,
    split_aggregates,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("amount", "country", "user", "tags", "placed_at")


def check(text: str) -> str:
    return check_expression(text, COLUMNS, instead="aggregate first")


def refusal(text: str) -> DeclarationError:
    with pytest.raises(DeclarationError) as refused:
        check(text)
    return refused.value


def test_an_expression_that_is_right_is_kept_as_it_was_written() -> None:
    assert check("  UPPER(country)||'x' ") == "UPPER(country)||'x'"


def test_a_misspelt_column_is_refused_with_a_hint() -> None:
    error = refusal("ammount > 3")
    assert error.message == "there is no column 'ammount'; there are amount, country, user, tags, placed_at"
    assert error.hint == "did you mean 'amount'?"
    assert refusal("Country = 'DE'").hint == "did you mean 'country'?"


def test_a_misspelt_function_is_refused_with_a_hint() -> None:
    error = refusal("uper(country)")
    assert error.message == "Spark has no function 'uper'; found 'uper(country)'"
    assert error.hint == "did you mean 'upper'?"


def test_an_aggregate_of_single_rows_is_refused() -> None:
    error = refusal("amount > avg(amount)")
    assert error.message == "an aggregate is not allowed here; found 'avg(amount)'"
    assert error.hint == "aggregate first"


@pytest.mark.parametrize(
    "text",
    [
        "rand() < 0.5",
        "rand(42)",
        "uuid()",
        "now()",
        "current_timestamp()",
        "placed_at < current_timestamp",
        "CURRENT_DATE",
        "current_user",
        "monotonically_increasing_id()",
        "input_file_name()",
        "spark_partition_id()",
        "shuffle(tags)",
        "unix_timestamp()",
        "timestamp 'now'",
        "date 'Today'",
        "aes_encrypt(country, 'key')",
        "reflect('java.util.UUID', 'randomUUID')",
    ],
)
def test_what_differs_from_one_run_to_the_next_is_refused(text: str) -> None:
    assert refusal(text).message.startswith("an answer must not depend on when or where it is computed; found")


def test_a_column_may_be_called_like_a_function_without_parentheses() -> None:
    assert check("user = 'ada'") == "user = 'ada'"
    assert check_expression("`current_date` > 1", ["current_date"], instead="") == "`current_date` > 1"
    assert check("unix_timestamp(placed_at)")
    assert check("timestamp '2026-01-01'")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("explode(tags)", "makes several rows", "map"),
        ("row_number() over (partition by country order by amount)", "functions over other rows", ".top"),
        ("sum(amount) over (partition by country)", "functions over other rows", ".window"),
        ("sum(amount) over w", "functions over other rows", ".window"),
        ("lag(amount)", "functions over other rows", ".top"),
        ("window(placed_at, '1 minute')", "windows are not made in expressions", ".window"),
        ("session_window(placed_at, '1 minute')", "windows are not made in expressions", ".window"),
        ("grouping(country)", "grouping sets", None),
        ("other.function(country)", "no function 'other.function'", None),
    ],
)
def test_what_is_done_in_another_way_is_refused_with_that_way(text: str, message: str, hint: str | None) -> None:
    error = refusal(text)
    assert message in error.message
    assert hint is None or (error.hint is not None and hint in error.hint)


def test_columns_are_not_checked_where_they_are_not_known() -> None:
    assert check_expression("anything > 3", None, instead="") == "anything > 3"
    with pytest.raises(DeclarationError, match="no function 'anithing'"):
        check_expression("anithing(3)", None, instead="")


@pytest.mark.parametrize("given", [3, None, ["a"]])
def test_an_expression_is_a_text(given: object) -> None:
    with pytest.raises(DeclarationError, match="Spark SQL as text"):
        check_expression(given, COLUMNS, instead="")  # type: ignore[arg-type]


def test_a_name_that_is_an_expression_gets_a_hint() -> None:
    with pytest.raises(DeclarationError) as refused:
        check_column("price * 2", ["id"])
    assert refused.value.hint == 'an expression needs a name: name="price * 2"'


# -- aggregates -------------------------------------------------------------------------------------------------------


def refused_aggregate(text: str) -> DeclarationError:
    with pytest.raises(DeclarationError) as refused:
        check_aggregate(text, COLUMNS, ["country"])
    return refused.value


def test_an_aggregate_may_stand_beside_the_columns_of_its_group() -> None:
    assert check_aggregate("concat(country, ': ', sum(amount) / count(*))", COLUMNS, ["country"])
    assert check_aggregate("transform(collect_list(amount), x -> x + 1)", COLUMNS, ["country"])


def test_a_column_outside_of_an_aggregate_that_is_not_of_the_group_is_refused() -> None:
    error = refused_aggregate("sum(amount) / amount")
    assert error.message == "column 'amount' is used outside of an aggregate, and the rows are grouped by country"
    assert error.hint == "add it to group_by, or choose one of its values: max(amount), any_value(amount)"


def test_an_expression_without_an_aggregate_is_refused() -> None:
    assert refused_aggregate("upper(country)").message == "there is no aggregate in it; found 'upper(country)'"


@pytest.mark.parametrize("text", ["sum(max(amount))", "count(*) filter (where amount > avg(amount))"])
def test_an_aggregate_inside_of_another_is_refused(text: str) -> None:
    assert refused_aggregate(text).message == f"an aggregate is inside another; found {text!r}"


def test_a_misspelt_column_inside_of_an_aggregate_is_refused() -> None:
    assert refused_aggregate("sum(ammount)").hint == "did you mean 'amount'?"
    assert refused_aggregate("count(*) filter (where ammount > 1)").hint == "did you mean 'amount'?"


def test_a_variable_of_a_lambda_cannot_be_aggregated() -> None:
    assert refused_aggregate("transform(tags, x -> max(x))").message.startswith("there is no column 'x'")


# -- split ------------------------------------------------------------------------------------------------------------


def test_calls_are_split_off_and_numbered() -> None:
    split = split_aggregates("sum(amount) / count(*) + Sum( DISTINCT b ) FILTER (WHERE c > 0)", first=3)
    assert split.outer == "_a3 / _a4 + _a5"
    assert split.calls == (
        Call("sum", ("amount",), distinct=False, filter=None, text="sum(amount)"),
        Call("count", ("1",), distinct=False, filter=None, text="count(*)"),
        Call("sum", ("b",), distinct=True, filter="c > 0", text="Sum( DISTINCT b ) FILTER (WHERE c > 0)"),
    )


def test_equal_calls_share_one_number() -> None:
    split = split_aggregates("max(a) - min(a) + max(a)")
    assert split.outer == "_a0 - _a1 + _a0"
    assert len(split.calls) == 2


def test_clauses_belong_to_the_call() -> None:
    split = split_aggregates(
        "percentile_cont(0.5) within group (order by a desc) filter (where b) + first(a) ignore nulls"
    )
    first, second = split.calls
    assert split.outer == "_a0 + _a1"
    assert (first.clause, first.filter, first.arguments) == ("within group (order by a desc)", "b", ("0.5",))
    assert (second.clause, second.text) == ("ignore nulls", "first(a) ignore nulls")


def test_a_result_does_not_run_together_with_the_word_behind_it() -> None:
    assert split_aggregates("max(a)between 1 and 2").outer == "_a0 between 1 and 2"


CALLS = ["sum(a)", "count(*)", "max(b) filter (where a > 1)", "count(distinct a, b)", "min( a + (b) )"]
PIECES = st.sampled_from([*CALLS, "key", "1", "'sum(a)'", "upper(key)", "coalesce(max(a), 0)", "(avg(b))"])


@given(st.lists(PIECES, min_size=1, max_size=6), st.integers(min_value=0, max_value=20))
def test_the_calls_put_back_into_the_rest_give_the_expression(pieces: list[str], first: int) -> None:
    text = " || ".join(pieces)
    split = split_aggregates(text, first=first)
    back = re.sub(r"\b_a(\d+)\b", lambda name: split.calls[int(name[1]) - first].text, split.outer)
    assert back == text
    assert columns_of(split.outer) <= {"key", *(f"_a{first + number}" for number in range(len(split.calls)))}


EXPRESSIONS = [
    "count(*)",
    "count(1)",
    "count(b)",
    "count(distinct b)",
    "count(distinct a, b)",
    "COUNT(DISTINCT s) + Count(*)",
    "sum(a)",
    "sum(a) / count(*)",
    "avg(d)",
    "sum(a * 2) filter (where b > 1)",
    "try_sum(a)",
    "max(a) - min(a)",
    "max(s) || '-' || min(s)",
    "round(stddev_samp(d), 6)",
    "std(a) + variance(a)",
    "max_by(s, a)",
    "min_by(s, struct(b, a))",
    "percentile(a, 0.5)",
    "percentile(a, array(0.25, 0.75))",
    "percentile_approx(a, 0.5, 100)",
    "approx_percentile(a, array(0.5, 0.9))",
    "percentile_cont(0.5) within group (order by a)",
    "percentile_disc(0.25) WITHIN GROUP (ORDER BY a DESC)",
    "median(d)",
    "mode() within group (order by b desc)",
    "approx_count_distinct(a)",
    "hll_sketch_estimate(hll_sketch_agg(a))",
    "bool_and(a > 0) or bool_or(b > 1)",
    "some(a > 3) and every(a > 0)",
    "any(b = 1)",
    "count_if(a > 2) * 1.0 / count(*)",
    "sort_array(collect_set(s))",
    "array_sort(collect_list(distinct b))",
    "transform(sort_array(collect_list(a)), x -> x + 1)",
    "aggregate(collect_list(a), 0L, (acc, x) -> acc + x)",
    "listagg(s, ',') within group (order by s, a)",
    "string_agg(distinct s, '+') within group (order by s)",
    "bit_xor(a) + bit_or(b)",
    "corr(a, d)",
    "regr_slope(d, a)",
    "skewness(d) + kurtosis(d)",
    "case when max(a)>3 then upper(max(s)) else lower(min(s)) end",
    "cast(sum(a) as decimal(20,2)) div 2",
    "coalesce(sum(m.x), sum(n), -1)",
    "date_trunc('DAY', max(t)) + interval 1 day",
    "extract(year from max(t))",
    "max(struct(a, s)).s",
    "max(a) between min(b) and sum(a)",
    "max(if(b > 1, a, null))",
    "sum(5L) + sum(a::int)",
    "g || max(s)",
    "count(*) filter (where s like any ('x%', 'y%'))",
    "max(`odd name`) + `max`(a)",
]


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(
        """select id % 2 as number, 'g' || (id % 2) as g, id as a, cast(id % 3 as int) as b, id * 1.25d as d,
                  concat(elt(int(id % 3) + 1, 'x', 'y', 'z'), id % 4) as s, named_struct('x', id) as m,
                  cast(null as bigint) as n, timestamp_seconds(id * 90000) as t, id * 2 as `odd name`
           from range(1, 13)"""
    )


# Spark itself fails on a query with several distinct aggregates beside one with `within group`.
WITH_DISTINCT = [text for text in EXPRESSIONS if "distinct" in text.lower().replace("count_distinct", "")]
TOGETHER = [text for text in EXPRESSIONS if text not in WITH_DISTINCT]


@pytest.mark.parametrize("texts", [TOGETHER, *[[text] for text in WITH_DISTINCT]], ids=lambda texts: texts[0])
def test_spark_gets_the_same_from_the_two_steps_as_from_the_expression(rows: DataFrame, texts: list[str]) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    splits: list[Aggregates] = []
    for text in texts:
        check_aggregate(text, rows.columns, ["g"])
        splits.append(split_aggregates(text, first=sum(len(split.calls) for split in splits)))
    calls = [call for split in splits for call in split.calls]
    whole = rows.groupBy("g").agg(*[F.expr(text).alias(f"r{at}") for at, text in enumerate(texts)])
    inner = rows.groupBy("g").agg(*[F.expr(call.text).alias(f"_a{at}") for at, call in enumerate(calls)])
    outer = inner.select("g", *[F.expr(split.outer).alias(f"r{at}") for at, split in enumerate(splits)])
    expected = {row["g"]: row.asDict(recursive=True) for row in whole.collect()}
    assert {row["g"]: row.asDict(recursive=True) for row in outer.collect()} == expected


def test_spark_gets_the_same_from_the_parts_of_a_plain_call_as_from_its_text(rows: DataFrame) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    calls = {call for text in EXPRESSIONS for call in split_aggregates(text).calls if call.clause is None}
    ordered = sorted(calls, key=lambda call: call.text)
    texts = rows.agg(*[F.expr(call.text) for call in ordered]).collect()
    parts = rows.agg(*[F.expr(rebuilt(call)) for call in ordered]).collect()
    assert [tuple(row) for row in parts] == [tuple(row) for row in texts]


def rebuilt(call: Call) -> str:
    filtered = f" filter (where {call.filter})" if call.filter else ""
    return f"{call.function}({'distinct ' if call.distinct else ''}{', '.join(call.arguments)}){filtered}"
