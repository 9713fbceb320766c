"""Windows of GROUP BY: each beside the Python verbs that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import hopping, session, sliding, tumbling

WINDOWS: list[tuple[str, Callable[[Any], Any]]] = [
    ("window(placed_at, '10 seconds')", lambda s: s.orders.window(tumbling("10 seconds"))),
    ("window(placed_at, '10 seconds', '10 seconds')", lambda s: s.orders.window(tumbling("10 seconds"))),
    ("window(placed_at, INTERVAL 10 SECONDS)", lambda s: s.orders.window(tumbling("10 seconds"))),
    ("window(placed_at, INTERVAL '10' SECOND)", lambda s: s.orders.window(tumbling("10 seconds"))),
    ("window(placed_at, INTERVAL '10 seconds')", lambda s: s.orders.window(tumbling("10 seconds"))),
    ("window(placed_at, INTERVAL 1 MINUTE 30 SECONDS)", lambda s: s.orders.window(tumbling("90 seconds"))),
    ("window(placed_at, '10 seconds', '2 seconds')", lambda s: s.orders.window(hopping("10 seconds", "2 seconds"))),
    (
        "window(placed_at, '10 seconds', '2 seconds', '1 second')",
        lambda s: s.orders.window(hopping("10 seconds", "2 seconds", offset="1 second")),
    ),
    (
        "window(placed_at, '1 day', zone => 'Europe/Berlin')",
        lambda s: s.orders.window(tumbling("1 day", zone="Europe/Berlin")),
    ),
    (
        "window(placed_at, '1 hour', offset => '15 minutes')",
        lambda s: s.orders.window(tumbling("1 hour", offset="15 minutes")),
    ),
    ("session_window(placed_at, '10 seconds')", lambda s: s.orders.window(session("10 seconds"))),
    ("sliding_window(placed_at, '10 minutes')", lambda s: s.orders.window(sliding("10 minutes"))),
    ("window(placed_at, '1 hour') EMIT FINAL", lambda s: s.orders.window(tumbling("1 hour"))),
    ("window(placed_at, '1 hour') EMIT CHANGES", lambda s: s.orders.window(tumbling("1 hour"), emit="changes")),
    ("window(placed_at, '1 hour') LATE CORRECT", lambda s: s.orders.window(tumbling("1 hour"))),
    (
        "window(placed_at, '1 hour') LATE DROP EMIT CHANGES",
        lambda s: s.orders.window(tumbling("1 hour"), emit="changes", late="drop"),
    ),
    ("window(placed_at, '1 hour') KEEP '2 days'", lambda s: s.orders.window(tumbling("1 hour"), keep="2 days")),
]


@pytest.mark.parametrize(("clause", "python"), WINDOWS, ids=[clause for clause, _ in WINDOWS])
def test_windows_become_the_plan_of_the_verbs(
    clause: str, python: Callable[[Any], Any], same: Callable[..., None]
) -> None:
    same(
        f"SELECT window_start, window_end, revision, count(*) AS n FROM orders GROUP BY {clause}",
        lambda shop: python(shop).group_by().agg(n="count(*)"),
    )


def test_the_window_is_asked_for_its_start_and_end(same: Callable[..., None]) -> None:
    by_country = "FROM orders GROUP BY window(placed_at, '1 hour'), country"
    chosen = {"begin": "window_start", "until": "window_end", "country": "country", "n": "n"}

    def python(shop: Any) -> Any:
        return shop.orders.window(tumbling("1 hour")).group_by("country").agg(n="count(*)").select(**chosen)

    same(f"SELECT window.start AS begin, window.end AS until, country, count(*) AS n {by_country}", python)
    same(f"SELECT window_start AS begin, window_end AS until, country, count(*) AS n {by_country}", python)
    same(
        "SELECT session_window.start AS s, count(*) AS n FROM orders GROUP BY session_window(placed_at, '1 hour')",
        lambda shop: shop.orders.window(session("1 hour")).group_by().agg(n="count(*)").select(s="window_start", n="n"),
    )


def test_the_window_may_stand_beside_aggregates(same: Callable[..., None]) -> None:
    same(
        "SELECT count(*) / date_diff(SECOND, window.start, window.end) AS rate "
        "FROM orders GROUP BY window(placed_at, '1 hour')",
        lambda shop: (
            shop.orders.window(tumbling("1 hour"))
            .group_by()
            .agg(aggregate_1="count(*)")
            .select(rate="aggregate_1 / date_diff(SECOND, window_start, window_end)")
        ),
    )


def test_windows_are_windowed_again(same: Callable[..., None]) -> None:
    same(
        "SELECT window.start AS day, max(n) AS most "
        "FROM (SELECT window_end, count(*) AS n FROM orders GROUP BY window(placed_at, '1 hour')) "
        "GROUP BY window(window_end, '1 day')",
        lambda shop: (
            shop.orders.window(tumbling("1 hour"))
            .group_by()
            .agg(n="count(*)")
            .select("window_end", "n")
            .window(tumbling("1 day"))
            .group_by()
            .agg(most="max(n)")
            .select(day="window_start", most="most")
        ),
    )


REFUSED = [
    (
        "SELECT count(*) AS n FROM clicks GROUP BY window(url, '1 hour')",
        "windows go by the event time, which is 'at'; found 'url'",
        "window(at, ...)",
    ),
    (
        (
            "SELECT count(*) AS n FROM searches s RIGHT JOIN clicks c ON s.search_id = c.search_id "
            "AND c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR GROUP BY window(s.at, '1 day')"
        ),
        "windows go by the event time, which is 'c.at'; found 's.at'",
        "window(c.at, ...)",
    ),
    ("SELECT count(*) AS n FROM stores GROUP BY window(store, '1 hour')", "table 'stores' has none", "app.topic("),
    ("SELECT count(*) AS n FROM orders GROUP BY window(placed_at)", "window needs a size", "'10 seconds'"),
    ("SELECT count(*) AS n FROM orders GROUP BY window(placed_at, 'soon')", "'soon' is not a duration", "a number and"),
    (
        "SELECT count(*) AS n FROM orders GROUP BY window(placed_at, '1 hour', zon => 'x')",
        "window takes time, size",
        "zone",
    ),
    ("SELECT count(*) AS n FROM orders GROUP BY window(placed_at, INTERVAL 1 MONTH)", "is not a duration", None),
    (
        "SELECT count(*) AS n FROM orders GROUP BY tumble(placed_at, '1 hour')",
        "TUMBLE(...) is not supported",
        "window(time",
    ),
    (
        "SELECT count(*) AS n FROM orders GROUP BY window(placed_at, '1 hour'), session_window(placed_at, '1 hour')",
        "there is one window in GROUP BY",
        "a query around",
    ),
    (
        "SELECT window, count(*) AS n FROM orders GROUP BY window(placed_at, '1 hour')",
        "a window is asked for its parts",
        "window.start, window.end",
    ),
    (
        "SELECT count(*) AS n FROM orders GROUP BY window(placed_at, '1 hour') LATE DROP KEEP '1 hour'",
        "with late='drop' nothing is kept",
        None,
    ),
]


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_other_windows_are_refused(
    query: str, message: str, hint: str | None, check_refused: Callable[..., None]
) -> None:
    check_refused(query, message, hint)
