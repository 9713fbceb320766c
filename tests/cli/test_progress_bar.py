"""Progress bars."""

from __future__ import annotations

import pytest

from penstock.cli.progress_bar import progress_bar


@pytest.mark.parametrize("unit", ["rows", "bytes"])
def test_a_terminal_sees_a_bar_that_moves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unit: str
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TTY_INTERACTIVE", "1")
    with progress_bar("Verifying", 100, unit=unit) as advance:
        advance(100)
    shown = capsys.readouterr()
    assert "Verifying" in shown.err
    assert "100/100" in shown.err
    assert shown.out == ""


def test_a_file_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("Verifying", None) as advance:
        advance(1)
    assert capsys.readouterr().err == ""
