"""Where to read from, as users write it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from penstock import Log
from penstock.cli.positions import parse_position, positions_in
from penstock.errors import DeclarationError, RangeError

NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("start", "start"),
        ("end", "end"),
        ("17", 17),
        ("2026-01-31", "2026-01-31"),
        ("90 minutes ago", NOON - dt.timedelta(minutes=90)),
    ],
)
def test_an_offset_and_a_time_before_now_are_read_and_the_rest_is_left_to_the_topic(
    text: str, position: object
) -> None:
    assert parse_position(text, now=NOON) == position


@pytest.mark.parametrize("text", ["", "-1", "begin", "yesterday", "12:00"])
def test_anything_else_is_refused_with_what_there_is(tmp_path: Path, text: str) -> None:
    with Log(tmp_path / "log") as log, pytest.raises(DeclarationError, match="is not a position") as refused:
        positions_in(log.create_topic("t", "a int"), text)
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("give start, end, an offset")


def test_a_time_before_all_times_is_refused() -> None:
    with pytest.raises(DeclarationError, match="'9999999 weeks ago' is before the earliest time"):
        parse_position("9999999 weeks ago")


def test_an_offset_for_one_partition_need_not_exist_in_the_others(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        topic = log.create_topic("t", "a int", partitions=2)
        topic.append([{"a": number} for number in range(5)], partition=1)
        assert positions_in(topic, "3", [1]) == {1: 3}
        with pytest.raises(RangeError, match="partition 0: offset 3 does not exist") as refused:
            positions_in(topic, "3")
        assert refused.value.hint == "offsets count per partition; choose one with --partition"
        with pytest.raises(RangeError, match="partition 0: offset 3 does not exist") as refused:
            positions_in(topic, "3", [0])
        assert "--partition" not in (refused.value.hint or "")


@pytest.mark.parametrize("text", ["start", "0"])
def test_a_partition_that_does_not_exist_is_refused(tmp_path: Path, text: str) -> None:
    with Log(tmp_path / "log") as log, pytest.raises(RangeError, match="partition 9 does not exist"):
        positions_in(log.create_topic("t", "a int", partitions=2), text, [9])
