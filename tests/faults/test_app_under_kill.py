"""A running app is killed again and again while others append and read; nothing is lost and nothing counted twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.log import Log, TopicSettings
from tests.faults.app_oracle import assert_right, directory_of
from tests.faults.app_processes import PROGRAM, SCHEMA, RunningApp, command, look, produce, run_once
from tests.faults.processes import Child, Nursery


@pytest.fixture
def program(tmp_path: Path, root: Path) -> Path:
    """The app, and the topic it reads."""
    path = tmp_path / "shop.py"
    path.write_text(PROGRAM)
    with Log(root) as log:
        log.create_topic("events", SCHEMA, settings=TopicSettings(partitions=2, key=("id",), time="at"))
    return path


def killed_again_and_again(nursery: Nursery, program: Path, root: Path, rounds: int, readers: int = 1) -> None:
    producers = [
        nursery.start(produce, root=root, name=f"producer-{number}", first=number * 1_000_000_000, pause=0.1)
        for number in range(2)
    ]
    looking: list[Child] = []
    for number in range(rounds):
        app = RunningApp(program, root)
        try:
            app.wait_for_epochs(random.randrange(1, 4))
            looking = looking or [nursery.start(look, directory=directory_of(root)) for _ in range(readers)]
            for reader in looking:
                reader.hear("looked")
            app.kill_within(2.0)
        finally:
            app.kill()
        if number == rounds - 2:
            producers.pop().say("stop")
    for producer in producers:
        producer.say("stop")
        producer.finish()
    run_once(program, root)
    for reader in looking:
        assert reader.alive, reader.all_told("failed")


def test_a_killed_app_loses_nothing_and_counts_nothing_twice(nursery: Nursery, program: Path, root: Path) -> None:
    killed_again_and_again(nursery, program, root, rounds=2)
    assert_right(root)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_the_same_for_many_rounds(nursery: Nursery, program: Path, root: Path) -> None:
    killed_again_and_again(nursery, program, root, rounds=15)
    assert_right(root)
    command("verify", "--log", root)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_readers_see_the_views_of_one_epoch_at_a_time(nursery: Nursery, program: Path, root: Path) -> None:
    killed_again_and_again(nursery, program, root, rounds=3, readers=20)
    assert_right(root)
