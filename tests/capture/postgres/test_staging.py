"""Transactions in progress are staged in files that no crash leaves behind."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from penstock.capture.postgres.staging import Staging


def test_files_have_no_names_so_a_killed_process_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(Staging()) as staging:
        transaction = staging.open(1)
        transaction.append(b"I" * 5_000_000)
        assert [len(message) for message in staging.open(1).messages()] == [5_000_000]
        assert list(tmp_path.iterdir()) == []
