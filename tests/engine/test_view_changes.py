"""Following the views of a running app: the changes of its epochs add up to its views, whatever crashes in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import penstock as ps
from penstock.derive.views import changes
from penstock.errors import ChangesLostError
from penstock.flow.settings import AppSettings
from penstock.testing import Crash, Rig
from penstock.testing.rig import Step
from tests.engine.app_world import events_of, some_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = ("keyed", "narrow", "counted", "appended", "mixed", "single")


def program(amount: str = "sum(amount)", settings: AppSettings | None = None) -> ps.App:
    app = ps.App("shop", settings=settings or AppSettings(state_partitions=2))
    events = events_of(app)
    totals = events.group_by("kind").agg(events="count(*)", amount=amount)
    app.view("keyed", totals)
    app.view("narrow", totals.where("events > 3").select(kind="kind", parity="events % 2"))
    app.view("counted", totals.select(parity="events % 2"))
    app.view("appended", events.select("id", "note"))
    app.view(
        "mixed", totals.select("kind").changes().select("kind", "change").union(events.select("kind", change="note"))
    )
    app.view("single", events.group_by().agg(events="count(*)"))
    return app


@pytest.fixture
def rig(spark: SparkSession) -> Iterator[Rig]:
    with Rig(program(), spark=spark) as rig:
        yield rig


def frozen(row: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(row.items()))


def assert_followed(rig: Rig, view: str) -> None:
    """The changes since the first epoch add up to the view, and never take away what is not there."""
    rows: Counter[tuple[tuple[str, Any], ...]] = Counter()
    epochs = []
    for change in changes(rig.directory, view, after=0, timeout=0):
        epochs.append(change.epoch)
        for row, weight in change.rows():
            rows[frozen(row)] += weight
        assert min(rows.values(), default=0) >= 0, f"{view}, epoch {change.epoch}"
    assert epochs == list(range(1, len(epochs) + 1))
    assert +rows == Counter(frozen(row) for row in rig.view(view)), view


def test_changes_add_up_to_the_views_of_all_kinds_wherever_the_app_crashes(rig: Rig) -> None:
    steps: list[Step | None] = [None, "run", "publish", "commit", None]
    for number, step in enumerate(steps):
        rig.append("events", some_events(7 * number, 7))
        if step is not None:
            rig.crash_at(step)
            with pytest.raises(Crash):
                rig.run()
            rig.restart()
        rig.run()
        for view in VIEWS:
            assert_followed(rig, view)


def test_a_view_that_changed_is_followed_from_its_rows_again_and_others_go_on(rig: Rig) -> None:
    rig.append("events", some_events(0, 9))
    rig.run()
    (first,) = changes(rig.directory, "keyed", after=0, timeout=0)
    rig.restart(program("max(amount)"))
    rig.append("events", some_events(9, 9))
    rig.run()
    with pytest.raises(ChangesLostError, match="replaced as a whole"):
        list(changes(rig.directory, "keyed", after=first.epoch, timeout=0))
    assert_followed(rig, "appended")


def test_changes_are_kept_for_as_many_epochs_as_the_app_says(spark: SparkSession) -> None:
    settings = AppSettings(state_partitions=1, changes_kept_epochs=2)
    with Rig(program(settings=settings), spark=spark) as rig:
        for number in range(4):
            rig.append("events", some_events(number, 1))
            rig.run()
        assert [change.epoch for change in changes(rig.directory, "keyed", after=2, timeout=0)] == [3, 4]
        with pytest.raises(ChangesLostError, match="not kept"):
            list(changes(rig.directory, "keyed", after=1, timeout=0))


def test_without_epochs_to_keep_nothing_is_written_for_followers(spark: SparkSession) -> None:
    settings = AppSettings(state_partitions=1, changes_kept_epochs=0)
    with Rig(program(settings=settings), spark=spark) as rig:
        rig.append("events", some_events(0, 5))
        rig.run()
        assert list((rig.directory / "changes").iterdir()) == []
        with pytest.raises(ChangesLostError):
            list(changes(rig.directory, "keyed", after=0, timeout=0))
