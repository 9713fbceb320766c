"""Positions as JSON, and places in the log."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.mysql.position import BinlogPosition, Place, TableState, decode_position, encode_position
from penstock.errors import DeclarationError

TEXT = st.text(max_size=5)
COUNT = st.integers(0, 2**40)
TABLE = st.builds(
    TableState,
    state=st.sampled_from(["waiting", "copying", "complete"]),
    after=st.lists(TEXT).map(tuple),
    rows=COUNT,
    estimated_rows=st.none() | COUNT,
    key=st.lists(TEXT).map(tuple),
    columns=st.none() | st.dictionaries(TEXT, TEXT),
)
TABLES = st.dictionaries(TEXT, TABLE)
POSITION = st.builds(BinlogPosition, st.builds(Place, TEXT, COUNT), COUNT, COUNT, TABLES) | st.builds(
    BinlogPosition, st.none(), st.just(0), st.just(0), TABLES
)


@given(POSITION)
def test_a_position_is_read_as_it_was_written(position: BinlogPosition) -> None:
    encoded = encode_position(position)
    assert json.loads(json.dumps(encoded)) == encoded
    assert decode_position(encoded) == position


@pytest.mark.parametrize(
    "position",
    [
        "x",
        1,
        True,
        [],
        {},
        {"tables": 1},
        {"tables": {"t": {}}},
        {"tables": {}, "file": 1},
        {"tables": {}, "file": "f"},
    ],
)
def test_what_is_no_position_is_refused(position: object) -> None:
    with pytest.raises(DeclarationError, match="position"):
        decode_position(position)  # type: ignore[arg-type]


def test_places_are_in_the_order_of_the_log() -> None:
    places = [Place("b.000009", 900), Place("b.000010", 4), Place("b.000010", 1000), Place("b.1000000", 4)]
    for index, place in enumerate(places):
        for later in places[index + 1 :]:
            assert place.is_before(later)
            assert not later.is_before(place)
    assert Place("b.000009", 1 << 33).next_file() == Place("b.000010", 4)
