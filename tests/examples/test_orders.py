"""The first example: what it prints, and what it leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from penstock import Log

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "orders.py"


def test_nothing_is_lost_or_doubled_when_the_shop_is_killed(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, EXAMPLE, tmp_path / "shop"], capture_output=True, text=True, check=False, timeout=120
    )
    assert shown.returncode == 0, shown.stderr
    # Whether the shop was killed in the middle of an append is a matter of luck; if so, the log tells what it cut.
    assert all("of an unfinished append" in line for line in shown.stderr.splitlines())
    lines = shown.stdout.splitlines()
    assert lines[0] == "A shop writes 2,000 orders; we count them as they arrive."
    assert any("The shop was killed at work" in line for line in lines)
    assert lines[-1] == (
        "Verified: 2,000 orders, each exactly once; 97,635.00 revenue, to the cent; every byte checked."
    )
    with Log(tmp_path / "shop", create=False) as log:
        assert log.topics() == ["orders", "revenue"]
        assert len(log.topic("orders").read()) == 2_000
