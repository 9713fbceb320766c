"""Durations and sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DeclarationError
from penstock.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7 days", 604_800),
        ("1 hour", 3_600),
        ("90 seconds", 90),
        ("90s", 90),
        ("15 min", 900),
        ("1 hour 30 minutes", 5_400),
        ("1h30m", 5_400),
        ("250 ms", 0.25),
        ("1.5 Hours", 5_400),
        ("2 weeks", 1_209_600),
        ("0 seconds", 0),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "days", "7", "7 dayz", "7 days ago", "-1 day", "1 month", "one day", "1,5 hours"])
def test_anything_else_is_not_a_duration_and_the_hint_shows_one(text: str) -> None:
    with pytest.raises(DeclarationError, match="is not a duration") as refused:
        parse_duration(text)
    assert refused.value.hint is not None
    assert "'7 days'" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1 GB", 10**9),
        ("512 MB", 512 * 10**6),
        ("64kB", 64_000),
        ("1 GiB", 2**30),
        ("1.5 KiB", 1_536),
        ("100 bytes", 100),
        ("100", 100),
        ("2 tb", 2 * 10**12),
    ],
)
def test_a_size_is_a_number_and_a_unit_of_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "1 XB", "1 GB 2 MB", "-5 MB", "0.5 bytes"])
def test_anything_else_is_not_a_size(text: str) -> None:
    with pytest.raises(DeclarationError, match="is not a"):
        parse_size(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(604_800, "1 week"), (259_200, "3 days"), (90, "90 seconds"), (0.25, "250 milliseconds"), (0, "0 seconds")],
)
def test_a_duration_is_shown_in_the_largest_unit_that_divides_it(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(min_value=0, max_value=10**9))
def test_a_duration_that_was_shown_is_read_back_the_same(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1 kB"), (1_234_567, "1.23 MB"), (999_999, "1000 kB"), (10**13, "10 TB")],
)
def test_a_size_is_shown_with_three_digits(size: int, text: str) -> None:
    assert format_size(size) == text
