"""`penstock promise`."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from penstock import Log

FEBRUARY = 1_769_904_000_000_000  # 2026-02-01, in microseconds


def test_it_is_promised_for_everybody_so_far_and_replaces_nobody(run: Callable[..., Result], log: Log) -> None:
    topic = log.create_topic("t", "id bigint, at timestamp", time="at")
    meter = log.producer("meter")
    meter.append(topic, {"id": 1, "at": "2026-01-31"})
    result = run("promise", "t", "2026-02-01")
    assert (
        result.stdout == "promised: nothing earlier than 2026-02-01T00:00:00Z will follow in 't' from anyone so far\n"
    )
    assert log.promised_times("t", topic.ends()) == {0: FEBRUARY, meter.id: FEBRUARY}
    assert log.promised_times("t", {0: 0}) == {}
    meter.append(topic, {"id": 2, "at": "2026-02-02"})


def test_it_can_be_promised_for_one_producer(run: Callable[..., Result], log: Log) -> None:
    log.create_topic("t", "id bigint")
    meter = log.producer("meter")
    result = run("promise", "t", "2026-02-01T00:00:00+00:00", "--producer", "meter", "--json")
    assert json.loads(result.stdout) == {"topic": "t", "time": "2026-02-01T00:00:00Z", "producer": "meter"}
    assert log.promised_times("t", {0: 0}) == {meter.id: FEBRUARY}


def test_a_wrong_time_or_producer_is_refused_with_a_hint(run: Callable[..., Result], log: Log) -> None:
    log.create_topic("t", "id bigint")
    log.producer("meter")
    result = run("promise", "t", "tomorrow")
    assert (result.exit_code, result.stderr.splitlines()) == (
        1,
        [
            "error: topic 't': 'tomorrow' is not a time to promise",
            "hint: give a time such as 2026-01-31T12:00:00Z",
        ],
    )
    assert "hint: did you mean 'meter'?" in run("promise", "t", "2026-02-01", "--producer", "metre").stderr
    assert log.promises("t") == []
