"""Times, dates and decimals as text."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.derive.sqlite.texts import date_texts, decimal_texts, timestamp_texts

INSTANT = pa.timestamp("us", "UTC")


@given(st.lists(st.none() | st.datetimes(timezones=st.just(UTC))))
def test_times_are_written_as_python_does_and_sort_as_text(times: list[datetime | None]) -> None:
    texts = timestamp_texts(pa.array(times, INSTANT)).tolist()
    assert texts == [None if time is None else str(time.replace(tzinfo=None)) for time in times]
    known = [time for time in times if time is not None]
    assert (
        sorted(text for text in texts if text is not None) == timestamp_texts(pa.array(sorted(known), INSTANT)).tolist()
    )


@given(st.lists(st.none() | st.dates()))
def test_dates_are_iso_dates(dates: list[object]) -> None:
    texts = date_texts(pa.array(dates, pa.date32())).tolist()
    assert texts == [None if date is None else str(date) for date in dates]


@given(st.lists(st.integers(-(2**63) + 1, 2**63 - 1), min_size=1, unique=True))
def test_times_of_any_year_stay_apart(counts: list[int]) -> None:
    texts = timestamp_texts(pa.array(counts, pa.int64()).cast(INSTANT)).tolist()
    assert len(set(texts)) == len(counts)
    assert [int(np.datetime64(text.replace(" ", "T"), "us").astype(np.int64)) for text in texts] == counts


def test_far_dates_have_a_text() -> None:
    assert date_texts(pa.array([100_000_000, None, 0], pa.int32()).cast(pa.date32())).tolist() == [
        "275760-09-13",
        None,
        "1970-01-01",
    ]


def test_decimals_have_all_their_digits_and_no_exponent() -> None:
    values = [Decimal("-0.0000000001"), None, Decimal("12345678901234567890.5")]
    assert decimal_texts(pa.array(values, pa.decimal128(38, 10))).tolist() == [
        "-0.0000000001",
        None,
        "12345678901234567890.5000000000",
    ]
