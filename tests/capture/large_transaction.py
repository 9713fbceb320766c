"""Pumps one large transaction into a new log and tells, as JSON, how long it took and how much memory."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.capture.pump import pump
from penstock.contracts import Captured, Position, SourceTable
from penstock.log import Log

ITEM_ROWS = 5_000


class LargeTransaction:
    """One transaction of two tables of three columns, each row generated when it is asked for."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def tables(self) -> Sequence[SourceTable]:
        return [SourceTable("orders"), SourceTable("people")]

    def read(self, after: Position | None) -> Iterator[Captured]:
        for start in range(0, self._rows, ITEM_ROWS) if after is None else ():
            ids = np.arange(start, min(start + ITEM_ROWS, self._rows))
            names = pa.array(np.char.add("customer ", ids.astype(str)))
            rows = pa.record_batch({"id": ids, "name": names, "amount": ids / 7})
            yield Captured("orders" if start // ITEM_ROWS % 3 else "people", rows, None, None)
        yield Captured("", (), None, 1)

    def close(self) -> None:
        pass


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(path: Path, rows: int) -> None:
    with Log(path) as log:
        for name in ("orders", "people"):
            log.create_topic(name, "id long not null, name string, amount double", key="id", partitions=2)
        pump(LargeTransaction(1_000), log.writer("warm"))  # what the libraries need
        ends = {name: log.topic(name).ends() for name in log.topics()}
        before, began = peak_mib(), time.perf_counter()
        pump(LargeTransaction(rows), log.writer("capture"))
        seconds, growth = time.perf_counter() - began, peak_mib() - before
        stored, transactions = 0, set[int]()
        for name, starts in ends.items():
            for number, start in starts.items():
                for headers in log.topic(name).summaries(number, start, log.topic(name).ends()[number]):
                    stored += int(headers["rows"].sum())
                    transactions.update(headers["transaction"].tolist())
    told = {"rows": stored, "transactions": len(transactions), "seconds": seconds, "growth_mib": growth}
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
