"""A disk that fills up under a running app, and has space again: at whatever step it is full, nothing is lost."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.engine.ledger.ledger import Ledger
from penstock.errors import UnavailableError
from penstock.log import Log
from penstock.testing import Rig
from tests.engine.app_world import another_instance, assert_right, event, run_out, shop, some_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DISK_BYTES = 8 * 1024 * 1024


@pytest.fixture
def disk(root: Path) -> Iterator[Path]:
    """A small disk, where the app of a log has its state, its ledger and its views."""
    Log(root).close()
    place = root / "apps"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "penstock-test", place], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("needs to be root, to mount a small disk")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)  # Spark's processes keep files of state open


def fill(disk: Path, left: int) -> None:
    """Leave no more than so many bytes on the disk."""
    found = os.statvfs(disk)
    with (disk / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(found.f_bavail * found.f_frsize - left, 1))


def many_events(start: int) -> list[dict[str, Any]]:
    """Each of a kind of its own."""
    return [event(number, number % 50, kind=f"kind {number}") for number in range(start, start + 500)]


def test_a_full_disk_is_waited_for_at_every_step(root: Path, disk: Path, spark: SparkSession) -> None:
    full: dict[str, int] = {}

    def reached(step: str) -> None:
        if step in full:
            fill(disk, full.pop(step))

    with Rig(shop(), folder=root, spark=spark) as rig:
        rig.append("events", some_events(0, 10))
        with another_instance(rig, spark, reached=reached) as instance:
            run_out(instance.step)
            cases = [
                ("before", 0, "app 'shop': "),  # the plan cannot be written
                ("plan", 16 * 1024, "(state aggregate-|view '(totals|minutes)')"),  # whichever is written first
                ("run", 0, "app 'shop': "),  # the commit cannot be written
                ("publish", 0, "app 'shop': "),
            ]
            for number, (step, left, place) in enumerate(cases):
                if step == "before":
                    fill(disk, left)
                full[step] = left
                rig.append("events", many_events(10 + 500 * number))
                with pytest.raises(UnavailableError, match="full") as refused:
                    instance.step()
                assert re.search(place, refused.value.message)
                full.clear()
                (disk / "ballast").unlink()
                assert [one.rows for one in run_out(instance.step)] == [500]
            rig.advance("20 minutes")
            run_out(instance.step)
            account = instance.accounts()["minutes"]
        assert account.came == account.counted == 2_010
        assert_right(rig)
        assert rig.rows("shop.dead") == []


def test_attempts_that_fail_leave_nothing_that_fills_the_disk_further(
    root: Path, disk: Path, spark: SparkSession
) -> None:
    with Rig(shop(), folder=root, spark=spark) as rig:
        rig.append("events", some_events(0, 10))
        rig.run()
        rig.append("events", many_events(10))
        fill(disk, 32 * 1024)
        for _ in range(2):
            with pytest.raises(UnavailableError, match="disk is full"):
                rig.step()
        (disk / "ballast").unlink()
        assert rig.run() == 1
        assert len(rig.view("totals")) == 503
        ledger = Ledger(disk / "shop")
        commits = [ledger.commit_of(epoch) for epoch in ledger.epochs_with("commit")]
        changes = [ledger.changes_of(epoch) for epoch in ledger.epochs_with_changes()]
        named = {path for record in (*commits, *changes) if record is not None for path in record.paths()}
        files = [path for kind in ("state", "views") for path in disk.glob(f"shop/{kind}/*/*/*")]
        assert {str(path.relative_to(disk / "shop")) for path in files} == named
        assert list(disk.glob("shop/staged/*")) == []
