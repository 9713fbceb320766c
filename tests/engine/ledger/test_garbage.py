"""Garbage: what nobody needs goes, what somebody may need stays, and looking for it is cheap."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.derive.place import app_directory
from penstock.engine.ledger.garbage import NOTHING, Garbage, Removed
from penstock.engine.ledger.ledger import Ledger, open_ledger
from penstock.engine.ledger.records import Commit, EpochPlan, numbered
from penstock.engine.ledger.savepoints import Savepoints, alone_with_savepoints
from penstock.engine.state.run import RunFile
from penstock.errors import DamagedError
from tests.engine.simulated_app import (
    APP,
    STATE,
    FolderDisk,
    Instance,
    SimulatedViews,
    new_disk,
    opened,
    refuse_inconsistent,
    state_files,
    store_run,
)
from tests.log.simulated import Fault, SimulatedCrash


def commit_runs(ledger: Ledger, *runs: RunFile) -> None:
    """One more epoch, that leaves these runs."""
    ledger.take_over(1)
    epoch = ledger.last_epoch() + 1
    ledger.write_plan(EpochPlan(epoch, 1, {"add": 0}))
    ledger.commit(Commit(epoch, 1, {STATE: {0: runs}}, {"sum": 0}, committed_at=epoch))


def replace_runs(ledger: Ledger, disk: FolderDisk, epochs: int) -> list[RunFile]:
    """So many epochs, each with one run that takes the place of the one before."""
    runs = []
    for _ in range(epochs):
        run = store_run(disk, ledger.last_epoch() + 1, 1, len(runs))
        commit_runs(ledger, run)
        runs.append(run)
    return runs


def test_runs_that_the_kept_commits_do_not_name_are_removed_with_the_older_commits() -> None:
    disk = new_disk()
    ledger = opened(disk)
    runs = replace_runs(ledger, disk, 10)
    assert Garbage(ledger, keep=8).collect() == Removed(files=2, epochs=2)
    assert state_files(disk) == {run.path for run in runs[2:]}
    assert ledger.numbers("commit") == ledger.numbers("plan") == list(range(3, 11))


def test_a_run_that_is_still_named_stays_however_old_it_is() -> None:
    disk = new_disk()
    ledger = opened(disk)
    first = store_run(disk, 1, 1, 99)
    for _ in range(12):
        commit_runs(ledger, first)
    assert Garbage(ledger, keep=2).collect() == Removed(files=0, epochs=10)
    assert state_files(disk) == {first.path}


def test_files_of_an_epoch_that_is_not_committed_stay() -> None:
    disk = new_disk()
    ledger = opened(disk)
    (kept,) = replace_runs(ledger, disk, 1)
    running = store_run(disk, 2, 1, 5)
    Garbage(ledger).sweep()
    assert state_files(disk) == {kept.path, running.path}


def test_an_instance_removes_what_its_own_failed_attempt_left_and_nothing_else() -> None:
    disk = new_disk()
    ledger = opened(disk)
    (kept,) = replace_runs(ledger, disk, 1)
    failed, others = store_run(disk, 2, 1, 5), store_run(disk, 2, 11, 6)
    Garbage(ledger).remove_attempt(2, 1)
    assert state_files(disk) == {kept.path, others.path}
    assert failed.path not in state_files(disk)


def test_what_a_failed_attempt_leaves_late_is_swept_after_the_next_commit() -> None:
    disk = new_disk()
    ledger = opened(disk)
    (kept,) = replace_runs(ledger, disk, 1)
    garbage = Garbage(ledger)
    garbage.collect()
    garbage.remove_attempt(2, 1)
    store_run(disk, 2, 1, 5)
    commit_runs(ledger, kept)
    garbage.collect()
    assert state_files(disk) == {kept.path}


def test_files_that_no_commit_ever_named_are_found_by_the_first_collection_and_by_a_sweep() -> None:
    disk = new_disk()
    ledger = opened(disk)
    garbage = Garbage(ledger)
    kept = []
    for look in (garbage.collect, garbage.sweep):
        store_run(disk, ledger.last_epoch() + 1, 1, 400)
        kept += replace_runs(ledger, disk, 1)
        assert look().files == 1
        assert state_files(disk) == {run.path for run in kept}


def test_a_collection_with_nothing_to_do_lists_only_small_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    ledger = opened(disk)
    garbage = Garbage(ledger, keep=2)
    replace_runs(ledger, disk, 2)
    garbage.collect()
    listed: set[Path] = set()
    names = disk.names
    monkeypatch.setattr(disk, "names", lambda folder: listed.add(folder) or names(folder))
    for _ in range(5):
        replace_runs(ledger, disk, 1)
        garbage.collect()
    assert listed == {APP / "epochs", APP / "staged", APP / "savepoints"}


def test_what_a_savepoint_names_stays_until_it_is_dropped() -> None:
    disk = new_disk()
    ledger = opened(disk)
    savepoints = Savepoints(ledger, SimulatedViews(disk))
    garbage = Garbage(ledger, keep=2)
    (saved,) = replace_runs(ledger, disk, 1)
    savepoints.create("before", created=1)
    later = replace_runs(ledger, disk, 9)
    garbage.collect()
    assert state_files(disk) == {saved.path, *(run.path for run in later[-2:])}
    savepoints.drop("before")
    garbage.sweep()
    assert state_files(disk) == {run.path for run in later[-2:]}


def test_nothing_is_collected_while_a_savepoint_is_made() -> None:
    disk = new_disk()
    ledger = opened(disk)
    replace_runs(ledger, disk, 5)
    garbage = Garbage(ledger, keep=2)
    with alone_with_savepoints(ledger):
        assert garbage.collect() == NOTHING
    assert garbage.collect() == Removed(files=3, epochs=3)


def test_an_old_damaged_commit_keeps_nothing_and_the_last_one_stops_the_collection() -> None:
    disk = new_disk()
    ledger = opened(disk)
    runs = replace_runs(ledger, disk, 4)
    disk.open(ledger.path_of(3, "commit")).truncate(10)
    again = opened(disk)
    assert Garbage(again, keep=2).collect().epochs == 2
    assert runs[3].path in state_files(disk)
    disk.open(ledger.path_of(4, "commit")).truncate(10)
    with pytest.raises(DamagedError):
        Garbage(opened(disk), keep=2).collect()
    assert runs[3].path in state_files(disk)


def test_a_damaged_savepoint_stops_the_collection_until_it_is_dropped() -> None:
    disk = new_disk()
    ledger = opened(disk)
    savepoints = Savepoints(ledger, SimulatedViews(disk))
    replace_runs(ledger, disk, 1)
    savepoints.create("bad", created=1)
    replace_runs(ledger, disk, 5)
    before = state_files(disk)
    disk.open(APP / "savepoints" / "bad.json").truncate(10)
    with pytest.raises(DamagedError, match="savepoint 'bad' is damaged") as found:
        Garbage(ledger, keep=2).collect()
    assert found.value.hint == "restore the file from a copy, or drop it: penstock savepoint drop bad"
    assert state_files(disk) == before
    savepoints.drop("bad")
    assert Garbage(ledger, keep=2).collect().files == 4


def test_staged_outputs_of_committed_epochs_are_removed(tmp_path: Path) -> None:
    ledger = open_ledger(app_directory(tmp_path, "shop"), "shop", state_partitions=1, created=0)
    for epoch in (1, 2):
        (ledger.directory / "staged" / numbered(epoch) / "deep").mkdir(parents=True)
        (ledger.directory / "staged" / numbered(epoch) / "deep" / "rows.arrow").write_bytes(b"rows")
    commit_runs(ledger)
    Garbage(ledger).collect()
    assert [path.name for path in (ledger.directory / "staged").iterdir()] == ["000000000002"]


def test_drafts_that_a_crash_left_are_swept(tmp_path: Path) -> None:
    ledger = open_ledger(app_directory(tmp_path, "shop"), "shop", state_partitions=1, created=0)
    commit_runs(ledger)
    left = [
        "epochs/000000000001.commit.json.tmp",
        "savepoints/half.views.sqlite",
        "savepoints/half.views.sqlite-journal",
        "savepoints/.restoring.sqlite",
    ]
    for name in left:
        (ledger.directory / name).write_bytes(b"half")
    draft = ledger.directory / "state" / "count" / "0" / "000000000001-1-ab.tmp"
    draft.parent.mkdir(parents=True)
    draft.write_bytes(b"half")
    Garbage(ledger).sweep()
    assert not any((ledger.directory / name).exists() for name in left)
    assert not draft.exists()


@pytest.mark.parametrize("power_loss", [True, False])
def test_after_a_crash_in_any_collection_nothing_needed_is_gone_and_the_rest_goes_later(power_loss: bool) -> None:
    fault_at = 0
    while True:
        disk = new_disk()
        ledger = opened(disk)
        replace_runs(ledger, disk, 2)
        Savepoints(ledger, SimulatedViews(disk)).create("early", created=1)
        runs = replace_runs(ledger, disk, 5)
        store_run(disk, 3, 1, 1234)
        disk.fail(fault_at, Fault.CRASH_BEFORE)
        with suppress(SimulatedCrash):
            Garbage(ledger, keep=2).collect()
        if not disk.fault_hit:
            break
        after = disk.crash(random.Random(fault_at)) if power_loss else disk.another_process()
        again = opened(after)
        for run in runs[-2:]:
            assert run.path in state_files(after)
        Garbage(again, keep=2).sweep()
        saved = Savepoints(again, SimulatedViews(after)).savepoint("early").commit.paths()
        assert state_files(after) == {run.path for run in runs[-2:]} | saved
        fault_at += 1
    assert fault_at > 8


def test_a_running_app_leaves_only_what_its_last_commits_need() -> None:
    disk = new_disk()
    instance = Instance(disk, 1, random.Random(11))
    instance.until("collected", times=40)
    kept = [instance.ledger.commit_of(epoch) for epoch in (39, 40)]
    assert state_files(disk) == {path for commit in kept if commit for path in commit.paths()}
    refuse_inconsistent(disk)
