"""The source and the log in memory keep the contracts of sources and writers."""

from __future__ import annotations

import pytest

from penstock.contracts import Source
from penstock.testing.capture import ConfirmedMemorySource, Event, MemoryLog, MemorySource, MemoryWriter, Pause
from tests.capture.contract import SourceContract
from tests.log.writer_contract import WriterContract


class TestMemoryWriter(WriterContract):
    @pytest.fixture(autouse=True)
    def _log(self) -> None:
        self.log = MemoryLog()

    def open(self, name: str = "capture") -> MemoryWriter:
        return self.log.writer(name)

    def stored(self, topic: str = "orders") -> list[tuple[int, bool]]:
        found = []
        for row, mark in self.log.topics.get(topic, []):
            assert isinstance(row["id"], int)
            found.append((row["id"], mark))
        return found


EVENTS = [Event("orders", {"id": number}) for number in range(1, 13)]


class TestMemorySource(SourceContract):
    def open(self) -> Source:
        return MemorySource(EVENTS, item_rows=5)


class TestTransactionsOfAMemorySource(SourceContract):
    """Two events of different tables in each transaction, and pauses."""

    def open(self) -> Source:
        events: list[Event | Pause | Exception] = []
        for number in range(1, 13, 2):
            events += [Event("orders", {"id": number}, more=True), Pause(), Event("people", {"id": number + 1})]
        return ConfirmedMemorySource(events, item_rows=2)
