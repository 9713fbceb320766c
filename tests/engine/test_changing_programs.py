"""Programs that follow one another on the same log, each of which may die at any moment: answers stay right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.derive.store import ViewStore
from penstock.derive.topic_sinks import TopicSinks
from penstock.engine.instance import Instance
from penstock.engine.ledger import Ledger
from penstock.errors import DeclarationError
from penstock.flow.settings import AppSettings
from penstock.testing import Crash, Rig
from tests.engine.app_world import asked, events_of, shown, some_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = AppSettings(state_partitions=2, max_rows=8)
# What a program may have: two tables, a stream and a sink; and what DuckDB says they hold.
EXPECTED = {
    "counts": "select kind, count(*) as n from events group by kind",
    "sums": "select kind, sum(amount) as n from events group by kind",
    "ids": "select id from events",
    "written": "select id, amount from events where amount > 2",
}
ALL = tuple(EXPECTED)
# After these calls an instance may die.
DEATHS: dict[str, tuple[type, str]] = {
    "plan": (Ledger, "write_plan"),
    "sinks": (TopicSinks, "apply"),
    "views": (ViewStore, "apply"),
    "commit": (Ledger, "commit"),
}


def program(outputs: tuple[str, ...]) -> ps.App:
    app = ps.App("shop", settings=SMALL)
    events = events_of(app)
    if "counts" in outputs:
        app.view("counts", events.group_by("kind").agg(n="count(*)"))
    if "sums" in outputs:
        app.view("sums", events.group_by("kind").agg(n="sum(amount)"))
    if "ids" in outputs:
        app.view("ids", events.select("id"))
    if "written" in outputs:
        app.sink("written", events.where("amount > 2").select("id", "amount"))
    return app


@dataclass(frozen=True)
class Act:
    """What happens: events come, an epoch runs (and dies after something), or a program starts (to build all again)."""

    what: str
    rows: int = 0
    dies: str | None = None
    outputs: tuple[str, ...] = ()


def append(rows: int) -> Act:
    return Act("append", rows)


def step(dies: str | None = None) -> Act:
    return Act("step", dies=dies)


def start(*outputs: str, rebuild: bool = False, dies: str | None = None) -> Act:
    return Act("rebuild" if rebuild else "start", outputs=outputs, dies=dies)


class World:
    """A rig, the program that was last accepted, and what has come so far."""

    def __init__(self, rig: Rig, spark: SparkSession) -> None:
        self.rig = rig
        self.spark = spark
        self.number = 0
        self.accepted = ALL

    def do(self, act: Act) -> None:
        match act.what:
            case "append":
                self.rig.append("events", some_events(self.number, act.rows))
                self.number += act.rows
            case "step":
                with dying(act.dies):
                    self.rig.step()
                if act.dies is not None:
                    self.start(self.accepted)
            case _:
                with dying(act.dies):
                    self.start(act.outputs, rebuild=act.what == "rebuild")
                if act.dies is not None:
                    self.start(self.accepted)

    def start(self, outputs: tuple[str, ...], *, rebuild: bool = False) -> None:
        """Start a program. One that is refused has changed nothing: the one before goes on."""
        try:
            self._start(outputs, rebuild=rebuild)
            self.accepted = outputs
        except DeclarationError as error:
            if "sink 'written': it is new or has changed" not in error.message:
                raise
            if "written" in self.accepted and not rebuild:
                # A death in between can make a sink begin anew: then it goes on without.
                self.accepted = tuple(one for one in self.accepted if one != "written") or ("counts",)
            self._start(self.accepted)

    def _start(self, outputs: tuple[str, ...], *, rebuild: bool = False) -> None:
        rig = self.rig
        if not rebuild:
            rig.restart(program(outputs))
            return
        rig._stop()
        rig.app = program(outputs)
        rig._instance = Instance(rig.app.plan, rig.log, SMALL, self.spark, clock=rig._clock, rebuild=True)

    def check(self) -> None:
        self.rig.run()
        for name in self.accepted:
            rows = self.rig.rows(name) if name == "written" else self.rig.view(name)
            assert shown(rows) == shown(asked(self.rig.log, EXPECTED[name])), name


@contextmanager
def dying(after: str | None) -> Iterator[None]:
    """Let an instance die after a call."""
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


some_outputs = st.lists(st.sampled_from(ALL), min_size=1, max_size=4, unique=True).map(tuple)
acts = st.one_of(
    st.builds(append, st.integers(1, 12)),
    st.builds(step, st.sampled_from([None, *DEATHS])),
    st.builds(lambda outputs, rebuild: start(*outputs, rebuild=rebuild), some_outputs, st.booleans()),
)


def play(spark: SparkSession, happening: list[Act]) -> None:
    with Rig(program(ALL), spark=spark) as rig:
        world = World(rig, spark)
        for act in happening:
            world.do(act)
        world.check()
        world.do(append(5))
        world.check()


TABLES = ("counts", "sums")
PLAYS: dict[str, list[Act]] = {
    "a plan is run without some of its outputs": [
        append(4),
        step(),
        append(3),
        step("plan"),
        start("counts", "written"),
        step("views"),
        start(*ALL),
    ],
    "the same, before anybody saw it": [
        append(4),
        step(),
        append(3),
        step("plan"),
        start("counts", "written"),
        step("plan"),
        start(*ALL),
    ],
    "everything is built again, and then not": [
        append(4),
        step(),
        append(3),
        step("sinks"),
        start(*ALL, rebuild=True),
        step("views"),
        start(*ALL),
    ],
    "built again twice": [
        append(20),
        step(),
        step(),
        step(),
        start("counts", "written", rebuild=True),
        step("plan"),
        start(*ALL, rebuild=True),
        step("plan"),
    ],
    "half built, and one more": [
        append(4),
        step(),
        start(*TABLES),
        append(8),
        step(),
        start(*TABLES, "ids"),
        step("views"),
        start(*ALL[:3]),
    ],
    "half built, left, and back": [
        append(4),
        step(),
        start(*TABLES),
        append(12),
        step(),
        step(),
        start(*TABLES, "ids"),
        step(),
        start(*TABLES),
        start(*TABLES, "ids"),
    ],
    "half built and seen, left, and back": [
        append(4),
        step(),
        start(*TABLES),
        append(12),
        step(),
        step(),
        start(*TABLES, "ids"),
        step("views"),
        start(*TABLES),
        start(*TABLES, "ids"),
    ],
    "the first epoch, by another program": [append(6), step("views"), start("ids", "sums")],
    "without the sink, which comes back": [
        append(6),
        step(),
        start("ids"),
        append(3),
        step("sinks"),
        start("ids", "written"),
    ],
}


@pytest.mark.parametrize("name", PLAYS)
def test_answers_are_right_when_programs_change_and_die(spark: SparkSession, name: str) -> None:
    play(spark, PLAYS[name])


@pytest.mark.long
@settings(max_examples=100)
@given(st.lists(acts, min_size=3, max_size=12))
@example([append(6), step("views"), start("ids", "written"), start(*ALL)])
def test_answers_are_right_whatever_programs_do(spark: SparkSession, happening: list[Act]) -> None:
    play(spark, happening)
