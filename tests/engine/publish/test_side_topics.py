"""Rows that are kept beside the views: once, however often they are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.build.sources import DEAD_SCHEMA
from penstock.engine.publish.app_writer import open_app_writer, written_by
from penstock.engine.publish.side_topics import SideTopics, late_rows
from penstock.errors import DeclarationError, FencedError
from penstock.log import Log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as opened:
        yield opened


def dead(*places: tuple[str, int, int]) -> pa.RecordBatch:
    rows = [
        {"topic": topic, "partition": partition, "offset": offset, "error": "bad", "row": "{}"}
        for topic, partition, offset in places
    ]
    return pa.RecordBatch.from_pylist(rows, schema=DEAD_SCHEMA)


def side_topics(log: Log) -> SideTopics:
    """Those of a new instance of the app."""
    writer = open_app_writer(log, "shop")
    writer.begin(written_by(log, "shop", created=1))
    return SideTopics(log, writer)


def stored(log: Log) -> list[tuple[str, int, int]]:
    rows = log.topic("shop.dead").read()
    return [(row["topic"], row["partition"], row["offset"]) for row in rows]


def test_nothing_makes_no_topic(log: Log) -> None:
    side_topics(log).store({"shop.dead": dead()})
    assert log.topics() == []


def test_a_row_is_stored_once_also_by_the_next_instance(log: Log) -> None:
    first = side_topics(log)
    first.store({"shop.dead": dead(("events", 0, 3), ("events", 1, 1))})
    second = side_topics(log)
    second.store({"shop.dead": dead(("events", 0, 3), ("events", 0, 4), ("more", 0, 0))})
    assert sorted(stored(log)) == [("events", 0, 3), ("events", 0, 4), ("events", 1, 1), ("more", 0, 0)]
    with pytest.raises(FencedError):
        first.store({"shop.dead": dead(("events", 0, 9))})
    second.store({"shop.dead": dead(("events", 0, 2))})
    assert len(stored(log)) == 5


@pytest.mark.parametrize(
    ("schema", "key", "reason"),
    [
        ("text string", (), "it has no column 'partition'"),
        (
            "topic string, partition string, offset long, error string, row string",
            (),
            "its column 'partition' is string, and that of these rows int",
        ),
        (
            "topic string, partition int, offset long, error string, row string, who string not null",
            (),
            "its column 'who' is not null, and these rows do not have it",
        ),
        ("topic string, partition int, offset long, error string, row string", ("topic",), "its key is topic"),
    ],
)
def test_a_topic_of_this_name_with_another_schema_is_refused_with_the_difference(
    log: Log, schema: str, key: tuple[str, ...], reason: str
) -> None:
    log.create_topic("shop.dead", schema, key=key)
    with pytest.raises(DeclarationError) as refused:
        side_topics(log).store({"shop.dead": dead(("events", 0, 3))})
    assert refused.value.message.startswith("topic 'shop.dead': dead rows are set aside there, but they do not fit; ")
    assert reason in refused.value.message
    assert "penstock topic drop shop.dead" in str(refused.value.hint)
    assert len(log.topic("shop.dead").read()) == 0


def test_a_late_topic_of_somebody_else_is_refused_too(log: Log) -> None:
    events = log.create_topic("events", "id long, at timestamp", time="at")
    events.append([{"id": 1, "at": "2024-05-01"}])
    log.create_topic("events.late", "id long, reason string")
    rows = late_rows(events, {0: [0]}, late_for="counts", watermark=0)
    with pytest.raises(DeclarationError, match=r"late rows are set aside there.*it has no column 'late_partition'"):
        side_topics(log).store({"events.late": rows})


PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1), st.integers(0, 6))


@given(st.lists(st.tuples(st.sets(PLACES), st.booleans()), max_size=5))
def test_whatever_is_read_again_the_rows_are_all_there_once(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[tuple[set[tuple[str, int, int]], bool]]
) -> None:
    with Log(tmp_path_factory.mktemp("log")) as log:
        sides = side_topics(log)
        seen: set[tuple[str, int, int]] = set()
        for places, restarts in epochs:
            if restarts:
                sides = side_topics(log)
            sides.store({"shop.dead": dead(*places)})
            seen |= places
        assert sorted(stored(log) if seen else []) == sorted(seen)


def test_late_rows_are_told_apart_by_what_they_were_late_for(log: Log) -> None:
    topic = log.create_topic("events", "id long")
    topic.append([{"id": number} for number in range(5)])
    sides = side_topics(log)
    for view in ("minutes", "hours", "minutes"):
        sides.store({"events.late": late_rows(topic, {0: [1, 3]}, late_for=view, watermark=7_000_000)})
    rows = log.topic("events.late").read()
    assert sorted((row["late_for"], row["id"], row["late_offset"]) for row in rows) == [
        ("hours", 1, 1),
        ("hours", 3, 3),
        ("minutes", 1, 1),
        ("minutes", 3, 3),
    ]
