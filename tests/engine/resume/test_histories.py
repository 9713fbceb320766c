"""Any history of programs, crashes, dropped topics and restored savepoints: nothing is lost or doubled.

The real start and the real epochs run on a real log; only Spark is left out (`plain_engine`).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.epoch import Instance
from penstock.engine.ledger.ledger import Ledger, instance_name
from penstock.engine.ledger.records import Commit, EpochPlan, TrackRecord
from penstock.engine.ledger.registration import Registration
from penstock.engine.ledger.savepoints import Savepoints
from penstock.engine.publish.app_writer import written_by
from penstock.engine.publish.topics import TopicTarget
from penstock.engine.resume import start as start_module
from penstock.engine.resume.decide import Resume, decide
from penstock.engine.resume.forecast import forecast_on
from penstock.errors import DeclarationError
from penstock.log import Log, Topic
from penstock.paths import app_directory
from penstock.testing import Crash
from tests.engine.resume.plain_engine import SETTINGS, PlainEngine, ids_in, plain_instance, without_spark

INPUTS = ("events", "others")
# What a program may have, and the topics that it reads. A sink writes the topic of its name.
VIEWS = {"first": ("events",), "second": ("others",), "united": INPUTS}
SINKS = {"copies": ("events",), "merged": INPUTS}
READS = {**VIEWS, **SINKS}
# After these calls an instance, or a restore, may die.
DEATHS: dict[str, tuple[type, str]] = {
    "plan": (Ledger, "write_plan"),
    "run": (PlainEngine, "run"),
    "sinks": (TopicTarget, "apply"),
    "commit": (Ledger, "commit"),
}

Program = tuple[tuple[str, int], ...]
"""Outputs, and which form of each it is."""


@dataclass(frozen=True)
class Act:
    """What happens next. `dies`: an instance dies after a call of this kind."""

    what: str
    rows: int = 0
    topic: str = ""
    program: Program = ()
    dies: str | None = None


def append(topic: str, rows: int) -> Act:
    return Act("append", rows, topic)


def step(dies: str | None = None) -> Act:
    return Act("step", dies=dies)


def start(*outputs: str, dies: str | None = None, rebuild: bool = False) -> Act:
    """Start a program: 'first' is an output, and 'first2' another form of it."""
    program = tuple((one.rstrip("0123456789"), int(one[len(one.rstrip("0123456789")) :] or 0)) for one in outputs)
    return Act("rebuild" if rebuild else "start", program=program, dies=dies)


def drop(topic: str) -> Act:
    return Act("drop", topic=topic)


SAVE, RESTORE = Act("save"), Act("restore")


def app_of(program: Program) -> ps.App:
    app = ps.App("shop", settings=SETTINGS)
    inputs = {name: app.topic(name, schema="id long") for name in INPUTS}
    for name, form in program:
        streams = [inputs[topic] for topic in READS[name]]
        rows = streams[0] if len(streams) == 1 else streams[0].union(streams[1])
        # Always true, and another text for each form.
        (app.view if name in VIEWS else app.sink)(name, rows.where(f"id >= -{form}").select("id"))
    return app


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


# -- the world --------------------------------------------------------------------------------------------------------


class World:
    """A log, the program that was last accepted, and the ids that every topic has had, by its id."""

    def __init__(self, folder: Path) -> None:
        self.log = Log(folder)
        self.number = 0
        self.ids: dict[str, list[int]] = {}
        self.accepted: Program = (("first", 0),)
        self.instance: Instance | None = None
        self.savepoints = 0
        self.restored = False
        self.epochs = 0

    @property
    def directory(self) -> Path:
        return app_directory(self.log.path, "shop")

    def do(self, act: Act) -> None:
        match act.what:
            case "append":
                self._append(act)
            case "step":
                self._alive(lambda: self._instance().step(), act.dies)
            case "start" | "rebuild":
                self._alive(lambda: self.start(act.program, rebuild=act.what == "rebuild"), act.dies)
            case "drop":
                if act.topic in self.log.topics():
                    self.instance = None
                    self.log.drop_topic(act.topic)
            case "save":
                self._save()
            case "restore":
                self._restore(act.dies)
        check(self)

    def _append(self, act: Act) -> None:
        if act.topic not in self.log.topics():
            self.log.create_topic(act.topic, "id long")
        topic = self.log.topic(act.topic)
        ids = list(range(self.number, self.number + act.rows))
        self.number += act.rows
        topic.append([{"id": one} for one in ids])
        self.ids.setdefault(topic.id, []).extend(ids)

    def _instance(self) -> Instance:
        if self.instance is None:
            self.start(self.accepted)
        assert self.instance is not None
        return self.instance

    def _alive(self, action: Callable[[], object], dies: str | None) -> None:
        with dying(dies):
            action()
            return
        self.instance = None

    # -- starting -----------------------------------------------------------------------------------------------------

    def start(self, program: Program, *, rebuild: bool = False) -> None:
        """Start a program. Where it is refused, do what the hint says, or go on with fewer outputs."""
        if self._started(program, rebuild=rebuild) is None:
            return
        for _ in range(10):
            refusal = self._started(self.accepted, rebuild=rebuild)
            if refusal is None:
                return
            if "--rebuild" in str(refusal.hint):
                rebuild = True
            else:
                (name,) = (one for one in SINKS if f"sink '{one}'" in refusal.message)
                if self.number % 2 and name in self.log.topics():
                    self.log.drop_topic(name)
                else:
                    others = tuple(one for one in self.accepted if one[0] != name)
                    self.accepted = others or (("first", 0),)
        raise AssertionError(f"the hints lead nowhere: {refusal.message}")

    def _started(self, program: Program, *, rebuild: bool) -> DeclarationError | None:
        """Start it as the engine does; why it was refused. What is refused has replaced nobody."""
        app = app_of(program)
        told = forecast_on(self.log, app.plan, rebuild=rebuild).resume
        assert told == forecast_on(self.log, app.plan, rebuild=rebuild).resume or told.refused
        token = self._token()
        decided: list[Resume] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(start_module, "decide", lambda *both: decided.append(decide(*both)) or decided[-1])
            try:
                self.instance = plain_instance(app, self.log, rebuild=rebuild)
            except DeclarationError as error:
                refusal: DeclarationError | None = error
            else:
                refusal = None
        assert (refusal and refusal.message) == (told.refused and told.refused.message), "the forecast was wrong"
        if refusal is not None:
            assert self._token() == token, "a program was refused that had replaced another"
            return refusal
        assert plain(decided[0]) == plain(told), "the start decides other than the forecast"
        self.accepted = program
        return None

    def _token(self) -> int:
        return Ledger(self.directory).token() if (self.directory / "app.json").exists() else 0

    # -- savepoints ---------------------------------------------------------------------------------------------------

    def _savepoints(self) -> Savepoints:
        return Savepoints(Ledger(self.directory), Registration(self.log, "shop"))

    def _save(self) -> None:
        if (self.directory / "app.json").exists() and Ledger(self.directory).last_epoch():
            self.savepoints += 1
            self._savepoints().create(f"s{self.savepoints}", created=1)

    def _restore(self, dies: str | None) -> None:
        if not self.savepoints:
            return
        self.restored = True
        self.instance = None
        with dying(dies):
            new_token: Callable[[], int] = lambda: self.log.writer(instance_name("shop")).token  # noqa: E731
            self._savepoints().restore(f"s{self.savepoints}", new_token, restored_at=2)


def plain(resume: Resume) -> Resume:
    """The decision without what says only where it was found: a topic that is missing is made by the start."""
    return replace(resume, origins={}, written={})


# -- what always holds ------------------------------------------------------------------------------------------------


def check(world: World) -> None:
    if not (world.directory / "app.json").exists():
        return
    ledger = Ledger(world.directory)
    last = ledger.last_commit()
    if last is None:
        return
    assert last.epoch >= world.epochs, "numbers go back"
    world.epochs = last.epoch
    for track in (last.live, *([last.backfill.track] if last.backfill else [])):
        check_track(world, track)
    for name, view in last.views.items():
        found = ids_in(world.directory, view.runs.get(0, ()))
        assert Counter(found) == Counter(said(world, last.live, name)), f"view '{name}' is not as old as the commit"
    pending = ledger.pending_plan()
    seen = isinstance(pending, EpochPlan) and sinks_epoch(world, ledger) >= pending.epoch
    check_topics(world, last, pending if seen and isinstance(pending, EpochPlan) else None)


def sinks_epoch(world: World, ledger: Ledger) -> int:
    return written_by(world.log, ledger.app, ledger.created).epoch


def said(world: World, track: TrackRecord | EpochPlan, name: str, *, epoch_only: bool = False) -> list[int]:
    """What an output says of everything that a track has read, or of one epoch."""
    ids = []
    for topic in READS[name]:
        cut = track.cut.sources.get(topic)
        if cut is not None:
            ids += world.ids.get(cut.topic_id, [])[cut.starts[0] if epoch_only else 0 : cut.ends[0]]
    return ids


def check_track(world: World, track: TrackRecord) -> None:
    for name in track.outputs:
        expected = Counter(said(world, track, name))
        states = [runs for one, runs in track.states.items() if one.startswith(f"{name}-")]
        assert len(states) == 1 or not (states or expected), f"states of '{name}'"
        for runs in states:
            assert Counter(ids_in(world.directory, runs.get(0, ()))) == expected, f"state of '{name}'"
        if name in VIEWS:
            found = ids_in(world.directory, track.views[name].runs.get(0, ()))
            assert Counter(found) == expected, f"view '{name}'"


def check_topics(world: World, last: Commit, seen: EpochPlan | None) -> None:
    """What topics of sinks hold: everything up to the commit, and the epoch after it if that was written."""
    for name, record in last.written.items():
        topic = topic_of(world, name, record.topic)
        if topic is None:
            continue
        expected = said(world, last.live, name)
        if seen is not None and seen.track == "live" and name in seen.topics:
            expected += said(world, seen, name, epoch_only=True)
        compare(world, topic, expected)
    if last.backfill is None:
        return
    for name, id_ in last.backfill.topics.items():
        topic = topic_of(world, name, id_)
        if topic is None or name in last.backfill.muted or name in last.written:
            continue
        expected = said(world, last.backfill.track, name)
        if seen is not None and seen.track == "backfill" and name in seen.topics:
            expected += said(world, seen, name, epoch_only=True)
        compare(world, topic, expected)


def topic_of(world: World, name: str, id_: str | None) -> Topic | None:
    topic = world.log.topic(name) if name in world.log.topics() else None
    return topic if topic is not None and topic.id == id_ else None


def compare(world: World, topic: Topic, expected: list[int]) -> None:
    found = Counter(topic.read().to_arrow().column("id").to_pylist())
    if world.restored:  # what was written behind a savepoint stays in the topic, and is written again
        assert found.keys() >= set(expected), f"topic '{topic.name}' misses rows"
    else:
        assert found == Counter(expected), f"topic '{topic.name}'"


def play(acts: list[Act]) -> None:
    with tempfile.TemporaryDirectory() as folder, without_spark():
        world = World(Path(folder) / "log")
        with world.log:
            for act in acts:
                world.do(act)
            for _ in range(2):
                run_out(world)
                for topic in INPUTS:
                    world.do(append(topic, 2))
            run_out(world)


def run_out(world: World) -> None:
    while world._instance().step() is not None:
        check(world)
    check(world)
    last = Ledger(world.directory).last_commit()
    if last is None:
        assert not any(any(ends.values()) for ends in world._instance().present().values())
        return
    assert set(last.live.outputs) == {name for name, _ in world.accepted}
    assert last.backfill is None
    assert set(last.views) == {name for name, _ in world.accepted if name in VIEWS}
    for topic in {topic for name, _ in world.accepted for topic in READS[name]}:
        assert last.live.cut.sources[topic].ends == world.log.topic(topic).ends()


# -- histories --------------------------------------------------------------------------------------------------------

deaths = st.sampled_from([None, *DEATHS])
programs = st.dictionaries(st.sampled_from(sorted(READS)), st.integers(0, 1), min_size=1, max_size=4).map(
    lambda one: tuple(sorted(one.items()))
)
acts = st.one_of(
    st.builds(append, st.sampled_from(INPUTS), st.integers(1, 9)),
    st.builds(step, deaths),
    st.builds(lambda program, dies: Act("start", program=program, dies=dies), programs, deaths),
    st.builds(lambda program, dies: Act("rebuild", program=program, dies=dies), programs, deaths),
    st.builds(drop, st.sampled_from([*INPUTS, *SINKS])),
    st.just(SAVE),
    st.builds(lambda dies: Act("restore", dies=dies), st.sampled_from([None, "plan", "commit"])),
)


HISTORIES: dict[str, list[Act]] = {
    "a backfill is left for another one that writes, and continued": [
        *(append("events", 20), start("first"), *[step()] * 4, start("first", "merged"), step()),
        *(start("first", "copies"), step("sinks"), start("first", "merged")),
    ],
    "a backfill is left when an epoch of it was written": [
        *(append("events", 20), start("first"), *[step()] * 4, start("first", "merged"), step(), step("sinks")),
        *(start("first"), start("first", "merged")),
    ],
    "an input is dropped, and nobody has made it again": [append("events", 3), step(), drop("events")],
    "an input is dropped before the first commit": [
        *(start("copies"), append("events", 3), step("sinks"), drop("events"), start("copies")),
    ],
    "an epoch is written by a program without one of the views": [
        *(append("events", 4), start("first", "copies"), step(), append("events", 3), start("copies")),
        *(step("sinks"), start("first", "copies")),
    ],
    "everything is built again, and then not": [
        *(append("events", 9), start("first", "copies"), step(), append("events", 3), step("sinks")),
        *(start("first", "copies", rebuild=True), step("commit"), start("first", "copies")),
    ],
    "a topic is dropped while everything is built again": [
        *(append("events", 9), start("first", "copies"), step(), step(), start("first", "copies", rebuild=True)),
        *(step("commit"), drop("copies")),
    ],
    "a savepoint is restored over an epoch that was written": [
        *(append("events", 9), start("first", "copies"), step(), SAVE, step("sinks"), RESTORE),
    ],
    "a restore dies, and the program has changed": [
        *(append("events", 9), start("first", "copies"), step(), SAVE, step(), Act("restore", dies="plan")),
        start("first1", "copies"),
    ],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_nothing_is_lost_or_doubled_when(name: str) -> None:
    play(HISTORIES[name])


@given(st.lists(acts, min_size=2, max_size=14))
def test_nothing_is_lost_or_doubled_whatever_happens(happening: list[Act]) -> None:
    play(happening)
