"""Keys as users write them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Log
from penstock.cli.keys import key_batch, parse_key, partition_of_key
from penstock.errors import DeclarationError


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as opened:
        opened.create_topic("one", "country string, n int", key="country", partitions=8)
        opened.create_topic("two", "shop string, number bigint", key=("shop", "number"))
        opened.create_topic("none", "a int")
        yield opened


def test_a_key_of_one_column_is_its_value(log: Log) -> None:
    assert parse_key(log.topic("one"), ["DE"]) == {"country": "DE"}
    assert parse_key(log.topic("one"), ["country=DE"]) == {"country": "DE"}
    assert parse_key(log.topic("one"), ["a=b"]) == {"country": "a=b"}
    assert parse_key(log.topic("one"), ["country=country=DE"]) == {"country": "country=DE"}


def test_a_key_of_two_columns_names_both(log: Log) -> None:
    assert parse_key(log.topic("two"), ["number=17", "shop=a"]) == {"shop": "a", "number": 17}


@pytest.mark.parametrize("given", [["a"], ["shop=a"], ["shop=a", "shop=b"], ["shop=a", "number=1", "x=2"]])
def test_anything_but_the_whole_key_is_refused(log: Log, given: list[str]) -> None:
    with pytest.raises(DeclarationError, match="the key is shop, number") as refused:
        parse_key(log.topic("two"), given)
    assert refused.value.hint == "give --key shop=... --key number=..."


def test_a_topic_without_a_key_has_no_rows_of_a_key(log: Log) -> None:
    with pytest.raises(DeclarationError, match="it has no key"):
        parse_key(log.topic("none"), ["1"])


@pytest.mark.parametrize(
    ("text", "hint"),
    [("x", "give a whole number"), (str(2**63), f"the range is {-(2**63)} to {2**63 - 1}")],
)
def test_a_value_that_does_not_fit_is_refused_as_it_was_given(log: Log, text: str, hint: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        parse_key(log.topic("two"), ["shop=a", f"number={text}"])
    assert refused.value.message == f"topic 'two': the key column 'number' takes bigint; found '{text}'"
    assert refused.value.hint == hint


@pytest.mark.parametrize("name", ["contry", "Country", "countr"])
def test_a_name_that_is_nearly_the_key_column_is_taken_for_a_mistake(log: Log, name: str) -> None:
    with pytest.raises(DeclarationError, match=f"the key column is 'country'; found '{name}=DE'") as refused:
        parse_key(log.topic("one"), [f"{name}=DE"])
    assert refused.value.hint == (f"give --key country=DE, or --key country={name}=DE if the value itself has the =")
    assert parse_key(log.topic("one"), [f"country={name}=DE"]) == {"country": f"{name}=DE"}


def test_the_partition_of_a_key_is_where_its_rows_are_stored(log: Log) -> None:
    topic = log.topic("one")
    for country in ("DE", "FR", "IT", "JP"):
        (appended,) = topic.append({"country": country})
        assert partition_of_key(topic, key_batch(topic, {"country": country})) == appended.partition
