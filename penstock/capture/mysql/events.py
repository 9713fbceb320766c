"""Events of the binary log, from the bytes that a server sends. Pure: it is tested without a server.

Only what capturing needs is read. An event of another type is a `Mark`, so that nobody overlooks it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from penstock.capture.mysql.rows import RowLayout, Storage

_HEADER = struct.Struct("<IBIIIH")
HEADER_BYTES = _HEADER.size
CHECKSUM_BYTES = 4

ROTATE, FORMAT, QUERY, XID, TABLE_MAP, HEARTBEAT, XA_PREPARE, GTID = 4, 15, 2, 16, 19, 27, 38, 162
QUERY_COMPRESSED, EXECUTE_LOAD, INCIDENT = 165, 18, 26
_ROWS = {23: "write", 24: "update", 25: "delete", 30: "write", 31: "update", 32: "delete"}
_COMPRESSED_ROWS = {166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
# They change nothing: annotations, checkpoints, lists of GTIDs, the end of a file, values for statements.
HARMLESS = frozenset({3, 5, 13, 14, 17, 29, 160, 161, 163, 164})


@dataclass(frozen=True, slots=True)
class Header:
    """What every event begins with. `next_place` is 0 in events that are not in the file."""

    time: int
    type: int
    server_id: int
    size: int
    next_place: int


@dataclass(frozen=True, slots=True)
class Rotate:
    file: str
    place: int


@dataclass(frozen=True, slots=True)
class Query:
    """A statement: a definition, or the beginning and end of a transaction."""

    database: str
    statement: str


@dataclass(frozen=True, slots=True)
class Gtid:
    """The beginning of a transaction. `standalone`: it is the one statement that follows."""

    standalone: bool
    is_xa_prepare: bool


@dataclass(frozen=True, slots=True)
class RawColumn:
    """A column as a table map declares it. `labels` are the bytes of the texts of an enum or a set."""

    name: str
    type: int
    meta: int
    unsigned: bool = False
    collation: int = 0
    labels: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class TableMap:
    """What the row events that follow mean by the number of a table. Its columns are read by `table_layout`."""

    table_id: int
    database: str
    table: str
    definition: bytes


@dataclass(frozen=True, slots=True, eq=False)
class TableLayout:
    """The columns of a table map, and how its row images store them."""

    columns: tuple[RawColumn, ...]
    rows: RowLayout


@dataclass(frozen=True, slots=True, eq=False)
class RowsChange:
    """Row images of one table: `what` is write, update (pairs of before and after) or delete."""

    table_id: int
    what: str
    images: bytes
    is_whole: bool  # whether all columns are in the images


@dataclass(frozen=True, slots=True)
class Mark:
    """An event that says all by its type."""

    type: int


Event = Rotate | Query | Gtid | TableMap | RowsChange | Mark


def parse_header(packet: bytes) -> Header:
    time, type_, server_id, size, next_place, _ = _HEADER.unpack_from(packet)
    return Header(time, type_, server_id, size, next_place)


def event_body(packet: bytes, *, has_checksum: bool) -> bytes:
    """What is between header and checksum. ValueError if the checksum is wrong."""
    if not has_checksum:
        return packet[HEADER_BYTES:]
    stored = int.from_bytes(packet[-CHECKSUM_BYTES:], "little")
    if zlib.crc32(memoryview(packet)[:-CHECKSUM_BYTES]) != stored:
        raise ValueError("its checksum is wrong")
    return packet[HEADER_BYTES:-CHECKSUM_BYTES]


def parse_event(type_: int, body: bytes) -> Event:
    if type_ in _COMPRESSED_ROWS:
        plain = _COMPRESSED_ROWS[type_]
        return _rows_change(plain, _decompressed_rows(body, plain))
    if type_ in _ROWS:
        return _rows_change(type_, body)
    return _PARSERS[type_](body) if type_ in _PARSERS else Mark(type_)


def _rotate(body: bytes) -> Rotate:
    return Rotate(body[8:].decode(), int.from_bytes(body[:8], "little"))


def _gtid(body: bytes) -> Gtid:
    flags = body[12]
    return Gtid(bool(flags & 1), bool(flags & 64))


def _query(body: bytes, *, is_compressed: bool = False, extra_bytes: int = 0) -> Query:
    database_bytes = body[8]
    status_bytes = int.from_bytes(body[11:13], "little")
    start = 13 + extra_bytes + status_bytes
    database = body[start : start + database_bytes].decode()
    text = body[start + database_bytes + 1 :]
    if is_compressed:
        text = _decompressed(text)
    return Query(database, text.decode("utf-8", "replace"))


def _table_map(body: bytes) -> TableMap:
    database, at = _short_text(body, 8)
    table, at = _short_text(body, at)
    return TableMap(int.from_bytes(body[:6], "little"), database, table, body[at:])


_PARSERS: dict[int, Callable[[bytes], Event]] = {
    ROTATE: _rotate,
    GTID: _gtid,
    TABLE_MAP: _table_map,
    EXECUTE_LOAD: lambda body: _query(body, extra_bytes=13),
    QUERY: _query,
    QUERY_COMPRESSED: lambda body: _query(body, is_compressed=True),
}


def _decompressed(data: bytes) -> bytes:
    """What MariaDB has compressed: a byte with the number of bytes of the length, the length, and zlib."""
    return zlib.decompress(data[1 + (data[0] & 7) :])


def _images_start(type_: int, body: bytes) -> int:
    """Where the images begin: behind the number of the table, flags, extra bytes, and the bitmaps of columns."""
    start = 8
    if type_ >= 30:
        start += int.from_bytes(body[8:10], "little")
    count, start = _length(body, start)
    return start + (count + 7) // 8 * (2 if _ROWS[type_] == "update" else 1)


def _decompressed_rows(body: bytes, type_: int) -> bytes:
    start = _images_start(type_, body)
    return body[:start] + _decompressed(body[start:])


def _rows_change(type_: int, body: bytes) -> RowsChange:
    start = 8 + (int.from_bytes(body[8:10], "little") if type_ >= 30 else 0)
    count, bitmaps = _length(body, start)
    begin = _images_start(type_, body)
    width = (count + 7) // 8
    whole = (1 << count) - 1
    given = [int.from_bytes(body[at : at + width], "little") for at in range(bitmaps, begin, width)]
    is_whole = all(bits & whole == whole for bits in given)
    return RowsChange(int.from_bytes(body[:6], "little"), _ROWS[type_], body[begin:], is_whole)


# -- table maps -------------------------------------------------------------------------------------------------------

TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 10, 11, 12, 13, 15, 16, 17, 18, 19
NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 246, 247, 248, 252, 253, 254, 255
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
_META_BYTES = {
    **dict.fromkeys((FLOAT, DOUBLE, BLOB, GEOMETRY, 245, TIMESTAMP2, DATETIME2, TIME2, BLOB_COMPRESSED), 1),
    **dict.fromkeys((VARCHAR, BIT, NEWDECIMAL, ENUM, SET, VAR_STRING, STRING, VARCHAR_COMPRESSED), 2),
}
_WIDTHS = {TINY: 1, SHORT: 2, LONG: 4, FLOAT: 4, DOUBLE: 8, TIMESTAMP: 4, LONGLONG: 8, INT24: 3, DATE: 3, TIME: 3}
_WIDTHS |= {DATETIME: 8, YEAR: 1}
_NUMERIC = frozenset({TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE, YEAR})
_CHARACTER = frozenset({STRING, VAR_STRING, VARCHAR, BLOB, GEOMETRY, BLOB_COMPRESSED, VARCHAR_COMPRESSED})
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS = 1, 2, 3, 4, 5, 6
_LABEL_DEFAULT_CHARSET, _LABEL_CHARSETS = 10, 11


def table_layout(body: bytes) -> TableLayout:
    """The columns of a table, from the definition of its table map. ValueError if one is stored in an unknown way."""
    count, at = _length(body, 0)
    types = body[at : at + count]
    _, at = _length(body, at + count)
    columns = []
    for type_ in types:
        width = _META_BYTES.get(type_, 0)
        columns.append(_plain_column(type_, body[at : at + width]))
        at += width
    optional = _optional_fields(body, at + (count + 7) // 8)
    named = _with_metadata(columns, optional)
    return TableLayout(named, RowLayout([_storage(column) for column in named]))


def _plain_column(type_: int, meta: bytes) -> RawColumn:
    if type_ in (STRING, ENUM, SET):
        first, second = meta
        if first in (ENUM, SET):
            return RawColumn("", first, second)
        # Lengths over 255 use two bits of the type, inverted.
        return RawColumn("", STRING, second | ((first & 0x30) ^ 0x30) << 4)
    if type_ == NEWDECIMAL:
        return RawColumn("", type_, meta[0] << 8 | meta[1])
    if type_ == BIT:
        return RawColumn("", type_, meta[1] * 8 + meta[0])
    return RawColumn("", type_, int.from_bytes(meta, "little"))


def _storage(column: RawColumn) -> Storage:
    type_, meta = column.type, column.meta
    if type_ in _WIDTHS:
        return Storage(width=_WIDTHS[type_])
    if type_ in (VARCHAR, VAR_STRING, STRING, VARCHAR_COMPRESSED):
        return Storage(prefix=1 if meta < 256 else 2)
    if type_ in (BLOB, GEOMETRY, BLOB_COMPRESSED, 245):
        return Storage(prefix=meta)
    if type_ in (ENUM, SET):
        return Storage(width=meta)
    if type_ in (TIMESTAMP2, DATETIME2, TIME2):
        return Storage(width={TIMESTAMP2: 4, DATETIME2: 5, TIME2: 3}[type_] + (meta + 1) // 2)
    if type_ == BIT:
        return Storage(width=(meta + 7) // 8)
    if type_ == NEWDECIMAL:
        digits, scale = meta >> 8, meta & 0xFF
        sides = [divmod(side, 9) for side in (digits - scale, scale)]
        return Storage(width=sum(whole * 4 + _DIGIT_BYTES[part] for whole, part in sides))
    raise ValueError(f"column '{column.name}' has the type {type_}, which is not known")


def _optional_fields(body: bytes, at: int) -> dict[int, bytes]:
    fields = {}
    while at < len(body):
        kind = body[at]
        length, at = _length(body, at + 1)
        fields[kind] = body[at : at + length]
        at += length
    return fields


def _with_metadata(columns: list[RawColumn], fields: dict[int, bytes]) -> tuple[RawColumn, ...]:
    names = _texts(fields.get(_NAMES, b""))
    numeric = [number for number, column in enumerate(columns) if column.type in _NUMERIC]
    characters = [number for number, column in enumerate(columns) if column.type in _CHARACTER]
    labelled = [number for number, column in enumerate(columns) if column.type in (ENUM, SET)]
    signs = fields.get(_SIGNS, b"")
    unsigned = {number for index, number in enumerate(numeric) if _bit(signs, index)}
    collations = {
        **_collations(fields.get(_DEFAULT_CHARSET), fields.get(_CHARSETS), characters),
        **_collations(fields.get(_LABEL_DEFAULT_CHARSET), fields.get(_LABEL_CHARSETS), labelled),
    }
    labels = {
        **_labels(fields.get(_ENUMS, b""), [number for number in labelled if columns[number].type == ENUM]),
        **_labels(fields.get(_SETS, b""), [number for number in labelled if columns[number].type == SET]),
    }
    return tuple(
        RawColumn(
            names[number].decode() if number < len(names) else "",
            column.type,
            column.meta,
            number in unsigned,
            collations.get(number, 0),
            labels.get(number, ()),
        )
        for number, column in enumerate(columns)
    )


def _bit(bits: bytes, index: int) -> bool:
    return index // 8 < len(bits) and bool(bits[index // 8] & 0x80 >> index % 8)


def _collations(default: bytes | None, each: bytes | None, numbers: list[int]) -> dict[int, int]:
    """Collations of columns: one for each, or a default and pairs of index and collation."""
    if each is not None:
        return dict(zip(numbers, _lengths(each), strict=True))
    if default is None:
        return {}
    first, *pairs = _lengths(default)
    found = dict.fromkeys(numbers, first)
    found.update({numbers[index]: collation for index, collation in zip(pairs[::2], pairs[1::2], strict=True)})
    return found


def _labels(field_: bytes, numbers: list[int]) -> dict[int, tuple[bytes, ...]]:
    found, at = {}, 0
    for number in numbers:
        count, at = _length(field_, at)
        texts = []
        for _ in range(count):
            length, at = _length(field_, at)
            texts.append(field_[at : at + length])
            at += length
        found[number] = tuple(texts)
    return found


def _texts(field_: bytes) -> list[bytes]:
    texts, at = [], 0
    while at < len(field_):
        length, at = _length(field_, at)
        texts.append(field_[at : at + length])
        at += length
    return texts


def _lengths(field_: bytes) -> list[int]:
    numbers, at = [], 0
    while at < len(field_):
        number, at = _length(field_, at)
        numbers.append(number)
    return numbers


def _short_text(body: bytes, at: int) -> tuple[str, int]:
    """A text behind one byte of length, and before a zero."""
    end = at + 1 + body[at]
    return body[at + 1 : end].decode(), end + 1


def _length(body: bytes, at: int) -> tuple[int, int]:
    """A number of the protocol that has one to nine bytes, and where it ends."""
    first = body[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(body[at + 1 : at + 1 + width], "little"), at + 1 + width
