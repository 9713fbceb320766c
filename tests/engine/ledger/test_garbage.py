"""Garbage: what nobody needs goes, what somebody may need stays, and looking for it is cheap."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.engine.ledger.garbage import NO_REMOVAL, Garbage, Removal
from penstock.engine.ledger.ledger import Ledger, open_ledger
from penstock.engine.ledger.records import EpochChanges, ViewChangeFiles, padded_epoch
from penstock.engine.ledger.savepoints import load_savepoint, lock_savepoints
from penstock.engine.state.run import RunFile
from penstock.errors import DamagedError
from penstock.flow.settings import ChangeRetention
from penstock.paths import app_directory
from tests.engine.simulated_app import (
    APP,
    COLUMNS,
    VERSION,
    VIEW,
    FolderDisk,
    Instance,
    commit_of,
    new_disk,
    opened,
    plan_of,
    refuse_inconsistent,
    run_files,
    savepoints_of,
    store_run,
    store_view_run,
)
from tests.log.simulated import Fault, SimulatedCrash

NOW = 1_000_000_000


def commit_runs(
    ledger: Ledger, *runs: RunFile, views: tuple[RunFile, ...] = (), changes: EpochChanges | None = None
) -> None:
    """One more epoch, that leaves these runs."""
    ledger.take_over(1)
    plan = plan_of(ledger.last_epoch() + 1, 1)
    ledger.write_plan(plan)
    ledger.commit(commit_of(plan, 1, {0: runs}, *views), changes)


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
    assert Garbage(ledger, keep=8).collect(NOW) == Removal(files=2, epochs=2)
    assert run_files(disk) == {run.path for run in runs[2:]}
    assert ledger.epochs_with("commit") == ledger.epochs_with("plan") == list(range(3, 11))


def test_a_run_that_is_still_named_stays_however_old_it_is() -> None:
    disk = new_disk()
    ledger = opened(disk)
    first = store_run(disk, 1, 1, 99)
    for _ in range(12):
        commit_runs(ledger, first)
    assert Garbage(ledger, keep=2).collect(NOW) == Removal(files=0, epochs=10)
    assert run_files(disk) == {first.path}


def test_files_of_an_epoch_that_is_not_committed_stay() -> None:
    disk = new_disk()
    ledger = opened(disk)
    (kept,) = replace_runs(ledger, disk, 1)
    running = store_run(disk, 2, 1, 5)
    Garbage(ledger).sweep(NOW)
    assert run_files(disk) == {kept.path, running.path}


def test_an_instance_removes_what_its_own_failed_attempt_left_and_nothing_else() -> None:
    disk = new_disk()
    ledger = opened(disk)
    (kept,) = replace_runs(ledger, disk, 1)
    failed, live = store_run(disk, 2, 1, 5), store_run(disk, 2, 11, 6)
    Garbage(ledger).remove_attempt(2, 1)
    assert run_files(disk) == {kept.path, live.path}
    assert failed.path not in run_files(disk)


def test_what_a_failed_attempt_leaves_late_is_swept_after_the_next_commit() -> None:
    disk = new_disk()
    ledger = opened(disk)
    (kept,) = replace_runs(ledger, disk, 1)
    garbage = Garbage(ledger)
    garbage.collect(NOW)
    garbage.remove_attempt(2, 1)
    store_run(disk, 2, 1, 5)
    commit_runs(ledger, kept)
    garbage.collect(NOW)
    assert run_files(disk) == {kept.path}


def test_files_that_no_commit_ever_named_are_found_by_the_first_collection_and_by_a_sweep() -> None:
    disk = new_disk()
    ledger = opened(disk)
    garbage = Garbage(ledger)
    kept = []
    for look in (garbage.collect, garbage.sweep):
        store_run(disk, ledger.last_epoch() + 1, 1, 400)
        kept += replace_runs(ledger, disk, 1)
        assert look(NOW).files == 1
        assert run_files(disk) == {run.path for run in kept}


def test_a_collection_with_nothing_to_do_lists_only_small_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    ledger = opened(disk)
    garbage = Garbage(ledger, keep=2)
    replace_runs(ledger, disk, 2)
    garbage.collect(NOW)
    listed: set[Path] = set()
    names = disk.names
    monkeypatch.setattr(disk, "names", lambda folder: listed.add(folder) or names(folder))
    for _ in range(5):
        replace_runs(ledger, disk, 1)
        garbage.collect(NOW)
    assert listed == {APP / "epochs", APP / "staged", APP / "savepoints"}


def test_what_a_savepoint_names_stays_until_it_is_dropped() -> None:
    disk = new_disk()
    ledger = opened(disk)
    savepoints = savepoints_of(ledger, disk)
    garbage = Garbage(ledger, keep=2)
    (saved,) = replace_runs(ledger, disk, 1)
    savepoints.create("before", created=1)
    later = replace_runs(ledger, disk, 9)
    garbage.collect(NOW)
    assert run_files(disk) == {saved.path, *(run.path for run in later[-2:])}
    savepoints.drop("before")
    garbage.sweep(NOW)
    assert run_files(disk) == {run.path for run in later[-2:]}


def test_nothing_is_collected_while_a_savepoint_is_made() -> None:
    disk = new_disk()
    ledger = opened(disk)
    replace_runs(ledger, disk, 5)
    garbage = Garbage(ledger, keep=2)
    with lock_savepoints(ledger):
        assert garbage.collect(NOW) == NO_REMOVAL
    assert garbage.collect(NOW) == Removal(files=3, epochs=3)


def test_an_old_damaged_commit_keeps_nothing_and_the_last_one_stops_the_collection() -> None:
    disk = new_disk()
    ledger = opened(disk)
    runs = replace_runs(ledger, disk, 4)
    disk.open(ledger.path_of(3, "commit")).truncate(10)
    again = opened(disk)
    assert Garbage(again, keep=2).collect(NOW).epochs == 2
    assert runs[3].path in run_files(disk)
    disk.open(ledger.path_of(4, "commit")).truncate(10)
    with pytest.raises(DamagedError):
        Garbage(opened(disk), keep=2).collect(NOW)
    assert runs[3].path in run_files(disk)


def test_a_damaged_savepoint_stops_the_collection_until_it_is_dropped() -> None:
    disk = new_disk()
    ledger = opened(disk)
    savepoints = savepoints_of(ledger, disk)
    replace_runs(ledger, disk, 1)
    savepoints.create("bad", created=1)
    replace_runs(ledger, disk, 5)
    before = run_files(disk)
    disk.open(APP / "savepoints" / "bad.json").truncate(10)
    with pytest.raises(DamagedError, match="savepoint 'bad' is damaged") as found:
        Garbage(ledger, keep=2).collect(NOW)
    assert found.value.hint == "restore the file from a copy, or drop it: penstock savepoint drop bad"
    assert run_files(disk) == before
    savepoints.drop("bad")
    assert Garbage(ledger, keep=2).collect(NOW).files == 4


def test_staged_outputs_of_committed_epochs_are_removed(tmp_path: Path) -> None:
    ledger = open_ledger(app_directory(tmp_path, "shop"), "shop", state_partitions=1, created=0)
    for epoch in (1, 2):
        (ledger.directory / "staged" / padded_epoch(epoch) / "deep").mkdir(parents=True)
        (ledger.directory / "staged" / padded_epoch(epoch) / "deep" / "rows.arrow").write_bytes(b"rows")
    commit_runs(ledger)
    Garbage(ledger).collect(NOW)
    assert [path.name for path in (ledger.directory / "staged").iterdir()] == ["000000000002"]


def test_drafts_that_a_crash_left_are_swept(tmp_path: Path) -> None:
    ledger = open_ledger(app_directory(tmp_path, "shop"), "shop", state_partitions=1, created=0)
    commit_runs(ledger)
    left = [
        "epochs/000000000001.commit.json.tmp",
        "state/count/0/000000000001-1-ab.tmp",
        "views/counts/0/000000000001-1-ab.tmp",
    ]
    for name in left:
        (ledger.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (ledger.directory / name).write_bytes(b"half")
    Garbage(ledger).sweep(NOW)
    assert not any((ledger.directory / name).exists() for name in left)


# -- views and their changes ------------------------------------------------------------------------------------------


def show_epochs(ledger: Ledger, disk: FolderDisk, epochs: int, *, committed_at: int = NOW) -> list[tuple[str, str]]:
    """So many epochs, each with a run of the view and a file of what it changed, of 100 bytes; their paths."""
    files = []
    for _ in range(epochs):
        epoch = ledger.last_epoch() + 1
        run = store_view_run(disk, epoch, 1, 1, f"the total of epoch {epoch}")
        changed = store_view_run(disk, epoch, 1, 2, "changes".ljust(100))
        changes = EpochChanges(epoch, committed_at, {VIEW: ViewChangeFiles(VERSION, COLUMNS, None, (changed,))})
        commit_runs(ledger, views=(run,), changes=changes)
        files.append((run.path, changed.path))
    return files


def test_files_of_views_go_as_those_of_states_do() -> None:
    disk = new_disk()
    ledger = opened(disk)
    shown = show_epochs(ledger, disk, 5)
    stray = store_view_run(disk, 5, 1, 77, "of a task that failed")
    Garbage(ledger, keep=2, retention=ChangeRetention(epochs=0)).collect(NOW)
    assert stray.path not in run_files(disk, "views")
    assert run_files(disk, "views") == {*(run for run, _ in shown[-2:]), shown[-1][1]}


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (ChangeRetention(), 10),
        (ChangeRetention(epochs=4), 4),
        (ChangeRetention(epochs=1), 1),
        (ChangeRetention(bytes=350), 3),
        (ChangeRetention(bytes=1), 1),  # the newest stay, however large they are
        (ChangeRetention(microseconds=50), 5),
        (ChangeRetention(microseconds=50, epochs=7, bytes=250), 2),
        (None, 10),
    ],
)
def test_changes_are_kept_for_a_time_and_for_so_many_epochs_and_bytes(
    retention: ChangeRetention | None, kept: int
) -> None:
    disk = new_disk()
    ledger = opened(disk)
    earlier = show_epochs(ledger, disk, 5, committed_at=NOW - 51)
    shown = [*earlier, *show_epochs(ledger, disk, 5, committed_at=NOW - 50)]
    Garbage(ledger, keep=2, retention=retention).collect(NOW)
    assert ledger.epochs_with_changes() == list(range(11 - kept, 11))
    assert run_files(disk, "views") == {*(run for run, _ in shown[-2:]), *(changed for _, changed in shown[-kept:])}


def test_changes_expire_as_epochs_follow_one_another() -> None:
    disk = new_disk()
    ledger = opened(disk)
    garbage = Garbage(ledger, keep=2, retention=ChangeRetention(epochs=3))
    for epoch in range(1, 9):
        show_epochs(ledger, disk, 1)
        garbage.collect(NOW)
        assert ledger.epochs_with_changes() == list(range(max(1, epoch - 2), epoch + 1))
    refuse_missing_changes(disk)


def refuse_missing_changes(disk: FolderDisk) -> None:
    ledger = opened(disk)
    for epoch in ledger.epochs_with_changes():
        changes = ledger.changes_of(epoch)
        assert changes is not None
        assert changes.paths() <= run_files(disk, "views")


def test_a_run_that_is_also_what_an_epoch_changed_stays_while_either_needs_it() -> None:
    """The rows that a view has got in an epoch are a run of it, and its changes."""
    disk = new_disk()
    ledger = opened(disk)
    garbage = Garbage(ledger, keep=2, retention=ChangeRetention(epochs=4))
    added = store_view_run(disk, 1, 1, 1, "rows")
    changes = EpochChanges(1, NOW, {VIEW: ViewChangeFiles(VERSION, COLUMNS, None, (added,))})
    commit_runs(ledger, views=(added,), changes=changes)
    for epoch in range(2, 8):  # the second epoch merges it into another run
        merged = store_view_run(disk, epoch, 1, 1, "rows of all")
        commit_runs(ledger, views=(merged,))
        garbage.collect(NOW)
        assert (added.path in run_files(disk, "views")) == (epoch < 5)


def test_a_sweep_beside_a_running_app_leaves_what_is_committed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    ledger = opened(disk)
    show_epochs(ledger, disk, 2)
    sweeping = Garbage(opened(disk), keep=2)
    whole = Garbage._sweep

    def committed_meanwhile(self: Garbage) -> Removal:
        show_epochs(ledger, disk, 1)
        return whole(self)

    monkeypatch.setattr(Garbage, "_sweep", committed_meanwhile)
    sweeping.sweep(NOW)
    assert ledger.last_epoch() == 3
    refuse_missing_changes(disk)


# -- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power_loss", [True, False])
def test_after_a_crash_in_any_collection_nothing_needed_is_gone_and_the_rest_goes_later(power_loss: bool) -> None:
    fault_at = 0
    while True:
        disk = new_disk()
        ledger = opened(disk)
        replace_runs(ledger, disk, 2)
        savepoints_of(ledger, disk).create("early", created=1)
        show_epochs(ledger, disk, 3)
        runs = replace_runs(ledger, disk, 5)
        store_run(disk, 3, 1, 1234)
        disk.fail(fault_at, Fault.CRASH_BEFORE)
        with suppress(SimulatedCrash):
            Garbage(ledger, keep=2, retention=ChangeRetention(epochs=6)).collect(NOW)
        if not disk.fault_hit:
            break
        after = disk.crash(random.Random(fault_at)) if power_loss else disk.another_process()
        again = opened(after)
        for run in runs[-2:]:
            assert run.path in run_files(after)
        refuse_missing_changes(after)
        Garbage(again, keep=2).sweep(NOW)
        saved = load_savepoint(again, "early").commit.paths()
        assert run_files(after) == {run.path for run in runs[-2:]} | saved
        fault_at += 1
    assert fault_at > 12


def test_a_running_app_leaves_only_what_its_last_commits_need() -> None:
    disk = new_disk()
    instance = Instance(disk, 1, random.Random(11))
    instance.until("collected", times=40)
    kept = [instance.ledger.commit_of(epoch) for epoch in (39, 40)]
    changes = [instance.ledger.changes_of(epoch) for epoch in (38, 39, 40)]
    named = {path for record in (*kept, *changes) if record for path in record.paths()}
    assert run_files(disk) | run_files(disk, "views") == named
    refuse_inconsistent(disk)
