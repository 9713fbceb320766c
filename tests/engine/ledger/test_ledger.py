"""The ledger: epochs one after the other, each once, by the instance whose turn it is, whatever crashes."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.ledger.ledger import Ledger, open_ledger, stored_state_partitions
from penstock.engine.ledger.records import Commit, EpochChanges, EpochPlan, StoredView, TrackRecord, check_run_paths
from penstock.engine.state.run import RunFile
from penstock.errors import (
    ConflictError,
    DamagedError,
    DeclarationError,
    FencedError,
    UnavailableError,
    UnknownOutcomeError,
)
from penstock.paths import app_directory
from tests.engine.simulated_app import (
    APP,
    Instance,
    commit_of,
    cut_of,
    new_disk,
    opened,
    plan_of,
    refuse_inconsistent,
    total_before,
    total_of,
)
from tests.log.simulated import Fault, SimulatedCrash, SimulatedDisk

FAULTS = [Fault.CRASH_BEFORE, Fault.CRASH_AFTER]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """The ledger of an app on the real disk, taken over by instance 1."""
    begun = begin(tmp_path)
    begun.take_over(1)
    return begun


def begin(log: Path, app: str = "shop", *, state_partitions: int = 4) -> Ledger:
    return open_ledger(app_directory(log, app), app, state_partitions=state_partitions, created=5)


def planned(ledger: Ledger, epoch: int, token: int = 1, *, end: int = 0) -> EpochPlan:
    plan = plan_of(epoch, token, 0, end)
    ledger.write_plan(plan)
    return plan


def a_commit(epoch: int, token: int = 1) -> Commit:
    path = f"3/{epoch:012d}-{token}-0f.arrow"
    view = StoredView("said.0", "n bigint", ("n",), "keyed", {3: (RunFile(f"views/counts/{path}", 5, 99, 7),)})
    states = {"count": {3: (RunFile(f"state/count/{path}", 10, 999, 77),)}}
    live = TrackRecord(cut_of(epoch, 0, 0), {}, {"counts": "said.0"}, states, {"counts": view})
    return Commit(epoch, token, committed_at=123, live=live)


def committed(ledger: Ledger, epoch: int, token: int = 1) -> Commit:
    planned(ledger, epoch, token)
    commit = a_commit(epoch, token)
    ledger.commit(commit)
    return commit


# -- one instance -----------------------------------------------------------------------------------------------------


def test_a_new_ledger_has_neither_commit_nor_plan(ledger: Ledger) -> None:
    assert ledger.last_commit() is None
    assert ledger.pending_plan() is None
    assert (ledger.app, ledger.state_partitions, ledger.created) == ("shop", 4, 5)


def test_what_was_planned_and_committed_is_found_by_the_next_instance(ledger: Ledger) -> None:
    commit = committed(ledger, 1)
    plan = planned(ledger, 2, end=7)
    again = Ledger(ledger.directory)
    assert again.last_commit() == commit
    assert again.pending_plan() == plan


def test_an_amended_plan_takes_the_place_of_the_first(ledger: Ledger) -> None:
    amended = replace(planned(ledger, 1, end=3), dead={"numbers": {0: {2: "it is no number"}}})
    ledger.write_plan(amended)
    assert Ledger(ledger.directory).pending_plan() == amended


def test_a_committed_plan_is_no_longer_pending(ledger: Ledger) -> None:
    committed(ledger, 1)
    assert ledger.pending_plan() is None


@pytest.mark.parametrize("epoch", [0, 1, 3, 99])
def test_only_the_next_epoch_can_be_planned(ledger: Ledger, epoch: int) -> None:
    committed(ledger, 1)
    with pytest.raises(ConflictError, match=f"epoch {epoch} is not the next one; the last commit is 1"):
        planned(ledger, epoch)


def test_an_epoch_without_a_plan_cannot_be_committed(ledger: Ledger) -> None:
    with pytest.raises(ConflictError, match="epoch 1 cannot be committed; it has no plan"):
        ledger.commit(a_commit(1))


def test_a_repeated_commit_changes_nothing(ledger: Ledger) -> None:
    commit = committed(ledger, 1)
    ledger.commit(commit)
    assert Ledger(ledger.directory).last_commit() == commit


def test_a_second_commit_with_other_content_is_refused(ledger: Ledger) -> None:
    commit = committed(ledger, 1)
    with pytest.raises(ConflictError, match="was committed before, with other content"):
        ledger.commit(replace(commit, committed_at=8))
    assert Ledger(ledger.directory).last_commit() == commit


def test_what_an_epoch_changed_is_kept_with_its_commit(ledger: Ledger) -> None:
    planned(ledger, 1)
    changes = EpochChanges(1, 123, reset=("counts",))
    ledger.commit(a_commit(1), changes)
    again = Ledger(ledger.directory)
    assert (again.epochs_with_changes(), again.changes_of(1)) == ([1], changes)
    assert again.changes_of(2) is None


@pytest.mark.parametrize("changes", [None, EpochChanges(1, 8)])
def test_changes_of_an_attempt_that_died_before_its_commit_do_not_count(changes: EpochChanges | None) -> None:
    fault_at = died = 0
    while True:
        disk = new_disk()
        ledger = opened(disk)
        ledger.take_over(1)
        plan = planned(ledger, 1)
        disk.fail(fault_at, Fault.CRASH_AFTER)
        with suppress(SimulatedCrash):
            ledger.commit(commit_of(plan, 1, {}), EpochChanges(1, 7, reset=("totals",)))
        if not disk.fault_hit:
            break
        again = opened(disk.another_process())
        if again.changes_of(1) is not None and again.last_epoch() == 0:
            died += 1
            again.commit(commit_of(plan, 1, {}), changes)
            assert again.changes_of(1) == changes
        fault_at += 1
    assert died


@pytest.mark.parametrize(
    "path",
    [
        "state/count/3/000000000002-1-0f.arrow",  # of a later epoch
        "state/count/3/../3/000000000001-1-0f.arrow",
        "/state/count/3/000000000001-1-0f.arrow",
        "state/count/000000000001-1-0f.arrow",
        "state/count/3/run.arrow",
        "states/count/3/000000000001-1-0f.arrow",
        "views/.count/3/000000000001-1-0f.arrow",
        "views/count/x/000000000001-1-0f.arrow",
    ],
)
def test_a_run_whose_name_says_not_when_it_was_written_is_refused(path: str) -> None:
    runs = {3: (RunFile(path, 1, 1, 1),)}
    view = StoredView("said.0", "n bigint", None, "appended", runs)
    for live in (TrackRecord(cut_of(1, 0, 0), states={"count": runs}), TrackRecord(cut_of(1, 0, 0), views={"v": view})):
        with pytest.raises(DeclarationError, match="epoch 1: it cannot name the run"):
            check_run_paths(Commit(1, 1, 0, live))


# -- two instances ----------------------------------------------------------------------------------------------------


def test_a_replaced_instance_can_neither_plan_nor_commit(ledger: Ledger) -> None:
    first = planned(ledger, 1, end=1)
    second = Ledger(ledger.directory)
    second.take_over(2)
    with pytest.raises(FencedError, match="app 'shop': instance 1 was replaced by instance 2"):
        planned(ledger, 1, end=2)
    with pytest.raises(FencedError):
        ledger.commit(a_commit(1))
    with pytest.raises(FencedError):
        ledger.take_over(1)
    assert second.last_commit() is None
    assert second.pending_plan() == first


def test_the_new_instance_commits_the_epoch_its_predecessor_planned(ledger: Ledger) -> None:
    planned(ledger, 1)
    second = Ledger(ledger.directory)
    second.take_over(2)
    second.commit(a_commit(1, 2))
    assert ledger.last_commit() == a_commit(1, 2)
    with pytest.raises(FencedError):
        ledger.commit(a_commit(1, 1))


def test_an_instance_that_has_not_taken_over_is_refused(ledger: Ledger) -> None:
    with pytest.raises(DeclarationError, match="instance 2 has not taken over") as refused:
        planned(ledger, 1, token=2)
    assert refused.value.hint == "call take_over before the first epoch"


def test_taking_over_twice_changes_nothing(ledger: Ledger) -> None:
    planned(ledger, 1)
    ledger.take_over(1)
    ledger.commit(a_commit(1))
    assert ledger.last_epoch() == 1


# -- opening ----------------------------------------------------------------------------------------------------------


def test_an_app_that_never_ran_has_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="there is no app"):
        Ledger(tmp_path / "apps" / "shop")


def test_the_number_of_state_partitions_stays(ledger: Ledger) -> None:
    with pytest.raises(DeclarationError, match="its state has 4 partitions, for good; found 8") as refused:
        begin(ledger.directory.parent.parent, state_partitions=8)
    assert "state_partitions to 4" in str(refused.value.hint)
    assert stored_state_partitions(ledger.directory) == 4
    assert stored_state_partitions(ledger.directory.with_name("bank")) is None


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 300, " shop"])
def test_a_name_that_is_no_name_for_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DeclarationError, match="this is not a name for an app"):
        begin(tmp_path, name)


# -- damage -----------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_of_a_commit_is_refused_or_harmless(ledger: Ledger) -> None:
    commit = committed(ledger, 1)
    path = ledger.path_of(1, "commit")
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 3):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with suppress(DamagedError, DeclarationError):
            assert Ledger(ledger.directory).last_commit() == commit


@pytest.mark.parametrize("kept", [0, 1, 60])
def test_a_truncated_file_is_named_with_what_to_do(ledger: Ledger, kept: int) -> None:
    committed(ledger, 1)
    planned(ledger, 2)
    looks: dict[Path, Callable[[], object]] = {
        ledger.path_of(2, "plan"): lambda: Ledger(ledger.directory).pending_plan(),
        ledger.path_of(1, "commit"): lambda: Ledger(ledger.directory).last_commit(),
        ledger.directory / "instance.json": lambda: Ledger(ledger.directory).take_over(2),
        ledger.directory / "app.json": lambda: Ledger(ledger.directory),
    }
    for path, look in looks.items():
        path.write_bytes(path.read_bytes()[:kept])
        with pytest.raises(DamagedError, match="is damaged") as found:
            look()
        assert str(path) in found.value.message
        assert found.value.hint


def test_a_ledger_of_another_format_is_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engine.ledger.ledger.LEDGER_FORMAT", 1)
    monkeypatch.setattr("penstock.engine.ledger.ledger.READABLE_FORMATS", (1,))
    with pytest.raises(DeclarationError, match="the app has format 4; this version of Penstock reads format 1"):
        Ledger(ledger.directory)


# -- crashes ----------------------------------------------------------------------------------------------------------


def recovered(disk: SimulatedDisk, fault_at: int, *, power_loss: bool) -> SimulatedDisk:
    """The disk as the next process finds it."""
    return disk.crash(random.Random(fault_at)) if power_loss else disk.another_process()


@pytest.mark.parametrize("power_loss", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_crash_at_any_operation_every_acknowledged_epoch_is_there_and_the_app_goes_on(
    fault: Fault, power_loss: bool
) -> None:
    fault_at = 0
    while True:
        disk = new_disk()
        disk.fail(fault_at, fault)
        acknowledged = 0
        with suppress(SimulatedCrash):
            for step in Instance(disk, 1, random.Random(3)).life():
                acknowledged += step == "committed"
                if acknowledged == 5:
                    break
        if not disk.fault_hit:
            break
        after = recovered(disk, fault_at, power_loss=power_loss)
        refuse_inconsistent(after)
        last = opened(after).last_epoch()
        assert last in (acknowledged, acknowledged + 1)
        second = Instance(after.another_process(), 2, random.Random(4))
        second.until("committed")
        assert second.ledger.last_epoch() == last + 1
        refuse_inconsistent(after)
        fault_at += 1
    assert fault_at > 60


def test_a_plan_that_was_seen_survives_a_power_loss() -> None:
    """The first instance died after the plan got its name and before that name was synced."""
    fault_at = 0
    seen = 0
    while True:
        disk = new_disk()
        opened(disk).take_over(1)
        second = opened(disk.another_process())
        assert second.last_epoch() == 0
        disk.fail(fault_at, Fault.CRASH_BEFORE)
        with suppress(SimulatedCrash):
            opened(disk).write_plan(plan_of(1, 1, 0, 1))
        if not disk.fault_hit:
            break
        second.take_over(2)
        plan = second.pending_plan()
        for seed in range(8):
            assert opened(disk.crash(random.Random(seed))).pending_plan() == plan
        seen += plan is not None
        fault_at += 1
    assert seen


@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.BROKEN])
def test_a_failing_disk_is_told_and_the_same_call_can_be_repeated(fault: Fault) -> None:
    fault_at = 0
    unknown = 0
    while True:
        disk = new_disk()
        ledger = opened(disk)
        plan, changes = plan_of(1, 1, 0, 5), EpochChanges(1, 7, reset=("totals",))
        commit = commit_of(plan, 1, {})
        calls = [
            partial(ledger.take_over, 1),
            partial(ledger.write_plan, plan),
            partial(ledger.commit, commit, changes),
        ]
        disk.fail(fault_at, fault)
        for call in calls:
            try:
                call()
            except (UnavailableError, UnknownOutcomeError) as error:
                unknown += isinstance(error, UnknownOutcomeError)
                call()
        if not disk.fault_hit:
            break
        for seed in range(4):
            after = opened(disk.crash(random.Random(seed)))
            assert (after.token(), after.last_commit(), after.changes_of(1)) == (1, commit, changes)
        fault_at += 1
    assert unknown


def test_looking_after_a_crash_changes_nothing() -> None:
    disk = new_disk()
    Instance(disk, 1, random.Random(1)).until("planned", times=3)
    after = disk.crash(random.Random(1))
    folders = [APP, APP / "epochs"]
    before = [after.contents(folder) for folder in folders]
    for _ in range(2):
        ledger = opened(after)
        assert ledger.last_epoch() == 2
        assert ledger.pending_plan() is not None
    assert [after.contents(folder) for folder in folders] == before


# -- instances fighting -----------------------------------------------------------------------------------------------


@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 3), min_size=20, max_size=120))
def test_however_instances_interleave_only_the_newest_moves_and_no_epoch_counts_twice(
    rng: random.Random, turns: list[int]
) -> None:
    disk = new_disk()
    lives = {}
    tokens = 0
    newest = 0
    totals: dict[int, int] = {}
    for turn in turns:
        if turn not in lives:
            tokens += 1
            instance = Instance(disk.another_process(), tokens, rng)
            lives[turn] = instance, instance.life()
        instance, life = lives[turn]
        try:
            step = next(life)
        except FencedError:
            assert instance.token < newest
            del lives[turn]
            continue
        if step == "taken over":
            newest = instance.token
        if step == "committed":
            assert instance.token == newest
            commit = instance.ledger.last_commit()
            assert commit is not None
            assert commit.epoch not in totals
            assert total_before(commit) == totals.get(commit.epoch - 1, 0)
            totals[commit.epoch] = total_of(commit)
    refuse_inconsistent(disk)
    assert opened(disk).last_epoch() == len(totals)
