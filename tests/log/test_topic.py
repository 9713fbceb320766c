from __future__ import annotations

from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from penstock.errors import ConflictError, DeclarationError, PartlyStoredError, RangeError, RowError, UnavailableError
from penstock.log import Log, Topic, TopicSettings
from penstock.schema.hashing import hash_keys, partition_of


def order(number: int, *, minute: int = 0, country: str | None = "DE") -> dict[str, object]:
    placed_at = datetime(2026, 1, 1, 12, minute, tzinfo=UTC)
    return {"order_id": number, "country": country, "amount": number * 1.5, "placed_at": placed_at}


def test_rows_come_back_as_they_were_appended(orders: Topic) -> None:
    rows = [order(number) for number in range(100)]
    appended = orders.append(rows)
    assert sum(one.rows for one in appended) == 100
    assert sorted(orders.read(), key=lambda row: row["order_id"]) == rows


def test_a_row_goes_to_the_partition_of_its_key(orders: Topic) -> None:
    orders.append([order(number) for number in range(50)])
    for batch in orders.batches():
        keys = batch.rows.column("order_id")
        assert set(partition_of(hash_keys([keys]), 4).tolist()) == {batch.partition}


def test_the_rows_of_a_key_keep_their_order(orders: Topic) -> None:
    for minute in range(20):
        orders.append([order(number, minute=minute) for number in (1, 2, 3)])
    for number in (1, 2, 3):
        times = [row["placed_at"].minute for row in orders.read() if row["order_id"] == number]
        assert times == list(range(20))


def test_without_a_key_calls_take_turns_between_partitions(log: Log) -> None:
    topic = log.create_topic("lines", "text string", partitions=3)
    partitions = [topic.append({"text": str(number)})[0].partition for number in range(6)]
    assert partitions == [0, 1, 2, 0, 1, 2]


def test_without_a_key_the_partition_can_be_chosen(log: Log) -> None:
    topic = log.create_topic("lines", "text string", partitions=3)
    assert topic.append({"text": "a"}, partition=2)[0].partition == 2
    with pytest.raises(RangeError, match=r"partition 7 does not exist; it has 3 \(0-2\)"):
        topic.append({"text": "a"}, partition=7)


def test_with_a_key_the_partition_cannot_be_chosen(orders: Topic) -> None:
    with pytest.raises(DeclarationError, match="its key decides the partition"):
        orders.append(order(1), partition=0)


def test_arrow_batches_and_tables_are_taken_as_they_are(orders: Topic) -> None:
    table = pa.Table.from_pylist([order(number) for number in range(10)], schema=orders.schema)
    orders.append(table)
    orders.append(table.to_batches()[0])
    assert len(orders.read()) == 20


def test_nothing_appended_is_nothing_stored(orders: Topic) -> None:
    assert orders.append([]) == []
    assert orders.ends() == {0: 0, 1: 0, 2: 0, 3: 0}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"order_id": None}, "key column 'order_id' is null in row 0"),
        ({"order_id": 1, "placed_at": None}, "event time 'placed_at' is null in row 0"),
        ({"order_id": "one"}, "order_id"),
        ({"order_id": 1, "contry": "DE"}, "contry"),
    ],
)
def test_a_bad_row_is_refused_by_name_and_nothing_is_stored(
    orders: Topic, row: dict[str, object], message: str
) -> None:
    with pytest.raises(RowError, match=message):
        orders.append([{"placed_at": datetime(2026, 1, 1, tzinfo=UTC), **row}])
    assert len(orders.read()) == 0


def test_a_batch_over_the_limit_says_how_many_rows_would_fit(log: Log) -> None:
    topic = log.create_topic("big", "text string", settings=TopicSettings(max_batch_bytes=10_000))
    with pytest.raises(RowError, match="10000 are allowed") as error:
        topic.append([{"text": "x" * 100}] * 1_000)
    assert "at most about" in str(error.value.hint)
    assert topic.ends() == {0: 0}


def test_columns_can_be_chosen(orders: Topic) -> None:
    orders.append(order(1))
    assert orders.read(columns=["amount", "order_id"]) == [{"amount": 1.5, "order_id": 1}]
    with pytest.raises(DeclarationError, match="there is no column 'amout'") as error:
        orders.read(columns=["amout"])
    assert error.value.hint == "did you mean 'amount'?"


def test_reading_begins_where_it_is_told(log: Log) -> None:
    topic = log.create_topic("ticks", "n long, at timestamp", time="at")
    for minute in range(30):
        topic.append({"n": minute, "at": datetime(2026, 1, 1, 0, minute, tzinfo=UTC)})

    def first(start: int | str | datetime) -> int:
        return topic.read(start).to_arrow().column("n")[0].as_py()

    assert first("start") == 0
    assert first(7) == 7
    assert first(datetime(2026, 1, 1, 0, 12, tzinfo=UTC)) == 12
    assert first("2026-01-01T00:11:30Z") == 12
    assert len(topic.read("end")) == 0
    assert len(topic.read("2027-01-01")) == 0


@pytest.mark.parametrize("start", [-1, 31])
def test_an_offset_that_is_not_there_is_refused_with_the_range(log: Log, start: int) -> None:
    topic = log.create_topic("ticks", "n long")
    topic.append([{"n": n} for n in range(30)])
    with pytest.raises(RangeError, match="it has 0 to 30"):
        topic.read(start)


def test_a_word_that_is_no_position_is_refused(orders: Topic) -> None:
    with pytest.raises(DeclarationError, match="'yesterday' is not a position"):
        orders.read("yesterday")


def test_out_of_order_events_are_found_from_the_first_that_is_late_enough(log: Log) -> None:
    topic = log.create_topic("ticks", "n long, at timestamp", time="at")
    for n, minute in enumerate([5, 1, 9, 2, 3, 10]):
        topic.append({"n": n, "at": datetime(2026, 1, 1, 0, minute, tzinfo=UTC)})
    assert topic.positions("2026-01-01T00:04:00Z") == {0: 0}
    assert topic.positions("2026-01-01T00:06:00Z") == {0: 2}
    assert topic.positions("2026-01-01T00:10:00Z") == {0: 5}


def test_a_topic_without_event_time_is_searched_by_append_time(log: Log) -> None:
    topic = log.create_topic("lines", "n long")
    topic.append({"n": 1})
    between = datetime.now(UTC)
    topic.append({"n": 2})
    assert topic.read(between) == [{"n": 2}]


def test_delete_markers_are_told_apart_from_rows(orders: Topic) -> None:
    orders.append([order(1), order(2)])
    orders.delete({"order_id": 1})
    assert len(orders.read()) == 2
    deleted = [
        key
        for batch in orders.batches()
        if batch.deleted is not None
        for key, gone in zip(batch.rows.column("order_id").to_pylist(), batch.deleted.to_pylist(), strict=True)
        if gone
    ]
    assert deleted == [1]


def test_rows_of_a_topic_without_key_cannot_be_deleted(log: Log) -> None:
    topic = log.create_topic("lines", "text string")
    with pytest.raises(RowError, match="the topic has no key"):
        topic.delete({"text": "a"})


def test_old_rows_read_as_the_new_schema(orders: Topic) -> None:
    orders.append(order(1))
    orders.evolve("order_id long, country string, amount double, placed_at timestamp, note string")
    orders.append({**order(2), "note": "gift"})
    notes = {row["order_id"]: row["note"] for row in orders.read()}
    assert notes == {1: None, 2: "gift"}


def test_a_schema_change_reaches_readers_and_writers_in_other_log_objects(orders: Topic, log: Log) -> None:
    with Log(log.path) as other:
        theirs = other.topic("orders")
        theirs.append(order(1))
        orders.evolve("order_id long, country string, amount double, placed_at timestamp, note string")
        orders.append({**order(2), "note": "gift"})
        theirs.append(order(3))
        assert {row["order_id"] for row in theirs.read()} == {1, 2, 3}
        assert "note" in theirs.schema.names


@pytest.mark.parametrize(
    "schema",
    [
        "order_id long, country string, placed_at timestamp",
        "order_id string, country string, amount double, placed_at timestamp",
        "order_id long, country string, amount float, placed_at timestamp",
        "order_id long, country string, amount double, placed_at timestamp, note string not null",
    ],
)
def test_a_change_that_would_lose_something_is_refused(orders: Topic, schema: str) -> None:
    with pytest.raises(DeclarationError):
        orders.evolve(schema)
    assert orders.schema_version == 1


@pytest.fixture
def accounts(log: Log) -> Topic:
    return log.create_topic("accounts", "id string, what string", key="id", settings=TopicSettings(versioned=True))


def test_a_conditional_append_is_stored_only_at_the_expected_version(accounts: Topic) -> None:
    accounts.append({"id": "a", "what": "opened"}, expect=0)
    accounts.append([{"id": "a", "what": "paid"}, {"id": "a", "what": "paid"}], expect=1)
    with pytest.raises(ConflictError) as conflict:
        accounts.append({"id": "a", "what": "closed"}, expect=1)
    assert (conflict.value.expected, conflict.value.actual) == (1, 3)
    assert "key 'a' is at version 3; expected 1" in conflict.value.message
    assert [batch.versions.to_pylist() for batch in accounts.batches() if batch.versions] == [[1], [2, 3]]


def test_versions_go_on_after_reopening_and_beside_other_writers(accounts: Topic, log: Log) -> None:
    accounts.append({"id": "a", "what": "1"}, expect=0)
    with Log(log.path) as other:
        other.topic("accounts").append({"id": "a", "what": "2"}, expect=1)
        accounts.append({"id": "a", "what": "3"}, expect=2)
        with pytest.raises(ConflictError):
            other.topic("accounts").append({"id": "a", "what": "late"}, expect=2)
    log.close()
    with Log(log.path) as again:
        again.topic("accounts").append({"id": "a", "what": "4"}, expect=3)


def test_an_erased_key_begins_again_at_version_one(accounts: Topic) -> None:
    accounts.append([{"id": "a", "what": "x"}, {"id": "b", "what": "x"}])
    accounts.erase({"id": "a"})
    accounts.append({"id": "a", "what": "again"}, expect=0)
    accounts.append({"id": "b", "what": "more"}, expect=1)


def test_a_conditional_append_needs_a_versioned_topic_and_one_key(accounts: Topic, orders: Topic) -> None:
    with pytest.raises(DeclarationError, match="its keys have no versions"):
        orders.append(order(1), expect=0)
    with pytest.raises(RowError, match="found several"):
        accounts.append([{"id": "a", "what": "x"}, {"id": "b", "what": "x"}], expect=0)


def test_when_one_partition_refuses_the_error_tells_which_are_stored(
    orders: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise UnavailableError("topic 'orders' partition 2: the disk is full")

    monkeypatch.setattr(orders.files.writer(2), "append", refuse)
    with pytest.raises(PartlyStoredError, match="these were stored: 0, 1, 3") as error:
        orders.append([order(number) for number in range(50)])
    assert [one.partition for one in error.value.stored] == [0, 1, 3]


def test_statistics_tell_what_is_stored(orders: Topic) -> None:
    orders.append([order(number, minute=number) for number in range(10)])
    statistics = orders.statistics()
    assert sum(one.rows for one in statistics) == 10
    assert max(one.max_time for one in statistics if one.max_time) == int(
        datetime(2026, 1, 1, 12, 9, tzinfo=UTC).timestamp() * 1_000_000
    )


def test_rows_may_come_from_a_generator(orders: Topic) -> None:
    orders.append(order(number) for number in range(5))
    assert len(orders.read()) == 5


@pytest.mark.parametrize("rows", [None, 1, "row", b"row"])
def test_what_is_no_rows_is_refused(orders: Topic, rows: object) -> None:
    with pytest.raises(RowError, match="rows are dicts, Arrow or data frames"):
        orders.append(rows)


class ArrowFrame:
    """A data frame as polars and others have it: all that is known of it is that it can be read as Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table.cast(
            pa.schema([f.with_type(pa.large_string()) if f.type == pa.string() else f for f in table.schema])
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_data_frames_are_appended_as_they_are(orders: Topic) -> None:
    orders.append(order(number) for number in range(5))
    stored = orders.read().to_arrow()
    frame = stored.to_pandas()
    frame.index = frame["order_id"] + 7  # an index is not a column
    orders.append(frame)
    orders.append(ArrowFrame(stored))
    expected = pa.concat_tables([stored] * 3).sort_by("order_id")
    assert orders.read().to_arrow().sort_by("order_id").to_pylist() == expected.to_pylist()


def test_pandas_and_polars_frames_are_read_back_as_they_were_appended(orders: Topic) -> None:
    rows = [order(number) for number in range(5)]
    orders.append(pd.DataFrame(rows))
    assert sorted(orders.read(), key=itemgetter("order_id")) == rows
    log_rows = orders.read()
    for frame in (log_rows.to_pandas(), log_rows.to_polars(), log_rows):
        orders.append(frame)
    assert len(orders.read()) == 20
    assert orders.read().to_polars().unique().height == 5


def test_deleted_keys_are_left_out_or_marked(orders: Topic) -> None:
    orders.append([order(1), order(2)])
    orders.delete(pd.DataFrame({"order_id": [2]}))
    assert {row["order_id"]: row["country"] for row in orders.read()} == {1: "DE", 2: "DE"}
    marked = orders.read(columns=["order_id", "country"], deletes=True)
    assert sorted(marked, key=itemgetter("order_id", "_deleted")) == [
        {"order_id": 1, "country": "DE", "_deleted": False},
        {"order_id": 2, "country": "DE", "_deleted": False},
        {"order_id": 2, "country": None, "_deleted": True},
    ]


def test_marks_cannot_be_read_into_a_column_of_the_topic(log: Log) -> None:
    topic = log.create_topic("own", "id long, _deleted boolean", key="id")
    with pytest.raises(DeclarationError, match="a column '_deleted' of its own"):
        topic.read(deletes=True)


def test_a_dict_of_columns_is_refused_with_what_to_give_instead(orders: Topic) -> None:
    with pytest.raises(RowError, match="a dict is one row; found a list in each of its columns") as refused:
        orders.append({"order_id": [1, 2], "country": ["DE", "FR"]})
    assert "pyarrow.table" in str(refused.value.hint)


def test_a_lazy_frame_must_be_collected_first(orders: Topic) -> None:
    with pytest.raises(RowError, match="found LazyFrame") as refused:
        orders.append(pl.LazyFrame({"order_id": [1]}))
    assert ".collect()" in str(refused.value.hint)


def test_a_data_frame_whose_columns_do_not_fit_is_refused(orders: Topic) -> None:
    with pytest.raises(RowError, match="topic 'orders'"):
        orders.append(pa.table({"order_id": ["one"]}).to_pandas())
    with pytest.raises(RowError, match="topic 'orders'"):
        orders.append(ArrowFrame(pa.table({"nobody": [1]})))
    assert len(orders.read()) == 0


@pytest.mark.parametrize("deleted", ["yes", 1, [1, 2, 3]])
def test_delete_marks_that_are_none_are_refused(orders: Topic, deleted: object) -> None:
    with pytest.raises(RowError, match="delete"):
        orders.append(order(1), deleted=deleted)


@pytest.mark.parametrize("start", [None, 3.5, datetime(2026, 1, 1, tzinfo=UTC).date()])
def test_a_position_of_another_type_is_refused(orders: Topic, start: object) -> None:
    with pytest.raises(DeclarationError, match="is not a position"):
        orders.read(start)


def test_a_time_is_exact_to_the_microsecond(log: Log) -> None:
    topic = log.create_topic("ticks", "at timestamp", time="at")
    moment = datetime(2005, 7, 27, 12, 45, 29, 433215, tzinfo=UTC)
    topic.append({"at": moment})
    assert topic.positions(moment) == {0: 0}
    assert topic.positions(moment.replace(microsecond=433216)) == {0: 1}


def test_a_moment_that_has_no_place_in_utc_is_refused(orders: Topic) -> None:
    with pytest.raises(RowError, match="placed_at"):
        orders.append({**order(1), "placed_at": "0001-01-01T00:00:00+14:00"})


def test_versions_go_on_behind_a_deleted_and_compacted_key(accounts: Topic) -> None:
    accounts.append([{"id": "a", "what": "x"}] * 3)
    accounts.delete({"id": "a"})
    accounts.compact()
    with pytest.raises(ConflictError) as conflict:
        accounts.append({"id": "a", "what": "again"}, expect=0)
    assert conflict.value.actual == 4


def test_a_topic_of_another_log_is_refused(log: Log, orders: Topic, tmp_path: Path) -> None:
    with Log(tmp_path / "other") as other:
        with pytest.raises(DeclarationError, match="is in another log"):
            other.producer("p").append(orders, order(1))
        with pytest.raises(DeclarationError, match="is in another log"):
            other.transaction().append(orders, order(1))
    with Log(log.path.parent / "." / log.path.name) as same:
        same.producer("p").append(orders, order(1))
