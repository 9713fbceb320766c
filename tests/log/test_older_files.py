"""Files of a partition that somebody put back from an older copy, or took from elsewhere: rows are never lost by it.

The tail is found again by its copy and by the frames; everything else is refused by name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import DamagedError
from penstock.log import Log, Topic, TopicSettings

SMALL = 2_000


def create(log: Log, name: str = "lines", *, partitions: int = 1, segment_bytes: int = 100_000) -> Topic:
    return log.create_topic(name, "n long", settings=TopicSettings(partitions, segment_bytes=segment_bytes))


def numbers(topic: Topic) -> list[int]:
    return topic.read().to_arrow().column("n").to_pylist()


def fill(topic: Topic, first: int, last: int) -> None:
    for number in range(first, last):
        topic.append({"n": number})


def append_once(log: Log) -> None:
    log.topic("lines").append([{"n": number} for number in range(10, 60)])


def append_often(log: Log) -> None:
    fill(log.topic("lines"), 10, 60)


def append_in_transactions(log: Log) -> None:
    for number in range(10, 60, 5):
        with log.transaction() as transaction:
            transaction.append(log.topic("lines"), [{"n": one} for one in range(number, number + 5)])


def append_and_forget_the_transactions(log: Log) -> None:
    append_in_transactions(log)
    log._committed.forget()


def append_and_roll(log: Log) -> None:
    append_often(log)
    with log.topic("lines").files.writer(0).exclusive():
        log.topic("lines").files.writer(0).roll()


def append_roll_and_append(log: Log) -> None:
    fill(log.topic("lines"), 10, 40)
    with log.topic("lines").files.writer(0).exclusive():
        log.topic("lines").files.writer(0).roll()
    fill(log.topic("lines"), 40, 60)


GROW = [
    append_once,
    append_often,
    append_in_transactions,
    append_and_forget_the_transactions,
    append_and_roll,
    append_roll_and_append,
]


@pytest.mark.parametrize("write_first", [False, True])
@pytest.mark.parametrize("grow", GROW)
def test_an_older_tail_hides_no_row_and_cuts_none(
    tmp_path: Path, grow: Callable[[Log], None], write_first: bool
) -> None:
    directory = tmp_path / "log/topics/lines/00000"
    with Log(tmp_path / "log") as log:
        fill(create(log), 0, 10)
        shutil.copy(directory / "tail", tmp_path / "older")
        grow(log)
    shutil.copy(tmp_path / "older", directory / "tail")
    expected = list(range(60))
    for number in (60, 61):
        with Log(tmp_path / "log") as log:
            topic = log.topic("lines")
            if not write_first:
                assert numbers(topic) == expected
            (stored,) = topic.append({"n": number})
            assert stored.base_offset == number
            expected.append(number)
            assert numbers(topic) == expected
            assert topic.verify()[0].problems == []


@pytest.mark.parametrize("grow", [append_often, append_and_roll, append_roll_and_append])
def test_an_older_tail_without_a_copy_cuts_no_row_that_later_ones_prove(
    tmp_path: Path, grow: Callable[[Log], None]
) -> None:
    """As in logs of earlier versions, which have no copy."""
    directory = tmp_path / "log/topics/lines/00000"
    with Log(tmp_path / "log") as log:
        fill(create(log), 0, 10)
        shutil.copy(directory / "tail", tmp_path / "older")
        grow(log)
    shutil.copy(tmp_path / "older", directory / "tail")
    (directory / "tail.copy").unlink()
    with Log(tmp_path / "log") as log:
        (stored,) = log.topic("lines").append({"n": 60})
        assert stored.base_offset == 60
        assert numbers(log.topic("lines")) == list(range(61))


def test_the_tail_of_another_partition_is_not_believed(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        topic, other = create(log), create(log, "other")
        fill(topic, 0, 60)
        fill(other, 0, 10)
    shutil.copy(tmp_path / "log/topics/other/00000/tail", tmp_path / "log/topics/lines/00000/tail")
    with Log(tmp_path / "log") as log:
        assert numbers(log.topic("lines")) == list(range(60))
        log.topic("lines").append({"n": 60})
        assert numbers(log.topic("lines")) == list(range(61))


@pytest.mark.parametrize("name", ["tail", "tail.copy"])
@pytest.mark.parametrize("content", [b"", b"x", bytes(128), bytes(1000)])
def test_a_tail_or_copy_that_is_not_whole_hides_no_row(tmp_path: Path, name: str, content: bytes) -> None:
    with Log(tmp_path / "log") as log:
        create(log)
        append_in_transactions(log)
        log._committed.forget()
        fill(log.topic("lines"), 60, 62)
    (tmp_path / "log/topics/lines/00000" / name).write_bytes(content)
    for _ in range(2):
        with Log(tmp_path / "log") as log:
            assert numbers(log.topic("lines")) == list(range(10, 62))


def test_an_older_manifest_is_refused_and_nothing_is_cut(tmp_path: Path) -> None:
    directory = tmp_path / "log/topics/lines/00000"
    with Log(tmp_path / "log") as log:
        topic = create(log, segment_bytes=SMALL)
        shutil.copy(directory / "manifest.json", tmp_path / "older")
        fill(topic, 0, 60)
        assert topic.statistics()[0].segments > 2
    current = (directory / "manifest.json").read_bytes()
    shutil.copy(tmp_path / "older", directory / "manifest.json")
    with Log(tmp_path / "log") as log, pytest.raises(DamagedError, match="its manifest is an older copy"):
        log.topic("lines").append({"n": 1})
    (directory / "manifest.json").write_bytes(current)
    with Log(tmp_path / "log") as log:
        assert numbers(log.topic("lines")) == list(range(60))


# -- swapped ----------------------------------------------------------------------------------------------------------


def swap(one: Path, other: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    with Log(tmp_path / "log") as log:
        for name in ("lines", "other"):
            fill(create(log, name, partitions=2), 0, 10)
    return tmp_path / "log" / "topics"


def refused(topics: Path, name: str) -> None:
    for write in (False, True):
        with Log(topics.parent) as log, pytest.raises(DamagedError, match=name):
            log.topic("lines").append({"n": 1}, partition=0) if write else numbers(log.topic("lines"))


@pytest.mark.parametrize("other", ["lines/00001", "other/00000"])
def test_the_manifest_of_another_partition_is_refused(topics: Path, other: str) -> None:
    swap(topics / "lines/00000/manifest.json", topics / other / "manifest.json")
    refused(topics, r"lines/00000/manifest\.json: the description of another partition")


def test_the_description_of_another_topic_is_refused(topics: Path) -> None:
    swap(topics / "lines/topic.json", topics / "other/topic.json")
    refused(topics, r"lines/topic\.json: this is the description of topic 'other'")


def test_something_else_in_the_place_of_a_manifest_is_refused(topics: Path) -> None:
    swap(topics / "lines/00000/manifest.json", topics / "other/topic.json")
    refused(topics, r"lines/00000/manifest\.json: this is not the description of a partition")


def test_something_else_in_the_place_of_a_topics_description_is_refused(topics: Path) -> None:
    swap(topics / "lines/topic.json", topics / "other/00000/manifest.json")
    refused(topics, r"lines/topic\.json: this is not the description of a topic")


def test_something_else_in_the_place_of_a_logs_description_is_refused(topics: Path) -> None:
    shutil.copy(topics / "lines/topic.json", topics.parent / "penstock.json")
    with pytest.raises(DamagedError, match=r"penstock\.json: this is not the description of a log"):
        Log(topics.parent)


def test_every_flipped_bit_of_a_logs_description_is_refused_or_harmless(topics: Path) -> None:
    path = topics.parent / "penstock.json"
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            with Log(topics.parent) as log:
                assert numbers(log.topic("lines"))[:1] == [0]
                assert log.producers() == {}
        except DamagedError as error:
            assert "penstock.json" in str(error)  # noqa: PT017
