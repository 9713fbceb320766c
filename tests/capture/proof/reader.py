"""Readers of the log who believe nothing: the sum of all transfers at consistent ends, and the order of versions."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock import Log
from penstock.capture.folder import CaptureFolder
from penstock.contracts import COMMIT_TIME
from tests.capture.proof.bank import TOTAL

UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)


class SumReader:
    """Reads both tables of a bank up to consistent ends, again and again, from the end of their first copies on."""

    TABLES = ("accounts", "savings")

    def __init__(self, log: Path, capture: str) -> None:
        self._log, self._folder = log, CaptureFolder.at(log, capture)
        self._balances: dict[tuple[str, int], int] = {}
        self._read: dict[str, dict[int, int]] = {table: {} for table in self.TABLES}
        self._stop = threading.Event()
        self.states = 0
        self.problem: BaseException | None = None

    @contextmanager
    def running(self) -> Iterator[SumReader]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()
        assert self.problem is None, self.problem

    def are_copied(self) -> bool:
        status = self._folder.load_status()
        tables = status.tables if status is not None else ()
        return bool(tables) and all(table.state == "complete" for table in tables if table.table in self.TABLES)

    def _run(self) -> None:
        try:
            while not self.are_copied():
                if self._stop.wait(0.05):
                    return
            with Log(self._log) as log:
                while not self._stop.wait(0.03):
                    self._look(log)
                self._look(log)
        except BaseException as error:
            self.problem = error
            raise

    def _look(self, log: Log) -> None:
        ends = log.consistent_ends(self.TABLES)
        if ends == self._read:
            return
        for table in self.TABLES:
            self._apply(log, table, ends[table])
        self._read = ends
        found = sum(self._balances.values())
        assert found == TOTAL, f"the sum is off by {found - TOTAL} at {ends}"
        self.states += 1

    def _apply(self, log: Log, table: str, until: Mapping[int, int]) -> None:
        start = self._read[table] or "start"
        for batch in log.topic(table).batches(start, until=until, columns=["id", "balance"]):
            for row in batch.rows_marked.to_pylist():
                if row["_deleted"]:
                    self._balances.pop((table, row["id"]), None)
                else:
                    self._balances[table, row["id"]] = row["balance"]


def copied_rows(log: Log, topic: str, *, in_order: bool = True) -> dict[int, dict[str, Any]]:
    """The newest row of each key, and along the way, with `in_order`: the versions of a key never go back.

    Version 0 is one that a transaction replaces before its end. A table that is copied while the capture is killed is
    not in order: what a chunk had is lost with the process, and older changes come after it, until it is read again.
    """
    rows: dict[int, dict[str, Any]] = {}
    versions: dict[int, int] = {}
    for batch in log.topic(topic).batches():
        for row in batch.rows_marked.to_pylist():
            key = row["id"]
            if row.pop("_deleted"):
                rows.pop(key, None)
                continue
            if row["version"]:
                goes_on = not in_order or versions.get(key, 0) <= row["version"]
                assert goes_on, f"{topic}: {key} went back from {versions[key]} to {row}"
                versions[key] = row["version"]
            del row[COMMIT_TIME]
            rows[key] = row
    return rows


def captured_versions(log: Log, topic: str) -> Counter[tuple[int, int]]:
    """How often each version of each key came as a change, and not from a copy."""
    found: Counter[tuple[int, int]] = Counter()
    for batch in log.topic(topic).batches():
        for row in batch.rows_marked.to_pylist():
            if not row["_deleted"] and row["version"] and row[COMMIT_TIME] > UNKNOWN:
                found[row["id"], row["version"]] += 1
    return found
