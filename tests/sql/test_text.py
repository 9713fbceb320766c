"""Comments, space and the case of keywords never change what is declared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App
from penstock.errors import DeclarationError
from penstock.flow.plan import Location
from penstock.sql.text import (
    Span,
    Text,
    split_at_commas,
    to_sql,
    token_starts,
    top_level,
    unclosed_bracket,
    without_parentheses,
)

QUERIES = [
    "SELECT order_id , amount * 2 AS twice FROM orders WHERE country = 'DE -- /* no comment' AND amount > 9",
    "SELECT country , count ( * ) AS n FROM orders GROUP BY country HAVING count ( * ) > 3",
    "SELECT window . start AS s , count ( * ) AS n FROM orders GROUP BY window ( placed_at , '1 hour' ) EMIT CHANGES",
    "SELECT a . order_id FROM orders AS a LEFT SEMI JOIN orders AS b WITHIN FOREVER ON a . order_id = b . order_id",
    "SELECT * FROM orders QUALIFY ROW_NUMBER ( ) OVER ( PARTITION BY country ORDER BY amount DESC ) <= 3",
    "SELECT * FROM orders UNION ALL SELECT * FROM orders",
]
# Words that only the statement has: inside of an expression the user's own text is kept.
STATEMENT = frozenset(
    [
        "select",
        "as",
        "from",
        "group",
        "by",
        "having",
        "emit",
        "changes",
        "left",
        "semi",
        "join",
        "on",
        "qualify",
        "partition",
        "order",
        "union",
        "all",
        "where",
    ]
)
SPACE = st.sampled_from([" ", "  ", "\n", "\t", " -- a comment; 'quoted\n", " /* a ; comment */ ", "\n\n  "])


def plan_of(query: str) -> Any:
    app = App("shop")
    app.topic("orders", schema="order_id bigint, country string, amount int, placed_at timestamp", time="placed_at")
    app.sql(f"CREATE VIEW answer AS {query}")
    return app.plan


def pieces(query: str) -> list[str]:
    """The words of a query; a quoted text is one of them."""
    return [token.raw for token in Text(query, Location("", 1)).tokens]


@pytest.mark.parametrize("query", QUERIES)
@given(draws=st.data())
def test_comments_space_and_case_never_change_the_plan(query: str, draws: st.DataObject) -> None:
    words = pieces(query)
    written = ""
    for word in words:
        lower = draws.draw(st.booleans()) and word.lower() in STATEMENT
        written += (word.lower() if lower else word) + draws.draw(SPACE)
    assert plan_of(written) == plan_of(query)


@pytest.mark.parametrize("query", QUERIES)
@given(draws=st.data())
def test_a_broken_statement_is_refused_and_nothing_else(query: str, draws: st.DataObject) -> None:
    words = [*pieces(query), "(", ")", ",", "OVER", "CASE", "'x'", "BETWEEN", "AND", "JOIN", "WITH", "."]
    broken = pieces(query)
    for _ in range(draws.draw(st.integers(1, 3))):
        at = draws.draw(st.integers(0, len(broken)))
        match draws.draw(st.sampled_from(["out", "in", "end"])):
            case "out":
                del broken[at : at + 1]
            case "in":
                broken.insert(at, draws.draw(st.sampled_from(words)))
            case _:
                del broken[at:]
    with suppress(DeclarationError):
        plan_of(" ".join(broken))


def span_of(text: str) -> Span:
    whole = Text(text, Location("shop.sql", 1))
    return Span(whole, whole.tokens, 0)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a  +\n b", "a + b"),
        ("f( a,b )", "f( a,b )"),
        ("a /* and */ b", "a b"),
        ("'a  b' -- c", "'a  b'"),
        ("GROUP\nBY x", "GROUP BY x"),
        ("/*+ BROADCAST(a) */ a", "a"),
    ],
)
def test_a_span_says_what_the_user_wrote_with_single_spaces(text: str, shown: str) -> None:
    assert str(span_of(text)) == shown


def test_tokens_are_left_out_or_written_otherwise() -> None:
    span = span_of("o.amount > 1")
    assert to_sql(span.tokens, {0: "amount", 1: "", 2: ""}.get) == "amount > 1"


def test_commas_in_brackets_and_in_case_do_not_part() -> None:
    assert list(map(str, split_at_commas(span_of("f(a, b), [c, d], x")))) == ["f(a, b)", "[c, d]", "x"]
    span = span_of("a AND CASE WHEN b AND c THEN t.end END AND d")
    assert [span.keywords[number] for number in top_level(span.tokens)] == ["a", "and", "and", "d"]


def test_parentheses_around_everything_are_taken_away() -> None:
    assert str(without_parentheses(span_of("((a) + (b))"))) == "(a) + (b)"
    assert str(without_parentheses(span_of("(a) + (b)"))) == "(a) + (b)"


def test_a_comment_in_an_expression_is_no_part_of_it(same: Callable[..., None]) -> None:
    same(
        "SELECT * FROM orders WHERE amount > 1 -- much\n  AND /* here */ country = 'DE'",
        lambda shop: shop.orders.where("amount > 1 AND country = 'DE'"),
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("SELECT id\nFROM orders\nWHERE country = 'x\nAND id > 3\n", 3),
        ("SELECT 'a\nb' AS c -- it's\nFROM orders\nWHERE country = \"x\nAND id > 3\n", 4),
        ("SELECT 'it''s', 'a\\'b'\nFROM `orders\n\n", 2),
    ],
)
def test_a_quote_that_is_not_closed_is_told_with_the_line_where_it_begins(text: str, line: int) -> None:
    with pytest.raises(DeclarationError, match=f"shop.sql:{line}: sql: a quote is not closed"):
        span_of(text)


def test_the_last_bracket_that_nothing_closes_is_found() -> None:
    assert str(unclosed_bracket(span_of("f(a), (b + [c]"))) == "(b + [c]"
    assert str(unclosed_bracket(span_of("CASE WHEN (a) THEN b"))) == "CASE WHEN (a) THEN b"
    assert unclosed_bracket(span_of("f(a)")) is None


def test_tokens_begin_where_the_text_that_is_said_has_them() -> None:
    span = span_of("  a  +f( b )")
    assert [str(span)[start] for start in token_starts(span.tokens)] == ["a", "+", "f", "(", "b", ")"]
