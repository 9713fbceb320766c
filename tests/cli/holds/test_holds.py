"""`penstock holds`, and what other commands say of holds."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import Result

from penstock import Log

Run = Callable[..., Result]


@pytest.fixture
def held(run: Run, log: Log) -> str:
    assert run("topic", "create", "t", "--schema", "id long, text string", "--key", "id").exit_code == 0
    for _ in range(5):
        log.topic("t").append([{"id": number, "text": "x"} for number in range(4)])
    log.hold("app", {"t": {0: (2, 9)}})
    return "t"


def test_it_lists_who_holds_what(run: Run, held: str) -> None:
    shown = run("holds").stdout.splitlines()
    assert shown[0].split() == ["holder", "topic", "partition", "start", "end", "since"]
    assert shown[-1].split()[:5] == ["app", "t", "0", "2", "9"]
    (hold,) = json.loads(run("holds", "--json").stdout)["holds"]
    assert hold["name"] == "app"
    assert [(one["topic"], one["partition"], one["start"], one["end"]) for one in hold["ranges"]] == [("t", 0, 2, 9)]


def test_without_holds_it_says_so(run: Run, log: Log) -> None:
    assert run("holds").stdout.startswith("no rows are held in ")


def test_a_topic_that_was_dropped_is_told_from_its_successor(run: Run, log: Log, held: str) -> None:
    log.drop_topic(held)
    log.create_topic(held, "id long")
    assert "t (dropped)" in run("holds").stdout


def test_a_hold_is_released_once_confirmed(run: Run, log: Log, held: str) -> None:
    assert run("holds", "release", "app", stdin="n\n").exit_code == 1
    assert len(log.holds()) == 1
    assert run("holds", "release", "app", "--yes").stdout == "released 'app'\n"
    assert log.holds() == []
    assert run("holds", "release", "app").stdout == "nothing is held by 'app'\n"


def test_a_damaged_hold_is_named_and_can_be_released(run: Run, log: Log, held: str) -> None:
    (log.path / "holds" / "app.json").write_bytes(b"?")
    shown = run("holds")
    assert shown.exit_code == 1
    assert "holds/app.json: the hold is damaged" in shown.stderr
    assert "penstock holds release app" in shown.stderr
    assert run("holds", "release", "app", "--yes").exit_code == 0
    assert run("compact", "t").exit_code == 0


def test_compaction_says_what_it_left_because_of_whom(run: Run, held: str) -> None:
    shown = run("compact", held)
    assert "12 rows left, held by app; see `penstock holds`" in shown.stdout
    (part,) = json.loads(run("compact", held, "--json").stdout)["partitions"]
    assert (part["held_rows"], part["held_by"]) == (12, ["app"])


def test_erasure_says_who_holds_what_it_must_remove(run: Run, held: str) -> None:
    shown = run("erase", held, "--key", "3", "--yes", "--wait", "0 seconds")
    assert shown.exit_code == 1
    assert "'app' holds offsets 2 to 8" in shown.stderr
    assert "penstock holds release" in shown.stderr


def test_expiry_says_what_it_left_because_of_whom(run: Run, log: Log) -> None:
    options = ("--segment-bytes", "1 kB", "--retain-bytes", "4 kB")
    assert run("topic", "create", "t", "--schema", "text string", *options).exit_code == 0
    log.topic("t").append({"text": "x"})
    log.hold("app", {"t": {0: (0, 1)}})
    for _ in range(20):
        log.topic("t").append({"text": "x" * 500})
    shown = run("expire", "t").stdout
    assert "segments left, held by app" in shown
    document = json.loads(run("expire", "t", "--json").stdout)
    assert document["segments_held"] > 3
    assert document["held_by"] == ["app"]
