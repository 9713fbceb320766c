"""An app without Spark that reads topics of a log: it plans and commits epochs as a running app does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.engine.ledger.ledger import Ledger, open_ledger
from penstock.engine.ledger.records import Account, BackfillRecord, Commit, EpochPlan, TrackRecord
from penstock.engine.ledger.registration import Registration, positions_of
from penstock.engine.plan.cut import Cut, SourceCut
from penstock.engine.plan.watermark import SourceTime
from penstock.log import Log

SECOND = 1_000_000
NOON = 1_777_636_800 * SECOND


class ReadingApp:
    """`commit_epoch` reads some rows of topics; what it writes are the accounts of an output named `totals`."""

    def __init__(self, log: Log, app: str = "shop") -> None:
        self._log = log
        self._app = app
        self.ledger: Ledger = open_ledger(log.apps_folder / app, app, state_partitions=2, created=NOON)
        self.ledger.take_over(1)
        self.account = Account()
        self.now = NOON
        self._read: dict[str, dict[int, int]] = {}

    def plan_epoch(self, rows: Mapping[str, int], times: Mapping[str, SourceTime] | None = None) -> EpochPlan:
        """Plan an epoch that reads so many offsets more of each topic, from its first partition on."""
        sources = {name: self._source(name, count, (times or {}).get(name)) for name, count in rows.items()}
        cut = Cut(self.ledger.last_epoch() + 1, self.now, sources)
        plan = EpochPlan(cut.epoch, 1, "live", cut, {}, {"totals": "1"}, {})
        self.ledger.write_plan(plan)
        return plan

    def commit_epoch(
        self,
        rows: Mapping[str, int],
        times: Mapping[str, SourceTime] | None = None,
        account: Account | None = None,
        backfill: BackfillRecord | None = None,
    ) -> Commit:
        """Plan and commit an epoch, which takes two seconds."""
        plan = self.plan_epoch(rows, times)
        self.now += 2 * SECOND
        self.account += account or Account()
        live = TrackRecord(plan.cut, outputs={"totals": "1"}, accounts={"totals": self.account})
        origins = {name: dict.fromkeys(source.ends, 0) for name, source in plan.cut.sources.items()}
        commit = Commit(plan.epoch, 1, self.now, live, backfill, origins=origins)
        self.ledger.commit(commit)
        Registration(self._log, self._app).move(1, positions_of(commit))
        self._read = {name: dict(source.ends) for name, source in plan.cut.sources.items()}
        return commit

    def commit_backfill(self, rows: Mapping[str, int], outputs: Mapping[str, str]) -> Commit:
        """Commit a backfill that has read so many offsets of each topic."""
        last = self.ledger.last_commit()
        assert last is not None
        sources = {
            name: replace(source, ends=_deal(rows[name], dict.fromkeys(source.ends, 0), source.ends))
            for name, source in last.live.cut.sources.items()
        }
        track = TrackRecord(replace(last.live.cut, sources=sources), outputs=outputs)
        return self.commit_epoch(dict.fromkeys(rows, 0), backfill=BackfillRecord(track, {}))

    def _source(self, name: str, count: int, time: SourceTime | None) -> SourceCut:
        topic = self._log.topic(name)
        starts = self._read.get(name, topic.starts())
        return SourceCut(name, topic.id, starts, _deal(count, starts, topic.ends()), time)


def _deal(count: int, starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
    reached = {}
    for number, start in starts.items():
        taken = min(count, ends[number] - start)
        reached[number] = start + taken
        count -= taken
    return reached
