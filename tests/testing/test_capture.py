"""The source in memory keeps the contract of sources."""

from __future__ import annotations

from penstock.contracts import Source
from penstock.testing.capture import ConfirmedMemorySource, Event, MemorySource, Pause
from tests.capture.contract import SourceContract

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
