"""The persons, auctions and bids of Nexmark: the same for the same seed, in order of event time, one at a time.

Of every 50 events the first is a new person, the next three are new auctions and 46 are bids. They are made in chunks
of 50,000, each from a random generator of its own, and a chunk is always made whole: the first events of a long run are
those of a short one, whatever is asked for. Where this differs from the original is in README.md beside this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.nexmark.texts import Numbers, joined, padding, picked, sentences, sizes, words
from penstock.log import Log, Topic, TopicSettings

SCHEMAS = {
    "person": "id bigint, name string, emailAddress string, creditCard string, city string, state string, "
    "dateTime timestamp, extra string",
    "auction": "id bigint, itemName string, description string, initialBid bigint, reserve bigint, "
    "dateTime timestamp, expires timestamp, seller bigint, category bigint, extra string",
    "bid": "auction bigint, bidder bigint, price bigint, channel string, url string, dateTime timestamp, extra string",
}
TIME = "dateTime"
PARTITIONS = 2
SIDE_INPUT = "side_input"
SIDE_INPUT_SCHEMA = "key bigint, value string"
SIDE_INPUT_KEY = "key"
SIDE_INPUT_ROWS = 10_000

EVENTS_PER_SECOND = 10_000
CHUNK_EVENTS = 50_000
FIRST_TIME = datetime(2024, 4, 30, 23, 59, 30, tzinfo=UTC)  # midnight comes early, so that there are two days
FIRST_ID = 1_000  # of persons and of auctions
IN_FLIGHT, ACTIVE, LEAD, HOT_EVERY = 100, 1_000, 10, 100
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CATEGORIES = (10, 11, 12, 13, 14)

_PRODUCER = "nexmark"
_EVENTS, _AUCTIONS, _BIDS = 50, 3, 46  # the one that is left is a person
_PERSON_BYTES, _AUCTION_BYTES, _BID_BYTES = 200, 500, 100
_CHANNELS = 10_000
_STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_CITIES = pa.array(
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"]
)
_FIRST_NAMES = pa.array(
    ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
)
_LAST_NAMES = pa.array(["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"])
_FOUR_DIGITS = pa.array([f"{number:04d}" for number in range(10_000)])


class Chunk(NamedTuple):
    """Events that follow each other, by kind."""

    persons: pa.RecordBatch
    auctions: pa.RecordBatch
    bids: pa.RecordBatch


class Topics(NamedTuple):
    """Where the events are kept, by kind."""

    persons: Topic
    auctions: Topic
    bids: Topic


# -- into topics ------------------------------------------------------------------------------------------------------


def create_topics(log: Log, events: int, seed: int = 1, *, rate: int = EVENTS_PER_SECOND) -> Topics:
    """Topics `person`, `auction` and `bid` with the first so many events; none runs ahead by more than a chunk.

    Their producer promises at the end that nothing follows for a day, so that all windows and sessions come to an end.
    """
    settings = TopicSettings(partitions=PARTITIONS, time=TIME, durability="os")
    topics = Topics(*(log.create_topic(name, schema, settings=settings) for name, schema in SCHEMAS.items()))
    producer = log.producer(_PRODUCER)
    for chunk in batches(events, seed, rate=rate):
        for topic, batch in zip(topics, chunk, strict=True):
            # Row by row in turn, and each part to the next partition: these keep step in event time.
            for first in range(min(PARTITIONS, batch.num_rows)):
                producer.append(topic, batch.take(pa.array(np.arange(first, batch.num_rows, PARTITIONS))))
    for topic in topics:
        producer.promise(topic, time_of(events, rate) + timedelta(days=1))
    return topics


def create_side_input(log: Log) -> Topic:
    """The table that q13 looks up."""
    settings = TopicSettings(key=(SIDE_INPUT_KEY,), durability="os")
    topic = log.create_topic(SIDE_INPUT, SIDE_INPUT_SCHEMA, settings=settings)
    topic.append(side_input())
    return topic


def side_input() -> pa.RecordBatch:
    """A row for every remainder of an auction's id: the number, and the number as a text."""
    keys = np.arange(SIDE_INPUT_ROWS)
    return pa.record_batch({SIDE_INPUT_KEY: keys, "value": pa.array(keys).cast(pa.string())})


# -- the events -------------------------------------------------------------------------------------------------------


def batches(events: int, seed: int = 1, *, rate: int = EVENTS_PER_SECOND) -> Iterator[Chunk]:
    """The first so many events, `rate` of them to a second of event time."""
    if not 1 <= rate <= 1_000_000:
        raise ValueError(f"a rate is from 1 to 1,000,000 events/s, so that no two happen at one time; found {rate}")
    for number, start in enumerate(range(0, events, CHUNK_EVENTS)):
        whole = chunk(number, seed, rate)
        kept = counts(min(events - start, CHUNK_EVENTS))
        yield Chunk(*(batch.slice(0, count) for batch, count in zip(whole, kept, strict=True)))


def counts(events: int) -> tuple[int, int, int]:
    """How many persons, auctions and bids there are among the first so many events."""
    groups, others = divmod(events, _EVENTS)
    persons = groups + (others > 0)
    auctions = groups * _AUCTIONS + min(max(others - 1, 0), _AUCTIONS)
    return persons, auctions, events - persons - auctions


def time_of(event: int, rate: int = EVENTS_PER_SECOND) -> datetime:
    """When the event with this number happens."""
    return FIRST_TIME + timedelta(microseconds=event * 1_000_000 // rate)


def chunk(number: int, seed: int = 1, rate: int = EVENTS_PER_SECOND) -> Chunk:
    """The chunk with this number, whole."""
    random = np.random.default_rng([seed, 1, number])
    groups = np.arange(number * CHUNK_EVENTS // _EVENTS, (number + 1) * CHUNK_EVENTS // _EVENTS)
    return Chunk(_persons(groups, rate, random), _auctions(groups, rate, random), _bids(groups, rate, random, seed))


def _persons(groups: Numbers, rate: int, random: np.random.Generator) -> pa.RecordBatch:
    count = len(groups)
    texts = {
        "name": joined(picked(_FIRST_NAMES, count, random), " ", picked(_LAST_NAMES, count, random)),
        "emailAddress": joined(words(count, 7, random), "@", words(count, 5, random), ".com"),
        "creditCard": _credit_cards(count, random),
        "city": picked(_CITIES, count, random),
        "state": picked(_STATES, count, random),
    }
    return pa.record_batch(
        {
            "id": FIRST_ID + groups,
            **texts,
            TIME: _times(_micros(groups * _EVENTS, rate)),
            "extra": padding(2 * 8 + sizes(*texts.values()), _PERSON_BYTES, random),
        }
    )


def _auctions(groups: Numbers, rate: int, random: np.random.Generator) -> pa.RecordBatch:
    group, position = _spread(groups, _AUCTIONS)
    count = len(group)
    micros = _micros(group * _EVENTS + 1 + position, rate)
    # Not `integers`, which may take more or fewer random numbers for another range: the rate must change times alone.
    lengths = 1 + (random.random(count) * _longest_milliseconds(rate)).astype(np.int64)
    initial_bids = _prices(count, random)
    names, descriptions = sentences(count, 20, random), sentences(count, 100, random)
    return pa.record_batch(
        {
            "id": FIRST_ID + group * _AUCTIONS + position,
            "itemName": names,
            "description": descriptions,
            "initialBid": initial_bids,
            "reserve": initial_bids + _prices(count, random),
            TIME: _times(micros),
            "expires": _times(micros + lengths * 1_000),
            "seller": _people(group, random, hot=0),
            "category": random.choice(CATEGORIES, count),
            "extra": padding(7 * 8 + sizes(names, descriptions), _AUCTION_BYTES, random),
        }
    )


def _bids(groups: Numbers, rate: int, random: np.random.Generator, seed: int) -> pa.RecordBatch:
    group, position = _spread(groups, _BIDS)
    count = len(group)
    names, urls = _channels(seed)
    channels = pa.array(_chosen_channels(count, random))
    return pa.record_batch(
        {
            "auction": _auctions_in_flight(group, random),
            "bidder": _people(group, random, hot=1),
            "price": _prices(count, random),
            "channel": names.take(channels),
            "url": urls.take(channels),
            TIME: _times(_micros(group * _EVENTS + 1 + _AUCTIONS + position, rate)),
            "extra": padding(np.full(count, 4 * 8), _BID_BYTES, random),
        }
    )


# -- who and what they refer to ---------------------------------------------------------------------------------------


def _people(group: Numbers, random: np.random.Generator, *, hot: int) -> Numbers:
    """Three in four are the hot person of the moment; the others were active lately, or register soon."""
    people = group + 1
    active = np.minimum(people, ACTIVE)
    other = people - active + random.integers(0, active + LEAD)
    return FIRST_ID + np.where(random.random(len(group)) < 3 / 4, group // HOT_EVERY * HOT_EVERY + hot, other)


def _auctions_in_flight(group: Numbers, random: np.random.Generator) -> Numbers:
    """One in two is the hot auction of the moment; the others were opened lately, or will be soon."""
    newest = group * _AUCTIONS + _AUCTIONS - 1
    other = random.integers(np.maximum(newest - IN_FLIGHT, 0), newest + LEAD, endpoint=True)
    return FIRST_ID + np.where(random.random(len(group)) < 1 / 2, newest // HOT_EVERY * HOT_EVERY, other)


def _chosen_channels(count: int, random: np.random.Generator) -> Numbers:
    """Half of them are the hot ones, which come first."""
    hot = random.integers(0, len(HOT_CHANNELS), count)
    other = random.integers(len(HOT_CHANNELS), len(HOT_CHANNELS) + _CHANNELS, count)
    return np.where(random.random(count) < 1 / 2, hot, other)


@lru_cache(maxsize=4)
def _channels(seed: int) -> tuple[pa.Array, pa.Array]:
    """The names of all channels, and the url of each. Nine in ten of those that are not hot have an id in it."""
    random = np.random.default_rng([seed, 0])
    names = pa.array([*HOT_CHANNELS, *(f"channel-{number}" for number in range(_CHANNELS))])
    directories = [words(len(names), 5, random) for _ in range(3)]
    has_id = random.integers(0, 10, _CHANNELS) > 0
    ids = [f"&channel_id={_reversed_bits(number)}" if has else "" for number, has in enumerate(has_id)]
    pages = pa.array(["item.htm?query=1" + channel_id for channel_id in [*[""] * len(HOT_CHANNELS), *ids]])
    slashed = [joined(directory, "/") for directory in directories]
    return names, joined("https://www.nexmark.com/", *slashed, pages)


def _reversed_bits(number: int) -> int:
    return int(f"{number:032b}"[::-1], 2)


# -- values -----------------------------------------------------------------------------------------------------------


def _spread(groups: Numbers, each: int) -> tuple[Numbers, Numbers]:
    """For every event of a kind that has `each` in a group of 50: its group, and its position among them."""
    return np.repeat(groups, each), np.tile(np.arange(each), len(groups))


def _prices(count: int, random: np.random.Generator) -> Numbers:
    return np.rint(100 * 10 ** (6 * random.random(count))).astype(np.int64)


def _credit_cards(count: int, random: np.random.Generator) -> pa.Array:
    first, *others = (picked(_FOUR_DIGITS, count, random) for _ in range(4))
    return joined(first, *(joined(" ", digits) for digits in others))


def _longest_milliseconds(rate: int) -> int:
    """Twice the time in which as many auctions are opened as are in flight."""
    return max(2 * IN_FLIGHT * _EVENTS * 1_000 // _AUCTIONS // rate, 1)


def _micros(events: Numbers, rate: int) -> Numbers:
    return int(FIRST_TIME.timestamp()) * 1_000_000 + events * 1_000_000 // rate


def _times(micros: Numbers) -> pa.Array:
    return pa.array(micros).cast(pa.timestamp("us", "UTC"))
