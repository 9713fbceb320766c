"""Windows and durations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import hopping, session, sliding, tumbling
from penstock.errors import DeclarationError
from penstock.flow.plan import Hopping, Session, Sliding, Tumbling, Window
from penstock.units import format_duration

SECOND = 1_000_000
DAY = 86_400 * SECOND


def test_windows_are_given_in_words_and_kept_in_microseconds() -> None:
    assert tumbling("10 seconds") == Tumbling(10 * SECOND)
    assert tumbling("1 hour", offset="15 minutes") == Tumbling(3600 * SECOND, 900 * SECOND)
    assert tumbling("1 day", zone="Europe/Berlin") == Tumbling(DAY, 0, "Europe/Berlin")
    assert hopping("1 week", "1 day", offset="6 hours", zone="UTC") == Hopping(7 * DAY, DAY, DAY // 4, "UTC")
    assert sliding("5 minutes") == Sliding(300 * SECOND)
    assert session("250 ms") == Session(SECOND // 4)


def test_an_offset_of_a_whole_window_is_none() -> None:
    assert tumbling("1 hour", offset="1 hour") == tumbling("1 hour")
    assert hopping("1 hour", "10 minutes", offset="25 minutes") == hopping("1 hour", "10 minutes", offset="5 minutes")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tumbling("soon"), "tumbling: size: 'soon' is not a duration"),
        (lambda: tumbling("0 seconds"), "size must be more than nothing"),
        (lambda: tumbling(60), "size is a duration in words"),  # type: ignore[arg-type]
        (lambda: tumbling("1 day", zone="Europe/Berlim"), "there is no time zone 'Europe/Berlim'"),
        (lambda: tumbling("36 hours", zone="Europe/Berlin"), "size is a number of whole days; found 1.5 days"),
        (lambda: hopping("2 days", "12 hours", zone="UTC"), "every is a number of whole days; found 0.5 days"),
        (lambda: hopping("1 minute", "1 hour"), "events between two windows would be in none"),
        (lambda: session("1 month"), "gap: '1 month' is not a duration"),
        (lambda: sliding(""), "size: '' is not a duration"),
    ],
)
def test_what_is_no_window_is_refused_at_the_users_line(make: Callable[[], Window], message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as refused:
        make()
    assert "test_windows.py:" in refused.value.message


@given(st.integers(min_value=1, max_value=10**15))
def test_every_microsecond_counts(length: int) -> None:
    assert session(format_duration(length / SECOND)) == Session(length)
