"""Bids in the manner of Nexmark, the same for the same seed: what the benchmarks of the engine read. Not a part.

Of every 50 events of Nexmark one is a new person, three are new auctions and 46 are bids; here the bids alone are kept,
100,000 of them to a second of event time, in order. As there, half of the bids go to the hot auction of the moment and
three quarters come from its hot bidder; the others are spread over the last 100 auctions and 1,000 people. Prices are
log-uniform from 100 to 10^8. `account` is ours: uniform over a million, a key that Nexmark does not have. The `url` is
left out, and `extra` is as long as it takes for a bid to have 100 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.log import Log, Topic, TopicSettings

SCHEMA = (
    "auction bigint, bidder bigint, price bigint, account bigint, channel string, date_time timestamp, extra string"
)
PARTITIONS = 2
BIDS_PER_SECOND = 100_000
BATCH_BIDS = 50_000
ACCOUNTS = 1_000_000
FIRST_TIME = 1_714_521_600_000_000  # 2024-05-01, in microseconds
LAST_ID = -1
"""Auction, bidder and account of the last bid, which comes ten minutes after the others and ends their windows."""

_FIRST_ID = 1_000
_BIDS, _AUCTIONS = 46, 3  # of 50 events; the one that is left is a person
_AUCTIONS_IN_FLIGHT, _ACTIVE_PEOPLE, _LEAD, _HOT_EVERY = 100, 1_000, 10, 100
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS = pa.array([*_HOT_CHANNELS, *(f"channel-{number}" for number in range(10_000))])
_EXTRA_BYTES = 43
_LAST_BID_AFTER = 600_000_000


def create_bids(log: Log, name: str, count: int, *, seed: int = 1) -> Topic:
    """A topic with so many bids (an even number), half of them in each partition, and the last bid."""
    settings = TopicSettings(partitions=PARTITIONS, time="date_time", durability="os")
    topic = log.create_topic(name, SCHEMA, settings=settings)
    for batch in batches(count, seed=seed):
        # Half of each batch to each partition: neither gets ahead of the other by more than half a second.
        half = batch.num_rows // 2
        topic.append(batch.slice(0, half), partition=0)
        topic.append(batch.slice(half), partition=1)
    topic.append(last_bid(count), partition=0)
    return topic


def batches(count: int, *, seed: int = 1) -> Iterator[pa.RecordBatch]:
    for start in range(0, count, BATCH_BIDS):
        yield bids(start, min(start + BATCH_BIDS, count), seed=seed)


def bids(start: int, end: int, *, seed: int = 1) -> pa.RecordBatch:
    """The bids with these numbers. They do not depend on which others are asked for, as long as `start` is the same."""
    random = np.random.default_rng([seed, start])
    numbers = np.arange(start, end)
    count = len(numbers)
    return pa.record_batch(
        {
            "auction": _auctions(numbers, random),
            "bidder": _bidders(numbers, random),
            "price": np.rint(100 * 10 ** (6 * random.random(count))).astype(np.int64),
            "account": random.integers(0, ACCOUNTS, count),
            "channel": _channels(count, random),
            "date_time": _times(numbers * (1_000_000 // BIDS_PER_SECOND)),
            "extra": _extra(count, random),
        }
    )


def last_bid(count: int) -> pa.RecordBatch:
    """The bid that ends all windows of the first `count` bids."""
    identity = np.array([LAST_ID])
    after = np.array([count * 1_000_000 // BIDS_PER_SECOND + _LAST_BID_AFTER])
    return pa.record_batch(
        {
            "auction": identity,
            "bidder": identity,
            "price": np.array([100]),
            "account": identity,
            "channel": pa.array(["Google"]),
            "date_time": _times(after),
            "extra": pa.array([""]),
        }
    )


def _auctions(numbers: np.ndarray, random: np.random.Generator) -> np.ndarray:
    newest = (numbers // _BIDS + 1) * _AUCTIONS - 1
    hot = newest // _HOT_EVERY * _HOT_EVERY
    oldest = np.maximum(newest - _AUCTIONS_IN_FLIGHT, 0)
    other = random.integers(oldest, newest + 1 + _LEAD)
    return _FIRST_ID + np.where(random.random(len(numbers)) < 1 / 2, hot, other)


def _bidders(numbers: np.ndarray, random: np.random.Generator) -> np.ndarray:
    people = numbers // _BIDS + 1
    hot = (people - 1) // _HOT_EVERY * _HOT_EVERY + 1
    active = np.minimum(people, _ACTIVE_PEOPLE)
    other = people - active + random.integers(0, active + _LEAD)
    return _FIRST_ID + np.where(random.random(len(numbers)) < 3 / 4, hot, other)


def _channels(count: int, random: np.random.Generator) -> pa.Array:
    hot = random.integers(0, len(_HOT_CHANNELS), count)
    other = random.integers(len(_HOT_CHANNELS), len(_CHANNELS), count)
    return _CHANNELS.take(pa.array(np.where(random.random(count) < 1 / 2, hot, other)))


def _times(after: np.ndarray) -> pa.Array:
    return pa.array(FIRST_TIME + after).cast(pa.timestamp("us", "UTC"))


def _extra(count: int, random: np.random.Generator) -> pa.Array:
    """Random letters. The array is put together from its buffers: there is no Python object for any of them."""
    letters = random.integers(ord("a"), ord("z") + 1, count * _EXTRA_BYTES, dtype=np.uint8)
    offsets = np.arange(0, (count + 1) * _EXTRA_BYTES, _EXTRA_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
