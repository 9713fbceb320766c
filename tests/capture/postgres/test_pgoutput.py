from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    RelationColumn,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
    decode,
)
from penstock.errors import DamagedError
from tests.capture.postgres.encoding import encode

u8, u32, u64 = st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
times = st.integers(-(2**62), 2**62)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)
rows = st.lists(st.none() | st.just(UNCHANGED) | st.binary(max_size=20), max_size=5).map(tuple)
columns = st.builds(RelationColumn, names, u32, st.integers(-(2**31), 2**31 - 1), st.booleans())

plain = st.one_of(
    st.builds(Begin, u64, times, u32),
    st.builds(Commit, u8, u64, u64, times),
    st.builds(Origin, u64, names),
    st.builds(StreamStart, u32, st.booleans()),
    st.just(StreamStop()),
    st.builds(StreamCommit, u32, u8, u64, u64, times),
    st.builds(StreamAbort, u32, u32),
)


def within_transactions(xids: st.SearchStrategy[int | None]) -> st.SearchStrategy[Message]:
    return st.one_of(
        st.builds(
            Relation, u32, names, names, st.sampled_from("dnfi"), st.lists(columns, max_size=4).map(tuple), xid=xids
        ),
        st.builds(Type, u32, names, names, xid=xids),
        st.builds(Insert, u32, rows, xid=xids),
        st.builds(Update, u32, rows, xid=xids),
        st.builds(Update, u32, rows, key=rows, xid=xids),
        st.builds(Update, u32, rows, old=rows, xid=xids),
        st.builds(Delete, u32, key=rows, xid=xids),
        st.builds(Delete, u32, old=rows, xid=xids),
        st.builds(Truncate, st.lists(u32, max_size=4).map(tuple), st.booleans(), st.booleans(), xid=xids),
        st.builds(LogicalMessage, st.booleans(), u64, names, st.binary(max_size=20), xid=xids),
    )


messages = plain | within_transactions(st.none())
streamed = plain | within_transactions(u32)


@given(messages)
def test_a_message_decodes_to_what_was_encoded(message: Message) -> None:
    assert decode(encode(message), streaming=False) == message


@given(streamed)
def test_a_message_of_a_streamed_block_carries_its_transaction(message: Message) -> None:
    assert decode(encode(message), streaming=True) == message


@given(messages, st.data())
def test_a_message_that_was_cut_short_is_damaged(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(DamagedError, match="pgoutput: "):
        decode(cut, streaming=False)


@given(messages, st.binary(min_size=1, max_size=5))
def test_a_message_with_something_after_its_end_is_damaged(message: Message, rest: bytes) -> None:
    with pytest.raises(DamagedError, match="continues after its end"):
        decode(encode(message) + rest, streaming=False)


@given(st.binary() | st.builds(bytes.__add__, st.sampled_from([b"I", b"U", b"R", b"T", b"M", b"D"]), st.binary()))
def test_any_bytes_are_a_message_or_damaged(message: bytes) -> None:
    for streaming in (False, True):
        with contextlib.suppress(DamagedError):
            decode(message, streaming=streaming)


def test_a_binary_value_is_refused_because_nobody_asked_for_it() -> None:
    with pytest.raises(DamagedError, match=r"unknown kind of value b'b', at byte 9 of 14"):
        decode(b"I\0\0\0\x01N\0\x01b\0\0\0\x01x", streaming=False)


def test_messages_of_a_real_server_mean_what_they_meant_when_they_were_recorded() -> None:
    """The file is made by record_messages.py, with PostgreSQL 15."""
    lines = (Path(__file__).parent / "recorded_15.txt").read_text().splitlines()
    kinds = set()
    for line in lines:
        recorded, meaning = line.split("\t")
        message = bytes.fromhex(recorded.removeprefix("~"))
        decoded = decode(message, streaming=recorded.startswith("~"))
        assert repr(decoded) == meaning
        assert encode(decoded) == message
        kinds.add(message[:1])
    assert kinds == {letter.encode() for letter in "BCRYIUDTMSEcA"}  # no origin: that takes a replica of a replica
