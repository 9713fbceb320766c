"""Fixtures of the fault tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import shim
from tests.faults.processes import Nursery

# Starting Spark takes half a minute where both cores are busy, and these tests start it several times.
APP_TIMEOUT = 900


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name.startswith("test_app_") and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(APP_TIMEOUT))


@pytest.fixture(scope="session")
def _nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """One for all tests; the shim is loaded where it can be built, and does nothing until a plan is set."""
    with Nursery(preload=shim.build(tmp_path_factory.mktemp("shim"))) as nursery:
        yield nursery


@pytest.fixture
def nursery(_nursery: Nursery) -> Iterator[Nursery]:
    yield _nursery
    _nursery.end_children()


@pytest.fixture
def faulty(nursery: Nursery) -> Nursery:
    """A nursery whose children's file operations can be made to fail."""
    if nursery.preload is None:
        pytest.skip(shim.MISSING)
    return nursery


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the test's log will be."""
    return tmp_path / "log"
