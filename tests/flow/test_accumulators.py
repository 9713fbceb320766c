"""Which aggregates add up, by their function, whether rows are taken back, and whether there are sessions."""

from __future__ import annotations

import pytest

from penstock.flow.accumulators import adds_up
from penstock.flow.expressions import split_aggregates

NOWHERE: frozenset[str] = frozenset()
EVERYWHERE = frozenset({"growing", "retracting", "sessions"})


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("count(*)", EVERYWHERE),
        ("sum(v) filter (where v > 1)", EVERYWHERE),
        ("max(v)", {"growing", "sessions"}),
        ("bitmap_or_agg(v)", {"growing", "sessions"}),
        ("count(distinct v)", {"growing", "retracting"}),
        ("sum(distinct v)", NOWHERE),
        ("hll_sketch_agg(v)", {"growing"}),
        ("approx_count_distinct(v)", {"growing"}),
        ("approx_count_distinct(distinct v)", NOWHERE),
        ("median(v)", NOWHERE),
        ("first(v) ignore nulls", NOWHERE),
        ("max(v) ignore nulls", NOWHERE),
    ],
)
def test_a_call_adds_up_in_these_cases(text: str, where: set[str]) -> None:
    (call,) = split_aggregates(text).calls
    cases = {
        "growing": adds_up(call, retracts=False, sessions=False),
        "retracting": adds_up(call, retracts=True, sessions=False),
        "sessions": adds_up(call, retracts=False, sessions=True),
    }
    assert {case for case, holds in cases.items() if holds} == where
    assert not adds_up(call, retracts=True, sessions=True)
