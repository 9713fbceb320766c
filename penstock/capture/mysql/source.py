"""MariaDB as a `Database`: what the contract asks for, each in a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from penstock.capture.mysql.catalog import captured_table, describe_table
from penstock.capture.mysql.charsets import load_charsets
from penstock.capture.mysql.connection import Address, Session, session
from penstock.capture.mysql.copy import chunks_of_snapshot, open_snapshot
from penstock.capture.mysql.follow import Follower, Item
from penstock.capture.mysql.health import capture_health
from penstock.capture.mysql.position import BinlogPosition, Place, TableState, decode_position, encode_position
from penstock.capture.mysql.read import Reading, check_place
from penstock.capture.mysql.settings import check_settings
from penstock.contracts import Position, SourceHealth, SourceOptions, SourceTable, TableCopy, TableSnapshot
from penstock.errors import DeclarationError


class MySQLDatabase:
    """Captures tables of one server. `address` is asked for whenever a connection is opened."""

    def __init__(
        self, shown: str, address: Callable[[], Address], specs: Sequence[SourceTable], options: SourceOptions
    ) -> None:
        self._shown, self._address, self._specs, self._options = shown, address, tuple(specs), options
        self._open: list[Session | Reading] = []

    def __repr__(self) -> str:
        return f"MySQLDatabase({self._shown!r})"

    def tables(self) -> Sequence[SourceTable]:
        address = self._address()
        with session(address) as opened:
            check_settings(opened)
            charsets = load_charsets(opened)
            found = []
            for spec in self._specs:
                table = captured_table(spec, address.database)
                definition = describe_table(opened, table, charsets, self._options.dropped)
                found.append(replace(spec, schema=definition.schema, key=definition.key))
            return found

    def read(self, after: Position | None) -> Iterator[Item]:
        position = None if after is None else decode_position(after)
        address = self._address()
        opened = Session(address)
        self._open.append(opened)
        try:
            check_settings(opened)
            follower = Follower(
                tables=[captured_table(spec, address.database) for spec in self._specs],
                position=self._start(opened, position),
                charsets=load_charsets(opened),
                dropped=self._options.dropped,
                shown=self._shown,
            )
            reading = Reading(address, opened, follower, self._options)
            self._open.append(reading)
            yield from reading.items()
        finally:
            self.close()

    def confirm(self, position: Position) -> None:
        """Only check the position: the server keeps its binary log for a time, and for nobody in particular."""
        decode_position(position)

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def copy_again(self, position: Position | None, tables: Sequence[str]) -> Position | None:
        found = BinlogPosition(None, 0, 0, {}) if position is None else decode_position(position)
        names = {spec.name for spec in self._specs}
        unknown = sorted(set(tables) - names)
        if unknown:
            raise DeclarationError(
                f"database {self._shown}: table '{unknown[0]}' is not captured; captured are {', '.join(sorted(names))}"
            )
        if position is None:
            return None
        again = {name: _to_copy(found.tables.get(name)) for name in tables}
        states = {**found.tables, **again}
        place = None if names <= set(tables) else found.place
        return encode_position(BinlogPosition(place, found.server_id, found.file_time, states))

    def copies(self, position: Position | None) -> Sequence[TableCopy]:
        states = {} if position is None else decode_position(position).tables
        copies = []
        for spec in self._specs:
            state = states.get(spec.name, TableState())
            copies.append(TableCopy(spec.name, state.state, state.rows, state.estimated_rows))
        return copies

    def end(self) -> Position:
        with session(self._address()) as opened:
            return _encode_place(_current_place(opened))

    def has_reached(self, position: Position | None, end: Position) -> bool:
        if position is None or any(copy.state != "complete" for copy in self.copies(position)):
            return False
        place = decode_position(position).place
        return place is not None and not place.is_before(_decode_place(end))

    def health(self, position: Position | None) -> SourceHealth:
        found = None if position is None else decode_position(position)
        with session(self._address()) as opened:
            return capture_health(opened, found, self._options.name)

    def remove(self) -> None:
        """Nothing to remove: capturing leaves nothing in the server."""

    def snapshot(self, table: str) -> TableSnapshot:
        spec = next((spec for spec in self._specs if spec.name == table), None)
        if spec is None:
            raise DeclarationError(f"database {self._shown}: table '{table}' is not captured")
        address = self._address()
        opened = Session(address)
        self._open.append(opened)
        charsets = load_charsets(opened)
        place = open_snapshot(opened, None)
        definition = describe_table(opened, captured_table(spec, address.database), charsets, self._options.dropped)
        batches = chunks_of_snapshot(opened, definition, self._options.chunk_rows)
        return TableSnapshot(_encode_place(place), batches)

    def _start(self, opened: Session, position: BinlogPosition | None) -> BinlogPosition:
        """The position to read from: tables that it does not know wait for their copy."""
        states = {} if position is None else position.tables
        tables = {spec.name: states.get(spec.name, TableState()) for spec in self._specs}
        if position is None or position.place is None:
            server_id = int(str(opened.value("SELECT @@global.server_id")))
            return BinlogPosition(_current_place(opened), server_id, 0, tables)
        check_place(opened, position.place, position.server_id, self._options.name)
        return replace(position, tables=tables)


def _to_copy(state: TableState | None) -> TableState:
    return TableState() if state is None else replace(state, state="waiting", after=(), rows=0)


def _current_place(opened: Session) -> Place:
    rows = opened.rows("SHOW MASTER STATUS")
    return Place(str(rows[0][0]), int(str(rows[0][1])))


def _encode_place(place: Place) -> Position:
    return {"file": place.file, "byte": place.byte}


def _decode_place(end: Position) -> Place:
    found = end if isinstance(end, dict) else {}
    file, byte = found.get("file"), found.get("byte")
    if not isinstance(file, str) or not isinstance(byte, int):
        raise DeclarationError(f"database: this is not the position of an end; found {end!r:.200}")
    return Place(file, byte)
