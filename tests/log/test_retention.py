from __future__ import annotations

import time

import pytest

from penstock.errors import RangeError
from penstock.log import Log, TopicSettings
from penstock.log.manifest import Segment
from penstock.log.retention import Retention, count_expired

SECOND = 1_000_000


def segments(*appended: int, size: int = 100) -> list[Segment]:
    closed = [
        Segment(str(number), number * 10, end_offset=number * 10 + 10, bytes=size, append_time=at * SECOND)
        for number, at in enumerate(appended)
    ]
    return [*closed, Segment("active", len(closed) * 10)]


def test_without_limits_everything_stays() -> None:
    assert count_expired(segments(1, 2, 3), Retention(), now=10**12) == 0


def test_segments_go_when_their_last_append_is_old_enough() -> None:
    found = [count_expired(segments(10, 20, 30), Retention(seconds=15), now=now * SECOND) for now in (20, 30, 40, 100)]
    assert found == [0, 1, 2, 3]


def test_segments_go_from_the_front_until_the_rest_is_small_enough() -> None:
    found = [count_expired(segments(1, 2, 3), Retention(bytes=limit), now=0) for limit in (300, 299, 100, 0)]
    assert found == [0, 1, 2, 3]


def test_a_young_segment_keeps_older_ones_behind_it_only_by_order() -> None:
    assert count_expired(segments(50, 10, 10), Retention(seconds=15), now=40 * SECOND) == 0


def test_a_topic_lets_old_segments_go_when_it_rolls(log: Log) -> None:
    topic = log.create_topic("lines", "text string", settings=TopicSettings(segment_bytes=3_000, retention_bytes=6_000))
    for _ in range(100):
        topic.append({"text": "x" * 300})
    (statistics,) = topic.statistics()
    assert statistics.start_offset > 50
    assert statistics.bytes < 12_000
    assert len(topic.read()) == 100 - statistics.start_offset
    with pytest.raises(RangeError, match="offset 0 does not exist"):
        topic.read(0)


def test_old_segments_can_be_let_go_without_an_append(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TopicSettings(segment_bytes=3_000, retention_seconds=3_600)
    topic = log.create_topic("lines", "text string", settings=settings)
    for _ in range(5):
        topic.append({"text": "x" * 900})
    assert topic.expire().segments == 0
    monkeypatch.setattr(topic.files.writer(0), "_clock", lambda: time.time() + 7_200)
    assert topic.expire().segments == 1
    assert len(topic.read()) == 5 - topic.files.start(0)
    assert topic.append({"text": "y"})[0].base_offset == 5


def test_a_reader_whose_rows_are_removed_is_told(log: Log) -> None:
    topic = log.create_topic("lines", "text string", settings=TopicSettings(segment_bytes=1_000, retention_bytes=1_000))
    topic.append({"text": "x" * 900})
    reader = topic.reader()
    for _ in range(10):
        topic.append({"text": "x" * 900})
    with pytest.raises(RangeError, match="offset 0 is gone; what is kept begins at offset"):
        reader.poll()
    reader.close()


def test_a_changed_retention_reaches_writers_of_other_log_objects(log: Log) -> None:
    topic = log.create_topic("lines", "text string", settings=TopicSettings(segment_bytes=3_000))
    with Log(log.path) as other:
        theirs = other.topic("lines")
        theirs.append({"text": "x" * 900})
        topic.retain(Retention(bytes=3_000))
        for _ in range(20):
            theirs.append({"text": "x" * 900})
    assert topic.starts()[0] > 10
    assert topic.settings.retention_bytes == 3_000
