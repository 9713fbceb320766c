"""What the log keeps for an app; what becomes of it in an app that runs is in tests/engine/resume/test_deletes.py."""

from __future__ import annotations

from penstock.contracts import ReadOffset
from penstock.engine.ledger.records import BackfillRecord, Commit, TrackRecord
from penstock.engine.ledger.registration import (
    app_hold,
    lowest_positions,
    positions_of,
    rows_of,
    savepoint_hold,
)
from penstock.engine.plan.cut import Cut, SourceCut
from penstock.log.holds import HOLD_NAME_PATTERN
from tests.engine.simulated_app import commit_of as commit_of_plan
from tests.engine.simulated_app import new_disk, opened, plan_of, store_run


def cut_of(topic_id: str, **ends: int) -> Cut:
    parts = {int(name.removeprefix("p")): end for name, end in ends.items()}
    return Cut(1, 0, {"orders": SourceCut("orders", topic_id, dict.fromkeys(parts, 0), parts, None)})


def test_the_track_that_has_read_the_least_of_a_partition_counts() -> None:
    backfill = BackfillRecord(TrackRecord(cut_of("a", p0=2, p1=9)), {})
    commit = Commit(1, 1, 0, TrackRecord(cut_of("a", p0=7, p1=5)), backfill)
    assert positions_of(commit) == [ReadOffset("orders", "a", 0, 2), ReadOffset("orders", "a", 1, 5)]


def test_a_topic_that_was_created_again_has_a_position_of_its_own() -> None:
    found = lowest_positions([cut_of("old", p0=7), cut_of("new", p0=0)])
    assert found == [ReadOffset("orders", "old", 0, 7), ReadOffset("orders", "new", 0, 0)]


def test_the_rows_of_a_plan_are_those_between_its_cuts() -> None:
    assert rows_of(plan_of(1, 1, 3, 8)) == {"numbers": {0: (3, 8)}}


def test_every_name_of_an_app_and_a_savepoint_makes_a_name_for_a_hold() -> None:
    app = "a" * 187  # the longest that an app can have
    first, second = (savepoint_hold(app, letter * 200) for letter in "xy")
    for name in (app_hold(app), savepoint_hold("shop", "friday"), first, second):
        assert HOLD_NAME_PATTERN.fullmatch(name)
    assert first != second
    assert first.startswith(f"savepoint:{app}:")


def test_an_app_is_forgotten_until_a_later_epoch_is_committed() -> None:
    disk = new_disk()
    ledger = opened(disk)
    ledger.take_over(1)
    assert not ledger.is_forgotten()
    for epoch in (1, 2, 3):
        plan = plan_of(epoch, 1)
        ledger.write_plan(plan)
        ledger.commit(commit_of_plan(plan, 1, {0: (store_run(disk, epoch, 1, epoch),)}))
        assert not opened(disk).is_forgotten()
        ledger.forget()
        assert opened(disk).is_forgotten()
