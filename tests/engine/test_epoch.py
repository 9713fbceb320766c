"""An instance of an app: crashes at every step, two instances at once, and everything around it that can break."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.engine.epoch import Instance
from penstock.engine.ledger.ledger import Ledger
from penstock.engine.publish.side_topics import SideTopics
from penstock.errors import DamagedError, FencedError, PenstockError, RangeError, UnavailableError, UnknownOutcomeError
from penstock.testing import Crash, Rig
from tests.engine.app_world import (
    TWO,
    another_instance,
    assert_right,
    at,
    event,
    forgetful_topic,
    run_out,
    shop,
    shown,
    some_events,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = ("plan", "run", "publish", "commit")


@pytest.fixture
def rig(spark: SparkSession) -> Iterator[Rig]:
    """The shop with ten events read, and its minute of noon still open."""
    with Rig(shop(), spark=spark) as started:
        started.append("events", some_events(0, 10))
        started.step()
        yield started


# -- crashes ----------------------------------------------------------------------------------------------------------


def interesting_events() -> list[dict[str, Any]]:
    """Events that close the minute of noon and correct it, and two from next year."""
    return [*some_events(10, 5, 70), event(15, 20), event(16, 365 * 86_400), event(17, 366 * 86_400)]


def seen(rig: Rig) -> dict[str, Any]:
    """All that a user can see of the app."""
    return {
        "totals": rig.view("totals"),
        "minutes": rig.view("minutes"),
        "accounts": [rig.account(view) for view in ("totals", "minutes")],
        "dead": shown(rig.rows("shop.dead")),
        "late": shown(rig.rows("events.late")),
    }


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession) -> dict[str, Any]:
    """What is seen where nothing crashes."""
    with Rig(shop(), spark=spark) as rig:
        rig.append("events", some_events(0, 10))
        rig.step()
        rig.append("events", interesting_events())
        rig.run()
        assert rig.account("minutes").dead == 2
        return seen(rig)


@pytest.mark.parametrize("step", STEPS)
def test_after_a_crash_at_any_step_everything_is_as_if_nothing_had_happened(
    rig: Rig, undisturbed: dict[str, Any], step: Any
) -> None:
    rig.append("events", interesting_events())
    rig.crash_at(step)
    with pytest.raises(Crash):
        rig.step()
    rig.restart()
    rig.crash_at(step)
    if step != "commit":  # the same epoch crashes a second time
        with pytest.raises(Crash):
            rig.step()
    rig.restart()
    rig.run()
    assert seen(rig) == undisturbed


def test_a_planned_epoch_is_run_as_it_was_planned(rig: Rig) -> None:
    rig.append("events", some_events(10, 5, 70))
    rig.crash_at("plan")
    with pytest.raises(Crash):
        rig.step()
    rig.append("events", some_events(15, 20, 80))
    rig.advance("1 hour")
    rig.restart()
    first, second = rig.step(), rig.step()
    assert first is not None
    assert (first.rows, first.lag, first.watermark) == (5, 20, _micros(74))
    assert second is not None
    assert second.rows == 20
    assert second.watermark is not None
    assert second.watermark > _micros(99)


def test_a_commit_that_nobody_heard_of_is_not_repeated(rig: Rig) -> None:
    """A crash behind the commit, as the instance itself sees it when it goes on all the same."""
    rig.append("events", some_events(10, 5))
    instance = rig._instance
    assert instance is not None
    rig.crash_at("commit")
    with pytest.raises(Crash):
        instance.step()
    with pytest.raises(UnknownOutcomeError, match="epoch 2 is committed, and this instance knows of 1"):
        instance.step()


def _micros(seconds: float) -> int:
    return int(at(seconds).timestamp() * 1_000_000)


# -- two instances ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_an_instance_that_was_replaced_stops_wherever_it_is(rig: Rig, spark: SparkSession, step: str) -> None:
    def take_over(reached: str) -> None:
        if reached == step:
            replaced.append(Instance(rig.app.plan, rig.log, rig.app.settings, spark, clock=rig._clock))

    replaced: list[Instance] = []
    rig.append("events", interesting_events())
    with another_instance(rig, spark, reached=take_over) as first:
        with pytest.raises(FencedError, match="app 'shop': instance 2 was replaced by instance 3"):
            run_out(first.step)
        with replaced[0] as second:
            run_out(second.step)
            assert second.accounts()["minutes"].came == 18
    assert len(rig.rows("shop.dead")) == 2
    with another_instance(rig, spark) as third:
        rig.append("events", some_events(100, 3, 200))
        assert run_out(third.step)
        assert third.accounts()["totals"].counted == 19
    with pytest.raises(FencedError):
        rig.step()


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_topic_that_cannot_be_written_is_waited_for_and_the_same_epoch_published_then(rig: Rig) -> None:
    """What has run is not run again for that."""
    rig.append("events", [*some_events(10, 5), event(15, 365 * 86_400)])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SideTopics, "store", unavailable)
        with pytest.raises(UnavailableError):
            rig.step()
    rig.append("events", some_events(16, 5))
    files = files_of_epoch(rig, 2)
    assert files
    assert [(one.epoch, one.rows) for one in run_out(rig.step)] == [(2, 6), (3, 5)]
    assert files_of_epoch(rig, 2) & files == files
    assert rig.query("select sum(events) as n from totals") == [{"n": 20}]


def unavailable(*_: object) -> None:
    raise UnavailableError("the disk is full", hint="make space")


def test_readers_see_an_epoch_when_it_is_committed_and_not_before(rig: Rig) -> None:
    for step in STEPS:
        rig.append("events", some_events(10, 5))
        (before,) = rig.query("select sum(events) as n from totals")
        rig.crash_at(step)
        with pytest.raises(Crash):
            rig.step()
        (after,) = rig.query("select sum(events) as n from totals")
        assert after["n"] - before["n"] == (5 if step == "commit" else 0)
        rig.restart()
        rig.run()


def test_epochs_that_were_lost_are_run_again_and_the_views_with_them(rig: Rig) -> None:
    """As where the folder of the epochs was restored from a copy: what is read is what it says."""
    epochs = rig.directory / "epochs"
    before = {path.name: path.read_bytes() for path in epochs.iterdir()}
    for start in (10, 20):
        rig.append("events", some_events(start, 10))
        rig.step()
    rig._stop()
    for path in epochs.iterdir():
        path.unlink()
    for name, content in before.items():
        (epochs / name).write_bytes(content)
    assert rig.query("select sum(events) as n from totals") == [{"n": 10}]
    rig.restart()
    rig.run()
    assert rig.query("select sum(events) as n from totals") == [{"n": 30}]


def moved_app(rig: Rig, folder: Path, spark: SparkSession) -> Rig:
    """The same app elsewhere: Spark's processes, which keep files open, have not seen its files yet."""
    rig._stop()
    shutil.copytree(rig.log.path, folder)
    return Rig(shop(), folder=folder, spark=spark)


def files_of_epoch(rig: Rig, epoch: int) -> set[Path]:
    return {path for kind in ("state", "views") for path in rig.directory.glob(f"{kind}/*/*/{epoch:012d}-*.arrow")}


def run_file(rig: Rig, folder: str = "state/aggregate-*") -> Path:
    commit = Ledger(rig.directory).last_commit()
    assert commit is not None
    return min(path for path in rig.directory.glob(f"{folder}/*/*.arrow") if _name(rig, path) in commit.paths())


def _name(rig: Rig, path: Path) -> str:
    return path.relative_to(rig.directory).as_posix()


@pytest.mark.parametrize("folder", ["state/aggregate-*", "views/totals"])
@pytest.mark.parametrize("harm", ["flipped", "truncated", "missing"])
def test_a_damaged_run_of_a_state_or_a_view_is_named_and_everything_built_again_on_request(
    rig: Rig, spark: SparkSession, tmp_path: Path, harm: str, folder: str
) -> None:
    with moved_app(rig, tmp_path / "log", spark) as moved:
        for path in {run_file(moved, folder), *moved.directory.glob(f"{folder}/*/*.arrow")}:
            do_harm(path, harm)
        moved.append("events", some_events(10, 6, 70))
        with pytest.raises(DamagedError) as refused:
            moved.step()
        assert f"/{folder[:6]}" in refused.value.message
        assert "000000000001-" in refused.value.message
        assert "--rebuild" in str(refused.value.hint)
        assert moved.rows("shop.dead") == []
        _rebuild(moved, spark, readable=not folder.startswith("views"))


def do_harm(path: Path, harm: str) -> None:
    content = path.read_bytes()
    half = len(content) // 2
    if harm == "missing":
        path.unlink()
    elif harm == "flipped":
        path.write_bytes(content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :])
    else:
        path.write_bytes(content[:half])


def _rebuild(rig: Rig, spark: SparkSession, *, readable: bool) -> None:
    """With small epochs; readers see the old views until the new ones are complete, if these are undamaged."""
    small = type(TWO)(state_partitions=2, max_rows=4)
    with another_instance(rig, spark, shop(small), rebuild=True) as instance:
        counts = []
        while (done := instance.step()) is not None:
            if readable or not done.building:
                counts.append((done.building, *rig.query("select sum(events) as n from totals")[0].values()))
        if readable:
            assert len(counts) > 3
            assert counts[:2] == [(True, 10), (True, 10)]
        assert {shown for building, shown in counts if building} <= {10}
        assert counts[-1] == (False, 16)
        rig.advance("10 minutes")
        run_out(instance.step)
    assert_right(rig)


def test_a_state_that_cannot_be_written_is_waited_for(rig: Rig) -> None:
    """A file in the place of a folder: what the operating system says of it stands for all that it may say."""
    folder = run_file(rig).parent
    hidden = folder.with_name("hidden")
    folder.rename(hidden)
    folder.touch()
    rig.append("events", some_events(10, 5))
    with pytest.raises(UnavailableError, match=r"Not a directory|File exists"):
        rig.step()
    folder.unlink()
    hidden.rename(folder)
    rig.run()
    assert rig.query("select sum(events) as n from totals") == [{"n": 15}]
    assert rig.rows("shop.dead") == []


@pytest.mark.parametrize(
    "document", ["instance.json", "epochs/000000000001.commit.json", "epochs/000000000002.plan.json"]
)
def test_a_damaged_document_is_named(rig: Rig, document: str) -> None:
    rig.append("events", some_events(10, 5))
    rig.crash_at("plan")
    with pytest.raises(Crash):
        rig.step()
    path = rig.directory / document
    path.write_bytes(path.read_bytes()[:-20])

    def goes_on() -> None:
        rig.restart()
        rig.step()

    with pytest.raises(DamagedError, match=path.name):
        goes_on()


def test_rows_that_were_removed_before_they_were_read_stop_the_app(spark: SparkSession, tmp_path: Path) -> None:
    forgetful_topic(tmp_path / "log")
    with Rig(shop(), spark=spark, folder=tmp_path / "log") as rig:
        rig.append("events", some_events(0, 10))
        rig.step()
        for start in range(10, 100, 10):
            rig.append("events", some_events(start, 10))
        with pytest.raises(RangeError, match=r"removed by retention: topic 'events', partition \d: offsets \d+ to \d+"):
            rig.step()
        assert rig.query("select sum(events) as n from totals") == [{"n": 10}]


def test_nothing_to_do_is_no_epoch(rig: Rig) -> None:
    rig.run()
    assert rig.step() is None
    rig.advance("10 minutes")
    assert rig.run() == 1
    assert rig.run() == 0
    assert_right(rig)


def test_an_error_of_spark_shows_no_stack_of_java(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import PySparkException

    def fails(*_: object) -> None:
        raise PySparkException("[SOME_ERROR] Something is wrong. SQLSTATE: 12345\n\tat org.apache.spark.X(X.java:1)")

    rig.append("events", some_events(10, 5))
    assert rig._instance is not None
    monkeypatch.setattr(rig._instance._app.live.engine, "run", fails)
    monkeypatch.setattr(rig._instance._app.live.engine, "find_failing_rows", lambda work: [])
    monkeypatch.setattr(rig._instance._app.live.engine, "find_failing_output", lambda work: None)
    with pytest.raises(PenstockError) as refused:
        rig.step()
    assert refused.value.message == "app 'shop', epoch 2: [SOME_ERROR] Something is wrong."
