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
from penstock.engine.epoch import Instance
from penstock.engine.ledger.ledger import Ledger
from penstock.engine.publish.topics import TopicTarget
from penstock.engine.run.compiled import CompiledPlan
from penstock.errors import DeclarationError
from penstock.flow.settings import AppSettings
from penstock.testing import Crash, Rig
from tests.engine.app_world import asked, event, events_of, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = AppSettings(state_partitions=2, max_rows=8)
# What a program may have, and what DuckDB says it holds. `pairs` and `cities` read the same join, and so change how the
# other one is worked out; `written` and `pairs` are sinks.
EXPECTED = {
    "counts": "select kind, count(*) as n from events group by kind",
    "sums": "select kind, sum(amount) as n from events group by kind",
    "ids": "select id from events",
    "written": "select id, amount from events where amount > 2",
    "windows": """
        select kind, time_bucket(interval '10 seconds', "at") as window_start, count(*) as n from events group by 1, 2
    """,
    "others": "select kind, count(*) as n from others group by kind",
    "pairs": "select id, job from people join jobs using (id)",
    "cities": "select id, city from people join jobs using (id)",
}
ALL = tuple(EXPECTED)
SINKS = ("written", "pairs")
TOPICS = ("events", "others", "people", "jobs")
# After these calls an instance may die.
DEATHS: dict[str, tuple[type, str]] = {
    "plan": (Ledger, "write_plan"),
    "sinks": (TopicTarget, "apply"),
    "run": (CompiledPlan, "run"),
    "commit": (Ledger, "commit"),
}


def program(outputs: tuple[str, ...]) -> ps.App:
    app = ps.App("shop", settings=SMALL)
    events, others = events_of(app), events_of(app, "others")
    both = app.table("people", schema="id long, city string", key="id").join(
        app.table("jobs", schema="id long, job string", key="id"), on="id"
    )
    windows = events.window(ps.tumbling("10 seconds"), emit="changes", keep="2 minutes")
    made: dict[str, ps.Stream | ps.Table] = {
        "counts": events.group_by("kind").agg(n="count(*)"),
        "sums": events.group_by("kind").agg(n="sum(amount)"),
        "ids": events.select("id"),
        "written": events.where("amount > 2").select("id", "amount"),
        "windows": windows.group_by("kind").agg(n="count(*)"),
        "others": others.group_by("kind").agg(n="count(*)"),
        "pairs": both.select("id", "job"),
        "cities": both.select("id", "city"),
    }
    for name in outputs:
        (app.sink if name in SINKS else app.view)(name, made[name])
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
        self.accepted = FIVE

    def do(self, act: Act) -> None:
        match act.what:
            case "append":
                numbers = range(self.number, self.number + act.rows)
                self.number += act.rows
                # Each event is later than those before it by so much that none is late by how epochs are cut.
                rows = [event(one, 10 * one, kind="abc"[one % 3], amount=one) for one in numbers]
                for topic in ("events", "others"):
                    self.rig.append(topic, rows)
                self.rig.append("people", [{"id": one, "city": f"city {one}"} for one in numbers])
                self.rig.append("jobs", [{"id": one, "job": f"job {one}"} for one in numbers])
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
            if "it is new or has changed" not in error.message:
                raise
            if outputs == self.accepted and not rebuild:
                # A death in between can make a sink begin anew: then the app goes on without sinks.
                self.accepted = tuple(one for one in self.accepted if one not in SINKS) or ("counts",)
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
            rows = self.rig.rows(name) if name in SINKS else self.rig.view(name)
            assert shown(rows) == shown(asked(self.rig.log, EXPECTED[name], *TOPICS)), name


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


some_outputs = st.lists(st.sampled_from(ALL), min_size=1, max_size=5, unique=True).map(tuple)
acts = st.one_of(
    st.builds(append, st.integers(1, 12)),
    st.builds(step, st.sampled_from([None, *DEATHS])),
    st.builds(lambda outputs, rebuild: start(*outputs, rebuild=rebuild), some_outputs, st.booleans()),
)


def play(spark: SparkSession, happening: list[Act]) -> None:
    with Rig(program(ALL), spark=spark) as rig:  # which makes all topics
        world = World(rig, spark)
        world.start(FIVE)
        for act in happening:
            world.do(act)
        world.check()
        world.do(append(5))
        world.check()


TABLES = ("counts", "sums")
FIVE = (*TABLES, "ids", "written")
PLAYS: dict[str, list[Act]] = {
    "a plan is run without some of its outputs": [
        *(append(4), step(), append(3), step("plan"), start("counts", "written"), step("sinks"), start(*FIVE)),
    ],
    "the same, before anybody saw it": [
        *(append(4), step(), append(3), step("plan"), start("counts", "written"), step("plan"), start(*FIVE)),
    ],
    "everything is built again, and then not": [
        *(append(4), step(), append(3), step("sinks"), start(*FIVE, rebuild=True), step("sinks"), start(*FIVE)),
    ],
    "built again twice": [
        *(append(20), step(), step(), step(), start("counts", "written", rebuild=True), step("plan")),
        *(start(*FIVE, rebuild=True), step("plan")),
    ],
    "half built, and one more": [
        *(append(4), step(), start(*TABLES), append(8), step(), start(*TABLES, "ids"), step("sinks"), start(*FIVE[:3])),
    ],
    "half built, left, and back": [
        *(append(12), start(*TABLES), step(), step(), start(*TABLES, "ids"), step(), start(*TABLES)),
        start(*TABLES, "ids"),
    ],
    "half built and seen, left, and back": [
        *(append(12), start(*TABLES), step(), step(), start(*TABLES, "ids"), step("sinks"), start(*TABLES)),
        start(*TABLES, "ids"),
    ],
    "the first epoch, by another program": [append(6), step("sinks"), start("ids", "sums")],
    "without the sink, which comes back": [
        *(append(6), step(), start("ids"), append(3), step("sinks"), start("ids", "written")),
    ],
    "a sink half built, and the table beside it lost": [
        *(start("cities"), append(12), step(), step(), start("cities", "ids", "pairs"), step(), start("cities")),
        start("cities", "ids", "pairs"),
    ],
    "left out while others go on, with much behind it": [
        *(start("windows", "others"), append(40), *[step()] * 12, start("others"), append(1), step()),
        start("windows", "others"),
    ],
    "a sink that is built silently after a plan without it": [
        *(start("ids", "pairs"), append(6), step(), step(), start("ids"), append(3), step("plan")),
        start("ids", "pairs", "cities"),
    ],
    "a sink that is built silently while an epoch passes without it": [
        *(start("ids", "pairs"), append(6), step(), step(), append(3), step("sinks"), start("ids", "pairs", "cities")),
        *(step(), start("ids"), append(3), step("sinks"), start("ids", "pairs", "cities")),
    ],
}


@pytest.mark.parametrize("name", PLAYS)
def test_answers_are_right_when_programs_change_and_die(spark: SparkSession, name: str) -> None:
    play(spark, PLAYS[name])


@pytest.mark.long
@pytest.mark.timeout(1800)
@settings(max_examples=60)
@given(st.lists(acts, min_size=3, max_size=12))
@example([append(6), step("sinks"), start("ids", "written"), start(*FIVE)])
def test_answers_are_right_whatever_programs_do(spark: SparkSession, happening: list[Act]) -> None:
    play(spark, happening)
