"""Columns as the binary log declares them, matched with those that are captured. Pure.

Rows are decoded by what the log says about them, never by the catalogue: that may be ahead of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.capture.mysql import events
from penstock.capture.mysql.catalog import CapturedTable
from penstock.capture.mysql.charsets import Charsets
from penstock.capture.mysql.events import RawColumn, TableLayout
from penstock.capture.mysql.rows import RowLayout
from penstock.capture.mysql.types import ColumnType, arrow_type, is_widening
from penstock.capture.mysql.values import Column
from penstock.errors import DeclarationError

_BINARY_COLLATION = 63
_WHOLE = {events.TINY: 1, events.SHORT: 2, events.INT24: 3, events.LONG: 4, events.LONGLONG: 8}
_PLAIN = {events.FLOAT: "float", events.DOUBLE: "double", events.DATE: "date", events.YEAR: "year"}
_WITH_FRACTION = {events.TIME2: "time", events.DATETIME2: "datetime", events.TIMESTAMP2: "timestamp"}
_LABELLED = {events.ENUM: "enum", events.SET: "set"}
_TEXTS = frozenset({events.VARCHAR, events.VAR_STRING, events.STRING, events.BLOB})
_OLD_TIMES = frozenset({events.TIME, events.DATETIME, events.TIMESTAMP})


@dataclass(frozen=True, slots=True, eq=False)
class LoggedTable:
    """How to decode the rows of a table: its captured columns, with their places among all columns of a row."""

    rows: RowLayout
    columns: tuple[tuple[int, Column], ...]
    key: tuple[str, ...]
    inserts_only: bool

    @property
    def types(self) -> Mapping[str, str]:
        return {column.name: str(column.arrow) for _, column in self.columns}


def logged_table(
    table: CapturedTable, layout: TableLayout, key: tuple[str, ...], *, charsets: Charsets, where: str
) -> LoggedTable:
    """The captured columns of a table map. DeclarationError if they are not named, or one of them is not supported."""
    if any(not column.name for column in layout.columns):
        raise DeclarationError(
            f"{where}: these changes were logged without the names of columns",
            hint="SET GLOBAL binlog_row_metadata = FULL, and copy the tables again: penstock capture snapshot NAME",
        )
    columns = []
    for number, raw in enumerate(layout.columns):
        if table.takes(raw.name):
            place = f"{where}, column '{raw.name}'"
            type_ = logged_type(raw, charsets, place)
            characters = charsets.characters_of(type_.charset)
            column = Column(raw.name, type_, place, raw.name in table.spec.as_text, characters)
            columns.append((number, column))
    return LoggedTable(layout.rows, tuple(columns), key, table.spec.inserts_only)


def logged_type(raw: RawColumn, charsets: Charsets, where: str) -> ColumnType:
    type_, meta = raw.type, raw.meta
    if type_ in _WHOLE:
        return ColumnType("whole", width=_WHOLE[type_], unsigned=raw.unsigned)
    if type_ in _PLAIN:
        return ColumnType(_PLAIN[type_])
    if type_ in _WITH_FRACTION:
        return ColumnType(_WITH_FRACTION[type_], scale=meta)
    if type_ == events.NEWDECIMAL:
        return ColumnType("decimal", width=meta >> 8, scale=meta & 0xFF)
    if type_ == events.BIT:
        return ColumnType("bit", width=meta)
    charset = charsets.names.get(raw.collation, "")
    if type_ in _LABELLED:
        labels = tuple(_label(text, charset, charsets) for text in raw.labels)
        return ColumnType(_LABELLED[type_], width=meta, charset=charset, labels=labels)
    if type_ == events.GEOMETRY:
        return ColumnType("binary")
    if type_ in _TEXTS and raw.collation == _BINARY_COLLATION:
        return ColumnType("fixed binary", width=meta) if type_ == events.STRING else ColumnType("binary")
    if type_ in _TEXTS and charset:
        return ColumnType("text", charset=charset)
    if type_ in _OLD_TIMES:
        raise DeclarationError(
            f"{where}: it is stored in the format of MariaDB 5.5 and older", hint="ALTER TABLE ... FORCE rewrites it"
        )
    raise DeclarationError(f"{where}: it has a type that is not supported; found {type_} in the binary log")


def _label(text: bytes, charset: str, charsets: Charsets) -> str:
    characters = charsets.characters_of(charset)
    return "".join(characters[byte] for byte in text) if characters else text.decode()


def check_columns(
    found: Mapping[str, str],
    known: Mapping[str, str],
    *,
    dropped: frozenset[str],
    table: str,
    where: str,
) -> None:
    """Raise DeclarationError if a topic could not follow from the known columns to those that are found."""
    for name, before in known.items():
        if name not in found:
            if f"{table}.{name}" not in dropped:
                raise column_gone(table, name, where)
        elif found[name] != before and not is_widening(arrow_type(before), arrow_type(found[name])):
            raise DeclarationError(
                f"{where}: the type of column '{name}' has changed from {before} to {found[name]}, which a topic "
                "cannot follow",
                hint=f"change it back, or begin a new capture of '{table}' into another topic",
            )


def column_gone(table: str, column: str, where: str) -> DeclarationError:
    return DeclarationError(
        f"{where}: column '{column}' of '{table}' was dropped or renamed",
        hint="accept it, and its values are null from then on: "
        f"penstock capture accept NAME --dropped {table}.{column}",
    )
