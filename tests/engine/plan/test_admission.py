"""What one epoch reads: whole transactions up to one moment, and of those as much as the limits allow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Log, TopicSettings
from penstock.engine.plan.admission import Backlog, admit, admit_all, backlogs
from penstock.log import Topic

OS = TopicSettings(durability="os")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as opened:
        yield opened


def filled(log: Log, name: str, *rows: int, frame: int = 1_000) -> Topic:
    """A topic with so many rows in each of its partitions."""
    topic = log.create_topic(name, "a bigint", partitions=len(rows), settings=OS)
    for partition, count in enumerate(rows):
        for start in range(0, count, frame):
            values = pa.array(range(start, min(start + frame, count)), pa.int64())
            topic.append(pa.record_batch({"a": values}), partition=partition)
    return topic


def whole(topic: Topic) -> Backlog:
    return Backlog(topic, topic.starts(), topic.ends())


# -- limits -----------------------------------------------------------------------------------------------------------


def test_without_limits_everything_is_admitted(log: Log) -> None:
    topic = filled(log, "numbers", 10, 0, 3)
    assert admit(topic, topic.starts(), topic.ends()) == {0: 10, 1: 0, 2: 3}


def test_admission_keeps_to_rows_and_bytes_and_always_goes_on(log: Log) -> None:
    settings = TopicSettings(durability="os", segment_bytes=1024 * 1024)
    topic = log.create_topic("numbers", "a bigint", partitions=2, settings=settings)
    for _ in range(30):
        topic.append(pa.record_batch({"a": pa.array(range(10_000))}), partition=0)
    topic.append([{"a": 1}], partition=1)
    starts, ends = topic.starts(), topic.ends()
    assert admit(topic, starts, ends, max_rows=1000) == {0: 999, 1: 1}
    assert admit(topic, ends, ends, max_rows=1000, max_bytes=1) == ends
    assert sum(admit(topic, starts, ends, max_bytes=1).values()) == 1
    assert sum(admit(topic, starts, ends, max_rows=0).values()) == 1
    # 80 kB a frame: half a megabyte is six of them.
    for max_rows in (None, 200_000):
        half = admit(topic, starts, ends, max_rows=max_rows, max_bytes=512 * 1024)
        assert half[1] == 1
        assert 60_000 < half[0] < 70_000


def test_a_large_source_with_many_partitions_does_not_starve_a_small_one(log: Log) -> None:
    table = filled(log, "table", *[5_000] * 8)
    stream = filled(log, "stream", 600)
    other = filled(log, "other", 10)
    sources = {"table": whole(table), "stream": whole(stream), "other": whole(other)}
    admitted = admit_all(sources, max_rows=1_010)
    assert sum(admitted["stream"].values()) == 500
    assert sum(admitted["other"].values()) == 10
    assert sum(admitted["table"].values()) == 500
    assert set(admitted["table"].values()) == {62, 63}
    by_bytes = admit_all(sources, max_bytes=3_000)
    assert all(sum(ends.values()) > 0 for ends in by_bytes.values())


def test_the_limit_is_that_of_all_sources_together_and_what_one_leaves_goes_to_the_others(log: Log) -> None:
    sources = {"one": whole(filled(log, "one", 100, 100)), "two": whole(filled(log, "two", 20))}
    admitted = admit_all(sources, max_rows=120)
    assert admitted == {"one": {0: 50, 1: 50}, "two": {0: 20}}
    assert admit_all(sources, max_rows=220) == {"one": {0: 100, 1: 100}, "two": {0: 20}}


def test_a_limit_below_one_row_for_each_still_gives_everybody_a_turn(log: Log) -> None:
    sources = {name: whole(filled(log, name, 2, 2)) for name in ("one", "two", "three")}
    for _ in range(12):
        admitted = admit_all(sources, max_rows=1)
        moved = sum(sum(admitted[name].values()) - sum(one.starts.values()) for name, one in sources.items())
        assert moved == 1
        sources = {name: Backlog(one.topic, admitted[name], one.ends) for name, one in sources.items()}
    assert all(one.starts == one.ends for one in sources.values())
    assert admit_all(sources, max_rows=1) == {name: one.ends for name, one in sources.items()}


def test_a_source_that_stands_behind_the_ends_stays_where_it_is(log: Log) -> None:
    topic = filled(log, "numbers", 10)
    assert admit(topic, {0: 8}, {0: 5}, max_rows=3, max_bytes=10) == {0: 8}
    assert admit_all({}, max_rows=1, max_bytes=1) == {}


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=3),
    st.integers(1, 40),
    st.integers(1, 5_000),
)
def test_epochs_within_limits_read_everything_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int]], max_rows: int, max_bytes: int
) -> None:
    with Log(tmp_path_factory.mktemp("log")) as log:
        sources = {str(n): whole(filled(log, str(n), *rows, frame=7)) for n, rows in enumerate(sizes)}
        behind = sum(map(sum, sizes))
        while behind:
            admitted = admit_all(sources, max_rows=max_rows, max_bytes=max_bytes)
            left = sum(sum(one.ends.values()) - sum(admitted[name].values()) for name, one in sources.items())
            assert 1 <= behind - left <= max_rows
            behind = left
            sources = {name: Backlog(one.topic, admitted[name], one.ends) for name, one in sources.items()}
        assert all(one.starts == one.ends for one in sources.values())


# -- limits where rows were removed -----------------------------------------------------------------------------------


@pytest.fixture
def compacted(log: Log) -> Topic:
    """Twenty rows are left of four thousand, the last ones of their keys, and one frame follows."""
    topic = log.create_topic("states", "id long, n long", key="id", settings=OS)
    for round_ in range(200):
        topic.append([{"id": number, "n": round_} for number in range(20)])
    topic.compact()
    topic.append([{"id": 1, "n": 0}])
    return topic


def rows_between(topic: Topic, start: int, end: int) -> int:
    return sum(len(batch) for batch in topic.batches({0: start}, until={0: end}))


def test_rows_that_were_removed_do_not_count(compacted: Topic) -> None:
    assert compacted.ends() == {0: 4_001}
    assert admit(compacted, {0: 0}, {0: 4_001}, max_rows=21) == {0: 4_001}
    assert admit(compacted, {0: 0}, {0: 3_000}, max_rows=1) == {0: 3_000}
    at = admit(compacted, {0: 0}, {0: 4_001}, max_rows=20)[0]
    assert rows_between(compacted, 0, at) == 20


def test_at_least_one_row_is_admitted_of_those_that_are_left(compacted: Topic) -> None:
    epochs, at = 0, 0
    while at < 4_001:
        admitted = admit(compacted, {0: at}, {0: 4_001}, max_rows=1, max_bytes=1)[0]
        assert rows_between(compacted, at, admitted) >= 1
        at, epochs = admitted, epochs + 1
    assert epochs <= 21


def test_a_backlog_reaches_to_the_end_of_each_topic(log: Log) -> None:
    topics = {name: filled(log, name, *rows) for name, rows in (("one", (3,)), ("two", (2, 5)))}
    found = backlogs(log, {name: (topic, topic.starts()) for name, topic in topics.items()})
    assert found == {name: Backlog(topic, topic.starts(), topic.ends()) for name, topic in topics.items()}
