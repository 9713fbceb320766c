"""Deferring Ctrl-C while something is stored."""

from __future__ import annotations

import os
import signal

import pytest

from penstock.cli.interrupt import defer_interrupt


def press_ctrl_c(times: int, done: list[str]) -> None:
    with defer_interrupt():
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        done.append("the block")
    done.append("what follows")


def test_ctrl_c_waits_for_the_end_of_the_block() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c(1, done)
    assert done == ["the block"]


def test_ctrl_c_pressed_twice_does_not_wait() -> None:
    before = signal.getsignal(signal.SIGINT)
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c(2, done)
    assert done == []
    assert signal.getsignal(signal.SIGINT) is before
