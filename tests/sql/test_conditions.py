"""Conditions that bound a join in time: each beside the arguments of `join` that it becomes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

# What ON says in addition to `s.search_id = c.search_id`, and the arguments of `join`.
BOUNDS = [
    ("c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR", {"within": "1 hour"}),
    (
        "c.at BETWEEN s.at - INTERVAL '10' MINUTE AND s.at + INTERVAL 1 HOUR",
        {"within": "1 hour", "before": "10 minutes"},
    ),
    ("s.at BETWEEN c.at - INTERVAL 1 HOUR AND c.at", {"within": "1 hour"}),
    ("c.at >= s.at AND c.at <= s.at + INTERVAL 1 HOUR", {"within": "1 hour"}),
    ("s.at <= c.at AND s.at >= c.at - INTERVAL 1 HOUR", {"within": "1 hour"}),
    ("s.at + INTERVAL 1 HOUR >= c.at AND c.at >= s.at", {"within": "1 hour"}),
    ("c.at >= s.at AND c.at < s.at + INTERVAL 1 HOUR", {"within": "3599999999 microseconds"}),
    (
        "c.at > s.at - INTERVAL 1 SECOND AND c.at <= s.at + INTERVAL 1 HOUR",
        {"within": "1 hour", "before": "999999 microseconds"},
    ),
    ("c.at BETWEEN s.at AND (s.at + INTERVAL 1 HOUR + INTERVAL 30 MINUTES)", {"within": "90 minutes"}),
    ("c.at BETWEEN s.at AND s.at + INTERVAL 2 HOURS AND c.at <= s.at + INTERVAL 1 HOUR", {"within": "1 hour"}),
    ("(c.at >= s.at AND c.at <= s.at + INTERVAL '1 hour')", {"within": "1 hour"}),
    ("c.at BETWEEN s.at - INTERVAL 1 HOUR AND s.at", {"within": "0 seconds", "before": "1 hour"}),
]


@pytest.mark.parametrize(("bound", "arguments"), BOUNDS, ids=[bound for bound, _ in BOUNDS])
def test_a_bound_of_the_event_times_bounds_the_join(
    bound: str, arguments: dict[str, str], same: Callable[..., None]
) -> None:
    same(
        f"SELECT s.search_id, url FROM searches s JOIN clicks c ON s.search_id = c.search_id AND {bound}",
        lambda shop: shop.searches.join(shop.clicks.rename(c_at="at"), on="search_id", **arguments).select(
            "search_id", "url"
        ),
    )
