from __future__ import annotations

import pytest

from penstock.errors import DeclarationError, FencedError
from penstock.log import Log, Topic


@pytest.fixture
def events(log: Log) -> Topic:
    return log.create_topic("events", "id long, n long", key="id", partitions=3)


def rows(count: int) -> list[dict[str, int]]:
    return [{"id": number, "n": number} for number in range(count)]


def test_a_repeated_sequence_is_acknowledged_and_stored_once(log: Log, events: Topic) -> None:
    producer = log.producer("billing")
    first = producer.append(events, rows(10), sequence=5)
    again = producer.append(events, rows(10), sequence=5)
    assert len(events.read()) == 10
    assert all(one.repeated for one in again)
    assert [one.base_offset for one in again] == [one.base_offset for one in first]


def test_an_older_sequence_is_a_repeat_too_but_its_place_is_forgotten(log: Log, events: Topic) -> None:
    producer = log.producer("billing")
    producer.append(events, rows(1), sequence=5)
    producer.append(events, rows(1), sequence=6)
    (answer,) = producer.append(events, rows(1), sequence=5)
    assert answer.repeated
    assert answer.base_offset == -1


def test_a_repeat_is_recognised_after_reopening_and_after_segments_were_closed(log: Log, events: Topic) -> None:
    log.producer("billing").append(events, rows(10), sequence=5)
    for number in range(3):
        with events.files.writer(number).exclusive():
            events.files.writer(number).roll()
    log.close()
    with Log(log.path) as again:
        topic, producer = again.topic("events"), again.producer("billing")
        assert producer.last_sequence(topic) == 5
        assert all(one.repeated for one in producer.append(topic, rows(10), sequence=5))
        assert len(topic.read()) == 10


def test_a_repeat_stores_only_the_partitions_that_missed_it(log: Log, events: Topic) -> None:
    producer = log.producer("billing")
    producer.append(events, [{"id": 0, "n": 0}], sequence=0)
    producer.append(events, rows(10), sequence=0)
    touched = events.append([{"id": 0, "n": 0}])[0].partition
    assert [row["id"] for row in events.read({touched: 0})] == [0, 0]
    assert len(events.read()) > 2


def test_producers_do_not_mistake_each_others_sequences(log: Log, events: Topic) -> None:
    log.producer("one").append(events, rows(1), sequence=5)
    log.producer("two").append(events, rows(1), sequence=5)
    assert len(events.read()) == 2


def test_opening_a_producer_again_refuses_the_one_before(log: Log, events: Topic) -> None:
    old = log.producer("billing")
    old.append(events, rows(1))
    new = log.producer("billing")
    with pytest.raises(FencedError, match="epoch 1 was replaced by epoch 2"):
        old.append(events, rows(1))
    with pytest.raises(FencedError):
        old.last_sequence(events)
    new.append(events, rows(1))
    assert len(events.read()) == 2


def test_without_a_sequence_nothing_is_a_repeat(log: Log, events: Topic) -> None:
    for _ in range(2):
        opened = log.producer("billing")
        for _ in range(3):
            assert not opened.append(events, rows(1))[0].repeated
    assert len(events.read()) == 6


def test_without_a_key_a_repeat_goes_where_the_first_went(log: Log) -> None:
    lines = log.create_topic("lines", "text string", partitions=4)
    producer = log.producer("billing")
    for sequence in range(8):
        for _ in range(2):
            producer.append(lines, {"text": str(sequence)}, sequence=sequence)
    assert sorted(row["text"] for row in lines.read()) == [str(number) for number in range(8)]


def test_a_negative_sequence_is_refused(log: Log, events: Topic) -> None:
    with pytest.raises(DeclarationError, match="cannot be negative"):
        log.producer("billing").append(events, rows(1), sequence=-1)


def test_batches_tell_who_wrote_them(log: Log, events: Topic) -> None:
    log.producer("billing").append(events, [{"id": 1, "n": 1}])
    (batch,) = events.batches()
    assert log.producers()[batch.producer] == "billing"
