"""Savepoints: an app goes back to where it was, whole, whatever crashes on the way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.engine.ledger.ledger import Ledger
from penstock.engine.ledger.records import Commit, EpochChanges, RestorePlan
from penstock.engine.ledger.savepoints import Savepoints
from penstock.errors import (
    DamagedError,
    DeclarationError,
    FencedError,
    PenstockError,
    UnavailableError,
)
from tests.engine.simulated_app import (
    APP,
    FolderDisk,
    Instance,
    commit_of,
    new_disk,
    opened,
    plan_of,
    refuse_inconsistent,
    savepoints_of,
    shown_total,
    total_before,
    total_of,
)
from tests.log.simulated import Fault, SimulatedCrash, SimulatedDisk


def savepoints_on(disk: SimulatedDisk) -> Savepoints:
    return savepoints_of(opened(disk), disk)


def app_with_savepoint(epochs_since: int = 3) -> tuple[FolderDisk, int]:
    """An app after two epochs, a savepoint 'good', and more epochs. Gives the sum at the savepoint."""
    disk = new_disk()
    life = Instance(disk, 1, random.Random(5)).life()
    go(life, "committed", 2)
    made = savepoints_on(disk).create("good", created=9)
    go(life, "committed", epochs_since)
    return disk, total_of(made.commit)


def go(life: Iterator[str], step: str, times: int = 1) -> None:
    for _ in range(times):
        while next(life) != step:
            pass


# -- making -----------------------------------------------------------------------------------------------------------


def test_a_savepoint_is_the_last_commit_with_the_views_of_its_epoch() -> None:
    disk, total = app_with_savepoint()
    made = savepoints_on(disk).savepoint("good")
    assert (made.name, made.created, made.commit.epoch) == ("good", 9, 2)
    assert total_of(made.commit) == shown_total(disk, made.commit) == total
    assert savepoints_on(disk).names() == ["good"]


def test_one_that_is_made_while_an_epoch_runs_holds_nothing_of_it() -> None:
    for step in ("planned", "run"):
        disk = new_disk()
        life = Instance(disk, 1, random.Random(5)).life()
        go(life, "committed")
        go(life, step)
        made = savepoints_on(disk.another_process()).create("good", created=1)
        assert made.commit.epoch == 1
        go(life, "collected", 3)
        refuse_inconsistent(disk)


def test_an_app_without_a_commit_has_nothing_to_keep() -> None:
    with pytest.raises(DeclarationError, match="app 'shop': it has committed no epoch yet"):
        savepoints_on(new_disk()).create("good", created=1)


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "a b"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(DeclarationError, match="this is not a name for a savepoint"):
        savepoints_on(new_disk()).create(name, created=1)


def test_a_name_is_given_once() -> None:
    disk, _ = app_with_savepoint()
    with pytest.raises(DeclarationError, match="savepoint 'good': it exists already"):
        savepoints_on(disk).create("good", created=10)


def test_a_misspelt_savepoint_is_refused_with_a_hint() -> None:
    disk, _ = app_with_savepoint()
    with pytest.raises(DeclarationError, match="has none of this name") as refused:
        savepoints_on(disk).savepoint("goood")
    assert refused.value.hint == "did you mean 'good'?"


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_after_a_crash_while_one_is_made_it_is_there_whole_or_not_at_all(fault: Fault) -> None:
    whole_savepoints = 0
    fault_at = 0
    while True:
        disk = new_disk()
        Instance(disk, 1, random.Random(5)).until("committed", times=2)
        disk.fail(fault_at, fault)
        with suppress(SimulatedCrash):
            savepoints_on(disk).create("good", created=1)
        if not disk.fault_hit:
            break
        for seed in range(4):
            after = disk.crash(random.Random(seed))
            savepoints = savepoints_on(after)
            if savepoints.names():
                whole_savepoints += 1
                savepoints.restore("good", lambda: 2, restored_at=5)
            else:
                savepoints.create("good", created=2)
        fault_at += 1
    assert whole_savepoints


@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.BROKEN])
def test_on_a_failing_disk_a_savepoint_is_made_or_refused(fault: Fault) -> None:
    fault_at = 0
    while True:
        disk = new_disk()
        Instance(disk, 1, random.Random(5)).until("committed", times=2)
        savepoints = savepoints_on(disk)
        disk.fail(fault_at, fault)
        try:
            savepoints.create("good", created=1)
        except PenstockError:
            if savepoints.names():
                savepoints.drop("good")
            assert savepoints.names() == []
            savepoints.create("good", created=1)
        if not disk.fault_hit:
            break
        fault_at += 1
    assert fault_at > 5


# -- restoring --------------------------------------------------------------------------------------------------------


def test_the_app_goes_on_from_the_savepoint_under_the_next_epoch() -> None:
    disk, total = app_with_savepoint(epochs_since=3)
    commit = savepoints_on(disk).restore("good", lambda: 2, restored_at=77)
    assert (commit.epoch, commit.committed_at, commit.restored_from) == (6, 77, "good")
    assert opened(disk).last_commit() == commit
    assert total_of(commit) == shown_total(disk, commit) == total
    Instance(disk, 3, random.Random(6)).until("committed", times=4)
    last = opened(disk).last_commit()
    assert last is not None
    assert last.epoch == 10
    refuse_inconsistent(disk)


def test_a_running_instance_is_refused_from_then_on() -> None:
    disk = new_disk()
    life = Instance(disk, 1, random.Random(5)).life()
    go(life, "committed", 2)
    savepoints = savepoints_on(disk.another_process())
    savepoints.create("good", created=1)
    go(life, "run")
    savepoints.restore("good", lambda: 2, restored_at=1)
    with pytest.raises(FencedError):
        next(life)
    refuse_inconsistent(disk)


def test_an_unfinished_epoch_gives_its_number_to_the_restore() -> None:
    for step in ("planned", "run"):
        disk = new_disk()
        life = Instance(disk, 1, random.Random(5)).life()
        go(life, "committed", 2)
        savepoints_on(disk).create("good", created=1)
        go(life, step)
        assert savepoints_on(disk).restore("good", lambda: 2, restored_at=1).epoch == 3
        refuse_inconsistent(disk)
        Instance(disk, 3, random.Random(6)).until("committed", times=2)
        refuse_inconsistent(disk)


def test_a_savepoint_can_be_restored_when_the_last_commit_is_damaged() -> None:
    disk, total = app_with_savepoint()
    disk.open(opened(disk).path_of(5, "commit")).truncate(10)
    savepoints_on(disk).restore("good", lambda: 2, restored_at=1)
    assert total_of(opened(disk).last_commit()) == total
    Instance(disk, 3, random.Random(6)).until("collected", times=3)
    refuse_inconsistent(disk)


@pytest.mark.parametrize("kind", ["state/", "views/"])
@pytest.mark.parametrize("how", ["missing", "shorter", "changed"])
def test_a_damaged_savepoint_is_refused_before_anything_changes(kind: str, how: str) -> None:
    disk, _ = app_with_savepoint()
    savepoints = savepoints_on(disk)
    path = APP / next(run.path for run in savepoints.savepoint("good").commit.runs() if run.path.startswith(kind))
    if how == "missing":
        disk.remove(path)
    elif how == "shorter":
        disk.open(path).truncate(disk.open(path).size() - 1)
    else:
        disk.open(path).write_at(2, [b"!"])
    with pytest.raises(DamagedError, match="is damaged, and nothing was restored") as refused:
        savepoints.restore("good", lambda: pytest.fail("no instance is to be stopped"), restored_at=1)
    assert str(path) in refused.value.message
    assert opened(disk).token() == 1


def test_whoever_follows_the_changes_of_views_is_told_to_begin_again() -> None:
    disk, _ = app_with_savepoint(epochs_since=3)
    savepoints_on(disk).restore("good", lambda: 2, restored_at=77)
    assert opened(disk).changes_of(6) == EpochChanges(6, 77, reset=("totals",))


def test_an_app_that_starts_does_not_run_over_an_unfinished_restore() -> None:
    disk = crashed_after_step(2)
    ledger = opened(disk)
    ledger.take_over(3)
    hint = "start the app again, or: penstock savepoint restore good --app shop"
    for call in (
        lambda: ledger.write_plan(plan_of(6, 3)),
        lambda: ledger.commit(commit_of(plan_of(6, 3), 3, {})),
    ):
        with pytest.raises(DeclarationError, match="savepoint 'good' is being restored as epoch 6") as refused:
            call()
        assert refused.value.hint == hint
    with pytest.raises(UnavailableError, match="it is being restored"):
        savepoints_on(disk).drop("good")


def crashed_after_step(step: int, *, power_loss: bool = False, seed: int = 0) -> SimulatedDisk:
    """An app whose restore died after this step, told by what it had changed by then."""
    fault_at = 0
    while True:
        disk, _ = app_with_savepoint(epochs_since=3)
        disk.fail(fault_at, Fault.CRASH_AFTER)
        with suppress(SimulatedCrash):
            savepoints_on(disk).restore("good", lambda: 2, restored_at=1)
        assert disk.fault_hit
        after = disk.crash(random.Random(seed)) if power_loss else disk.another_process()
        if steps_done(after) == step:
            return after
        fault_at += 1


def steps_done(disk: SimulatedDisk) -> int:
    ledger = opened(disk)
    if ledger.last_epoch() == 6:
        return 3
    if ledger.pending_plan() is not None:
        return 2
    return 1 if ledger.token() == 2 else 0


@pytest.mark.parametrize("power_loss", [True, False])
@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_after_a_crash_behind_each_step_the_next_instance_does_the_rest(step: int, power_loss: bool) -> None:
    disk = crashed_after_step(step, power_loss=power_loss)
    refuse_inconsistent(disk)
    saved = savepoints_on(disk).savepoint("good").commit
    before = total_of(opened(disk).last_commit())
    instance = Instance(disk, 3, random.Random(6))
    life = instance.life()
    go(life, "restore finished")
    last = instance.ledger.last_commit()
    assert last is not None
    if step < 2:
        assert (last.epoch, total_of(last)) == (5, before)
    else:
        assert (last.epoch, last.live) == (6, saved.live)
        assert shown_total(disk, last) == total_of(saved)
    go(life, "committed", 2)
    refuse_inconsistent(disk)


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_after_a_crash_behind_each_step_another_savepoint_can_be_restored(step: int) -> None:
    disk = crashed_after_step(step)
    savepoints_on(disk).create("better", created=2)
    chosen = "better"
    commit = savepoints_on(disk).restore(chosen, lambda: 3, restored_at=1)
    assert commit.restored_from == chosen
    assert opened(disk).last_commit() == commit
    Instance(disk, 4, random.Random(6)).until("committed", times=2)
    refuse_inconsistent(disk)


def test_finishing_twice_changes_nothing() -> None:
    disk = crashed_after_step(2)
    ledger = opened(disk)
    ledger.take_over(3)
    savepoints = savepoints_of(ledger, disk)
    first = savepoints.finish_restore(3, restored_at=1)
    assert first is not None
    assert savepoints.finish_restore(3, restored_at=2) is None
    assert ledger.last_commit() == first


def test_an_instance_that_starts_while_a_restore_is_at_work_finishes_it_instead() -> None:
    """The restore has planned; then a newer instance takes over, and the restore is refused at its last step."""
    disk, total = app_with_savepoint()

    class TakenOverMeanwhile(Ledger):
        def commit(self, commit: Commit, changes: EpochChanges | None = None) -> None:
            opened(disk.another_process()).take_over(3)
            super().commit(commit, changes)

    with pytest.raises(FencedError, match="instance 2 was replaced by instance 3"):
        savepoints_of(TakenOverMeanwhile(APP, files=disk), disk).restore("good", lambda: 2, restored_at=1)
    assert isinstance(opened(disk).pending_plan(), RestorePlan)
    instance = Instance(disk, 3, random.Random(8))
    go(instance.life(), "restore finished")
    assert (opened(disk).last_epoch(), total_of(opened(disk).last_commit())) == (6, total)
    refuse_inconsistent(disk)


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_after_a_crash_while_one_is_dropped_it_is_there_whole_or_gone(fault: Fault) -> None:
    gone = 0
    fault_at = 0
    while True:
        disk, _ = app_with_savepoint()
        disk.fail(fault_at, fault)
        with suppress(SimulatedCrash):
            savepoints_on(disk).drop("good")
        if not disk.fault_hit:
            break
        for seed in range(6):
            savepoints = savepoints_on(disk.crash(random.Random(seed)))
            if savepoints.names():
                savepoints.restore("good", lambda: 2, restored_at=5)
            else:
                gone += 1
        fault_at += 1
    assert gone


# -- everything together ----------------------------------------------------------------------------------------------


class AppUnderFire(RuleBasedStateMachine):
    """Instances that start, fight, crash and lose power, and savepoints that come, go and are restored meanwhile."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk: FolderDisk = new_disk()
        self.tokens = 0
        self.lives: list[tuple[Instance, Iterator[str]]] = []
        self.commits: dict[int, tuple[int, int]] = {}  # what was acknowledged or seen: the token and the sum
        self.saved: dict[str, int] = {}  # the sum of every savepoint that was acknowledged
        self.doubtful: set[str] = set()  # savepoints whose making or dropping was interrupted

    def new_token(self) -> int:
        self.tokens += 1
        return self.tokens

    @rule()
    @precondition(lambda self: len(self.lives) < 3)
    def start(self) -> None:
        instance = Instance(self.disk.another_process(), self.new_token(), self.rng)
        self.lives.append((instance, instance.life()))

    @rule(which=st.integers(0, 2), steps=st.integers(1, 12), crash_at=st.none() | st.integers(0, 25))
    @precondition(lambda self: self.lives)
    def advance(self, which: int, steps: int, crash_at: int | None) -> None:
        instance, life = self.lives[which % len(self.lives)]
        if crash_at is not None:
            instance.disk.fail(crash_at, self.rng.choice([Fault.CRASH_BEFORE, Fault.CRASH_AFTER]))
        try:
            for _ in range(steps):
                if next(life) == "committed":
                    self.acknowledge(instance)
            instance.disk.heal()
        except (FencedError, SimulatedCrash):
            self.lives.remove((instance, life))

    def acknowledge(self, instance: Instance) -> None:
        commit = instance.ledger.last_commit()
        assert commit is not None
        assert commit.token == instance.token
        assert self.commits.setdefault(commit.epoch, (commit.token, total_of(commit))) == (
            commit.token,
            total_of(commit),
        )

    @rule(name=st.sampled_from(["a", "b", "c"]), crash_at=st.none() | st.integers(0, 12))
    def create(self, name: str, crash_at: int | None) -> None:
        with self.process(crash_at) as disk:
            self.doubtful.add(name)
            made = savepoints_on(disk).create(name, created=1)
            self.saved[name] = total_of(made.commit)
            self.doubtful.discard(name)

    @rule(name=st.sampled_from(["a", "b", "c"]), crash_at=st.none() | st.integers(0, 6))
    def drop(self, name: str, crash_at: int | None) -> None:
        with self.process(crash_at) as disk:
            savepoints = savepoints_on(disk)
            if name in savepoints.names():
                self.doubtful.add(name)
                savepoints.drop(name)
                self.saved.pop(name, None)
                self.doubtful.discard(name)

    @rule(name=st.sampled_from(["a", "b", "c"]), crash_at=st.none() | st.integers(0, 25))
    def restore(self, name: str, crash_at: int | None) -> None:
        with self.process(crash_at) as disk:
            commit = savepoints_on(disk).restore(name, self.new_token, restored_at=3)
            self.commits[commit.epoch] = commit.token, total_of(commit)
            if name not in self.doubtful:
                assert total_of(commit) == self.saved[name]

    @rule()
    def lose_power(self) -> None:
        self.disk = self.disk.crash(self.rng)
        self.lives = []
        self.look()

    @rule()
    def look(self) -> None:
        """Only sometimes: looking makes durable what was not yet."""
        disk = self.disk.another_process()
        refuse_inconsistent(disk)
        ledger = opened(disk)
        assert ledger.last_epoch() >= max(self.commits, default=0)
        for epoch in ledger.epochs_with("commit"):
            commit = ledger.commit_of(epoch)
            assert commit is not None
            seen = commit.token, total_of(commit)
            assert self.commits.setdefault(epoch, seen) == seen
            if commit.restored_from is None:
                before = self.commits.get(epoch - 1, (0, 0))[1] if epoch > 1 else 0
                assert epoch - 1 not in self.commits or total_before(commit) == before
        names = set(savepoints_on(disk).names())
        assert set(self.saved) - self.doubtful <= names <= set(self.saved) | self.doubtful

    @invariant()
    def nobody_holds_a_lock(self) -> None:
        if hasattr(self, "disk"):
            assert self.disk.locks == {}

    @contextmanager
    def process(self, crash_at: int | None) -> Iterator[FolderDisk]:
        """For a command in a process of its own, which may be refused, or crash."""
        disk = self.disk.another_process()
        if crash_at is not None:
            disk.fail(crash_at, self.rng.choice([Fault.CRASH_BEFORE, Fault.CRASH_AFTER]))
        doubtful = set(self.doubtful)
        with suppress(SimulatedCrash):
            try:
                yield disk
            except (DeclarationError, UnavailableError):
                self.doubtful = doubtful


AppUnderFire.TestCase.settings = settings(stateful_step_count=40)
test_an_app_under_fire = AppUnderFire.TestCase
