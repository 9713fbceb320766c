"""Waiting for what is not available, as the running app does."""

from __future__ import annotations

import threading

import pytest

from penstock.engine import loop
from penstock.engine.loop import Listener, retry_while_unavailable
from penstock.engine.run.failures import SparkLostError
from penstock.errors import FencedError, PenstockError, UnavailableError


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


def test_what_is_not_available_is_tried_again_and_told_once() -> None:
    heard: list[UnavailableError] = []
    waited: list[float] = []
    assert retry_while_unavailable(Sometimes(3), threading.Event(), heard.append, waited.append) == "done"
    assert [error.message for error in heard] == ["the disk is full"]
    assert len(waited) == 1


def test_who_need_not_wait_hears_nothing_of_it() -> None:
    heard: list[object] = []
    assert retry_while_unavailable(Sometimes(0), threading.Event(), heard.append, heard.append) == "done"
    assert heard == []


def test_what_fails_after_we_were_told_to_stop_is_not_waited_for() -> None:
    stop = threading.Event()

    def fail() -> None:
        stop.set()
        raise UnavailableError("Spark is gone")

    with pytest.raises(UnavailableError, match="Spark is gone"):
        retry_while_unavailable(fail, stop, lambda error: pytest.fail("nobody waits"))


def test_after_too_long_the_error_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MOST_SECONDS", -1.0)
    with pytest.raises(UnavailableError, match="the disk is full"):
        retry_while_unavailable(Sometimes(1), threading.Event(), lambda error: None)


def test_who_waits_can_be_stopped() -> None:
    stop = threading.Event()
    assert retry_while_unavailable(Sometimes(1_000), stop, lambda error: stop.set()) is None


def test_other_errors_are_not_waited_for() -> None:
    def fenced() -> None:
        raise FencedError("replaced")

    with pytest.raises(FencedError):
        retry_while_unavailable(fenced, threading.Event(), lambda error: None)


def test_what_spark_loses_is_waited_for_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "TRY_AGAIN_SECONDS", 1.0)
    pauses = [loop._pause(SparkLostError("a worker is gone", attempt=attempt)) for attempt in range(1, 7)]
    assert pauses == [1, 2, 4, 8, 15, 15]
    assert loop._pause(UnavailableError("the disk is full")) == 1


def test_spark_is_started_again_three_times_and_then_the_app_says_why() -> None:
    heard: list[str] = []
    listener = Listener(lambda progress: None, lambda error: None, restarting=heard.append)
    restarts = loop._Restarts("shop")
    ended = loop._SparkEndedError("Spark's Java process was killed by signal 9 (Killed)")
    assert [restarts.pause(ended, listener) for _ in range(3)] == [1, 5, 15]
    assert len(heard) == 3
    with pytest.raises(PenstockError, match=r"app 'shop': .* signal 9 \(Killed\), for the 4th time") as stopped:
        restarts.pause(ended, listener)
    assert "memory" in str(stopped.value.hint)


def test_restarts_of_long_ago_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(lambda progress: None, lambda error: None)
    restarts = loop._Restarts("shop")
    monkeypatch.setattr(loop, "RESTARTS_SECONDS", 0.0)
    assert [restarts.pause(loop._SparkEndedError("gone"), listener) for _ in range(5)] == [1] * 5
