from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import DeclarationError, RowError
from penstock.log import Log, Topic, TopicSettings, rows_with


@pytest.fixture
def prices(log: Log) -> Topic:
    return log.create_topic(
        "prices", "item long, price long", key="item", settings=TopicSettings(segment_bytes=20_000, partitions=2)
    )


def latest(topic: Topic) -> dict[int, int]:
    return {row["item"]: row["price"] for row in topic.read()}


def update(topic: Topic, rounds: int, items: int = 20) -> None:
    for price in range(rounds):
        topic.append([{"item": item, "price": price} for item in range(items)])


def test_compaction_keeps_the_last_row_of_each_key_at_its_offset(log: Log, prices: Topic) -> None:
    update(prices, 100)
    before = {
        (batch.partition, offset): row
        for batch in prices.batches()
        for offset, row in zip(batch.offsets.tolist(), batch.rows.to_pylist(), strict=True)
    }
    rewritten = log.topic("prices").compact()
    after = {
        (batch.partition, offset): row
        for batch in prices.batches()
        for offset, row in zip(batch.offsets.tolist(), batch.rows.to_pylist(), strict=True)
    }
    assert latest(prices) == dict.fromkeys(range(20), 99)
    assert len(after) == 20
    assert after.items() <= before.items()
    assert sum(one.rows_after for one in rewritten) == 20
    assert sum(one.bytes_after for one in rewritten) < sum(one.bytes_before for one in rewritten) / 10


def test_compacted_segments_are_merged_into_few(log: Log, prices: Topic) -> None:
    update(prices, 200)
    assert all(one.segments > 3 for one in prices.statistics())
    log.topic("prices").compact()
    assert [one.segments for one in prices.statistics()] == [2, 2]


def test_compacting_again_changes_nothing_more(log: Log, prices: Topic) -> None:
    update(prices, 10)
    log.topic("prices").compact()
    assert [one.rows_before == one.rows_after for one in log.topic("prices").compact()] == [True, True]
    update(prices, 3)
    log.topic("prices").compact()
    assert latest(prices) == dict.fromkeys(range(20), 2)


def test_a_delete_marker_stays_until_every_group_has_passed_it(log: Log, prices: Topic) -> None:
    update(prices, 3, items=1)
    (marker,) = prices.delete({"item": 0})
    number = marker.partition
    for group in ("fast", "slow"):
        log.group(group).commit("prices", {0: 0, 1: 0})

    def markers() -> int:
        return sum(len(batch) for batch in prices.batches() if batch.deleted is not None)

    log.topic("prices").compact()
    assert markers() == 1
    log.group("fast").commit("prices", {number: prices.ends()[number]})
    log.topic("prices").compact()
    assert markers() == 1
    log.group("slow").commit("prices", {number: prices.ends()[number]})
    log.topic("prices").compact()
    assert markers() == 0
    assert latest(prices) == {}


def test_a_deleted_key_never_comes_back(log: Log, prices: Topic) -> None:
    update(prices, 3)
    prices.delete([{"item": item} for item in range(10)])
    for _ in range(2):
        log.topic("prices").compact()
    assert set(latest(prices)) == set(range(10, 20))


def test_reading_and_groups_go_on_over_removed_offsets(log: Log, prices: Topic) -> None:
    update(prices, 50)
    log.topic("prices").compact()
    member = log.group("readers").join(["prices"])
    count = 0
    while deliveries := member.poll():
        count += sum(len(delivery.batch) for delivery in deliveries)
    member.commit()
    assert count == 20
    assert sum(lag.lag for lag in log.group("readers").lag()) == 0


def test_a_reader_in_the_middle_gets_every_later_row_once_through_a_compaction(log: Log, prices: Topic) -> None:
    for item in range(1_000):
        prices.append({"item": item, "price": item})
    reader = prices.reader(columns=["item"])
    items: list[int] = []
    while batches := reader.poll(max_bytes=3_000):
        items += [item for batch in batches for item in batch.rows.column("item").to_pylist()]
        if 200 < len(items) < 300:
            log.topic("prices").compact()
    reader.close()
    assert sorted(items) == list(range(1_000))


def test_appends_and_reads_go_on_while_a_topic_is_compacted(log: Log, prices: Topic) -> None:
    update(prices, 100)
    stop = threading.Event()
    appended: list[int] = []

    def append() -> None:
        while not stop.is_set():
            prices.append({"item": 1_000 + len(appended), "price": 0})
            appended.append(1_000 + len(appended))

    writer = threading.Thread(target=append)
    writer.start()
    try:
        for _ in range(5):
            log.topic("prices").compact()
            assert set(range(20)) <= set(latest(prices))
    finally:
        stop.set()
        writer.join()
    assert set(latest(prices)) == {*range(20), *appended}
    assert all(not verified.problems for verified in prices.verify())


def test_compaction_agrees_with_a_dict_on_random_updates_and_deletes(log: Log, prices: Topic) -> None:
    rng = random.Random(7)
    model: dict[int, int] = {}
    for step in range(300):
        item = rng.randrange(40)
        if rng.random() < 0.3:
            prices.delete({"item": item})
            model.pop(item, None)
        else:
            prices.append({"item": item, "price": step})
            model[item] = step
        if step % 60 == 59:
            log.topic("prices").compact()
            assert latest(prices) == model


def test_an_erased_key_is_in_no_file_any_more(log: Log) -> None:
    people = log.create_topic(
        "people", "name string, note string", key="name", settings=TopicSettings(segment_bytes=5_000)
    )
    for number in range(50):
        people.append([{"name": "Ada Lovelace", "note": "secret"}, {"name": f"other {number}", "note": "kept"}])
    ends = people.ends()
    (rewritten,) = people.erase({"name": "Ada Lovelace"})
    assert rewritten.rows_before - rewritten.rows_after == 50
    assert people.ends() == ends
    assert len(people.read()) == 50
    for file in Path(log.path).rglob("*"):
        assert file.is_dir() or b"Ada Lovelace" not in file.read_bytes()


def test_the_other_rows_keep_their_offsets_when_a_key_is_erased(log: Log, prices: Topic) -> None:
    update(prices, 5)
    before = {
        (batch.partition, offset)
        for batch in prices.batches()
        for offset, item in zip(batch.offsets.tolist(), batch.rows.column("item").to_pylist(), strict=True)
        if item != 3
    }
    prices.erase({"item": 3})
    after = {(batch.partition, offset) for batch in prices.batches() for offset in batch.offsets.tolist()}
    assert after == before


def test_the_other_rows_keep_the_time_they_were_appended_at_when_a_key_is_erased(log: Log, prices: Topic) -> None:
    def times() -> dict[tuple[int, int], int]:
        return {(batch.partition, offset): batch.append_time for batch in prices.batches() for offset in batch.offsets}

    update(prices, 20)
    before = times()
    prices.erase({"item": 3})
    after = times()
    assert len(after) == 19 * 20
    assert after.items() <= before.items()
    log.topic("prices").compact()
    assert latest(prices) == {item: 19 for item in range(20) if item != 3}


def test_compaction_puts_single_events_together(log: Log, prices: Topic) -> None:
    for item in range(60):
        prices.append({"item": item, "price": 1})
    log.topic("prices").compact()
    assert len(latest(prices)) == 60
    assert len(list(prices.batches())) <= 4


def test_old_schema_versions_survive_a_compaction(log: Log, prices: Topic) -> None:
    prices.append({"item": 1, "price": 1})
    prices.evolve("item long, price long, note string")
    prices.append({"item": 2, "price": 2, "note": "new"})
    log.topic("prices").compact()
    notes = {row["item"]: row["note"] for row in prices.read()}
    assert notes == {1: None, 2: "new"}


def test_a_topic_without_key_can_be_neither_compacted_nor_erased_from(log: Log) -> None:
    lines = log.create_topic("lines", "text string")
    with pytest.raises(DeclarationError, match="it has no key"):
        log.topic("lines").compact()
    with pytest.raises(DeclarationError, match="it has no key"):
        lines.erase({"text": "a"})


def test_an_erasure_names_the_whole_key(prices: Topic) -> None:
    with pytest.raises(RowError, match="the key is item; found price"):
        prices.erase({"price": 1})


def test_progress_is_told_of_every_row_twice(log: Log, prices: Topic) -> None:
    update(prices, 10)
    rows: list[int] = []
    log.topic("prices").compact(progress=rows.append)
    assert sum(rows) == 2 * 200


def test_a_producers_sequence_is_remembered_through_a_compaction(log: Log, prices: Topic) -> None:
    producer = log.producer("feed")
    producer.append(prices, {"item": 1, "price": 1}, sequence=4)
    prices.append({"item": 1, "price": 2})
    log.topic("prices").compact()
    log.close()
    with Log(log.path) as again:
        topic = again.topic("prices")
        assert again.producer("feed").append(topic, {"item": 1, "price": 1}, sequence=4)[0].repeated
        assert latest(topic) == {1: 2}


def test_rows_of_a_topic_without_key_are_erased_by_what_they_have(log: Log) -> None:
    lines = log.create_topic("lines", "owner string, text string", partitions=2)
    lines.append([{"owner": owner, "text": f"secret of {owner}"} for owner in ("ann", None, "bob", "ann")])
    ann = pa.RecordBatch.from_pylist([{"owner": "ann"}])
    rewritten = lines.erase_where(lambda batch: rows_with(batch, ann))
    assert sum(one.rows_before - one.rows_after for one in rewritten) == 2
    assert sorted(lines.read().to_arrow()["owner"].to_pylist(), key=str) == [None, "bob"]
    assert not any(b"secret of ann" in path.read_bytes() for path in log.path.rglob("*") if path.is_file())


def test_of_a_topic_with_a_key_no_single_rows_are_erased(log: Log, prices: Topic) -> None:
    with pytest.raises(DeclarationError, match="topic 'prices': rows are erased by its key, item"):
        prices.erase_where(lambda batch: np.ones(batch.num_rows, dtype=bool))
