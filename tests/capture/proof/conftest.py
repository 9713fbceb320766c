"""A bank on each of the servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.capture.proof.bank import Bank, MariaDBBank, PostgresBank


@pytest.fixture(params=[PostgresBank, MariaDBBank])
def bank(request: pytest.FixtureRequest) -> Iterator[Bank]:
    """A server of its own, with empty databases."""
    bank = request.param()
    yield bank
    bank.server.remove()
