from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Delete,
    Insert,
    Relation,
    RelationColumn,
    Row,
    Truncate,
    Update,
    Value,
    decode,
)
from penstock.capture.postgres.row_id import row_ids
from penstock.capture.postgres.rows import RowChanges, decode_rows
from penstock.capture.postgres.types import PostgresType, TableLayout, column_layout, table_layout
from penstock.errors import DamagedError, DeclarationError
from tests.capture.postgres.encoding import encode

TEXT, INT4 = PostgresType(25, "text"), PostgresType(23, "int4")
KEYED = table_layout(
    "shop.orders",
    [
        column_layout("id", TEXT, is_key=True),
        column_layout("note", TEXT),
        column_layout("amount", INT4),
        column_layout("gone", TEXT),
    ],
)
KEYLESS = table_layout("shop.log", [column_layout(name, TEXT) for name in ("id", "note", "amount", "gone")])


def relation(*names: str, identity: str = "d") -> Relation:
    columns = tuple(RelationColumn(name, 25, -1, identity == "f" or name == "id") for name in names)
    return Relation(16385, "shop", "orders", identity, columns)


@dataclass(frozen=True)
class ExpectedRow:
    values: Mapping[str, object]
    deleted: bool = False
    unchanged: frozenset[str] = frozenset()
    moved: bool = False


def expected_rows(message: bytes, source: Relation, table: TableLayout, *, streaming: bool) -> Iterator[ExpectedRow]:
    """The rows of one message, read with `decode`."""
    change = decode(message, streaming=streaming)
    assert isinstance(change, Insert | Update | Delete)
    old = None if isinstance(change, Insert) else (change.old or change.key)
    before = {} if old is None else named(old, source, table)
    if isinstance(change, Delete):
        yield deletion(before, table)
        return
    after = named(change.new, source, table)
    for name, value in after.items():
        if value is UNCHANGED and before.get(name) is not None:
            after[name] = before[name]
    identify(after, table)
    identify(before, table)
    moved = bool(before) and any(before[name] != after[name] for name in table.key)
    if moved:
        yield deletion(before, table)
    unchanged = frozenset(name for name, value in after.items() if value is UNCHANGED)
    values = {name: None if name in unchanged else value for name, value in after.items()}
    yield ExpectedRow(typed(values), False, unchanged, moved and bool(unchanged))


def named(row: Row, source: Relation, table: TableLayout) -> dict[str, Value]:
    values = {column.name: value for column, value in zip(source.columns, row, strict=True)}
    return {column.name: values.get(column.name) for column in table.table_columns}


def identify(values: dict[str, Value], table: TableLayout) -> None:
    if table.has_row_id and values and "row_id" not in values:
        texts = [None if value is UNCHANGED else value for value in values.values()]
        (row_id,) = row_ids([pa.array([text], pa.binary()) for text in texts]).to_pylist()
        values["row_id"] = row_id.encode()


def deletion(before: dict[str, Value], table: TableLayout) -> ExpectedRow:
    identify(before, table)
    values = {column.name: before[column.name] if column.is_key else None for column in table.columns}
    return ExpectedRow(typed(values), deleted=True)


def typed(values: Mapping[str, object]) -> dict[str, object]:
    texts = {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}
    amount = texts.get("amount")
    return {**texts, "amount": int(amount)} if isinstance(amount, str) and "row_id" not in values else texts


def decoded_rows(changes: RowChanges, table: TableLayout) -> list[ExpectedRow]:
    changes.batch.validate(full=True)
    assert changes.batch.schema == table.schema
    rows = changes.batch.drop_columns(["committed_at"]).to_pylist()
    deleted = changes.deleted.to_pylist() if changes.deleted else [False] * len(rows)
    moved = changes.moved.to_pylist() if changes.moved else [False] * len(rows)
    unchanged = [
        frozenset(name for name, marks in changes.unchanged.items() if marks[index].as_py())
        for index in range(len(rows))
    ]
    return [ExpectedRow(*parts) for parts in zip(rows, deleted, unchanged, moved, strict=True)]


ids = st.sampled_from([b"a", b"b", b"", b"c" * 300])
texts = st.none() | st.sampled_from([b"", b"x", "ü".encode(), b"long" * 100])
values = {
    "id": ids,
    "note": texts,
    "amount": st.none() | st.sampled_from([b"0", b"-1", b"12345"]),
    "gone": texts,
    "more": texts,
}


@st.composite
def histories(draw: st.DrawFn, *, identity: str) -> tuple[Relation, list[bytes], bool]:
    names = draw(st.permutations(["id", "note", "amount"]).map(list))
    names += draw(st.lists(st.sampled_from(["gone", "more"]), unique=True, max_size=2))
    source, streaming = relation(*names, identity=identity), draw(st.booleans())
    xid = 7 if streaming else None
    full = st.tuples(*(values[name] for name in names))
    key = st.tuples(*(ids if name == "id" else st.none() for name in names))
    old = {"old": full} if identity == "f" else {"key": key}
    plain = st.builds(Insert, st.just(16385), full, xid=st.just(xid))
    updates = st.builds(Update, st.just(16385), full, xid=st.just(xid), **old)
    deletes = st.builds(Delete, st.just(16385), xid=st.just(xid), **old)
    changes = [plain, updates, deletes]
    if identity != "f":
        changes.append(st.builds(Update, st.just(16385), full, xid=st.just(xid)))
    history = draw(st.lists(st.one_of(changes), max_size=8))
    return source, [encode(draw(st.just(toasted(draw, change)))) for change in history], streaming


def toasted(draw: st.DrawFn, change: Insert | Update | Delete) -> Insert | Update | Delete:
    """Perhaps without some of the values that are as before."""
    if not isinstance(change, Update):
        return change
    old = change.old or change.key
    left_out = draw(st.lists(st.integers(0, len(change.new) - 1), max_size=2))
    new = tuple(
        UNCHANGED if index in left_out and (change.old is None or old is None or old[index] is not None) else value
        for index, value in enumerate(change.new)
    )
    if old is None:  # without an old row the key is in the new one
        new = tuple(
            before if after is UNCHANGED and before in (b"a", b"b", b"", b"c" * 300) else after
            for before, after in zip(change.new, new, strict=True)
        )
    return Update(change.relation_id, new, change.key, change.old, change.xid)


def check_against_decode(source: Relation, messages: Sequence[bytes], table: TableLayout, streaming: bool) -> None:
    times = np.arange(len(messages), dtype=np.int64) * 1_000_000
    changes = decode_rows(messages, source, table, times, streaming=streaming)
    by_message = [list(expected_rows(message, source, table, streaming=streaming)) for message in messages]
    assert decoded_rows(changes, table) == [row for rows in by_message for row in rows]
    expected_times = [int(time) for time, rows in zip(times, by_message, strict=True) for _ in rows]
    assert changes.batch.column("committed_at").cast(pa.int64()).to_pylist() == expected_times


@given(histories(identity="d"))
def test_rows_are_those_that_decode_finds_one_by_one(history: tuple[Relation, list[bytes], bool]) -> None:
    source, messages, streaming = history
    check_against_decode(source, messages, KEYED, streaming)


@given(histories(identity="f"))
def test_rows_with_their_old_rows_are_those_that_decode_finds(history: tuple[Relation, list[bytes], bool]) -> None:
    source, messages, streaming = history
    check_against_decode(source, messages, KEYED, streaming)


@given(histories(identity="f"))
def test_rows_without_a_key_are_identified_by_all_of_their_values(history: tuple[Relation, list[bytes], bool]) -> None:
    source, messages, streaming = history
    check_against_decode(source, messages, KEYLESS, streaming)


@given(histories(identity="d"), st.data())
def test_a_damaged_message_is_found_as_decode_finds_it(
    history: tuple[Relation, list[bytes], bool], data: st.DataObject
) -> None:
    source, messages, streaming = history
    bad = data.draw(
        st.binary(max_size=30)
        | st.sampled_from(messages or [b""]).flatmap(
            lambda message: st.integers(0, len(message)).map(lambda at: message[:at])
        )
        | st.sampled_from(messages or [b""]).map(lambda message: message + b"x")
        | st.sampled_from(messages or [b""]).flatmap(lambda message: flipped(message))
    )
    place = data.draw(st.integers(0, len(messages)))
    mixed = [*messages[:place], bad, *messages[place:]]
    times = np.zeros(len(mixed), np.int64)
    try:
        change = decode(bad, streaming=streaming)
        rows = [getattr(change, name, None) for name in ("new", "key", "old")]
        assert isinstance(change, Insert | Update | Delete)
        assert change.relation_id == source.relation_id
        assert all(len(row) == len(source.columns) for row in rows if row is not None)
    except (DamagedError, AssertionError):
        with pytest.raises(DamagedError, match="pgoutput: "):
            decode_rows(mixed, source, KEYED, times, streaming=streaming)
        return
    with contextlib.suppress(DeclarationError):  # it is complete, but perhaps not what the table can hold
        decode_rows(mixed, source, KEYED, times, streaming=streaming)


def flipped(message: bytes) -> st.SearchStrategy[bytes]:
    """The message with one other byte."""
    if not message:
        return st.just(message)
    place = st.integers(0, len(message) - 1)
    return st.builds(lambda at, byte: message[:at] + bytes([byte]) + message[at + 1 :], place, st.integers(0, 255))


def decode_all(changes: Sequence[Insert | Update | Delete | Begin | Truncate], source: Relation) -> RowChanges:
    times = np.zeros(len(changes), np.int64)
    return decode_rows([encode(change) for change in changes], source, KEYED, times, streaming=False)


def test_no_messages_are_no_rows() -> None:
    changes = decode_all([], relation("id", "note"))
    assert changes.batch.num_rows == 0
    assert (changes.deleted, changes.unchanged, changes.moved) == (None, {}, None)


def test_a_message_of_another_table_is_refused() -> None:
    with pytest.raises(
        DamagedError, match=r"expected changes of relation 16385 with 2 columns; found Insert of relation 7"
    ):
        decode_all([Insert(7, (b"1", b"2"))], relation("id", "note"))
    with pytest.raises(DamagedError, match="found Truncate"):
        decode_all([Insert(16385, (b"1", b"2")), Truncate((16385,), False, False)], relation("id", "note"))


def test_a_change_without_its_key_stops_with_what_to_do() -> None:
    with pytest.raises(
        DeclarationError, match=r"table shop.orders, column id: it belongs to the key, and a change does"
    ):
        decode_all([Update(16385, (UNCHANGED, b"x"))], relation("id", "note"))


def test_a_replica_identity_without_the_key_is_refused_because_key_changes_would_go_unnoticed() -> None:
    columns = (RelationColumn("id", 25, -1, False), RelationColumn("note", 25, -1, True))
    source = Relation(16385, "shop", "orders", "i", columns)
    decode_all([Insert(16385, (b"1", b"x"))], source)
    with pytest.raises(DeclarationError, match="the replica identity lacks the key; missing are id") as caught:
        decode_all([Update(16385, (b"1", b"x"))], source)
    assert caught.value.hint is not None
    assert 'ALTER TABLE "shop"."orders" REPLICA IDENTITY FULL' in caught.value.hint


def test_a_value_that_does_not_fit_names_the_table_and_the_column() -> None:
    with pytest.raises(
        DeclarationError, match=r"table shop\.orders, column amount: '3000000000' does not fit the type int"
    ):
        decode_all([Insert(16385, (b"1", b"3000000000"))], relation("id", "amount"))


def test_a_moved_row_with_unchanged_values_is_marked() -> None:
    source = relation("id", "note")
    changes = decode_all([Update(16385, (b"2", UNCHANGED), key=(b"1", None))], source)
    assert changes.batch.column("id").to_pylist() == ["1", "2"]
    assert changes.deleted is not None
    assert changes.moved is not None
    assert changes.deleted.to_pylist() == [True, False]
    assert changes.moved.to_pylist() == [False, True]
    assert changes.unchanged["note"].to_pylist() == [False, True]
