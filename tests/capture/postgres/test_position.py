"""Positions as JSON, snapshots and keys: the parts without a server."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.postgres.keys import contains, key_texts
from penstock.capture.postgres.position import StreamPosition, TableState, from_json, lsn_text, parse_lsn, to_json
from penstock.capture.postgres.types import PostgresType, column_layout, table_layout
from penstock.capture.postgres.url import check_url
from penstock.capture.postgres.visibility import Snapshot, parse_snapshot
from penstock.errors import DeclarationError

numbers = st.integers(0, 2**62)
states = st.builds(
    TableState,
    state=st.sampled_from(["waiting", "copying", "complete"]),
    key=st.none() | st.lists(st.text()).map(tuple),
    rows=numbers,
    given=numbers,
    fence=numbers,
    oid=numbers,
    columns=st.dictionaries(st.text(), st.tuples(numbers, numbers)),
)
positions = st.builds(
    StreamPosition,
    lsn=st.integers(0, 2**64 - 1),
    tables=st.dictionaries(st.text(), states),
    system=st.text(),
    timeline=numbers,
    unseen=st.lists(numbers).map(tuple),
)


@given(positions)
def test_a_position_is_the_same_after_json(position: StreamPosition) -> None:
    assert from_json(json.loads(json.dumps(to_json(position)))) == position


@given(st.integers(0, 2**64 - 1))
def test_an_lsn_is_the_same_after_text(lsn: int) -> None:
    assert parse_lsn(lsn_text(lsn)) == lsn


@given(st.integers(3, 2**40), st.sets(st.integers(0, 1000)), st.integers(-2000, 2000))
def test_a_snapshot_shows_what_ended_before_it_also_beyond_32_bits(
    xmax: int, distances: set[int], distance: int
) -> None:
    running = frozenset(xmax - 1 - back for back in distances if back < xmax)
    text = f"{min(running, default=xmax)}:{xmax}:{','.join(map(str, running))}"
    snapshot = parse_snapshot(text)
    assert snapshot == Snapshot(min(running, default=xmax), xmax, running)
    xid = max(0, xmax + distance)
    assert snapshot.shows(xid % 2**32) == (xid < xmax and xid not in running)


pairs = st.lists(st.tuples(st.text(":1a", max_size=4), st.text(":1a", max_size=4)), max_size=20)


@given(pairs, pairs)
def test_keys_of_two_columns_are_found_exactly(known: list[tuple[str, str]], asked: list[tuple[str, str]]) -> None:
    text = PostgresType(25, "text")
    layout = table_layout("t", [column_layout("a", text, is_key=True), column_layout("b", text, is_key=True)])

    def texts(rows: list[tuple[str, str]]) -> pa.Array:
        columns = [pa.array([row[index] for row in rows], pa.string()) for index in (0, 1)]
        return key_texts(pa.RecordBatch.from_arrays(columns, ["a", "b"]), layout)

    assert contains(texts(known), texts(asked)).to_pylist() == [row in known for row in asked]


def test_urls_of_libpq_are_accepted_and_others_say_nothing_of_their_password() -> None:
    check_url("postgresql://app:${SECRET}@db/shop?sslmode=require&application_name=x")
    check_url("postgresql:///shop?service=main")
    with pytest.raises(DeclarationError) as error:
        check_url("postgresql://app:hid/den@db:x/shop?nonsense=1")
    assert "hid" not in str(error.value)
