"""Logs written by earlier versions stay readable, to the byte. A change that fails here needs a new format number."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from penstock.contracts import TopicRows
from penstock.errors import ConflictError
from penstock.log import Log

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(params=["format-1", "catalogue-2", "catalogue-3"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """A copy: opening a log after a restart of the machine settles its tails."""
    shutil.copytree(GOLDEN / request.param, tmp_path / "log")
    with Log(tmp_path / "log") as opened:
        yield opened


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_golden", GOLDEN / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_byte_is_still_valid(log: Log) -> None:
    for name in ("everything", "table", "accounts"):
        assert [verified.problems for verified in log.topic(name).verify()] == [[]] * len(log.topic(name).verify())


def test_every_type_reads_as_it_was_written(log: Log, maker: ModuleType) -> None:
    rows = {row["id"]: row for row in log.topic("everything").read().to_arrow().to_pylist()}
    assert sorted(rows) == list(range(12))
    assert [rows[number] for number in range(10)] == [maker.full_row(number) for number in range(10)]
    assert set(rows[10].values()) - {None} == {10, rows[10]["at"]}


def test_a_compacted_and_evolved_topic_reads_as_it_was_written(log: Log) -> None:
    table = log.topic("table")
    assert table.read() == [
        {"key": "a", "value": 5, "note": None},
        {"key": "c", "value": 2**40, "note": "wide"},
        {"key": "d", "value": 4, "note": None},
    ]
    assert [offset for batch in table.batches() for offset in batch.offsets.tolist()] == [10, 12, 13, 14]


def test_a_writer_continues_from_its_position(log: Log, maker: ModuleType) -> None:
    if "captured" not in log.topics():
        log.create_topic("captured", "id long", key="id")
        log.writer("capture").write([TopicRows("captured", [{"id": 2}])], maker.POSITION)
    writer = log.writer("capture")
    assert writer.position == maker.POSITION
    assert writer.write([TopicRows("captured", [{"id": 3}])], maker.POSITION) is False
    assert writer.write([TopicRows("captured", [{"id": 3}])], 1) is True
    assert log.topic("captured").read().to_arrow()["id"].to_pylist()[-2:] == [2, 3]


def test_versions_sequences_and_offsets_go_on(log: Log, maker: ModuleType) -> None:
    with pytest.raises(ConflictError) as conflict:
        log.topic("accounts").append({"id": "a"}, expect=2)
    assert conflict.value.actual == 3
    producer = log.producer("feed")
    assert producer.append(log.topic("everything"), maker.full_row(11), sequence=41)[0].repeated
    assert producer.last_transaction() == 7
    assert log.group("copier").committed("everything") == {0: 3, 1: 4}
