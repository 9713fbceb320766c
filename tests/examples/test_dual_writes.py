"""The example of dual writes, as it is printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "dual_writes.py"


def test_dual_writes_diverge_and_a_capture_does_not(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, str(EXAMPLE)], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert shown.returncode == 0, shown.stderr
    database = "database {'tea': 120, 'ink': 300}"
    assert f"  {database}, index {{'tea': 90, 'ink': 300}}: different, and will stay so" in shown.stdout
    assert f"  {database}, index {{'tea': 120, 'ink': 300}}: equal" in shown.stdout
