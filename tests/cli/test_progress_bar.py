"""Progress bars."""

from __future__ import annotations

import re

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


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("unit", ["rows", "bytes"])
def test_a_narrow_terminal_has_room_for_the_amount_and_the_time_that_remains(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unit: str, width: int
) -> None:
    for name, value in (("TTY_COMPATIBLE", "1"), ("TTY_INTERACTIVE", "1"), ("COLUMNS", str(width))):
        monkeypatch.setenv(name, value)
    with progress_bar("Producing a-topic-with-a-long-name", 123_456_789, unit=unit) as advance:
        advance(98_765_432)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    shown = [line for line in re.split(r"[\r\n]+", plain) if line.strip()]
    assert all(len(line) <= width for line in shown)
    assert any(re.search(r"Prod.*(98765432/123456789 rows|98.8/123.5 MB).*--:--", line) for line in shown)
