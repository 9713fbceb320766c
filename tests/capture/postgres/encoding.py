"""Builds messages of pgoutput: the other direction of `decode`, which only tests need."""

from __future__ import annotations

from struct import pack

from penstock.capture.postgres.pgoutput import (
    EPOCH_MICROSECONDS,
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    Row,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)


def encode(message: Message) -> bytes:
    """The bytes of a message; those of a streamed block if it has an xid there."""
    match message:
        case Begin(lsn, time, xid):
            return b"B" + pack(">QqI", lsn, _time(time), xid)
        case Commit(flags, lsn, end, time):
            return b"C" + pack(">BQQq", flags, lsn, end, _time(time))
        case Relation():
            return b"R" + _xid(message.xid) + _relation(message)
        case Type(oid, namespace, name, xid):
            return b"Y" + _xid(xid) + pack(">I", oid) + _text(namespace) + _text(name)
        case Origin(lsn, name):
            return b"O" + pack(">Q", lsn) + _text(name)
        case Insert(relation_id, new, xid):
            return b"I" + _xid(xid) + pack(">I", relation_id) + b"N" + _row(new)
        case Update(relation_id, new, key, old, xid):
            return b"U" + _xid(xid) + pack(">I", relation_id) + _old(key, old) + b"N" + _row(new)
        case Delete(relation_id, key, old, xid):
            return b"D" + _xid(xid) + pack(">I", relation_id) + _old(key, old)
        case Truncate(ids, cascade, restart, xid):
            return b"T" + _xid(xid) + pack(f">IB{len(ids)}I", len(ids), cascade + 2 * restart, *ids)
        case LogicalMessage(transactional, lsn, prefix, content, xid):
            head = pack(">BQ", transactional, lsn)
            return b"M" + _xid(xid) + head + _text(prefix) + pack(">I", len(content)) + content
        case StreamStart(xid, first):
            return b"S" + pack(">IB", xid, first)
        case StreamStop():
            return b"E"
        case StreamCommit(xid, flags, lsn, end, time):
            return b"c" + pack(">IBQQq", xid, flags, lsn, end, _time(time))
        case StreamAbort(xid, subxid):
            return b"A" + pack(">II", xid, subxid)


def _relation(relation: Relation) -> bytes:
    head = pack(">I", relation.relation_id) + _text(relation.namespace) + _text(relation.name)
    columns = b"".join(
        pack(">B", column.is_key) + _text(column.name) + pack(">Ii", column.type_oid, column.type_modifier)
        for column in relation.columns
    )
    return head + relation.replica_identity.encode("latin-1") + pack(">H", len(relation.columns)) + columns


def _old(key: Row | None, old: Row | None) -> bytes:
    if key is not None:
        return b"K" + _row(key)
    return b"" if old is None else b"O" + _row(old)


def _row(row: Row) -> bytes:
    return pack(">H", len(row)) + b"".join(_value(value) for value in row)


def _value(value: object) -> bytes:
    if value is None or value is UNCHANGED:
        return b"n" if value is None else b"u"
    assert isinstance(value, bytes)
    return b"t" + pack(">I", len(value)) + value


def _time(time: int) -> int:
    return time - EPOCH_MICROSECONDS


def _xid(xid: int | None) -> bytes:
    return b"" if xid is None else pack(">I", xid)


def _text(text: str) -> bytes:
    return text.encode() + b"\0"
