"""The writer of an app: its token, the epoch that topics have, and what earlier versions have left."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.contracts import Log, TopicRows
from penstock.engine.ledger.ledger import instance_name
from penstock.engine.publish.app_writer import AppWriter, Written, open_app_writer, written_by
from penstock.errors import DamagedError, FencedError
from penstock.log import Log as EmbeddedLog
from penstock.testing import MemoryLog

ROWS = [TopicRows("lines", [{"id": 1}])]


@pytest.fixture(params=["embedded", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    opened: Log = EmbeddedLog(tmp_path / "log") if request.param == "embedded" else MemoryLog()
    opened.create_topic("lines", "id long")
    return opened


def begun(log: Log, created: int = 1) -> AppWriter:
    writer = open_app_writer(log, "shop")
    writer.begin(written_by(log, "shop", created))
    return writer


def rows(log: Log) -> int:
    return log.topic("lines").ends()[0]


def test_the_next_instance_continues_with_what_topics_have(log: Log) -> None:
    first = begun(log)
    assert first.take_over("shop", first.token) == 0
    first.write_epoch(ROWS, 7)
    first.write_aside(ROWS)
    first.write_aside(ROWS)
    second = begun(log)
    assert second.take_over("shop", second.token) == 7
    assert written_by(log, "shop", created=1) == Written(1, epoch=7, aside=2)
    assert rows(log) == 3


def test_an_instance_that_was_replaced_is_refused_whatever_it_does(log: Log) -> None:
    first = begun(log)
    first.write_epoch(ROWS, 1)
    second = begun(log)
    for attempt in (
        lambda: first.write_epoch(ROWS, 1),
        lambda: first.write_epoch(ROWS, 2),
        lambda: first.write_aside(ROWS),
        first.refuse_if_replaced,
        lambda: first.take_over("shop", first.token),
        lambda: second.take_over("shop", first.token),
    ):
        with pytest.raises(FencedError):
            attempt()
    assert rows(log) == 1
    second.write_epoch(ROWS, 2)
    assert rows(log) == 2


def test_an_app_that_is_begun_anew_counts_from_the_beginning(log: Log) -> None:
    begun(log).write_epoch(ROWS, 7)
    again = begun(log, created=2)
    assert again.epoch == 0
    again.write_epoch(ROWS, 1)
    assert written_by(log, "shop", created=2) == Written(2, epoch=1)


def test_epochs_that_an_earlier_version_has_written_count(tmp_path: Path) -> None:
    """It had a producer for its sinks, whose transactions were numbered by epochs."""
    with EmbeddedLog(tmp_path / "log") as log:
        topic = log.create_topic("lines", "id long")
        before = log.producer(f"{instance_name('shop')}.sinks.1")
        with log.transaction(before, sequence=7) as transaction:
            transaction.append(topic, [{"id": 1}])
        assert begun(log).epoch == 7
        assert begun(log, created=2).epoch == 0
        writer = begun(log)
        writer.write_epoch(ROWS, 8)
        assert written_by(log, "shop", created=1) == Written(1, epoch=8)


def test_a_position_that_somebody_else_has_stored_is_told(log: Log) -> None:
    log.writer(instance_name("shop")).write([], {"inputs": {}})
    with pytest.raises(DamagedError, match=r"the position of its writer 'penstock\.app\.shop' is not one of an app"):
        written_by(log, "shop", created=1)
