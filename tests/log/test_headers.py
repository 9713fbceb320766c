from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.errors import DamagedError, RangeError
from penstock.log import Log, Topic, TopicSettings
from penstock.log import headers as headers_module

SMALL = TopicSettings(durability="os", segment_bytes=4_000)


@pytest.fixture
def lines(log: Log) -> Topic:
    topic = log.create_topic("lines", "id long, text string", key="id", settings=SMALL)
    for number in range(100):
        topic.append([{"id": number, "text": "x" * number}] * (number % 3 + 1))
    return topic


def walked(topic: Topic, start: int, until: int) -> list[tuple[int, int, int]]:
    found = np.concatenate(list(topic.files.headers(0, start, until)) or [np.empty(0, headers_module.HEADER)])
    return [(int(one["base_offset"]), int(one["rows"]), int(one["append_time"])) for one in found]


def read(topic: Topic, start: int, until: int) -> list[tuple[int, int, int]]:
    batches = [one for one in topic.batches() if one.next_offset > start and one.offsets[0] < until]
    return [(int(one.offsets[0]), len(one), one.append_time) for one in batches]


@pytest.mark.parametrize(("start", "until"), [(0, 199), (57, 199), (57, 120), (0, 1), (199, 199), (13, 10**9)])
def test_headers_are_those_of_the_frames_in_the_range_over_all_segments(lines: Topic, start: int, until: int) -> None:
    assert lines.statistics()[0].segments > 3
    assert lines.files.end(0) == 199
    assert walked(lines, start, until) == read(lines, start, until)


def test_many_headers_come_in_several_blocks(lines: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers_module, "MOST_HEADERS", 7)
    assert {len(block) for block in lines.files.headers(0, 0, 199)} <= set(range(1, 8))
    assert walked(lines, 0, 199) == read(lines, 0, 199)


def test_headers_tell_producers_and_flags(log: Log, lines: Topic) -> None:
    producer = log.producer("sender")
    producer.append(lines, {"id": 1, "text": ""})
    lines.delete({"id": 1})
    (block,) = lines.files.headers(0, 199, 201)
    assert block["producer"].tolist() == [producer.id, 0]
    assert block["flags"].tolist() == [0, 2]


def test_a_range_whose_rows_were_removed_has_no_headers(log: Log) -> None:
    topic = log.create_topic("states", "id long", key="id", settings=SMALL)
    for _ in range(50):
        topic.append({"id": 1})
    topic.compact()
    topic.append({"id": 1})
    assert walked(topic, 0, 49) == []
    assert [base for base, _, _ in walked(topic, 0, 51)] == [49, 50]


def test_headers_before_what_is_kept_are_refused(log: Log) -> None:
    settings = TopicSettings(durability="os", segment_bytes=1_000, retention_bytes=2_000)
    topic = log.create_topic("short", "id long", settings=settings)
    for number in range(50):
        topic.append({"id": number})
    with pytest.raises(RangeError, match="offset 0 is gone"):
        walked(topic, 0, 50)
    assert walked(topic, topic.files.start(0), 50)


def test_a_walk_goes_on_when_its_segments_are_rewritten_meanwhile(
    lines: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers_module, "MOST_HEADERS", 10)
    walk = lines.files.headers(0, 0, 199)
    first = next(walk)
    lines.compact()
    rest = np.concatenate(list(walk))
    assert int(first["last_offset"][-1]) < int(rest["last_offset"][0])
    assert int(rest["last_offset"][-1]) == 198


def test_a_damaged_header_is_named_and_a_damaged_body_is_left_to_whoever_reads_it(log: Log) -> None:
    topic = log.create_topic("lines", "text string", settings=TopicSettings(durability="os"))
    for _ in range(3):
        topic.append({"text": "x" * 100})
    path = next(Path(topic.files.partition(0).directory).glob("*.segment"))
    stored = path.read_bytes()
    second = [at for at in range(0, len(stored), 64) if stored[at : at + 4] == b"PSF1"][2]
    path.write_bytes(flipped(stored, second + 200))
    assert [base for base, _, _ in walked(topic, 0, 3)] == [0, 1, 2]
    path.write_bytes(flipped(stored, second + 90))
    with pytest.raises(DamagedError, match="the header's checksum does not match; offset 1 is at risk"):
        walked(topic, 0, 3)
    assert [base for base, _, _ in walked(topic, 2, 3)] == [2]


def flipped(stored: bytes, at: int) -> bytes:
    return stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :]
