"""Waiting for what is not available, as the running app does."""

from __future__ import annotations

import threading

import pytest

from penstock.engine import loop
from penstock.engine.loop import patiently
from penstock.errors import FencedError, UnavailableError


class Sometimes:
    """Fails so often, and then gives an answer."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def __call__(self) -> str:
        if self.failures:
            self.failures -= 1
            raise UnavailableError("the disk is full", hint="make space")
        return "done"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "TRY_AGAIN_SECONDS", 0.0)


def test_what_is_not_available_is_tried_again_and_told() -> None:
    heard: list[UnavailableError] = []
    assert patiently(Sometimes(3), threading.Event(), heard.append) == "done"
    assert [error.message for error in heard] == ["the disk is full"] * 3


def test_after_too_long_the_error_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MOST_SECONDS", -1.0)
    with pytest.raises(UnavailableError, match="the disk is full"):
        patiently(Sometimes(1), threading.Event(), lambda error: None)


def test_who_waits_can_be_stopped() -> None:
    stop = threading.Event()
    assert patiently(Sometimes(1_000), stop, lambda error: stop.set()) is None


def test_other_errors_are_not_waited_for() -> None:
    def fenced() -> None:
        raise FencedError("replaced")

    with pytest.raises(FencedError):
        patiently(fenced, threading.Event(), lambda error: None)
