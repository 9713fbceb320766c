from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.nexmark.generator import (
    CATEGORIES,
    CHUNK_EVENTS,
    EVENTS_PER_SECOND,
    FIRST_ID,
    HOT_CHANNELS,
    PARTITIONS,
    SCHEMAS,
    TIME,
    batches,
    chunk,
    counts,
    create_side_input,
    create_topics,
    side_input,
    time_of,
)
from benchmarks.nexmark.oracle import TABLES
from penstock.log import Log
from penstock.schema.arrow import parse_schema

EVENTS = 120_000
Tables = tuple[pa.Table, pa.Table, pa.Table]


def tables(events: int, seed: int = 1, rate: int = EVENTS_PER_SECOND) -> Tables:
    persons, auctions, bids = zip(*batches(events, seed, rate=rate), strict=True)
    return pa.Table.from_batches(persons), pa.Table.from_batches(auctions), pa.Table.from_batches(bids)


@cache
def made() -> Tables:
    return tables(EVENTS)


def persons() -> pa.Table:
    return made()[0]


def auctions() -> pa.Table:
    return made()[1]


def bids() -> pa.Table:
    return made()[2]


def numbers(table: pa.Table, column: str) -> np.ndarray:
    return table[column].cast(pa.int64()).to_numpy()


def groups_of_bids() -> np.ndarray:
    return np.arange(bids().num_rows) // 46


# -- the same again ---------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_events() -> None:
    assert all(first.equals(second) for first, second in zip(made(), tables(EVENTS), strict=True))


def test_another_seed_gives_other_events_at_the_same_times() -> None:
    other = tables(EVENTS, seed=2)
    for first, second in zip(made(), other, strict=True):
        assert first[TIME].equals(second[TIME])
        assert not first["extra"].equals(second["extra"])
    assert not bids()["price"].equals(other[2]["price"])


def test_chunks_do_not_repeat_each_other() -> None:
    assert not chunk(0).bids["price"].equals(chunk(1).bids["price"])


@settings(max_examples=15)
@given(st.integers(1, EVENTS))
def test_a_shorter_run_is_the_beginning_of_a_longer_one(events: int) -> None:
    for short, long, count in zip(tables(events), made(), counts(events), strict=True):
        assert short.equals(long.slice(0, count))


def test_the_rate_changes_times_and_nothing_else() -> None:
    for fast, slow in zip(made(), tables(EVENTS, rate=1_000), strict=True):
        times = [name for name in (TIME, "expires") if name in fast.column_names]
        assert fast.drop_columns(times).equals(slow.drop_columns(times))
        assert (np.diff(numbers(slow, TIME)) == 10 * np.diff(numbers(fast, TIME))).all()


@pytest.mark.parametrize("rate", [0, 1_000_001])
def test_a_rate_at_which_events_would_share_a_time_is_refused(rate: int) -> None:
    with pytest.raises(ValueError, match="found"):
        next(batches(1, rate=rate))


def test_no_events_are_no_chunks() -> None:
    assert list(batches(0)) == []


# -- how many, and when -----------------------------------------------------------------------------------------------


@given(st.integers(0, 2_000))
def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids(events: int) -> None:
    kinds = [number % 50 for number in range(events)]
    expected = (
        sum(kind == 0 for kind in kinds),
        sum(1 <= kind <= 3 for kind in kinds),
        sum(kind > 3 for kind in kinds),
    )
    assert counts(events) == expected


def test_there_are_as_many_of_each_kind_as_counted() -> None:
    for events in (1, 3, 50, 1_234, CHUNK_EVENTS, CHUNK_EVENTS + 2):
        assert tuple(table.num_rows for table in tables(events)) == counts(events)


def test_all_events_together_have_evenly_spaced_times_and_no_two_the_same() -> None:
    together = np.sort(np.concatenate([numbers(table, TIME) for table in made()]))
    assert together[0] == time_of(0).timestamp() * 1_000_000
    assert (np.diff(together) == 1_000_000 // EVENTS_PER_SECOND).all()
    assert len(together) == EVENTS


def test_each_kind_is_in_order_of_event_time() -> None:
    assert all((np.diff(numbers(table, TIME)) > 0).all() for table in made())


def test_the_columns_are_those_of_the_topics() -> None:
    for table, schema in zip(made(), SCHEMAS.values(), strict=True):
        assert table.schema.equals(parse_schema(schema))
        assert all(column.null_count == 0 for column in table.columns)


# -- who refers to whom -----------------------------------------------------------------------------------------------


def test_persons_and_auctions_are_numbered_without_gaps() -> None:
    for table in (persons(), auctions()):
        assert (numbers(table, "id") == FIRST_ID + np.arange(table.num_rows)).all()


def test_bids_are_on_auctions_of_late_or_on_one_of_the_next_ten_and_half_on_the_hot_one() -> None:
    newest = FIRST_ID + groups_of_bids() * 3 + 2
    chosen = numbers(bids(), "auction")
    hot = (newest - FIRST_ID) // 100 * 100 + FIRST_ID
    assert (chosen >= np.maximum(newest - 100, FIRST_ID)).all()
    assert (chosen <= newest + 10).all()
    assert 0.50 < (chosen == hot).mean() < 0.52
    assert (chosen > newest).any()


@pytest.mark.parametrize(("table", "column", "each", "hot_one"), [(1, "seller", 3, 0), (2, "bidder", 46, 1)])
def test_people_are_of_the_active_or_of_the_next_ten_and_three_quarters_are_the_hot_one(
    table: int, column: str, each: int, hot_one: int
) -> None:
    group = np.arange(made()[table].num_rows) // each
    chosen = numbers(made()[table], column) - FIRST_ID
    hot = group // 100 * 100 + hot_one
    assert (chosen >= np.maximum(group - 999, 0)).all()
    assert (chosen <= np.maximum(group + 10, hot)).all()
    assert 0.74 < (chosen == hot).mean() < 0.77
    assert (chosen[chosen != hot] > group[chosen != hot]).any()


def test_most_bidders_are_persons() -> None:
    known = pc.is_in(bids()["bidder"], value_set=persons()["id"])
    assert pc.mean(known).as_py() > 0.95


def test_an_auction_is_open_for_up_to_twice_the_time_of_a_hundred_others() -> None:
    open_for = (numbers(auctions(), "expires") - numbers(auctions(), TIME)) / 1_000
    hundred_auctions = 100 * 50 / 3 / EVENTS_PER_SECOND * 1_000
    assert open_for.min() >= 1
    assert open_for.max() <= 2 * hundred_auctions
    assert 0.95 < open_for.mean() / hundred_auctions < 1.05


# -- values -----------------------------------------------------------------------------------------------------------


def test_prices_are_log_uniform() -> None:
    prices = numbers(bids(), "price")
    assert prices.min() >= 100
    assert prices.max() <= 10**8
    for power in (3, 4, 5, 6, 7):
        assert abs((prices < 10**power).mean() - (power - 2) / 6) < 0.01


def test_a_reserve_is_above_the_first_bid() -> None:
    assert (numbers(auctions(), "reserve") > numbers(auctions(), "initialBid")).all()


def test_categories_and_states_are_equally_likely() -> None:
    assert set(auctions()["category"].to_pylist()) == set(CATEGORIES)
    assert abs((numbers(auctions(), "category") == 10).mean() - 1 / 5) < 0.02
    western = pc.is_in(persons()["state"], value_set=pa.array(["OR", "ID", "CA"]))
    assert abs(pc.mean(western).as_py() - 1 / 2) < 0.05


def test_half_of_the_bids_come_from_the_four_hot_channels() -> None:
    for channel in HOT_CHANNELS:
        assert abs(pc.mean(pc.equal(bids()["channel"], channel)).as_py() - 1 / 8) < 0.01
    assert 9_900 < pc.count_distinct(bids()["channel"]).as_py() <= 10_004


def test_a_channel_has_one_url_and_an_id_belongs_to_one_channel() -> None:
    pairs = bids().group_by(["channel", "url"]).aggregate([]).to_pylist()
    assert len({pair["channel"] for pair in pairs}) == len(pairs)
    ids = [pair["url"].partition("&channel_id=")[2] for pair in pairs]
    told = [one for one in ids if one]
    assert len(set(told)) == len(told)
    assert 0.88 < len(told) / len(pairs) < 0.92


def test_urls_have_three_directories() -> None:
    pattern = r"^https://www\.nexmark\.com/[a-z]{3,4}/[a-z]{3,4}/[a-z]{3,4}/item\.htm\?query=1(&channel_id=\d+)?$"
    assert pc.all(pc.match_substring_regex(bids()["url"], pattern)).as_py()


def test_persons_have_names_addresses_and_cards() -> None:
    for column, pattern in {
        "name": r"^[A-Z][a-z]+ [A-Z][a-z]+$",
        "emailAddress": r"^[a-z]{3,6}@[a-z]{3,4}\.com$",
        "creditCard": r"^\d{4} \d{4} \d{4} \d{4}$",
    }.items():
        assert pc.all(pc.match_substring_regex(persons()[column], pattern)).as_py(), column


@pytest.mark.parametrize(("table", "left_out", "size"), [(0, (), 200), (1, (), 500), (2, ("channel", "url"), 100)])
def test_rows_have_the_sizes_of_nexmark_on_the_average(table: int, left_out: tuple[str, ...], size: int) -> None:
    counted = made()[table].drop_columns(list(left_out))
    lengths = [
        pc.mean(pc.binary_length(column)).as_py() if pa.types.is_string(column.type) else 8
        for column in counted.columns
    ]
    assert abs(sum(lengths) - size) < size / 100


# -- in a log ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as log:
        yield log


def test_topics_hold_the_events(log: Log) -> None:
    topics = create_topics(log, 60_007)
    for topic, expected in zip(topics, tables(60_007), strict=True):
        found = topic.read(columns=expected.column_names).to_arrow().sort_by(TIME)
        assert found.combine_chunks().equals(expected.combine_chunks())


def test_partitions_keep_step_in_event_time(log: Log) -> None:
    topics = create_topics(log, 60_000)
    assert TABLES == tuple(SCHEMAS) == tuple(topic.name for topic in topics)
    for topic, count in zip(topics, counts(60_000), strict=True):
        assert topic.settings.partitions == PARTITIONS
        assert topic.ends() == {0: count / 2, 1: count / 2}


def test_topics_of_a_single_event_can_be_made(log: Log) -> None:
    assert [sum(topic.ends().values()) for topic in create_topics(log, 1)] == [1, 0, 0]


def test_the_end_of_the_events_is_promised(log: Log) -> None:
    for topic in create_topics(log, 100):
        (promise,) = log.promises(topic)
        assert promise.ends == topic.ends()
        assert promise.time > (time_of(100) + timedelta(hours=1)).timestamp() * 1_000_000


def test_the_side_input_has_a_row_for_every_remainder(log: Log) -> None:
    assert side_input()["key"].to_pylist() == list(range(10_000))
    topic = create_side_input(log)
    assert topic.settings.key == ("key",)
    assert topic.read(columns=["key", "value"]) == side_input().to_pylist()
