"""MariaDB against the conformance suite of databases, with exactly the rights that capturing needs."""

from __future__ import annotations

from tests.capture.database_contract import DatabaseContract


class TestMariaDB(DatabaseContract):
    pass
