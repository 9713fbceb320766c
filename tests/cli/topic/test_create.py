"""`penstock topic create`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from penstock import Log, TopicSettings


def test_the_first_topic_begins_the_log(run: Callable[..., Result], folder: Path) -> None:
    result = run("topic", "create", "t", "--schema", "a int")
    assert (result.exit_code, result.stdout) == (0, f"created topic 't' with 1 partition in {folder}\n")
    with Log(folder, create=False) as log:
        assert log.topic("t").settings == TopicSettings()


def test_every_setting_can_be_given(run: Callable[..., Result], log: Log) -> None:
    result = run(
        *("topic", "create", "t", "--schema", "a int, b string, at timestamp", "--key", "a, b", "--time", "at"),
        *("--partitions", "4", "--durability", "os", "--retain", "7 days", "--retain-bytes", "1 GB"),
        *("--segment-bytes", "16 MiB", "--max-batch-bytes", "1 MB"),
    )
    assert result.exit_code == 0, result.stderr
    assert log.topic("t").settings == TopicSettings(
        partitions=4,
        key=("a", "b"),
        time="at",
        durability="os",
        retention_seconds=604_800,
        retention_bytes=10**9,
        segment_bytes=2**24,
        max_batch_bytes=10**6,
    )


def test_a_versioned_topic(run: Callable[..., Result], log: Log) -> None:
    assert run("topic", "create", "t", "--schema", "a int", "--key", "a", "--versioned").exit_code == 0
    assert log.topic("t").settings.versioned


def test_the_new_topic_as_json(run: Callable[..., Result]) -> None:
    document = json.loads(run("topic", "create", "t", "--schema", "a long", "--json").stdout)
    assert (document["topic"], document["schema"]) == ("t", "a bigint")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("t", "--schema", "a integr"), "unknown type 'integr'"),
        (("t", "--schema", "a int", "--key", "b"), "there is no column 'b'"),
        (("a/b", "--schema", "a int"), "this is not a name for a topic"),
        (("t", "--schema", "a int", "--segment-bytes", "0"), "segment_bytes"),
        (("t", "--schema", "a int", "--max-batch-bytes", "0"), "batches can have"),
    ],
)
def test_a_wrong_declaration_ends_with_status_1_and_begins_no_log(
    run: Callable[..., Result], folder: Path, args: tuple[str, ...], message: str
) -> None:
    result = run("topic", "create", *args)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not folder.exists()


@pytest.mark.parametrize("args", [("--retain", "7 dayz"), ("--retain-bytes", "much"), ("--durability", "maybe"), ()])
def test_a_wrong_option_ends_with_status_2(run: Callable[..., Result], args: tuple[str, ...]) -> None:
    assert run("topic", "create", "t", *(("--schema", "a int") if args else ()), *args).exit_code == 2


def test_a_name_that_is_taken_is_refused(run: Callable[..., Result], orders: str) -> None:
    result = run("topic", "create", orders, "--schema", "a int")
    assert result.exit_code == 1
    assert "it exists already" in result.stderr
