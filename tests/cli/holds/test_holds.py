"""`penstock holds`, and what other commands say of holds."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import Result

from penstock import Log
from penstock.contracts import ReadOffset
from penstock.errors import FencedError
from tests.cli.savepoint.shop import Shop

Run = Callable[..., Result]


@pytest.fixture
def held_topic(run: Run, log: Log) -> str:
    assert run("topic", "create", "t", "--schema", "id long, text string", "--key", "id").exit_code == 0
    for _ in range(5):
        log.topic("t").append([{"id": number, "text": "x"} for number in range(4)])
    log.hold("app", {"t": {0: (2, 9)}})
    return "t"


@pytest.fixture
def reader(run: Run, log: Log) -> str:
    """A topic with three delete markers, of which `app:shop` has read the first."""
    assert run("topic", "create", "t", "--schema", "id long, text string", "--key", "id").exit_code == 0
    topic = log.topic("t")
    topic.append([{"id": number, "text": "x"} for number in range(4)])
    for number in range(3):
        topic.delete({"id": number})
    log.hold("app:shop", {}, read=[ReadOffset("t", topic.id, 0, 5)])
    return "t"


def holds(run: Run, *options: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(run("holds", "list", "--json", *options).stdout)["holds"]
    return found


@pytest.mark.parametrize("command", [("holds",), ("holds", "list")])
def test_it_lists_who_keeps_what(run: Run, held_topic: str, command: tuple[str, ...]) -> None:
    shown = run(*command).stdout.splitlines()
    assert shown[0].split() == ["holder", "keeps", "topic", "partition", "from", "until", "rows", "size", "since"]
    assert shown[-1].split()[:7] == ["app", "rows", "t", "0", "2", "9", "12"]
    (hold,) = json.loads(run(*command, "--json").stdout)["holds"]
    assert (hold["kind"], hold["holder"], hold["topic"], hold["start"], hold["end"]) == ("hold", "app", "t", 2, 9)
    assert hold["bytes"] > 300


def test_it_lists_the_delete_markers_that_apps_and_groups_have_not_read(run: Run, log: Log, reader: str) -> None:
    log.group("report").commit("t", {0: 6})
    found = [(hold["kind"], hold["holder"], hold["keeps"], hold["start"], hold["rows"]) for hold in holds(run)]
    assert found == [("app", "app:shop", "delete markers", 5, 2), ("group", "group:report", "delete markers", 6, 1)]


def test_without_holds_it_says_so(run: Run, log: Log) -> None:
    assert run("holds").stdout.startswith("nothing is held in ")


def test_a_topic_that_was_dropped_is_distinguished_from_its_successor(run: Run, log: Log, held_topic: str) -> None:
    log.drop_topic(held_topic)
    log.create_topic(held_topic, "id long")
    assert "t (dropped)" in run("holds").stdout
    assert holds(run)[0]["rows"] == 0


def test_it_warns_of_whoever_keeps_much_and_says_what_to_do(run: Run, log: Log, reader: str) -> None:
    log.group("report").commit("t", {0: 6})
    assert run("holds").stderr == ""
    large, group = run("holds", "--warn-above", "100 B").stderr.splitlines()
    assert large.startswith("warning: app:shop has kept 2 rows, ")
    assert large.endswith("; start the app, or forget it: penstock holds release app:shop")
    assert group.endswith("penstock groups drop report")
    assert len(json.loads(run("holds", "--json", "--warn-above", "100 B").stdout)["warnings"]) == 2


def test_it_warns_of_rows_that_retention_removed_before_an_app_had_read_them(run: Run, log: Log) -> None:
    options = ("--segment-bytes", "1 kB", "--retain-bytes", "2 kB")
    assert run("topic", "create", "t", "--schema", "text string", *options).exit_code == 0
    log.hold("app:shop", {}, read=[ReadOffset("t", log.topic("t").id, 0, 0)])
    for _ in range(20):
        log.topic("t").append({"text": "x" * 500})
    gone = log.topic("t").files.start(0)
    assert gone > 5
    warning = f"warning: app:shop has not read {gone} offsets of topic 't' partition 0 that retention has removed\n"
    assert run("holds").stderr == warning


# -- releasing --------------------------------------------------------------------------------------------------------


def test_a_hold_is_released_once_confirmed(run: Run, log: Log, held_topic: str) -> None:
    assert run("holds", "release", "app", stdin="n\n").exit_code == 1
    assert len(log.holds()) == 1
    assert run("holds", "release", "app", "--yes").stdout == "released 'app'\n"
    assert log.holds() == []
    assert run("holds", "release", "app").stdout == "nothing is held by 'app'\n"


def test_a_damaged_hold_is_named_and_can_be_released(run: Run, log: Log, held_topic: str) -> None:
    (log.path / "holds" / "app.json").write_bytes(b"?")
    shown = run("holds")
    assert shown.exit_code == 1
    assert "holds/app.json: the hold is damaged" in shown.stderr
    assert "penstock holds release app" in shown.stderr
    assert run("holds", "release", "app", "--yes").exit_code == 0
    assert run("compact", "t").exit_code == 0


def test_forgetting_an_app_asks_first_and_stops_an_instance_that_runs(run: Run, log: Log, reader: str) -> None:
    shop = Shop(log)
    shop.run(2)
    asked = run("holds", "release", "app:shop", stdin="n\n")
    assert (
        "Forget app 'shop'? It is stopped if it is running, and can only be started again with --rebuild."
        in asked.stderr
    )
    shop.run()
    assert run("holds", "release", "app:shop", "--yes").stdout == "released 'app:shop'\n"
    assert log.holds() == []
    assert shop.ledger.is_forgotten()
    with pytest.raises(FencedError):
        shop.run()


def test_an_app_whose_folder_is_gone_is_forgotten_too(run: Run, log: Log, reader: str) -> None:
    assert json.loads(run("holds", "release", "app:shop", "--yes", "--json").stdout)["released"]
    assert log.holds() == []


def test_what_a_savepoint_needs_goes_with_the_savepoint_only(run: Run, log: Log) -> None:
    Shop(log).run(2)
    assert run("savepoint", "create", "friday").exit_code == 0
    refused = run("holds", "release", "savepoint:shop:friday", "--yes")
    assert refused.exit_code == 1
    assert "hint: drop the savepoint: penstock savepoint drop friday --app shop" in refused.stderr
    assert [hold.name for hold in log.holds()] == ["savepoint:shop:friday"]
    assert run("savepoint", "drop", "friday", "--yes").exit_code == 0
    assert log.holds() == []
    log.hold("savepoint:shop:lost", {})
    assert run("holds", "release", "savepoint:shop:lost", "--yes").exit_code == 0


def test_a_group_is_dropped_and_not_released(run: Run, log: Log) -> None:
    refused = run("holds", "release", "group:report", "--yes")
    assert refused.exit_code == 1
    assert "penstock groups drop report" in refused.stderr


# -- what other commands say ------------------------------------------------------------------------------------------


def test_compaction_says_what_it_left_because_of_whom(run: Run, held_topic: str) -> None:
    shown = run("compact", held_topic)
    assert "12 rows left, held by app; see `penstock holds`" in shown.stdout
    (part,) = json.loads(run("compact", held_topic, "--json").stdout)["partitions"]
    assert (part["held_rows"], part["held_by"]) == (12, ["app"])


def test_compaction_says_which_delete_markers_it_left_because_of_whom(run: Run, log: Log, reader: str) -> None:
    log.group("report").commit("t", {0: 6})
    shown = run("compact", reader).stdout
    assert "2 delete markers left, not read yet by app:shop, group:report; see `penstock holds`" in shown
    (part,) = json.loads(run("compact", reader, "--json").stdout)["partitions"]
    assert (part["unread_markers"], part["unread_by"]) == (2, ["app:shop", "group:report"])


def test_erasure_says_who_holds_what_it_must_remove(run: Run, held_topic: str) -> None:
    shown = run("erase", held_topic, "--key", "3", "--yes", "--wait", "0 seconds")
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
