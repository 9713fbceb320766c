"""`penstock verify`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result


@pytest.fixture
def segment(orders: str, folder: Path) -> Path:
    """A file of the topic `orders` in which there are rows."""
    return max((folder / "topics" / orders / "00001").glob("*.seg*"), key=lambda path: path.stat().st_size)


def damage(segment: Path) -> None:
    """Change one byte of the first row."""
    data = bytearray(segment.read_bytes())
    at = bytes(data).index(b"FR") if b"FR" in data else bytes(data).index(b"DE")
    data[at] ^= 1
    segment.write_bytes(bytes(data))


def test_a_log_without_damage_ends_with_status_0(run: Callable[..., Result], orders: str) -> None:
    result = run("verify")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "every byte is as it was written"


def test_damage_is_named_and_ends_with_status_1(run: Callable[..., Result], segment: Path) -> None:
    damage(segment)
    result = run("verify", "orders")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "1 problem found"
    assert f"problem: topic 'orders' partition 1: segment {segment.name} is damaged" in result.stderr


def test_damage_as_json(run: Callable[..., Result], segment: Path) -> None:
    damage(segment)
    result = run("verify", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["problems"] == 1
    assert [len(part["problems"]) for part in document["topics"][0]["partitions"]] == [0, 1]


def test_a_topic_whose_description_is_damaged_does_not_hide_the_others(
    run: Callable[..., Result], orders: str, folder: Path
) -> None:
    run("topic", "create", "broken", "--schema", "a int")
    (folder / "topics" / "broken" / "topic.json").write_text("{")
    result = run("verify")
    assert result.exit_code == 1
    assert "the topic's description is damaged" in result.stderr
    assert "orders" in result.stdout


def test_a_topic_that_does_not_exist_is_an_error(run: Callable[..., Result], orders: str) -> None:
    result = run("verify", "order")
    assert result.exit_code == 1
    assert "hint: did you mean 'orders'?" in result.stderr
