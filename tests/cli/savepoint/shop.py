"""An app that runs on a log without Spark: it plans, publishes and commits."""

from __future__ import annotations

import pyarrow as pa
from crc32c import crc32c

from penstock import Log
from penstock.contracts import ViewChanges, ViewTable
from penstock.derive.place import app_directory
from penstock.derive.store import ViewStore
from penstock.engine.ledger.ledger import Ledger, instance_name, open_ledger
from penstock.engine.ledger.records import Commit, EpochPlan
from penstock.engine.state.run import RunFile

SCHEMA = pa.schema([("orders", pa.int64())])


class Shop:
    """An instance of an app: every epoch leaves one run and shows its own number."""

    def __init__(self, log: Log, name: str = "shop") -> None:
        self.token = log.producer(instance_name(name)).epoch
        self.ledger: Ledger = open_ledger(app_directory(log.path, name), name, state_partitions=1, created=0)
        self.ledger.take_over(self.token)
        self.views = ViewStore(self.ledger.directory / "views.sqlite")
        self.views.take_over(name, self.token)
        self.views.declare([ViewTable("totals", SCHEMA, None)])

    def run(self, epochs: int = 1) -> None:
        for _ in range(epochs):
            epoch = self.ledger.last_epoch() + 1
            self.ledger.write_plan(EpochPlan(epoch, self.token))
            self.publish(epoch)
            runs = {"count": {0: (self._run(epoch),)}}
            self.ledger.commit(Commit(epoch, self.token, runs, {"rows": epoch}, committed_at=epoch))

    def publish(self, epoch: int) -> None:
        changes = ViewChanges(pa.record_batch([[epoch]], schema=SCHEMA), pa.array([1]))
        self.views.apply(epoch, self.token, {"totals": [changes]})

    def _run(self, epoch: int) -> RunFile:
        content = b"a run of epoch %d" % epoch
        path = f"state/count/0/{epoch:012d}-{self.token}-0a.arrow"
        (self.ledger.directory / path).parent.mkdir(parents=True, exist_ok=True)
        (self.ledger.directory / path).write_bytes(content)
        return RunFile(path, 1, len(content), crc32c(content))
