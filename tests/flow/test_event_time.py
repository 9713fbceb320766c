"""`ps.event_time`: what it says, and what it refuses where it is written."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import event_time
from penstock.errors import DeclarationError
from penstock.flow.plan import Timing

SECOND = 1_000_000


def test_a_column_alone_has_the_defaults_of_a_timing() -> None:
    assert event_time("at") == Timing("at")


def test_durations_are_words_and_clocks_are_columns() -> None:
    timing = event_time("at", lateness="10 seconds", idle="1 minute", max_ahead="1 hour", sent="s", received="r")
    assert timing == Timing("at", 10 * SECOND, 60 * SECOND, 3_600 * SECOND, "s", "r")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"column": 7}, "column is the name of a column; found 7"),
        ({"sent": ["s"]}, r"sent is the name of a column; found \['s'\]"),
        ({"received": "r"}, "received corrects the time together with sent, which is missing"),
        ({"idle": 30}, "idle is a duration in words; found 30"),
        ({"lateness": "soon"}, "lateness: 'soon' is not a duration"),
        ({"late": "1 minute"}, "there is no parameter 'late'"),
    ],
)
def test_a_mistake_names_the_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=rf"test_event_time.py:\d+: event_time.*: {message}"):
        event_time(**{"column": "at", **arguments})
