"""Folders of apps that an earlier version wrote."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock as ps
from penstock.engine.ledger.ledger import Ledger
from penstock.engine.ledger.upgrade import is_old_folder, upgrade_folder
from penstock.engine.resume.forecast import forecast_on
from penstock.errors import DeclarationError
from penstock.log import Log
from penstock.testing import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parent / "golden" / "format-2"
TOTALS = [{"country": "A", "orders": 5, "amount": 20}, {"country": "B", "orders": 4, "amount": 16}]


def shop() -> ps.App:
    app = ps.App("shop", settings=ps.AppSettings(state_partitions=1))
    orders = app.topic(
        "orders",
        schema="order_id long, country string, amount long, placed_at timestamp",
        key="order_id",
        time="placed_at",
    )
    totals = orders.group_by("country").agg(orders="count(*)", amount="sum(amount)")
    app.view("totals", totals)
    app.view("minutes", orders.window(ps.tumbling("1 minute")).group_by("country").agg(amount="sum(amount)"))
    app.sink("totals_topic", totals)
    return app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log with an app that has committed two epochs, as format 2 kept it."""
    shutil.copytree(GOLDEN, tmp_path / "log")
    return tmp_path / "log"


def test_views_are_built_again_and_sinks_write_nothing_twice(
    spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Rig(shop(), spark=spark, folder=folder) as rig:
        written = rig.log.topic("totals_topic").ends()
        rig.run()
        assert rig.view("totals") == TOTALS
        assert [row["amount"] for row in rig.view("minutes")] == [6, 9]
        assert rig.log.topic("totals_topic").ends() == written
        rig.append("orders", [{"order_id": 9, "country": "A", "amount": 1, "placed_at": "2024-05-01T12:01:30Z"}])
        rig.run()
        assert rig.view("totals")[0] == {"country": "A", "orders": 6, "amount": 21}
        assert rig.log.topic("totals_topic").ends() != written
    told = [record.getMessage() for record in caplog.records if "earlier version" in record.getMessage()]
    assert len(told) == 1
    assert "built again from the log" in told[0]


def test_the_plan_of_a_start_says_what_is_built_and_changes_nothing(folder: Path) -> None:
    with Log(folder) as log:
        found = forecast_on(log, shop().plan)
    assert found.resume.refused is None
    assert (set(found.resume.new), found.rows) == ({"totals", "minutes", "totals_topic"}, 9)
    assert found.resume.muted == {"totals_topic"}
    assert is_old_folder(folder / "apps" / "shop")


@pytest.mark.parametrize("stage", ["drafted", "moved", "committed"])
def test_an_upgrade_that_was_interrupted_is_continued(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    from penstock.engine.ledger import upgrade

    directory, calls, store = folder / "apps" / "shop", [], upgrade.store_document

    def dying(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == {"drafted": 2, "moved": 3, "committed": 4}[stage]:
            raise KeyboardInterrupt
        store(*arguments)  # type: ignore[arg-type]

    with Log(folder) as log:
        monkeypatch.setattr(upgrade, "store_document", dying)
        with pytest.raises(KeyboardInterrupt):
            upgrade_folder(directory, log, 5)
        assert is_old_folder(directory)
        monkeypatch.undo()
        upgrade_folder(directory, log, 6)
    last = Ledger(directory).last_commit()
    assert last is not None
    assert (last.epoch, last.live.cut.sources["orders"].ends, list(last.written)) == (2, {0: 9}, ["totals_topic"])


def test_an_epoch_that_sinks_have_and_the_old_version_did_not_finish_is_refused(folder: Path) -> None:
    (folder / "apps" / "shop" / "epochs" / "000000000002.commit.json").unlink()
    with Log(folder) as log, pytest.raises(DeclarationError, match="did not finish epoch 2"):
        upgrade_folder(folder / "apps" / "shop", log, 5)


def test_looking_into_an_old_folder_says_what_to_do(folder: Path) -> None:
    with pytest.raises(DeclarationError, match="format 2") as error:
        Ledger(folder / "apps" / "shop")
    assert "start the app with this version" in str(error.value.hint)
