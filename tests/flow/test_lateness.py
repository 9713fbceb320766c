"""Windows over joins: which have a time, how late their rows may come, and for how long they are corrected."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import App, Stream, Table, tumbling
from penstock.errors import DeclarationError
from penstock.flow.lateness import correction_period, max_delay

MINUTE = 60_000_000
HOUR = 60 * MINUTE


@pytest.fixture
def searches(app: App) -> Stream:
    return app.topic("searches", schema="id bigint, words string, searched_at timestamp", time="searched_at")


@pytest.fixture
def clicks(app: App) -> Stream:
    return app.topic("clicks", schema="id bigint, url string, clicked_at timestamp", time="clicked_at")


@pytest.fixture
def pages(app: App) -> Table:
    return app.table("pages", schema="url string not null, owner string, since timestamp", key="url", time="since")


@pytest.mark.parametrize(("how", "delay"), [("inner", 30), ("left", 30), ("right", 5), ("full", 30), ("anti", 30)])
def test_rows_of_a_join_come_when_their_last_partner_can(
    searches: Stream, clicks: Stream, how: Any, delay: int
) -> None:
    near = searches.join(clicks, on="id", within="30 minutes", before="5 minutes", how=how).node
    assert max_delay(searches.node) == 0
    assert max_delay(near) == delay * MINUTE
    assert correction_period(near) == HOUR + 35 * MINUTE


def test_joins_of_joins_wait_for_each_other(searches: Stream, clicks: Stream) -> None:
    near = searches.join(clicks, on="id", within="30 minutes")
    late = clicks.rename(second="url", second_at="clicked_at")
    assert max_delay(near.join(late, on="id", within="10 minutes").node) == 30 * MINUTE
    assert max_delay(late.join(near, on="id", within="10 minutes").node) == 40 * MINUTE
    assert max_delay(near.union(near.where("id > 1")).node) == 30 * MINUTE


def test_a_window_over_a_join_is_kept_as_long_as_that_is_corrected(searches: Stream, clicks: Stream) -> None:
    near = searches.join(clicks, on="id", within="30 minutes", keep="2 hours", how="left")
    assert near.window(tumbling("1 minute")).windowing.keep == 2 * HOUR + 30 * MINUTE
    with pytest.raises(DeclarationError, match="corrected for 150 minutes, and this window would miss that") as refused:
        near.window(tumbling("1 minute"), keep="1 hour")
    assert refused.value.hint == "keep it as long: keep='150 minutes'"
    with pytest.raises(DeclarationError, match="would miss that"):
        near.window(tumbling("1 minute"), late="drop")


def test_a_window_over_looked_up_rows_needs_a_watermark_of_the_stream_only(clicks: Stream, pages: Table) -> None:
    owned = clicks.join(pages, on="url", as_of="clicked_at", keep="3 hours")
    assert max_delay(owned.node) == 0
    assert owned.window(tumbling("1 minute")).windowing.keep == 3 * HOUR
    newest = clicks.join(pages, on="url", as_of="now")
    assert newest.window(tumbling("1 minute"), late="drop").windowing.keep == 0


def test_windows_over_a_join_without_a_time_are_refused(searches: Stream, clicks: Stream, pages: Table) -> None:
    for joined in (
        searches.join(clicks, on="id", within="forever"),
        clicks.join(pages, on="url"),
        clicks.join(pages, on="url").changes(),
    ):
        with pytest.raises(
            DeclarationError, match="windows need events with a time, and these come from a join"
        ) as refused:
            joined.window(tumbling("1 minute"))
        assert refused.value.hint is not None
        assert "within='1 hour'" in refused.value.hint


def test_windows_over_a_full_join_are_refused_with_the_reason(searches: Stream, clicks: Stream) -> None:
    both = searches.join(clicks, on="id", within="1 hour", how="full")
    with pytest.raises(DeclarationError, match="a full join either of 'clicked_at' and 'searched_at' may be missing"):
        both.window(tumbling("1 minute"))
