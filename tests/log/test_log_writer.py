"""Writers of the embedded log: the contract, and what is particular to files, partitions and the catalogue."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.contracts import TopicRows
from penstock.errors import DamagedError, DeclarationError, FencedError, RowError, UnavailableError
from penstock.log import Log, LogWriter, TopicSettings, carry_out_repair, plan_repair
from penstock.log.catalog import Catalog
from penstock.log.threads import Threads
from penstock.log.writer import PartitionWriter
from penstock.storage.files import Buffer, DiskFile
from tests.logs.writer_contract import WriterContract, rows_of, stored_rows


def read_stored(log: Log, topic: str) -> list[tuple[int, bool]]:
    found = []
    for batch in log.topic(topic).batches():
        marks = batch.deleted.to_pylist() if batch.deleted is not None else [False] * len(batch)
        found += stored_rows(batch.rows.to_pylist(), marks)
    return found


class TestLogWriter(WriterContract):
    @pytest.fixture(autouse=True)
    def _log(self, log: Log) -> None:
        self.log = log
        for name in ("orders", "people"):
            log.create_topic(name, "id long, name string", key="id")

    def open(self, name: str = "capture") -> LogWriter:
        return self.log.writer(name)

    def stored(self, topic: str = "orders") -> list[tuple[int, bool]]:
        return read_stored(self.log, topic)

    def test_the_writer_is_the_producer_of_its_name_too(self) -> None:
        producer = self.log.producer("capture")
        writer = self.open()
        with pytest.raises(FencedError):
            producer.append(self.log.topic("orders"), {"id": 1}, sequence=1)
        writer.write([rows_of(1)], 1)
        self.log.producer("capture")
        with pytest.raises(FencedError, match=r"writer 'capture': token \d was replaced by token \d"):
            writer.write([rows_of(2)], 2)
        assert self.ids() == [1]
        assert {batch.producer for batch in self.log.topic("orders").batches()} == {writer._producer.id}

    def test_a_row_that_does_not_fit_leaves_everything_as_it_was(self) -> None:
        writer = self.open()
        with pytest.raises(RowError, match="topic 'people': row 1"):
            writer.write([rows_of(1), TopicRows("people", [{"id": 1}, {"id": "x"}])], 1)
        assert (self.ids(), self.ids("people"), writer.position) == ([], [], None)
        assert writer.write([rows_of(1)], 1) is True

    def test_an_unknown_topic_is_refused(self) -> None:
        with pytest.raises(DeclarationError, match="topic 'order': it does not exist"):
            self.open().write([rows_of(1, topic="order")], 1)

    @pytest.mark.parametrize("position", [float("nan"), {1: 2}, (1, 2), b"x", object()])
    def test_what_json_would_not_give_back_is_no_position(self, position: object) -> None:
        with pytest.raises(DeclarationError, match="writer 'capture': a position is a JSON value"):
            self.open().write([rows_of(1)], position)  # type: ignore[arg-type]
        assert self.ids() == []

    def test_a_position_of_more_than_a_mebibyte_is_refused(self) -> None:
        with pytest.raises(DeclarationError, match="at most 1048576 bytes"):
            self.open().write([], "x" * 1024 * 1024)

    def test_a_closed_writer_is_refused(self) -> None:
        writer = self.open()
        writer.close()
        with pytest.raises(DeclarationError, match="it is closed"):
            writer.write([rows_of(1)], 1)

    def test_arrow_batches_are_written_in_several_frames_where_one_is_too_small(self) -> None:
        settings = TopicSettings(key=("id",), max_batch_bytes=2_000)
        self.log.create_topic("small", "id long", settings=settings)
        batch = pa.record_batch({"id": list(range(1_000))})
        assert self.open().write([TopicRows("small", batch)], 1) is True
        assert self.ids("small") == list(range(1_000))

    def test_rows_go_to_the_partitions_of_their_keys_all_or_none(self) -> None:
        self.log.create_topic("wide", "id long", key="id", partitions=4)
        writer = self.open()
        for number in range(3):
            writer.write([rows_of(*range(number * 100, number * 100 + 100), topic="wide")], number)
        assert sorted(self.ids("wide")) == list(range(300))
        assert len(self.log.topic("wide").ends()) == 4


# -- crashes ----------------------------------------------------------------------------------------------------------


class Died(BaseException):
    """The process ended here."""


def die(*arguments: object, **options: object) -> None:
    raise Died


def die_after(function: Callable[..., object]) -> Callable[..., object]:
    def call(*arguments: object, **options: object) -> None:
        function(*arguments, **options)
        raise Died

    return call


PLACES = {
    "before the first frame": (PartitionWriter, "write", die),
    "after the frames of a partition": (PartitionWriter, "write", die_after(PartitionWriter.write)),
    "before a piece": (PartitionWriter, "_write", die),
    "after a piece": (PartitionWriter, "_write", die_after(PartitionWriter._write)),
    "before the sync": (Threads, "run", die),
    "after the sync": (Threads, "run", die_after(Threads.run)),
    "before an end is pending": (PartitionWriter, "publish_pending", die),
    "after an end is pending": (PartitionWriter, "publish_pending", die_after(PartitionWriter.publish_pending)),
    "before the commit": (Catalog, "_commit", die),
    "after the commit": (Catalog, "_commit", die_after(Catalog._commit)),
    "before the ends are published": (PartitionWriter, "publish", die),
    "after an end is published": (PartitionWriter, "publish", die_after(PartitionWriter.publish)),
}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is staged goes to the file, a few rows in each frame, and is written and synced frame by frame."""
    monkeypatch.setattr("penstock.log.set_aside.MOST_WAITING_BYTES", 0)
    monkeypatch.setattr("penstock.log.log_writer.STAGED_FRAME_BYTES", 200)
    monkeypatch.setattr("penstock.log.writer.PIECE_BYTES", 1)
    monkeypatch.setattr("penstock.log.writer.SYNC_EVERY_BYTES", 500)


def write_in_parts(writer: LogWriter, ids: range, position: int, parts: int) -> bool:
    """Write rows, all but the last of `parts` staged before."""
    for part in range(parts - 1):
        writer.stage([rows_of(*ids[part::parts])])
    return writer.write([rows_of(*ids[parts - 1 :: parts])], position)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.usefixtures("small_pieces")
def test_after_a_crash_the_rows_are_those_up_to_the_position(
    tmp_path: Path, place: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, replacement = PLACES[place]
    path = tmp_path / "log"
    log = Log(path)
    log.create_topic("orders", "id long", key="id", partitions=3)
    log.writer("capture").write([rows_of(*range(10))], 10)
    writer = log.writer("capture")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, replacement)
        # What a process that is killed would do on its way out, it does not do.
        patch.setattr("penstock.log.transaction.Transaction._undo", lambda *arguments: None)
        with pytest.raises(Died):
            write_in_parts(writer, range(10, 20), 20, parts)
    log.close()  # it writes nothing; the end of a process would release its locks too
    with Log(path) as reopened:
        again = reopened.writer("capture")
        position = again.position
        assert position in (10, 20)
        assert sorted(number for number, _ in read_stored(reopened, "orders")) == list(range(position))
        assert write_in_parts(again, range(10, 20), 20, parts) is (position == 10)
        assert write_in_parts(again, range(20, 30), 30, parts) is True
        assert sorted(number for number, _ in read_stored(reopened, "orders")) == list(range(30))
        assert all(not verified.problems for verified in reopened.topic("orders").verify())


WRITE_AT = DiskFile.write_at

# -- rows in parts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.usefixtures("small_pieces")
def test_staged_rows_are_stored_in_order_in_one_segment_whatever_their_number(log: Log, versioned: bool) -> None:
    settings = TopicSettings(partitions=3, segment_bytes=4_000, versioned=versioned)
    topic = log.create_topic("orders", "id long, n long", key="id", settings=settings)
    writer = log.writer("capture")
    for round_ in range(3):
        for part in range(20):
            rows = [{"id": number % 7, "n": part * 50 + number} for number in range(50)]
            writer.stage([TopicRows("orders", rows)])
        writer.write([TopicRows("orders", [{"id": 1, "n": 1_000}])], round_)
    for number in topic.files.numbers:
        found = [row["n"] for batch in topic.batches({number: 0}) for row in batch.rows.to_pylist()]
        third = len(found) // 3
        assert found == found[:third] * 3
        assert found[:third] == sorted(found[:third])
        assert len(topic.files.partition(number).manifest().segments) == 3
    assert all(not verified.problems for verified in topic.verify())
    if versioned:
        numbers: dict[int, list[int]] = {}
        for batch in topic.batches():
            for key, version in zip(batch.rows.column("id").to_pylist(), batch.versions.to_pylist(), strict=True):
                numbers.setdefault(key, []).append(version)
        assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())


@pytest.mark.usefixtures("small_pieces")
def test_what_is_staged_has_no_name_and_its_space_is_given_back(log: Log) -> None:
    log.create_topic("orders", "id long", key="id")
    writer = log.writer("capture")
    forgotten = log.path / "staging" / "killed.aside"
    for end in (lambda: writer.write([], 1), writer.discard, log.close):
        writer.stage([rows_of(*range(100))])
        assert open_files(log.path) == ["(deleted)"]
        end()
        assert open_files(log.path) == []
    assert list((log.path / "staging").iterdir()) == []
    forgotten.touch()
    with Log(log.path) as again:
        again.writer("another")
    assert not forgotten.exists()


def open_files(path: Path) -> list[str]:
    """How the paths of the files end that this process has open below `<log>/staging`."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            links.append(os.readlink(descriptor))
    return [link.rsplit(" ", 1)[-1] for link in links if link.startswith(str(path / "staging"))]


@pytest.mark.usefixtures("small_pieces")
def test_what_a_full_disk_did_not_take_can_be_staged_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.create_topic("orders", "id long", key="id")
    writer = log.writer("capture")
    writer.stage([rows_of(1)])
    with monkeypatch.context() as patch:
        patch.setattr("penstock.storage.files.DiskFile.write_at", refuse_space)
        with pytest.raises(UnavailableError, match="rows that are set aside: the disk is full"):
            writer.stage([rows_of(2)])
        with pytest.raises(UnavailableError, match="the disk is full"):
            writer.write([], 1)
    writer.stage([rows_of(2)])
    assert writer.write([rows_of(3)], 1) is True
    assert [number for number, _ in read_stored(log, "orders")] == [1, 2, 3]


def refuse_space(file: DiskFile, position: int, buffers: Sequence[Buffer]) -> None:
    """What has a record of its own, such as a tail, still fits where it was."""
    if len(buffers) > 1:
        raise OSError(errno.ENOSPC, "no space")
    WRITE_AT(file, position, buffers)


@pytest.mark.usefixtures("small_pieces")
def test_the_rows_of_a_transaction_have_one_append_time_and_one_number(log: Log) -> None:
    for name in ("orders", "people"):
        log.create_topic(name, "id long", key="id", partitions=2)
    log.topic("people").append([{"id": 1}])
    writer = log.writer("capture")
    writer.stage([rows_of(*range(50), topic="people")])
    writer.write([rows_of(*range(50))], 1)
    found = [
        (int(header["append_time"]), int(header["transaction"]))
        for name in ("orders", "people")
        for number in range(2)
        for headers in log.topic(name).summaries(number, 0, 100)
        for header in headers
    ]
    assert len(set(found) - {pair for pair in found if pair[1] == 0}) == 1


# -- the catalogue ----------------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path) -> Path:
    with Log(tmp_path / "log") as log:
        log.create_topic("orders", "id long", key="id")
        for name in ("one", "two"):
            log.writer(name).write([rows_of(1)], {"lsn": 5})
    return tmp_path / "log"


@pytest.mark.parametrize(
    "change",
    [
        """UPDATE positions SET position = '{"lsn":6}'""",
        "DELETE FROM positions WHERE producer = 1",
        "UPDATE positions SET producer = 9 WHERE producer = 1",
    ],
)
def test_a_position_that_is_not_as_it_was_written_is_damage(written: Path, change: str) -> None:
    with closing(sqlite3.connect(written / "catalog.db")) as connection:
        connection.executescript(f"CREATE TEMP TABLE kept AS SELECT * FROM totals; {change}")
        connection.executescript("DELETE FROM totals; INSERT INTO totals SELECT * FROM kept")
    with pytest.raises(DamagedError, match=r"catalog\.db"), Log(written) as log:
        log.writer("one")


def test_a_position_that_vanishes_under_an_open_log_is_noticed(written: Path) -> None:
    with Log(written) as log:
        writer = log.writer("one")
        with closing(sqlite3.connect(written / "catalog.db")) as connection:
            connection.executescript("CREATE TEMP TABLE kept AS SELECT * FROM totals; DELETE FROM positions")
            connection.executescript("DELETE FROM totals; INSERT INTO totals SELECT * FROM kept")
        with pytest.raises(DamagedError, match="'positions' has 0 rows"):
            assert writer.position


def test_a_repair_keeps_sound_positions_and_counts_the_others(written: Path) -> None:
    with closing(sqlite3.connect(written / "catalog.db")) as connection:
        connection.execute("UPDATE positions SET position = '7' WHERE producer = 1")
        connection.commit()
    repair = plan_repair(written)
    assert (
        "the positions of 1 writers; they start over, and rows that they had written are stored again"
    ) in repair.lost
    carry_out_repair(written, repair)
    with Log(written) as log:
        assert (log.writer("one").position, log.writer("two").position) == (None, {"lsn": 5})


def test_a_repair_of_a_lost_catalogue_says_that_writers_begin_anew(written: Path) -> None:
    (written / "catalog.db").unlink()
    repair = plan_repair(written)
    assert any(line.startswith("the positions of all writers; they start over") for line in repair.lost)
    carry_out_repair(written, repair)
    with Log(written) as log:
        assert log.writer("one").position is None


def test_a_repair_with_an_older_copy_names_the_writers_whose_rows_may_come_again(written: Path, tmp_path: Path) -> None:
    before = (written / "catalog.db").read_bytes()
    with Log(written) as log:
        log.writer("one").write([rows_of(2)], {"lsn": 6})
    (written / "catalog.db").write_bytes(before)
    repair = plan_repair(written)
    assert """writer 'one': its positions after {"lsn":5}; rows that it wrote since are stored again""" in repair.lost
    carry_out_repair(written, repair)
    with Log(written) as log:
        assert log.writer("one").position == {"lsn": 5}
