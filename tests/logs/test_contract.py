"""The conformance suite of logs: what `contracts.Log`, `Topic` and `Writer` promise, and the powers of a log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.contracts import (
    FindsConsistentEnds,
    KeepsHolds,
    KeepsPromises,
    MeasuresExtents,
    Position,
    StagesRows,
    SummarisesRows,
    Topic,
    TopicRows,
    TopicSettings,
    Wakes,
    Writer,
)
from penstock.errors import DeclarationError, PenstockError, RangeError, RowError
from penstock.logs import check_log, log_exists, log_url, open_log
from tests.logs.worlds import BEGIN, WORLDS, World
from tests.logs.writer_contract import WriterContract, stored_rows

COLUMNS = "id long, name string, at timestamp"
KEYED = TopicSettings(partitions=3, key=("id",), time="at")


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    opened: World = request.param(tmp_path)
    yield opened
    opened.close()


def event(number: int, **more: object) -> dict[str, object]:
    return {"id": number, "at": BEGIN + timedelta(seconds=number), **more}


def ids(topic: Topic, **span: object) -> list[int]:
    return sorted(number for batch in topic.batches(**span) for number in batch.rows.column("id").to_pylist())


# -- topics -----------------------------------------------------------------------------------------------------------


def test_a_topic_is_there_once_it_is_created(world: World) -> None:
    assert world.log.topics() == []
    created = world.log.create_topic("people", COLUMNS, settings=KEYED)
    world.log.create_topic("orders", pa.schema([("id", pa.int64())]))
    assert world.log.topics() == ["orders", "people"]
    topic = world.log.topic("people")
    assert (topic.name, topic.id, topic.settings) == ("people", created.id, KEYED)
    assert topic.schema.names == ["id", "name", "at"]
    assert topic.id != world.log.topic("orders").id
    assert world.log.topic("orders").settings == TopicSettings()


def test_what_cannot_be_a_topic_is_refused(world: World) -> None:
    world.log.create_topic("people", COLUMNS)
    with pytest.raises(DeclarationError, match="topic 'people': it exists already"):
        world.log.create_topic("people", COLUMNS)
    with pytest.raises(DeclarationError, match="there is no column 'nobody'"):
        world.log.create_topic("orders", COLUMNS, settings=TopicSettings(key=("nobody",)))
    with pytest.raises(DeclarationError, match="topic 'peopel': it does not exist") as refused:
        world.log.topic("peopel")
    assert refused.value.hint == "did you mean 'people'?"
    assert world.log.topics() == ["people"]


def test_rows_of_one_key_are_in_one_partition_in_their_order(world: World) -> None:
    topic = world.log.create_topic("people", COLUMNS, settings=KEYED)
    for round_ in range(4):
        topic.append([event(number, name=f"{number}-{round_}") for number in range(20)])
    found: dict[int, list[tuple[int, str]]] = {}
    for batch in topic.batches():
        assert np.all(np.diff(batch.offsets) > 0)
        for row in batch.rows.to_pylist():
            found.setdefault(row["id"], []).append((batch.partition, row["name"]))
    for number, rows in found.items():
        assert {partition for partition, _ in rows} == {rows[0][0]}
        assert [name for _, name in rows] == [f"{number}-{round_}" for round_ in range(4)]
    assert len({rows[0][0] for rows in found.values()}) == 3
    assert sum(topic.ends().values()) - sum(topic.starts().values()) == 80


def test_rows_without_a_key_are_spread_over_the_partitions(world: World) -> None:
    topic = world.log.create_topic("lines", "id long", settings=TopicSettings(partitions=2))
    for number in range(4):
        topic.append([{"id": number}])
    assert topic.ends() == {0: 2, 1: 2}


def test_any_span_of_offsets_is_read_as_it_was_the_first_time(world: World) -> None:
    topic = world.log.create_topic("lines", "id long")
    for start in range(0, 30, 7):
        topic.append([{"id": number} for number in range(start, min(30, start + 7))])
    for start in range(0, 31, 3):
        for end in range(start, 31, 4):
            batches = list(topic.batches({0: start}, until={0: end}))
            assert [number for batch in batches for number in batch.offsets.tolist()] == list(range(start, end))
            assert ids(topic, start={0: start}, until={0: end}) == list(range(start, end))
    assert ids(topic) == list(range(30))
    topic.append([{"id": 99}])
    assert ids(topic, start={0: 28}, until={0: 30}) == [28, 29]


def test_only_the_partitions_that_are_named_are_read(world: World) -> None:
    topic = world.log.create_topic("people", COLUMNS, settings=KEYED)
    topic.append([event(number) for number in range(30)])
    ends = topic.ends()
    (only,) = {batch.partition for batch in topic.batches({1: 0}, until=ends)}
    assert only == 1
    assert len(ids(topic, start={1: 0}, until=ends)) == ends[1]
    assert ids(topic, until={1: 2}) == ids(topic, start={1: 0}, until={1: 2})


def test_columns_are_read_as_they_are_asked_for(world: World) -> None:
    topic = world.log.create_topic("people", COLUMNS, settings=KEYED)
    topic.append([event(1, name="Ada")])
    (batch,) = topic.batches(columns=["name", "id"])
    assert batch.rows.to_pydict() == {"name": ["Ada"], "id": [1]}
    (bare,) = topic.batches(columns=[])
    assert (len(bare.offsets), bare.rows.num_columns) == (1, 0)
    with pytest.raises(DeclarationError, match="there is no column 'nmae'"):
        list(topic.batches(columns=["nmae"]))


def test_delete_markers_are_among_the_rows_and_marked(world: World) -> None:
    topic = world.log.create_topic("people", COLUMNS, settings=TopicSettings(key=("id",)))
    topic.append([event(1, name="Ada"), event(2)])
    topic.append([{"id": 1}, event(3)], deleted=[True, False])
    marks = [
        mark
        for batch in topic.batches()
        for mark in (batch.deleted.to_pylist() if batch.deleted is not None else [False] * len(batch))
    ]
    assert marks == [False, False, True, False]
    assert [row for batch in topic.batches() for row in batch.rows_kept.column("id").to_pylist()] == [1, 2, 3]


def test_rows_tell_when_and_by_whom_they_were_stored(world: World) -> None:
    topic = world.log.create_topic("lines", "id long")
    topic.append([{"id": 1}])
    world.now += timedelta(minutes=1)
    writers = {name: world.log.writer(name) for name in ("left", "right")}
    for name, writer in writers.items():
        writer.write([TopicRows("lines", [{"id": 2}])], name)
    nobody, left, right = topic.batches()
    assert (left.append_time - nobody.append_time) == 60_000_000
    assert nobody.producer == 0
    assert len({nobody.producer, left.producer, right.producer}) == 3


def test_old_rows_are_read_with_the_newest_schema(world: World) -> None:
    topic = world.log.create_topic("lines", "id int")
    topic.append([{"id": 1}])
    version = topic.schema_version
    assert topic.evolve("id long, name string").names == ["id", "name"]
    assert topic.schema_version > version
    topic.append([{"id": 2**40, "name": "Ada"}])
    rows = [row for batch in world.log.topic("lines").batches() for row in batch.rows.to_pylist()]
    assert rows == [{"id": 1, "name": None}, {"id": 2**40, "name": "Ada"}]
    with pytest.raises(DeclarationError):
        topic.evolve("id string")


@pytest.mark.parametrize(
    "rows", [[{"id": "x"}], [{"id": 1, "nobody": 1}], [{"name": "no key"}], pa.record_batch({"id": ["x"]})]
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_stored(world: World, rows: object) -> None:
    topic = world.log.create_topic("people", "id long, name string", settings=TopicSettings(key=("id",)))
    with pytest.raises(RowError, match="topic 'people'"):
        topic.append(rows)
    with pytest.raises(RowError, match="topic 'people'"):
        world.log.writer("w").write([TopicRows("people", [{"id": 1}]), TopicRows("people", rows)], 1)
    assert ids(topic) == []


def test_a_start_means_the_same_offset_in_every_log(world: World) -> None:
    topic = world.log.create_topic("people", COLUMNS, settings=TopicSettings(key=("id",), time="at"))
    for number in range(10):
        topic.append([event(number)])
        world.now += timedelta(minutes=1)
    assert topic.positions("start") == topic.starts() == {0: 0}
    assert topic.positions("end") == topic.ends() == {0: 10}
    assert topic.positions(4) == topic.positions({0: 4}) == {0: 4}
    assert topic.positions(BEGIN + timedelta(seconds=7)) == topic.positions("2024-05-01T12:00:07Z") == {0: 7}
    assert topic.positions("2025-01-01") == {0: 10}
    for wrong in (11, -1, {0: 11}, {5: 0}):
        with pytest.raises(RangeError):
            topic.positions(wrong)
    with pytest.raises(DeclarationError, match="is not a position"):
        topic.positions("yesterday")


# -- writers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world_of", WORLDS)
class TestWriters(WriterContract):
    @pytest.fixture(autouse=True)
    def _open_log(self, world_of: type[World], tmp_path: Path) -> Iterator[None]:
        world = world_of(tmp_path)
        self.log = world.log
        for name in ("orders", "people"):
            self.log.create_topic(name, "id long, name string", settings=TopicSettings(key=("id",)))
        yield
        world.close()

    def open(self, name: str = "capture") -> Writer:
        return self.log.writer(name)

    def stored(self, topic: str = "orders") -> list[tuple[int, bool]]:
        found = []
        for batch in self.log.topic(topic).batches():
            marks = batch.deleted.to_pylist() if batch.deleted is not None else [False] * len(batch)
            found += stored_rows(batch.rows.to_pylist(), marks)
        return found


def test_a_position_can_be_asked_for_without_replacing_anybody(world: World) -> None:
    world.log.create_topic("lines", "id long")
    assert world.log.position("capture") is None
    writer = world.log.writer("capture")
    assert world.log.position("capture") is None
    position: Position = {"file": "a", "offset": 7}
    writer.write([TopicRows("lines", [{"id": 1}])], position)
    assert world.log.position("capture") == position
    assert world.log.position("nobody") is None
    assert writer.write([], {"file": "b", "offset": 0}) is True


def test_tables_of_arrow_are_written_whole(world: World) -> None:
    topic = world.log.create_topic("lines", "id long")
    table = pa.concat_tables([pa.table({"id": [1, 2]}), pa.table({"id": [3]})])
    world.log.writer("w").write([TopicRows("lines", table)], 1)
    assert ids(topic) == [1, 2, 3]


# -- by URL -----------------------------------------------------------------------------------------------------------

READ_IN_ANOTHER_PROCESS = """
import sys
from penstock.logs import open_log
log = open_log(sys.argv[1])
topic = log.topic("people")
for batch in topic.batches(until={0: 3}, columns=["id", "name"]):
    print(batch.rows.to_pydict(), batch.offsets.tolist(), batch.deleted, batch.append_time, batch.producer)
print(topic.id, topic.settings, topic.schema.names, topic.ends(), log.topics())
"""


def test_every_process_opens_the_log_by_its_url_and_sees_the_same(world: World, tmp_path: Path) -> None:
    topic = world.log.create_topic("people", COLUMNS, settings=TopicSettings(key=("id",), time="at"))
    topic.append([event(1, name="Ada")])
    url = world.log.url
    check_log(url)
    assert log_exists(url)
    topic.append([event(2)])
    world.log.writer("w").write([TopicRows("people", [event(3), event(4)])], 1)
    topic.evolve(COLUMNS + ", more string")
    command = [sys.executable, "-c", READ_IN_ANOTHER_PROCESS, url]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    expected = [
        f"{batch.rows.to_pydict()} {batch.offsets.tolist()} {batch.deleted} {batch.append_time} {batch.producer}"
        for batch in topic.batches(until={0: 3}, columns=["id", "name"])
    ]
    assert shown.stdout.splitlines()[:-1] == expected
    assert shown.stdout.splitlines()[-1] == (
        f"{topic.id} {topic.settings} {topic.schema.names} {topic.ends()} {world.log.topics()}"
    )


def test_the_folder_of_apps_is_the_same_for_every_process(world: World) -> None:
    assert world.log.apps_folder.is_absolute()
    assert open_log(world.log.url).apps_folder == world.log.apps_folder
    assert log_url(world.log.url) == world.log.url


# -- powers -----------------------------------------------------------------------------------------------------------

LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=8)


@pytest.mark.parametrize("world_of", WORLDS)
@settings(max_examples=20)
@given(LENGTHS, st.integers(0, 40), st.integers(0, 40))
def test_summaries_and_extents_agree_with_the_rows(
    world_of: type[World], tmp_path_factory: pytest.TempPathFactory, lengths: list[int], first: int, second: int
) -> None:
    world = world_of(tmp_path_factory.mktemp("log"))
    topic = world.log.create_topic("people", COLUMNS, settings=TopicSettings(time="at"))
    for length in lengths:
        topic.append([event(number) for number in range(length)])
    start, end = sorted((min(first, sum(lengths)), min(second, sum(lengths))))
    if isinstance(topic, MeasuresExtents):
        extent = topic.row_extent(0, start, end)
        assert int(np.interp(end, extent.offsets, extent.sizes) - np.interp(start, extent.offsets, extent.sizes)) == (
            end - start
        )
        assert np.all(np.diff(topic.byte_extent(0, start, end).sizes) >= 0)
    if isinstance(topic, SummarisesRows) and start < end:
        found = np.concatenate(list(topic.summaries(0, start, end)))
        assert found["base_offset"][0] <= start
        assert found["last_offset"][-1] >= end - 1
        assert found["rows"].sum() == found["last_offset"][-1] + 1 - found["base_offset"][0]
        latest = BEGIN.timestamp() * 1_000_000 + (found["rows"] - 1) * 1_000_000
        assert found["max_time"].tolist() == latest.tolist()
    world.close()


def test_rows_of_one_write_have_one_transaction_and_one_time(world: World) -> None:
    topics = [world.log.create_topic(name, "id long", settings=TopicSettings(2, ("id",))) for name in ("a", "b")]
    writer = world.log.writer("w")
    rows = [{"id": number} for number in range(20)]
    topics[0].append(rows)
    world.now += timedelta(seconds=1)
    if isinstance(writer, StagesRows):
        writer.stage([TopicRows("b", rows[:5])])
    writer.write([TopicRows("a", rows), TopicRows("b", rows[5:])], 1)
    writer.write([TopicRows("b", rows)], 2)
    found = {
        name: {
            (int(record["transaction"]), int(record["append_time"]))
            for number in range(2)
            for summaries in (topic.summaries(number, 0, 100) if isinstance(topic, SummarisesRows) else ())
            for record in summaries
        }
        for name, topic in zip("ab", topics, strict=True)
    }
    if found["a"]:
        assert len(found["a"] & found["b"]) == 1
        assert {number for number, _ in found["a"] - found["b"]} == {0}
        assert len(found["b"]) == 2
        assert 0 not in {number for number, _ in found["b"]}


def test_powers_of_a_log_keep_what_they_promise(world: World) -> None:
    log = world.log
    topic = log.create_topic("people", COLUMNS, settings=KEYED)
    topic.append([event(number) for number in range(10)])
    if isinstance(log, FindsConsistentEnds):
        assert log.consistent_ends(["people"]) == {"people": topic.ends()}
    if isinstance(log, KeepsPromises):
        assert log.promised_times("people", topic.ends()) == {}
    if isinstance(log, KeepsHolds):
        log.hold("app:shop", {"people": {0: (0, 1)}}, token=2)
        assert [hold.name for hold in log.holds()] == ["app:shop"]
        log.release("app:shop")
        log.release("app:shop")
        assert log.holds() == []
    if isinstance(log, Wakes):
        watch = log.watch(["people"])
        assert watch.wait(0.0) is False
        topic.append([event(11)])
        assert watch.wait(30.0) is True
        watch.close()


# -- URLs -------------------------------------------------------------------------------------------------------------


def test_a_path_is_the_folder_of_an_embedded_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert log_url("my log") == log_url(Path("my log")) == (tmp_path / "my log").as_uri()
    assert not log_exists("my log")
    with pytest.raises(DeclarationError, match="there is no log"):
        open_log("my log")
    open_log("my log", create=True).close()
    assert log_exists("my log")
    assert log_exists((tmp_path / "my log").as_uri())


def test_urls_that_name_no_log_are_refused() -> None:
    with pytest.raises(DeclarationError, match="there is no log for 'kafak:'"):
        open_log("kafak://broker:9092")
    with pytest.raises(DeclarationError, match="does not name a folder"):
        check_log("file://server/folder")
    with pytest.raises(DeclarationError, match="names no log in memory"):
        check_log("memory:")
    with pytest.raises(DeclarationError, match="a log in memory ends with its process"):
        open_log("memory:/nowhere")


def test_a_folder_that_cannot_be_looked_at_is_an_error_in_a_sentence() -> None:
    with pytest.raises(PenstockError, match="File name too long"):
        log_exists("x" * 300)
