"""What `compact` and `erase` print."""

from __future__ import annotations

import json

import pytest

from penstock.cli.rewrite_report import print_rewrite_report
from penstock.log import Rewritten

PARTS = [Rewritten(0, 10, 4, 5_000, 2_000), Rewritten(1, 0, 0, 64, 128)]


def test_what_was_removed_is_printed_by_partition_and_in_total(capsys: pytest.CaptureFixture[str]) -> None:
    print_rewrite_report("compacted", "t", PARTS, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["0", "10", "4", "5", "kB", "2", "kB"]
    assert lines[-1] == "compacted 't': 6 rows removed, 2.94 kB freed"


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_rewrite_report("compacted", "t", PARTS, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["rows_removed"] == 6
    assert document["partitions"][0]["bytes_after"] == 2_000
