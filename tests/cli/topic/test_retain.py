"""`penstock topic retain`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import Result


@pytest.fixture
def topic(run: Callable[..., Result]) -> str:
    run("topic", "create", "t", "--schema", "id int", "--segment-bytes", "1 kB")
    for _ in range(5):
        run("produce", "t", stdin="\n".join('{"id": 1}' for _ in range(100)))
    return "t"


def test_a_shorter_retention_takes_hold_when_it_is_applied(run: Callable[..., Result], topic: str) -> None:
    assert run("topic", "retain", topic, "--retain-bytes", "1 B").exit_code == 0
    before = json.loads(run("topic", "describe", topic, "--json").stdout)
    run("expire", topic)
    after = json.loads(run("topic", "describe", topic, "--json").stdout)
    assert before["partitions"][0]["rows"] == 500
    assert after["partitions"][0]["rows"] < 500


def test_everything_can_be_kept_again(run: Callable[..., Result], topic: str) -> None:
    run("topic", "retain", topic, "--retain", "7 days")
    assert "retention:      1 week" in run("topic", "describe", topic).stdout
    run("topic", "retain", topic, "--for-ever")
    assert "retention:      forever" in run("topic", "describe", topic).stdout


@pytest.mark.parametrize("options", [[], ["--for-ever", "--retain", "1 day"]])
def test_what_is_wanted_must_be_said(run: Callable[..., Result], topic: str, options: list[str]) -> None:
    result = run("topic", "retain", topic, *options)
    assert result.exit_code == 2
    assert "--for-ever" in result.stderr


def test_a_versioned_topic_cannot_have_retention(run: Callable[..., Result]) -> None:
    run("topic", "create", "v", "--schema", "id int", "--key", "id", "--versioned")
    result = run("topic", "retain", "v", "--retain", "1 day")
    assert result.exit_code == 1
    assert "cannot have retention" in result.stderr
