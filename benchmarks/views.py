"""Reading views: SQL over the runs of a commit beside DuckDB's own table, look-ups by key, and a cold question.

The view has 10 million rows by key, in one large run per partition and small ones on top, as an app leaves it.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, best_seconds, compared, median_seconds, seconds, temporary_directory
from penstock.derive.views import ViewReader
from penstock.engine.ledger.ledger import Ledger, open_ledger
from penstock.engine.ledger.records import Commit, EpochPlan, StoredView, TrackRecord, padded_epoch
from penstock.engine.plan.cut import Cut
from penstock.engine.state.arrangement import Arrangement, Replacing
from penstock.engine.state.columns import GONE, ID, ORDER
from penstock.engine.state.hashing import hash_rows
from penstock.engine.state.run import RunFile, open_run, sorted_run, store_run
from penstock.paths import app_directory

ROWS = 10_000_000
CHANGED = 100_000
PARTITIONS = 2
EPOCHS = 5
LOOK_UPS = 20_000
COLUMNS = "id bigint, country string, amount double, n bigint"

GROUP_BY = "select country, count(*), sum(amount), max(n) from orders group by country order by country"
FILTERED = "select count(*), sum(amount) from orders where n = 17 and amount > 900"


def measurements() -> Iterator[Measurement]:
    with temporary_directory() as directory:
        app = _App(app_directory(directory, "shop"))
        app.write(np.arange(ROWS), seed=1)
        for epoch in range(EPOCHS):
            app.write(_some_ids(seed=epoch), seed=100 + epoch)
        reader = ViewReader(app.directory)
        yield Measurement(
            name="open and check the runs", value=seconds(lambda: reader.refresh().open("orders")), unit="s"
        )
        own = duckdb.connect(":memory:")
        own.register("rows_of_the_view", reader.query("select * from orders").rows().to_arrow())
        own.execute("create table orders as select * from rows_of_the_view")
        yield from _scans(reader, own)
        yield from _changing(app, reader)
        yield from _look_ups(reader)
        own.close()
        yield _cold(directory)


def _scans(reader: ViewReader, own: duckdb.DuckDBPyConnection) -> Iterator[Measurement]:
    for name, sql in (("group by", GROUP_BY), ("filtered scan", FILTERED)):
        assert reader.query(sql).rows().to_arrow().num_rows == len(own.execute(sql).fetchall())
        yield compared(
            f"{name}, {ROWS:,} rows",
            best_seconds(lambda sql=sql: reader.query(sql).rows().to_arrow()),  # type: ignore[misc]
            "s",
            compared_with="DuckDB's own table",
            reference=best_seconds(lambda sql=sql: own.execute(sql).fetchall()),  # type: ignore[misc]
            at_most=3.0,
        )


def _changing(app: _App, reader: ViewReader) -> Iterator[Measurement]:
    """The first question after an epoch that changed many rows: what is new is opened and marked."""
    taken = []
    for epoch in range(EPOCHS):
        app.write(_some_ids(seed=1_000 + epoch), seed=2_000 + epoch)
        taken.append(seconds(lambda: reader.query(GROUP_BY).rows().to_arrow()))
    again = median_seconds(lambda: reader.query(GROUP_BY).rows().to_arrow())
    yield compared(
        f"group by after an epoch of {CHANGED:,} changes",
        sorted(taken)[len(taken) // 2],
        "s",
        compared_with="the same question again",
        reference=again,
        at_most=3.0,
    )


def _look_ups(reader: ViewReader) -> Iterator[Measurement]:
    chosen = random.Random(7)
    keys = [chosen.randrange(ROWS) for _ in range(LOOK_UPS)]
    snapshot = reader.refresh()
    assert snapshot.get("orders", keys[0]) is not None
    rate = LOOK_UPS / best_seconds(lambda: [snapshot.get("orders", key) for key in keys], times=3)
    yield Measurement(
        name="look-ups by key", value=rate, unit="rows/s", aim=">= 20000", met=rate >= 20_000, note="one process"
    )
    refreshing = LOOK_UPS / best_seconds(lambda: [reader.get("orders", key) for key in keys], times=1)
    yield Measurement(name="look-ups, each in the newest commit", value=refreshing, unit="rows/s")
    asked = 200 / seconds(lambda: [reader.query("select * from orders where id = ?", [k]).rows() for k in keys[:200]])
    yield Measurement(name="look-ups with SQL", value=asked, unit="questions/s")


def _cold(directory: Path) -> Measurement:
    program = "import sys; from penstock.cli import main; sys.argv[0] = 'penstock'; main()"
    small = _App(app_directory(directory / "small", "shop"))
    small.write(np.arange(1_000), seed=1)
    command = [sys.executable, "-c", program, "query", "select count(*) from orders", "--log", str(directory / "small")]
    taken = median_seconds(lambda: subprocess.run(command, check=True, capture_output=True), times=5)
    return Measurement(name="cold penstock query", value=taken, unit="s", aim="<= 0.8", met=taken <= 0.8)


def _some_ids(*, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.unique(np.random.default_rng(seed).integers(0, ROWS, CHANGED))


@dataclass
class _App:
    """An app without Spark: writes the runs of one view, merges them as tasks do, and commits."""

    directory: Path
    runs: dict[int, tuple[RunFile, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.parent.parent.mkdir(parents=True, exist_ok=True)
        self.ledger: Ledger = open_ledger(self.directory, "shop", state_partitions=PARTITIONS, created=0)
        self.ledger.take_over(1)

    def write(self, ids: np.ndarray[tuple[int], np.dtype[np.int64]], *, seed: int) -> None:
        """Put rows with these keys in place of those that are there, as one epoch."""
        batch = _rows(ids, seed)
        homes = (batch.column(ORDER).to_numpy().view(np.uint64) >> np.uint64(7)) % np.uint64(PARTITIONS)
        for partition in range(PARTITIONS):
            self._add(partition, batch.filter(pa.array(homes == partition)))
        epoch = self.ledger.last_epoch() + 1
        cut = Cut(epoch, 0, {})
        self.ledger.write_plan(EpochPlan(epoch, 1, "live", cut, {}, {}, {}))
        view = StoredView("1", COLUMNS, ("id",), "keyed", dict(self.runs))
        self.ledger.commit(Commit(epoch, 1, epoch * 1_000_000, TrackRecord(cut, views={"orders": view})))

    def _add(self, partition: int, batch: pa.RecordBatch) -> None:
        files = self.runs.get(partition, ())
        opened = tuple(open_run(self.directory, file) for file in files)
        arrangement = Arrangement(Replacing(), batch.schema, opened).with_run(sorted_run(batch))
        kept, run = arrangement.merge_small_runs()
        prefix = f"{padded_epoch(self.ledger.last_epoch() + 1)}-1"
        stored = store_run(self.directory, f"views/orders/{partition}", prefix, run)
        self.runs[partition] = (*files[:kept], stored)


def _rows(ids: np.ndarray[tuple[int], np.dtype[np.int64]], seed: int) -> pa.RecordBatch:
    chosen = np.random.default_rng(seed)
    countries = pa.DictionaryArray.from_arrays(
        pa.array(chosen.integers(0, 50, len(ids), dtype=np.int32)),
        pa.array([f"country {number}" for number in range(50)]),
    ).cast(pa.string())
    order, id_ = hash_rows([pa.array(ids)])
    return pa.record_batch(
        {
            "id": pa.array(ids),
            "country": countries,
            "amount": pa.array(chosen.random(len(ids)) * 1_000),
            "n": pa.array(chosen.integers(0, 100, len(ids))),
            GONE: pa.array(np.zeros(len(ids), dtype=np.bool_)),
            ORDER: pa.array(order),
            ID: pa.array(id_),
        }
    )
