"""`penstock expire`."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from penstock import Log


def test_what_retention_does_not_keep_goes_now(run: Callable[..., Result], log: Log) -> None:
    options = ("--segment-bytes", "1 kB", "--retain-bytes", "4 kB")
    assert run("topic", "create", "t", "--schema", "text string", *options).exit_code == 0
    topic = log.topic("t")
    for _ in range(20):
        topic.append({"text": "x" * 500})
    run("expire", "t")
    (kept,) = topic.statistics()
    assert 0 < kept.rows < 20
    document = json.loads(run("expire", "t", "--json").stdout)
    assert document["partitions"] == [{"partition": 0, "start_offset": kept.start_offset}]
    assert document["segments_removed"] == 0


def test_a_topic_without_retention_keeps_everything_and_says_so(run: Callable[..., Result], orders: str) -> None:
    assert run("expire", orders).stdout == "topic 'orders' has no retention: everything is kept\n"
