"""The messages of pgoutput, the plugin of PostgreSQL that sends changes: protocol versions 1 and 2. No I/O.

`decode` reads one message. rows.py reads many changes of one table at once, and is tested against this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Final, Literal, TypeAlias

from penstock.errors import DamagedError

EPOCH_MICROSECONDS = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970: PostgreSQL counts times from there."""


class Unchanged(Enum):
    """The type of `UNCHANGED`: a large value that an update did not touch and the server therefore did not send."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED

Value: TypeAlias = bytes | Literal[Unchanged.UNCHANGED] | None
Row: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction that has committed begins. `final_lsn` is the LSN of its commit."""

    final_lsn: int
    commit_time: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a table. `is_key`: it belongs to the replica identity, which is every column if that is FULL."""

    name: str
    type_oid: int
    type_modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """What a table looks like from here on. `replica_identity` is d(efault), n(othing), f(ull) or i(ndex)."""

    relation_id: int
    namespace: str
    name: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Type:
    type_oid: int
    namespace: str
    name: str
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class Insert:
    relation_id: int
    new: Row
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """`key` has the old values of the replica identity and null elsewhere, `old` the whole old row, or neither."""

    relation_id: int
    new: Row
    key: Row | None = None
    old: Row | None = None
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """`key` has the values of the replica identity and null elsewhere, `old` the whole row: one of them is there."""

    relation_id: int
    key: Row | None = None
    old: Row | None = None
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    relation_ids: tuple[int, ...]
    cascade: bool
    restart_identity: bool
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What somebody wrote with `pg_logical_emit_message`."""

    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class StreamStart:
    """A block of a transaction that has not committed yet begins. `first`: the first block of this transaction."""

    xid: int
    first: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    pass


@dataclass(frozen=True, slots=True)
class StreamCommit:
    xid: int
    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """A transaction was rolled back, or with another `subxid` only that part of it."""

    xid: int
    subxid: int


Message: TypeAlias = (
    Begin
    | Commit
    | Relation
    | Type
    | Origin
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
)


def decode(message: bytes, *, streaming: bool) -> Message:
    """One message of pgoutput. Times are microseconds since 1970.

    With `streaming`, it comes from within a streamed block, between StreamStart and StreamStop: messages there have the
    id of their transaction in addition. A message that is not complete, or has something after its end: DamagedError.
    """
    reader = _Reader(message)
    kind = reader.take(1)
    if kind not in _DECODERS:
        raise reader.damaged(f"unknown kind of message {kind!r}")
    decoded = _DECODERS[kind](reader, streaming)
    reader.finish()
    return decoded


_INT8, _INT16, _INT32 = Struct(">B"), Struct(">H"), Struct(">I")
_INT64, _TIME = Struct(">Q"), Struct(">q")


class _Reader:
    """Takes one piece after the other from a message."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._at = 0

    def damaged(self, what: str) -> DamagedError:
        return DamagedError(
            f"pgoutput: {what}, at byte {self._at} of {len(self._message)}; found {self._message[:40]!r}",
            hint="the connection or a proxy in between has changed it, or this server speaks another protocol version",
        )

    def take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._message):
            raise self.damaged(f"the message ends too early: {length} more bytes are needed")
        piece = self._message[self._at : end]
        self._at = end
        return piece

    def number(self, form: Struct) -> int:
        return int(form.unpack(self.take(form.size))[0])

    def time(self) -> int:
        return self.number(_TIME) + EPOCH_MICROSECONDS

    def text(self) -> str:
        end = self._message.find(b"\0", self._at)
        if end < 0:
            raise self.damaged("a name has no end")
        piece = self.take(end - self._at)
        self._at += 1
        try:
            return piece.decode()
        except UnicodeDecodeError:
            raise self.damaged(f"a name is not UTF-8: {piece!r}") from None

    def row(self) -> Row:
        return tuple(self._value() for _ in range(self.number(_INT16)))

    def xid(self, streaming: bool) -> int | None:
        return self.number(_INT32) if streaming else None

    def finish(self) -> None:
        if self._at < len(self._message):
            raise self.damaged("the message continues after its end")

    def _value(self) -> Value:
        kind = self.take(1)
        match kind:
            case b"t":
                return self.take(self.number(_INT32))
            case b"n":
                return None
            case b"u":
                return UNCHANGED
        raise self.damaged(f"unknown kind of value {kind!r}")


def _begin(reader: _Reader, _: bool) -> Begin:
    return Begin(final_lsn=reader.number(_INT64), commit_time=reader.time(), xid=reader.number(_INT32))


def _commit(reader: _Reader, _: bool) -> Commit:
    return Commit(
        flags=reader.number(_INT8),
        commit_lsn=reader.number(_INT64),
        end_lsn=reader.number(_INT64),
        commit_time=reader.time(),
    )


def _relation(reader: _Reader, streaming: bool) -> Relation:
    xid = reader.xid(streaming)
    return Relation(
        relation_id=reader.number(_INT32),
        namespace=reader.text(),
        name=reader.text(),
        replica_identity=chr(reader.number(_INT8)),
        columns=tuple(_relation_column(reader) for _ in range(reader.number(_INT16))),
        xid=xid,
    )


def _relation_column(reader: _Reader) -> RelationColumn:
    is_key = bool(reader.number(_INT8) & 1)
    name = reader.text()
    type_oid = reader.number(_INT32)
    (modifier,) = Struct(">i").unpack(reader.take(4))
    return RelationColumn(name, type_oid, int(modifier), is_key)


def _type(reader: _Reader, streaming: bool) -> Type:
    xid = reader.xid(streaming)
    return Type(type_oid=reader.number(_INT32), namespace=reader.text(), name=reader.text(), xid=xid)


def _origin(reader: _Reader, _: bool) -> Origin:
    return Origin(lsn=reader.number(_INT64), name=reader.text())


def _insert(reader: _Reader, streaming: bool) -> Insert:
    xid, relation_id = reader.xid(streaming), reader.number(_INT32)
    _tag(reader, b"N")
    return Insert(relation_id, reader.row(), xid)


def _update(reader: _Reader, streaming: bool) -> Update:
    xid, relation_id = reader.xid(streaming), reader.number(_INT32)
    tag = _tag(reader, b"KON")
    key = reader.row() if tag == b"K" else None
    old = reader.row() if tag == b"O" else None
    if tag != b"N":
        _tag(reader, b"N")
    return Update(relation_id, reader.row(), key, old, xid)


def _delete(reader: _Reader, streaming: bool) -> Delete:
    xid, relation_id = reader.xid(streaming), reader.number(_INT32)
    if _tag(reader, b"KO") == b"K":
        return Delete(relation_id, key=reader.row(), xid=xid)
    return Delete(relation_id, old=reader.row(), xid=xid)


def _tag(reader: _Reader, expected: bytes) -> bytes:
    """Take the letter that says what the row after it is."""
    tag = reader.take(1)
    if tag not in expected:
        raise reader.damaged(f"unknown kind of row {tag!r}")
    return tag


def _truncate(reader: _Reader, streaming: bool) -> Truncate:
    xid, count, options = reader.xid(streaming), reader.number(_INT32), reader.number(_INT8)
    relation_ids = tuple(value for (value,) in _INT32.iter_unpack(reader.take(4 * count)))
    return Truncate(relation_ids, cascade=bool(options & 1), restart_identity=bool(options & 2), xid=xid)


def _logical_message(reader: _Reader, streaming: bool) -> LogicalMessage:
    xid = reader.xid(streaming)
    return LogicalMessage(
        is_transactional=bool(reader.number(_INT8) & 1),
        lsn=reader.number(_INT64),
        prefix=reader.text(),
        content=reader.take(reader.number(_INT32)),
        xid=xid,
    )


def _stream_start(reader: _Reader, _: bool) -> StreamStart:
    return StreamStart(xid=reader.number(_INT32), first=bool(reader.number(_INT8)))


def _stream_stop(_reader: _Reader, _: bool) -> StreamStop:
    return StreamStop()


def _stream_commit(reader: _Reader, _: bool) -> StreamCommit:
    return StreamCommit(
        xid=reader.number(_INT32),
        flags=reader.number(_INT8),
        commit_lsn=reader.number(_INT64),
        end_lsn=reader.number(_INT64),
        commit_time=reader.time(),
    )


def _stream_abort(reader: _Reader, _: bool) -> StreamAbort:
    return StreamAbort(xid=reader.number(_INT32), subxid=reader.number(_INT32))


_DECODERS: dict[bytes, Callable[[_Reader, bool], Message]] = {
    b"B": _begin,
    b"C": _commit,
    b"R": _relation,
    b"Y": _type,
    b"O": _origin,
    b"I": _insert,
    b"U": _update,
    b"D": _delete,
    b"T": _truncate,
    b"M": _logical_message,
    b"S": _stream_start,
    b"E": _stream_stop,
    b"c": _stream_commit,
    b"A": _stream_abort,
}
