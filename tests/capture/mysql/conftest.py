"""One server for the tests of a module that leave it as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.capture.mysql.world import MariaDBWorld
from tests.servers.mariadb import MariaDBServer


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDBServer]:
    server = MariaDBServer()
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def world(server: MariaDBServer) -> Iterator[MariaDBWorld]:
    world = MariaDBWorld(server)
    yield world
    world.close()
