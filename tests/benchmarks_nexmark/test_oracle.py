from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import duckdb
import pytest

from benchmarks.nexmark.generator import batches, counts, time_of
from benchmarks.nexmark.oracle import QUERIES, TABLES, answer, load, sql

EVENTS = 50_000
RATE = 1_000  # 50 seconds of event time, so that auctions last for a while and some bidders have two sessions
PERSONS, AUCTIONS, BIDS = counts(EVENTS)
EVERY_BID = ("q0", "q1", "q10", "q13", "q22")
Row = dict[str, Any]


@cache
def connection() -> duckdb.DuckDBPyConnection:
    opened = duckdb.connect(config={"threads": 1})
    load(opened, batches(EVENTS, rate=RATE))
    return opened


@pytest.fixture(scope="module", autouse=True)
def closed_at_the_end() -> Iterator[None]:
    yield
    connection().close()
    connection.cache_clear()
    rows.cache_clear()


@cache
def rows(query: str) -> list[Row]:
    return answer(connection(), query).to_pylist()


@cache
def table(name: str) -> list[Row]:
    return connection().sql(f"FROM {name}").to_arrow_table().to_pylist()


def share(query: str) -> float:
    """How many of the bids are in the answer."""
    return len(rows(query)) / BIDS


def window(moment: datetime, seconds: int = 10) -> datetime:
    return moment - timedelta(seconds=moment.second % seconds, microseconds=moment.microsecond)


@cache
def valid_bids() -> dict[int, list[Row]]:
    """For each auction that had any: the bids that were made while it was open."""
    opened = {auction["id"]: auction for auction in table("auction")}
    found: dict[int, list[Row]] = defaultdict(list)
    for bid in table("bid"):
        auction = opened.get(bid["auction"])
        if auction and auction["dateTime"] <= bid["dateTime"] <= auction["expires"]:
            found[auction["id"]].append(bid)
    return found


def test_the_tables_hold_the_events() -> None:
    assert [len(table(name)) for name in TABLES] == [PERSONS, AUCTIONS, BIDS]
    assert table("person")[0]["dateTime"] == time_of(0).replace(tzinfo=None)


def test_there_is_an_answer_to_every_query() -> None:
    assert len(QUERIES) == 23
    assert all(sql(query).startswith("-- ") for query in QUERIES)


@pytest.mark.parametrize("query", QUERIES)
def test_an_answer_has_rows_and_its_columns_have_names_of_their_own(query: str) -> None:
    found = answer(connection(), query)
    assert found.num_rows > 0
    assert len({name.lower() for name in found.column_names}) == found.num_columns
    assert all(name.isidentifier() for name in found.column_names)
    assert all(column.null_count == 0 for column in found.columns)


@pytest.mark.parametrize("query", EVERY_BID)
def test_answers_without_a_condition_have_every_bid(query: str) -> None:
    assert len(rows(query)) == BIDS


def test_q1_has_exact_prices() -> None:
    expected = Counter(908 * bid["price"] for bid in table("bid"))
    assert Counter(int(row["price"] * 1_000) for row in rows("q1")) == expected


def test_q2_has_the_bids_on_auctions_that_123_divides() -> None:
    expected = Counter((bid["auction"], bid["price"]) for bid in table("bid") if bid["auction"] % 123 == 0)
    assert Counter((row["auction"], row["price"]) for row in rows("q2")) == expected


def test_q3_has_one_row_for_each_auction_of_the_category_whose_seller_lives_there() -> None:
    there = {person["id"] for person in table("person") if person["state"] in {"OR", "ID", "CA"}}
    expected = {one["id"] for one in table("auction") if one["category"] == 10 and one["seller"] in there}
    assert len(rows("q3")) == len(expected)
    assert {row["id"] for row in rows("q3")} == expected


def test_q4_has_the_average_of_the_highest_valid_bids_of_each_category() -> None:
    highest: dict[int, list[int]] = defaultdict(list)
    categories = {auction["id"]: auction["category"] for auction in table("auction")}
    for auction, bids in valid_bids().items():
        highest[categories[auction]].append(max(bid["price"] for bid in bids))
    expected = {category: sum(prices) / len(prices) for category, prices in highest.items()}
    assert {row["id"]: row["final"] for row in rows("q4")} == pytest.approx(expected)


def test_q5_has_the_auctions_with_the_most_bids_of_each_window() -> None:
    counted: dict[datetime, Counter[int]] = defaultdict(Counter)
    for bid in table("bid"):
        for hop in range(5):
            counted[window(bid["dateTime"], 2) - timedelta(seconds=2 * hop)][bid["auction"]] += 1
    expected = {
        (start, auction, number)
        for start, numbers in counted.items()
        for auction, number in numbers.items()
        if number == max(numbers.values())
    }
    assert {(row["starttime"], row["auction"], row["num"]) for row in rows("q5")} == expected
    assert len(rows("q5")) == len(expected)
    assert len(counted) == 50 / 2 + 4
    assert {row["endtime"] - row["starttime"] for row in rows("q5")} == {timedelta(seconds=10)}


def test_q6_has_the_average_of_the_last_ten_auctions_to_close_of_each_seller() -> None:
    winning: dict[int, list[tuple[datetime, int, int]]] = defaultdict(list)
    for auction in table("auction"):
        if bids := valid_bids().get(auction["id"]):
            highest = max(bid["price"] for bid in bids)
            winning[auction["seller"]].append((auction["expires"], auction["id"], highest))
    latest = {seller: [price for _, _, price in sorted(closed)[-10:]] for seller, closed in winning.items()}
    expected = {seller: sum(prices) / len(prices) for seller, prices in latest.items()}
    assert max(len(closed) for closed in winning.values()) > 10
    assert {row["seller"]: row["avg_price"] for row in rows("q6")} == pytest.approx(expected)


def test_q7_has_the_highest_price_of_every_window() -> None:
    highest: dict[datetime, int] = defaultdict(int)
    for bid in table("bid"):
        start = window(bid["dateTime"])
        highest[start] = max(highest[start], bid["price"])
    assert len(highest) == 5
    assert {window(row["dateTime"]): row["price"] for row in rows("q7")} == highest


def test_q8_has_who_registered_and_sold_in_the_same_window() -> None:
    selling = {(auction["seller"], window(auction["dateTime"])) for auction in table("auction")}
    registered = {(person["id"], window(person["dateTime"])) for person in table("person")}
    assert {(row["id"], row["starttime"]) for row in rows("q8")} == selling & registered
    assert len(rows("q8")) == len(selling & registered)


def test_q9_has_the_highest_bid_on_each_auction_and_the_earliest_of_several() -> None:
    expected = {
        auction: min(bids, key=lambda bid: (-bid["price"], bid["dateTime"])) for auction, bids in valid_bids().items()
    }
    assert len(rows("q9")) == len(expected)
    for row in rows("q9"):
        bid = expected[row["id"]]
        assert (row["auction"], row["bidder"], row["price"]) == (bid["auction"], bid["bidder"], bid["price"])
        assert row["bid_dateTime"] == bid["dateTime"]


def test_q10_says_the_day_and_the_minute() -> None:
    assert {(row["dt"], row["hm"]) for row in rows("q10")} == {("2024-04-30", "23:59"), ("2024-05-01", "00:00")}


def test_q11_has_sessions_that_are_ten_seconds_apart() -> None:
    moments: dict[int, list[datetime]] = defaultdict(list)
    for bid in table("bid"):
        moments[bid["bidder"]].append(bid["dateTime"])
    expected = set()
    for bidder, times in moments.items():
        session = [times[0]]
        for moment in times[1:]:
            if moment >= session[-1] + timedelta(seconds=10):
                expected.add((bidder, len(session), session[0], session[-1]))
                session = []
            session.append(moment)
        expected.add((bidder, len(session), session[0], session[-1]))
    gap = timedelta(seconds=10)
    found = {(row["bidder"], row["bid_count"], row["starttime"], row["endtime"] - gap) for row in rows("q11")}
    assert found == expected
    assert len(expected) > len(moments)


def test_q12_counts_every_bid_once() -> None:
    expected = Counter((bid["bidder"], window(bid["dateTime"])) for bid in table("bid"))
    assert {(row["bidder"], row["starttime"]): row["bid_count"] for row in rows("q12")} == expected


def test_q13_says_the_remainder_as_a_text() -> None:
    assert all(row["value"] == str(row["auction"] % 10_000) for row in rows("q13"))


def test_q14_has_the_prices_of_the_range_and_counts_letters() -> None:
    assert abs(share("q14") - 0.283) < 0.01
    assert all(1_000_000 < row["price"] < 50_000_000 for row in rows("q14"))
    assert all(row["c_counts"] == row["extra"].count("c") for row in rows("q14"))


def test_q15_counts_bids_bidders_and_auctions_of_each_day() -> None:
    assert [row["total_bids"] for row in sorted(rows("q15"), key=lambda row: row["day"])] == [
        BIDS * 3 / 5,
        BIDS * 2 / 5,
    ]
    for row in rows("q15"):
        of_day = [bid for bid in table("bid") if f"{bid['dateTime']:%Y-%m-%d}" == row["day"]]
        cheap = [bid for bid in of_day if bid["price"] < 10_000]
        assert row["total_bids"] == row["rank1_bids"] + row["rank2_bids"] + row["rank3_bids"]
        assert row["total_bidders"] == len({bid["bidder"] for bid in of_day})
        assert row["rank1_auctions"] == len({bid["auction"] for bid in cheap})
        assert abs(row["rank3_bids"] / row["total_bids"] - 1 / 3) < 0.02


def test_q16_adds_up_to_q15() -> None:
    for total in rows("q15"):
        of_day = [row for row in rows("q16") if row["day"] == total["day"]]
        for measure in ("total_bids", "rank1_bids", "rank2_bids", "rank3_bids"):
            assert sum(row[measure] for row in of_day) == total[measure]
    assert {row["minute"] for row in rows("q16")} == {"23:59", "00:00"}


def test_q17_adds_up_to_all_bids() -> None:
    assert sum(row["total_bids"] for row in rows("q17")) == BIDS
    assert sum(row["sum_price"] for row in rows("q17")) == sum(bid["price"] for bid in table("bid"))
    assert all(row["avg_price"] == row["sum_price"] / row["total_bids"] for row in rows("q17"))
    assert all(row["min_price"] <= row["avg_price"] <= row["max_price"] for row in rows("q17"))


def test_q18_has_the_last_bid_of_each_bidder_on_each_auction() -> None:
    last = {(bid["bidder"], bid["auction"]): bid for bid in table("bid")}
    assert {(row["bidder"], row["auction"]): row for row in rows("q18")} == last
    assert len(rows("q18")) == len(last)


def test_q19_has_the_ten_highest_bids_on_each_auction() -> None:
    of_auction: dict[int, list[Row]] = defaultdict(list)
    for bid in table("bid"):
        of_auction[bid["auction"]].append(bid)
    expected = {
        (auction, rank): bid
        for auction, bids in of_auction.items()
        for rank, bid in enumerate(sorted(bids, key=lambda bid: (-bid["price"], bid["dateTime"]))[:10], start=1)
    }
    assert {(row["auction"], row.pop("rank_number")): row for row in map(dict, rows("q19"))} == expected


def test_q20_has_the_bids_on_auctions_of_the_category() -> None:
    chosen = {auction["id"]: auction for auction in table("auction") if auction["category"] == 10}
    assert len(rows("q20")) == sum(bid["auction"] in chosen for bid in table("bid"))
    assert all(row["itemName"] == chosen[row["auction"]]["itemName"] for row in rows("q20"))


def test_q21_keeps_the_channels_that_have_an_id() -> None:
    assert abs(share("q21") - 0.95) < 0.01
    known = {row["channel"]: row["channel_id"] for row in rows("q21")}
    assert [known[channel] for channel in ("Apple", "Google", "Facebook", "Baidu")] == ["0", "1", "2", "3"]
    assert all(channel_id.isdigit() for channel_id in known.values())


def test_q22_has_the_directories_of_the_url() -> None:
    expected = Counter(tuple(bid["url"].split("/")[3:6]) for bid in table("bid"))
    assert Counter((row["dir1"], row["dir2"], row["dir3"]) for row in rows("q22")) == expected
