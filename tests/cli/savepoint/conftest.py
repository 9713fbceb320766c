"""Fixtures for tests of savepoint commands: an app that has run on the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock import Log
from penstock.cli.savepoint import app as commands
from tests.cli.savepoint.shop import Shop


@pytest.fixture
def shop(log: Log) -> Shop:
    """An app `shop` after three epochs, still running."""
    started = Shop(log)
    started.run(3)
    return started


@pytest.fixture
def savepoint(folder: Path) -> Callable[..., Result]:
    """Runs `penstock savepoint ...` in this process."""
    return lambda *args, stdin=None: CliRunner().invoke(commands, list(args), input=stdin)
