"""What is done with a target follows from what it can do: a target in memory that cannot take back what it wrote."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import targets
from penstock.engine.epoch import Instance
from penstock.engine.progress import Progress
from penstock.engine.publish import topics
from penstock.errors import DeclarationError, FencedError, TooMuchError, UnavailableError
from penstock.log import Log
from penstock.paths import app_directory
from penstock.testing import Crash
from tests.engine.resume.plain_engine import SETTINGS, plain_instance, without_spark
from tests.targets import memory
from tests.targets.memory import MEMORIES, Memory

URL = "memory:sent"


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One line registers a target; here it is taken back."""
    known = {**targets.TARGETS.built_in, "memory": memory.__name__}
    monkeypatch.setattr(targets, "TARGETS", replace(targets.TARGETS, built_in=known))
    assert sys.modules[memory.__name__] is memory
    MEMORIES.clear()
    with without_spark():
        yield


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as log:
        log.create_topic("events", "id long")
        yield log


def program(*, minimum: int = 0, topic: bool = False, file: Path | None = None, view: bool = False) -> ps.App:
    app = ps.App("shop", settings=SETTINGS)
    rows = app.topic("events", schema="id long").where(f"id >= {minimum} - 100").select("id")
    app.sink("sent", rows, to=URL)
    if topic:
        app.sink("copies", rows)
    if file is not None:
        app.sink("report", rows, to=f"sqlite:///{file}")
    if view:
        app.view("rows", rows)
    return app


def append(log: Log, *ids: int) -> None:
    log.topic("events").append([{"id": number} for number in ids])


def sent() -> list[object]:
    return [row["id"] for row in MEMORIES[URL].sent.get("sent", [])]


def run_out(instance: Instance) -> list[Progress]:
    return list(iter(instance.step, None))


def run(app: ps.App, log: Log, *, rebuild: bool = False) -> list[Progress]:
    with plain_instance(app, log, rebuild=rebuild) as instance:
        return run_out(instance)


def test_every_row_is_sent_once_wherever_the_app_crashes(log: Log) -> None:
    for number, step in enumerate(("plan", "run", "publish", "commit")):
        append(log, 2 * number, 2 * number + 1)

        def crash(reached: str, step: str = step) -> None:
            if reached == step:
                raise Crash

        with plain_instance(program(), log, reached=crash) as instance, pytest.raises(Crash):
            instance.step()
        run(program(), log)
        assert sent() == list(range(2 * number + 2))


@dataclass(frozen=True)
class Start:
    """A start of the app after some rows came: how it begins, where it dies, what is not available meanwhile."""

    rows: int
    view: bool
    rebuild: bool
    dies: str | None
    fails: Literal["before", "after"] | None


STARTS = st.builds(
    Start,
    st.integers(0, 9),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "plan", "run", "publish", "commit"]),
    st.sampled_from([None, "before", "after"]),
)


@settings(max_examples=20)
@given(st.lists(STARTS, max_size=5))
def test_all_targets_have_every_row_once_whatever_dies_fails_or_is_built_again(
    tmp_path_factory: pytest.TempPathFactory, starts: list[Start]
) -> None:
    MEMORIES.clear()
    path = tmp_path_factory.mktemp("targets")
    file, rows = path / "reports.db", 1
    with Log(path / "log") as log:
        log.create_topic("events", "id long")
        append(log, 0)
        run(program(topic=True, file=file), log)  # before the first commit, a changed program starts over
        for start in starts:
            append(log, *range(rows, rows + start.rows))
            rows += start.rows
            run_and_die(program(topic=True, file=file, view=start.view), log, start)
        MEMORIES[URL].fails = None
        run(program(topic=True, file=file), log)
        assert sent() == list(range(rows)) == log.topic("copies").read().to_arrow().column("id").to_pylist()
    with closing(sqlite3.connect(file)) as connection:
        assert sorted(connection.execute("select id from report")) == [(number,) for number in range(rows)]


def run_and_die(app: ps.App, log: Log, start: Start) -> None:
    def reached(step: str) -> None:
        if step == start.dies:
            raise Crash

    with plain_instance(app, log, rebuild=start.rebuild, reached=reached) as instance, suppress(Crash):
        MEMORIES[URL].fails = start.fails
        try:
            run_out(instance)
        except UnavailableError:  # as the loop does: the same epoch again, by the same instance
            run_out(instance)


def test_while_a_rebuild_repeats_what_was_sent_nothing_is_sent(log: Log) -> None:
    append(log, *range(20))
    run(program(), log)
    epochs = run(program(), log, rebuild=True)
    assert [epoch.targets[URL].rows for epoch in epochs] == [0] * len(epochs)
    append(log, 20)
    run(program(), log)
    assert sent() == list(range(21))


def test_a_sink_that_has_changed_is_refused_unless_nothing_was_sent(log: Log) -> None:
    append(log, 1)
    run(program(), log)
    with pytest.raises(
        DeclarationError, match="it is new or has changed, and target 'memory:sent' has rows"
    ) as refused:
        run(program(minimum=1), log)
    assert "name another target" in str(refused.value.hint)
    MEMORIES[URL].sent.clear()
    run(program(minimum=1), log)
    assert sent() == [1]


def test_what_was_sent_and_is_gone_is_noticed(log: Log) -> None:
    append(log, 1)
    run(program(), log)
    MEMORIES[URL].sent.clear()
    with pytest.raises(DeclarationError, match="target 'memory:sent', which it has written, was dropped"):
        run(program(), log)


def test_an_app_that_is_begun_anew_does_not_take_its_epochs_for_sent(log: Log) -> None:
    append(log, 1)
    run(program(), log)
    shutil.rmtree(app_directory(log.path, "shop"))
    MEMORIES[URL].sent.clear()
    with pytest.raises(DeclarationError, match="has epoch 1 of an app 'shop' that was begun before"):
        run(program(), log)
    MEMORIES[URL] = Memory(token=MEMORIES[URL].token)
    run(program(), log)
    assert sent() == [1]


def test_an_instance_that_was_replaced_sends_nothing(log: Log) -> None:
    with plain_instance(program(), log) as old:
        run(program(), log)
        append(log, 1)
        with pytest.raises(FencedError):
            old.step()
    assert sent() == []


def test_all_targets_of_an_app_are_written_and_measured(log: Log, tmp_path: Path) -> None:
    append(log, 1, 2, 3)
    file = tmp_path / "reports.db"
    (epoch,) = run(program(topic=True, file=file), log)
    assert {name: published.rows for name, published in epoch.targets.items()} == {
        "side topics": 0,
        "topics": 3,
        URL: 3,
        f"sqlite:///{file}": 3,
    }
    assert 0 < sum(published.seconds for published in epoch.targets.values()) < epoch.seconds
    assert sent() == [1, 2, 3]


def test_an_epoch_that_is_too_large_is_planned_smaller_before_any_target_has_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, *range(6))
    monkeypatch.setattr(topics, "MOST_BYTES", 16)
    epochs = run(program(topic=True), log)
    assert max(epoch.targets[URL].rows for epoch in epochs) <= 2
    assert sent() == list(range(6)) == log.topic("copies").read().to_arrow().column("id").to_pylist()
    monkeypatch.setattr(topics, "MOST_BYTES", 1)
    append(log, 6)
    with pytest.raises(TooMuchError):
        run(program(topic=True), log)
    assert sent() == list(range(6))
