"""An app that runs on a log without Spark: it plans, writes runs of a state and of a view, and commits."""

from __future__ import annotations

import pyarrow as pa

from penstock import Log
from penstock.engine.ledger.ledger import Ledger, instance_name, open_ledger
from penstock.engine.ledger.records import Commit, EpochPlan, StoredView, TrackRecord, padded_epoch
from penstock.engine.plan.cut import Cut
from penstock.engine.state.run import RunFile, store_batches
from penstock.paths import app_directory


class Shop:
    """An instance of an app: every epoch leaves one run of its state, and adds its own number to its view."""

    def __init__(self, log: Log, name: str = "shop") -> None:
        self.token = log.producer(instance_name(name)).epoch
        self.ledger: Ledger = open_ledger(app_directory(log.path, name), name, state_partitions=1, created=0)
        self.ledger.take_over(self.token)

    def run(self, epochs: int = 1) -> None:
        for _ in range(epochs):
            last = self.ledger.last_commit()
            epoch = self.ledger.last_epoch() + 1
            cut, outputs = Cut(epoch, epoch, {}), {"totals": "said.0"}
            self.ledger.write_plan(EpochPlan(epoch, self.token, "live", cut, {}, outputs, {}))
            runs = last.views["totals"].runs[0] if last else ()
            view = StoredView(
                "said.0", "orders bigint", None, "appended", {0: (*runs, self._run(epoch, "views/totals/0"))}
            )
            states = {"count": {0: (self._run(epoch, "state/count/0"),)}}
            live = TrackRecord(cut, {}, outputs, states, {"totals": view})
            self.ledger.commit(Commit(epoch, self.token, epoch, live))

    def _run(self, epoch: int, folder: str) -> RunFile:
        rows = pa.record_batch({"orders": pa.array([epoch], pa.int64())})
        return store_batches(self.ledger.directory, folder, f"{padded_epoch(epoch)}-{self.token}", [rows])
