from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from penstock.errors import DamagedError, DeclarationError
from penstock.log import Log, Topic, TopicSettings


@pytest.fixture
def lines(log: Log) -> Topic:
    return log.create_topic("lines", "n long", settings=TopicSettings(segment_bytes=10_000, partitions=2))


def numbers(polled: list[object]) -> list[int]:
    return [n for batch in polled for n in batch.rows.column("n").to_pylist()]  # type: ignore[attr-defined]


def later(action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(0.05, action)
    timer.start()
    return timer


def test_a_reader_goes_on_where_it_was(lines: Topic) -> None:
    reader = lines.reader()
    assert reader.poll() == []
    for round_ in range(3):
        lines.append([{"n": round_}])
        assert numbers(reader.poll()) == [round_]
    reader.close()


def test_partitions_take_turns(lines: Topic) -> None:
    for n in range(100):
        lines.append({"n": n})
    reader = lines.reader()
    first, second = reader.poll(max_bytes=1_000), reader.poll(max_bytes=1_000)
    assert {batch.partition for batch in first} != {batch.partition for batch in second}
    reader.close()


def test_one_poll_returns_about_as_many_bytes_as_asked_but_at_least_a_frame(lines: Topic) -> None:
    lines.append([{"n": n} for n in range(1_000)], partition=0)
    lines.append({"n": 1}, partition=0)
    reader = lines.reader()
    assert len(numbers(reader.poll(max_bytes=1))) == 1_000
    assert numbers(reader.poll(max_bytes=1)) == [1]
    reader.close()


def test_a_waiting_reader_is_woken_by_an_append(lines: Topic) -> None:
    reader = lines.reader("end")
    timer = later(lambda: lines.append({"n": 7}))
    assert numbers(reader.poll(timeout=30)) == [7]
    timer.join()
    reader.close()


def test_a_waiting_reader_is_woken_by_a_transaction_only_once_it_is_committed(log: Log, lines: Topic) -> None:
    other = log.create_topic("other", "n long")
    reader = lines.reader("end")

    def transact() -> None:
        with log.transaction() as transaction:
            transaction.append(lines, {"n": 8})
            transaction.append(other, {"n": 8})

    timer = later(transact)
    assert numbers(reader.poll(timeout=30)) == [8]
    assert len(other.read()) == 1
    timer.join()
    reader.close()


def test_a_reader_that_waits_in_vain_returns_nothing(lines: Topic) -> None:
    reader = lines.reader()
    assert reader.poll(timeout=0.01) == []
    reader.close()


def test_a_reader_follows_through_closed_segments(lines: Topic) -> None:
    for n in range(300):
        lines.append({"n": n}, partition=0)
    assert lines.statistics()[0].segments > 3
    reader = lines.reader({0: 123})
    found: list[int] = []
    while batches := reader.poll(max_bytes=2_000):
        found += numbers(batches)
    assert found == list(range(123, 300))
    reader.close()


def test_positions_tell_what_comes_next(lines: Topic) -> None:
    lines.append([{"n": n} for n in range(5)], partition=1)
    reader = lines.reader()
    assert reader.positions == {0: 0, 1: 0}
    reader.poll()
    assert reader.positions == {0: 0, 1: 5}
    reader.close()


def test_damage_in_one_partition_leaves_the_other_readable(lines: Topic, log: Log) -> None:
    for number in (0, 1):
        lines.append([{"n": n} for n in range(10)], partition=number)
    (segment,) = (log.path / "topics/lines/00000").glob("*.segment")
    content = bytearray(segment.read_bytes())
    content[-100] ^= 1
    segment.write_bytes(content)
    with pytest.raises(DamagedError, match=r"partition 0: segment .* is damaged at byte \d+.*offsets 0 .*at risk"):
        lines.read()
    assert len(lines.read({1: 0})) == 10
    assert lines.append({"n": 11}, partition=1)[0].base_offset == 10


def test_a_missing_segment_is_named_with_its_offsets(lines: Topic, log: Log) -> None:
    for n in range(300):
        lines.append({"n": n}, partition=0)
    first = min((log.path / "topics/lines/00000").glob("*.segment"))
    first.unlink()
    with pytest.raises(DamagedError, match=r"segment 0+-\d+.segment is missing; it holds offsets 0 to"):
        lines.read({0: 0})


def test_a_lost_index_is_made_again_and_changes_nothing(lines: Topic, log: Log) -> None:
    for n in range(300):
        lines.append({"n": n}, partition=0)
    indexes = list((log.path / "topics/lines/00000").glob("*.index"))
    assert len(indexes) > 3
    for index in indexes:
        index.unlink()
    assert lines.read({0: 150}).to_arrow().column("n").to_pylist() == list(range(150, 300))
    assert len(lines.read({0: 5})) == 295
    assert len(list((log.path / "topics/lines/00000").glob("*.index"))) >= 2


@pytest.mark.parametrize("place", ["header", "body"])
def test_reading_goes_on_from_the_offset_behind_the_damage(lines: Topic, log: Log, place: str) -> None:
    appended = [lines.append([{"n": n}] * 10, partition=0)[0] for n in range(5)]
    (segment,) = (log.path / "topics/lines/00000").glob("*.segment")
    content = bytearray(segment.read_bytes())
    frames = [at for at in range(64, len(content), 64) if content[at : at + 4] == b"PSF1"]
    content[frames[2] + (40 if place == "header" else 200)] ^= 1  # the second frame of rows
    segment.write_bytes(content)
    with pytest.raises(DamagedError) as error:
        lines.read({0: 0})
    assert "offsets 10 to 19 are at risk" in error.value.message
    assert "by reading from offset 20" in str(error.value.hint)
    assert lines.read({0: 20}).to_arrow().column("n").to_pylist() == [n for n in (2, 3, 4) for _ in range(10)]
    assert appended[2].base_offset == 20
    with pytest.raises(DamagedError):
        lines.read({0: 15})


def test_a_closed_reader_says_so(lines: Topic) -> None:
    with lines.reader() as reader:
        assert reader.poll() == []
    with pytest.raises(DeclarationError, match="it is closed"):
        reader.poll()
