"""`penstock compact`."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from penstock import Log


def test_only_the_last_row_of_each_key_stays(run: Callable[..., Result], log: Log) -> None:
    topic = log.create_topic("t", "id int, n int", key="id")
    topic.append([{"id": number % 2, "n": number} for number in range(10)])
    result = run("compact", "t")
    assert result.exit_code == 0
    assert "compacted 't': 8 rows removed, " in result.stdout
    assert topic.read().to_arrow()["n"].to_pylist() == [8, 9]


def test_the_result_as_json(run: Callable[..., Result], log: Log) -> None:
    log.create_topic("t", "id int", key="id", partitions=2).append([{"id": 1}, {"id": 1}])
    document = json.loads(run("compact", "t", "--json").stdout)
    assert (document["topic"], document["rows_removed"], len(document["partitions"])) == ("t", 1, 2)


def test_a_topic_without_a_key_cannot_be_compacted(run: Callable[..., Result], log: Log) -> None:
    log.create_topic("t", "id int")
    result = run("compact", "t")
    assert result.exit_code == 1
    assert "it cannot be compacted; it has no key" in result.stderr
