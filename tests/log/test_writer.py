from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.log import Log, Topic, TopicSettings


@pytest.fixture
def lines(log: Log) -> Topic:
    return log.create_topic("lines", "writer long, n long")


def test_many_threads_append_each_in_its_own_order(lines: Topic) -> None:
    def append(writer: int) -> None:
        for n in range(50):
            lines.append({"writer": writer, "n": n})

    threads = [threading.Thread(target=append, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = lines.read()
    assert len(rows) == 400
    for writer in range(8):
        assert [row["n"] for row in rows if row["writer"] == writer] == list(range(50))


def test_waiting_appends_share_a_sync(lines: Topic) -> None:
    """While one append is held up in its sync, the others queue, and one more sync takes them all."""
    writer = lines.files.writer(0)
    lines.append({"writer": 0, "n": 0})
    before = writer.syncs
    with writer.exclusive():
        threads = [threading.Thread(target=lines.append, args=({"writer": n, "n": n},)) for n in range(10)]
        for thread in threads:
            thread.start()
        while len(writer._commits._waiting) < 9:
            pass
    for thread in threads:
        thread.join()
    assert lines.ends() == {0: 11}
    assert writer.syncs - before <= 2


def test_two_log_objects_append_beside_each_other(lines: Topic, log: Log) -> None:
    with Log(log.path) as other:
        theirs = other.topic("lines")
        offsets = [
            appended.base_offset
            for n in range(20)
            for topic in (lines, theirs)
            for appended in topic.append({"writer": 0, "n": n})
        ]
    assert offsets == list(range(40))


def test_append_times_never_go_back(lines: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = lines.files.writer(0)
    for now in (1_000.0, 500.0, 2_000.0):
        monkeypatch.setattr(writer, "_clock", lambda now=now: now)
        lines.append({"writer": 0, "n": 0})
    assert [batch.append_time for batch in lines.batches()] == [1_000_000_000, 1_000_000_000, 2_000_000_000]


def test_without_fsync_rows_are_visible_at_once(log: Log) -> None:
    topic = log.create_topic("fast", "n long", settings=TopicSettings(durability="os"))
    topic.append([{"n": 1}])
    assert topic.files.writer(0).syncs == 0
    assert len(topic.read()) == 1


def test_a_full_segment_is_followed_by_a_new_one(log: Log) -> None:
    topic = log.create_topic("small", "n long", settings=TopicSettings(segment_bytes=2_000))
    for n in range(30):
        topic.append({"n": n})
    (statistics,) = topic.statistics()
    assert statistics.segments > 4
    assert topic.read().to_arrow().column("n").to_pylist() == list(range(30))


def test_what_an_unfinished_step_left_behind_is_removed(log: Log, tmp_path: Path) -> None:
    topic = log.create_topic("lines2", "n long")
    directory = log.path / "topics/lines2/00000"
    for name in ("00000000000000000099-000009.segment", "manifest.json.tmp", "00000000000000000099-000009.index"):
        (directory / name).write_bytes(b"left behind")
    topic.append({"n": 1})
    assert sorted(path.name for path in directory.iterdir()) == [
        "00000000000000000000-000001.index",
        "00000000000000000000-000001.segment",
        "lock",
        "manifest.json",
        "tail",
        "tail.copy",
    ]
