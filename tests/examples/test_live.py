"""The shop, live: its views follow the orders, and equal the log at the end."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.derive.views import query
from penstock.paths import app_directory

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "live.py"


@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("spark")  # for Java; it runs in a process of its own
def test_the_views_follow_the_orders_and_equal_the_log(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, EXAMPLE, "12", tmp_path / "shop"], capture_output=True, text=True, check=False, timeout=240
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == ""
    found = re.search(r"Verified: ([\d,]+) orders in the log and in the views", shown.stdout)
    assert found, shown.stdout
    ((in_windows,),) = query(app_directory(tmp_path / "shop", "shop"), "select sum(orders) from revenue")
    # The last window is still open.
    assert 0 < in_windows <= int(found[1].replace(",", ""))  # type: ignore[operator]
