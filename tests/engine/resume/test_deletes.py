"""Deletes reach every view, whatever is compacted while an app is stopped, goes back to a savepoint or builds views.

The real start and the real epochs run on a real log; only Spark is left out (`plain_engine`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.epoch import Instance
from penstock.engine.ledger.ledger import Ledger, instance_name
from penstock.engine.ledger.records import Commit
from penstock.engine.ledger.registration import Registration, app_hold, forget_app, savepoint_hold
from penstock.engine.ledger.savepoints import Savepoints
from penstock.engine.resume import start as start_module
from penstock.engine.run.compiled import EpochInput
from penstock.errors import DeclarationError, FencedError
from penstock.log import Log, TopicSettings
from penstock.paths import app_directory
from penstock.testing import Crash
from tests.conftest import EXAMPLES
from tests.engine.resume.plain_engine import SETTINGS, PlainEngine, ids_in, plain_instance, without_spark

TOPIC = "people"
# After these calls an instance, or a restore, may die.
DEATHS: dict[str, tuple[type, str]] = {
    "move": (Registration, "move"),
    "plan": (Ledger, "write_plan"),
    "commit": (Ledger, "commit"),
    "savepoint": (Registration, "add_savepoint"),
}


class TableEngine(PlainEngine):
    """Its outputs are the changes of a table: an id that came, and -1 - id for one that went."""

    def for_outputs(self, plan: Any, inputs: Any) -> TableEngine:
        return TableEngine(self.session, plan, inputs, self.home)

    def _ids(self, work: EpochInput, name: str) -> list[int]:
        cut, topic = work.cut.sources[name], self._inputs[name].topic
        changes = []
        for batch in topic.batches(cut.starts, until=cut.ends):
            marks = [False] * len(batch) if batch.deleted is None else batch.deleted.to_pylist()
            ids = batch.rows.column("id").to_pylist()
            changes += [-1 - id_ if gone else id_ for id_, gone in zip(ids, marks, strict=True)]
        return changes


class World:
    """A table of people, an app with a view of it, and what the table must be."""

    def __init__(self, folder: Path) -> None:
        self.log = Log(folder)
        size = TopicSettings(segment_bytes=400)
        self.topic = self.log.create_topic(TOPIC, "id long not null", key="id", settings=size)
        self.people: set[int] = set()
        self.instance: Instance | None = None
        self.form = 0

    @property
    def ledger(self) -> Ledger:
        return Ledger(app_directory(self.log.path, "shop"))

    @property
    def savepoints(self) -> Savepoints:
        return Savepoints(self.ledger, Registration(self.log, "shop"))

    def token(self) -> int:
        return self.log.writer(instance_name("shop")).token

    # -- what happens -------------------------------------------------------------------------------------------------

    def add(self, *ids: int) -> None:
        self.topic.append([{"id": id_} for id_ in ids])
        self.people |= set(ids)

    def delete(self, *ids: int) -> None:
        for id_ in ids:
            self.topic.delete({"id": id_})
        self.people -= set(ids)

    def compact(self) -> int:
        """How many delete markers stayed only because somebody has not read them."""
        (done,) = self.topic.compact()
        assert self.topic.verify()[0].problems == []
        return done.unread_markers

    def start(self, form: int | None = None, **options: Any) -> Instance:
        self.form = self.form if form is None else form
        app = ps.App("shop", settings=SETTINGS)
        people = app.topic(TOPIC, schema="id long not null", key="id")
        app.view("members", people.where(f"id >= -{self.form}").select("id"))
        self.instance = plain_instance(app, self.log, **options)
        return self.instance

    def step(self) -> None:
        (self.instance or self.start()).step()

    def run(self) -> None:
        while (self.instance or self.start()).step() is not None:
            pass

    def stop(self) -> None:
        self.instance = None

    def has_committed(self) -> bool:
        return (app_directory(self.log.path, "shop") / "app.json").exists() and self.ledger.last_epoch() > 0

    def restore(self, name: str) -> None:
        self.instance = None
        self.savepoints.restore(name, self.token, restored_at=2)

    # -- what can be seen ---------------------------------------------------------------------------------------------

    def view(self) -> set[int]:
        commit = self.ledger.last_commit()
        shown = set[int]()
        for change in ids_in(self.ledger.directory, commit.views["members"].runs.get(0, ())) if commit else ():
            shown.discard(-1 - change) if change < 0 else shown.add(change)
        return shown

    def assert_right(self) -> None:
        self.run()
        assert self.view() == self.people

    def markers(self) -> int:
        return sum(batch.deleted.to_pylist().count(True) for batch in self.topic.batches() if batch.deleted is not None)

    def registered(self) -> dict[str, int]:
        return {hold.name: position.offset for hold in self.log.holds() for position in hold.read}


@contextmanager
def new_world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder, without_spark(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(start_module, "CompiledPlan", TableEngine)
        world = World(Path(folder) / "log")
        with world.log:
            yield world


@pytest.fixture
def world() -> Iterator[World]:
    with new_world() as world:
        yield world


@contextmanager
def dying(after: str | None) -> Iterator[None]:
    if after is None:
        yield
        return
    owner, name = DEATHS[after]
    whole: Callable[..., Any] = getattr(owner, name)

    def dies(*arguments: Any, **options: Any) -> None:
        whole(*arguments, **options)
        raise Crash

    with pytest.MonkeyPatch.context() as patched, suppress(Crash):
        patched.setattr(owner, name, dies)
        yield


# -- an app and its savepoints ----------------------------------------------------------------------------------------


def test_a_delete_reaches_an_app_that_was_stopped_when_it_was_compacted(world: World) -> None:
    world.add(1, 2)
    world.run()
    world.stop()
    world.delete(1)
    assert world.compact() == 1
    world.assert_right()
    assert world.compact() == 0
    assert world.markers() == 0


def test_a_delete_reaches_an_app_that_goes_back_to_an_older_savepoint(world: World) -> None:
    world.add(1, 2)
    world.run()
    world.savepoints.create("before", created=1)
    world.delete(1)
    world.run()
    assert world.compact() == 1
    world.restore("before")
    assert world.view() == {1, 2}
    world.assert_right()
    world.savepoints.drop("before")
    world.compact()
    assert world.markers() == 0


def test_after_a_restore_the_savepoint_may_be_dropped_before_the_app_is_started(world: World) -> None:
    world.add(1, 2)
    world.run()
    world.savepoints.create("before", created=1)
    world.delete(1)
    world.run()
    world.restore("before")
    world.savepoints.drop("before")
    assert world.compact() == 1
    world.assert_right()


def test_a_delete_reaches_views_that_are_being_built(world: World) -> None:
    world.add(*range(20))
    world.delete(0)
    world.run()
    world.start(form=1)
    world.step()  # the backfill has read six rows; the live track has read everything
    world.stop()
    world.delete(19)
    assert world.compact() == 2
    world.assert_right()
    world.compact()
    assert world.markers() == 0


def test_a_backfill_that_another_program_does_not_continue_can_still_be_continued(world: World) -> None:
    world.add(*range(20))
    world.delete(0)
    world.run()
    world.start(form=1)
    world.step()
    world.start(form=0)  # dies before its first epoch
    world.compact()
    world.start(form=1)
    world.assert_right()


def test_an_app_that_was_started_and_has_read_nothing_is_registered_where_it_begins(world: World) -> None:
    world.start()
    assert world.registered() == {"app:shop": 0}
    world.add(1)
    world.delete(1)
    assert world.compact() == 1
    world.assert_right()
    assert world.registered() == {"app:shop": 2}


def test_a_topic_that_was_created_again_is_registered_from_its_beginning(world: World) -> None:
    world.add(*range(9))
    world.run()
    world.stop()
    world.log.drop_topic(TOPIC)
    world.topic = world.log.create_topic(TOPIC, "id long not null", key="id")
    world.people = set()
    world.start(rebuild=True)
    world.add(1, 2)
    world.step()
    world.stop()
    world.delete(1)
    assert world.compact() == 1
    world.assert_right()


# -- instances and crashes --------------------------------------------------------------------------------------------


def test_an_instance_that_was_replaced_does_not_move_the_position_of_its_successor(world: World) -> None:
    world.add(*range(12))
    replaced = world.start()
    replaced.step()
    world.start()
    before = world.log.holds()
    with pytest.raises(FencedError, match="owner 1 was replaced by owner 2"):
        replaced._registration.move(1, [])  # as late as it can be: its ledger was asked before
    with pytest.raises(FencedError, match="instance 1 was replaced by instance 2"):
        replaced.step()
    assert world.log.holds() == before


@pytest.mark.parametrize("dies", ["move", "plan", "commit"])
def test_after_a_crash_the_hold_keeps_what_the_next_instance_needs(world: World, dies: str) -> None:
    world.add(1, 2)
    world.run()
    world.add(3)
    with dying(dies):
        world.step()
    world.stop()
    world.delete(1, 3)
    world.compact()
    world.assert_right()
    assert [len(hold.ranges) for hold in world.log.holds()] == [0]


@pytest.mark.parametrize("dies", ["move", "plan", "commit"])
def test_a_restore_that_died_keeps_what_the_savepoint_needs(world: World, dies: str) -> None:
    world.add(1, 2)
    world.run()
    world.savepoints.create("before", created=1)
    world.delete(1)
    world.run()
    with dying(dies):
        world.restore("before")
    world.compact()
    world.assert_right()


def test_what_a_crash_left_of_a_savepoint_goes_with_the_next_start_or_drop(world: World) -> None:
    world.add(1, 2)
    world.run()
    for mend in (lambda: world.savepoints.drop("half"), world.start):
        with dying("savepoint"):
            world.savepoints.create("half", created=1)
        assert world.savepoints.names() == []
        assert savepoint_hold("shop", "half") in world.registered()
        mend()
        assert set(world.registered()) == {"app:shop"}


def test_a_savepoint_is_registered_as_the_commit_that_it_is_though_the_app_commits_meanwhile(world: World) -> None:
    world.add(1, 2)
    world.run()

    class Slow(Registration):
        """The app commits another epoch, and moves on, before the savepoint is registered."""

        def add_savepoint(self, savepoint: str, commit: Commit) -> None:
            if world.topic.files.end(0) == 2:
                world.delete(1)
                world.run()
                world.compact()
            super().add_savepoint(savepoint, commit)

    Savepoints(world.ledger, Slow(world.log, "shop")).create("busy", created=1)
    assert world.registered() == {"app:shop": 3, "savepoint:shop:busy": 3}
    world.restore("busy")
    world.assert_right()


def test_savepoints_of_earlier_versions_are_registered_by_the_next_start(world: World) -> None:
    world.add(1, 2)
    world.run()
    world.savepoints.create("old", created=1)
    world.log.release(savepoint_hold("shop", "old"))
    world.log.hold("penstock.app.shop.0", {TOPIC: {0: (0, 1)}})
    world.start()
    assert world.registered() == {"app:shop": 2, "savepoint:shop:old": 2}
    assert [hold.name for hold in world.log.holds()] == ["app:shop", "savepoint:shop:old"]


def test_a_damaged_hold_is_mended_by_the_next_start(world: World) -> None:
    world.add(1, 2)
    world.run()
    world.savepoints.create("before", created=1)
    for name in (app_hold("shop"), savepoint_hold("shop", "before")):
        (world.log.path / "holds" / f"{name}.json").write_bytes(b"?")
    world.start()
    assert world.registered() == {"app:shop": 2, "savepoint:shop:before": 2}


# -- an app that does not come back -----------------------------------------------------------------------------------


def test_what_a_forgotten_app_needed_goes_with_the_next_compaction(world: World) -> None:
    world.add(1, 2)
    running = world.start()
    world.run()
    world.delete(1)
    forget_app(world.log, world.ledger, "shop")
    assert world.compact() == 0
    assert world.markers() == 0
    with pytest.raises(FencedError):
        running.step()


def test_a_forgotten_app_is_refused_until_its_views_are_built_again(world: World) -> None:
    world.add(1, 2)
    world.run()
    world.delete(1)
    forget_app(world.log, world.ledger, "shop")
    world.compact()
    with pytest.raises(DeclarationError, match="it was forgotten") as refused:
        world.start()
    assert "--rebuild" in str(refused.value.hint)
    world.start(rebuild=True)
    with pytest.raises(DeclarationError, match="it was forgotten"):
        world.start()  # nothing is built yet
    world.start(rebuild=True)
    world.step()
    world.start()
    world.assert_right()


def test_a_savepoint_of_a_forgotten_app_can_be_restored(world: World) -> None:
    world.add(1, 2)
    world.run()
    world.savepoints.create("before", created=1)
    world.delete(1)
    world.run()
    forget_app(world.log, world.ledger, "shop")
    assert world.compact() == 1
    world.restore("before")
    world.assert_right()


# -- any history ------------------------------------------------------------------------------------------------------

IDS = st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True)
ADD, DELETE = st.tuples(st.just("add"), IDS), st.tuples(st.just("delete"), IDS)
STEP = st.tuples(st.just("step"), st.sampled_from([None, None, None, "move", "plan", "commit"]))
ACTS = st.one_of(
    *[ADD, ADD, DELETE, DELETE, STEP, STEP, STEP],
    *[st.tuples(st.just(what)) for what in ("compact", "compact", "stop", "zombie", "save", "restore", "drop")],
    st.tuples(st.just("start"), st.integers(0, 1)),
)


def act_on(world: World, act: tuple[Any, ...]) -> None:
    match act:
        case ("add", ids):
            world.add(*ids)
        case ("delete", ids):
            world.delete(*ids)
        case ("compact",):
            world.compact()
        case ("stop",):
            world.stop()
        case ("step", dies):
            with dying(dies):
                world.step()
                return
            world.stop()
        case ("start", form):
            world.start(form=form)
        case ("zombie",):
            replaced, _ = world.instance, world.start()
            if replaced is not None:
                with pytest.raises(FencedError):
                    replaced.step()
        case ("save",):
            if world.has_committed():
                world.savepoints.create(f"s{len(world.savepoints.names())}-{world.topic.files.end(0)}", created=1)
        case ("restore",):
            if world.has_committed() and (names := world.savepoints.names()):
                world.restore(names[0])
        case ("drop",):
            if world.has_committed() and (names := world.savepoints.names()):
                world.savepoints.drop(names[-1])


@settings(max_examples=4 * EXAMPLES)
@given(st.lists(ACTS, min_size=5, max_size=40))
def test_after_any_history_the_view_is_the_table(acts: list[tuple[Any, ...]]) -> None:
    with new_world() as world:
        for act in acts:
            act_on(world, act)
        world.assert_right()
        for name in world.savepoints.names() if world.has_committed() else ():
            world.compact()
            world.restore(name)
            world.assert_right()
            world.savepoints.drop(name)
        world.compact()
        assert world.markers() == 0
