"""From events of the binary log to items: transactions stay whole, and definitions are followed. No I/O.

Changes are gathered table by table over several transactions, and given together. Only the last item of what was
gathered has a position, and only if no transaction is open there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from penstock.capture.mysql import events
from penstock.capture.mysql.catalog import CapturedTable
from penstock.capture.mysql.changes import TableChanges
from penstock.capture.mysql.charsets import Charsets
from penstock.capture.mysql.ddl import TableChange, mentions, statement_kind, table_changes, writes_rows
from penstock.capture.mysql.events import Event, Gtid, Header, Mark, Query, RowsChange, TableMap
from penstock.capture.mysql.logged import LoggedTable, check_columns, column_gone, logged_table
from penstock.capture.mysql.position import BinlogPosition, Place, TableState, encode_position
from penstock.contracts import Captured, Position, TableEvent
from penstock.errors import ChangesLostError, DeclarationError

Item = Captured | TableEvent

_MOST_ROWS = 10_000
_MOST_BYTES = 8 * 1024 * 1024
_LONGEST_SECONDS = 1.0  # between two items with a position, while there are transactions


@dataclass(slots=True)
class Follower:
    """Follows the log from a position. `position` is that of the last whole transaction that was read."""

    tables: Sequence[CapturedTable]
    position: BinlogPosition
    charsets: Charsets
    dropped: frozenset[str]
    shown: str  # the URL, for messages
    is_open: bool = False  # inside a transaction
    _place: Place | None = None
    _gtid: Gtid | None = None
    _seconds: int = 0  # when the open transaction was committed
    _by_name: dict[tuple[str, str], CapturedTable] = field(default_factory=dict)
    _maps: dict[int, TableMap] = field(default_factory=dict)
    _layouts: dict[str, tuple[bytes, LoggedTable]] = field(default_factory=dict)
    _changes: dict[str, TableChanges] = field(default_factory=dict)
    _has_given_part: bool = False  # items of the open transaction were given, without a position
    _changed_in_open: bool = False  # the open transaction has rows of captured tables
    _given: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._by_name = {(table.database, table.table): table for table in self.tables}

    # -- what it gives

    def apply(self, header: Header, event: Event, place: Place, file_time: int) -> Iterator[Item]:
        """Take the next event, which ends at `place`."""
        self._place = place
        if isinstance(event, TableMap):
            self._maps[event.table_id] = event
        elif isinstance(event, RowsChange):
            yield from self._add_rows(event)
        elif isinstance(event, Gtid):
            self.is_open, self._gtid, self._seconds = True, event, header.time
            self._maps.clear()  # numbers of tables mean something within a transaction only
        elif isinstance(event, Query):
            yield from self._follow_statement(event)
        elif isinstance(event, Mark):
            self._follow_mark(event)
        if self.is_open:
            return
        self._changed_in_open = False
        self.position = replace(self.position, place=place, file_time=file_time)
        if self._is_due():
            yield from self.flush()
            yield self.heartbeat()

    def flush(self) -> Iterator[Item]:
        """Give what was gathered: with the position at its end, unless a transaction is open there."""
        batches = [(name, changes.to_batch()) for name, changes in self._changes.items()]
        self._changes = {}
        given = [(name, *batch) for name, batch in batches if batch is not None]
        end = None if self.is_open else self.encoded_position
        for number, (name, rows, deleted) in enumerate(given):
            is_last = number == len(given) - 1
            yield Captured(name, rows, deleted, end if is_last else None)
        if self.is_open:
            self._has_given_part = self._has_given_part or bool(given)
            return
        if self._has_given_part and not given:
            yield self.heartbeat()
        self._has_given_part = False

    def give_whole(self, position: BinlogPosition) -> Iterator[Item]:
        """Before an error: give the transactions that were gathered up to this position, if they are not mixed with
        rows of the open one. Those are read again."""
        if not self._changed_in_open and not self._has_given_part:
            self.is_open, self.position = False, position
            yield from self.flush()

    def heartbeat(self) -> Captured:
        self._given = time.monotonic()
        return Captured("", position=None if self.is_open or self._changes else self.encoded_position)

    @property
    def encoded_position(self) -> Position:
        return encode_position(self.position)

    def set_table(self, name: str, state: TableState) -> None:
        self.position = self.position.with_table(name, state)

    def _is_due(self) -> bool:
        rows = sum(map(len, self._changes.values()))
        return rows >= _MOST_ROWS or self._is_large() or time.monotonic() - self._given >= _LONGEST_SECONDS

    def _is_large(self) -> bool:
        return sum(changes.size for changes in self._changes.values()) >= _MOST_BYTES

    # -- rows

    def _add_rows(self, event: RowsChange) -> Iterator[Item]:
        table_map = self._maps.get(event.table_id)
        table = None if table_map is None else self._by_name.get((table_map.database, table_map.table))
        if table is None or table_map is None or self._state(table).state == "waiting":
            return  # what is waiting will be copied, with these changes
        where = self._where(table)
        if not event.is_whole:
            raise DeclarationError(
                f"{where}: a session has logged only some columns of its rows",
                hint="SET GLOBAL binlog_row_image = FULL, in no session otherwise; then copy the tables again: "
                "penstock capture snapshot NAME",
            )
        if self._gtid is not None and self._gtid.is_xa_prepare:
            raise DeclarationError(
                f"{where}: an XA transaction has changed it, and XA transactions are not supported",
                hint="use plain transactions in the application, and copy it again: penstock capture snapshot NAME",
            )
        logged = self._logged_table(table, table_map, where)
        changes = self._changes.get(table.name)
        if changes is not None and changes.table is not logged:
            yield from self._flush_inside()
            changes = None
        if changes is None:
            changes = self._changes[table.name] = TableChanges(logged)
        changes.add(event.what, event.images, self._seconds)
        self._changed_in_open = True
        if len(changes) >= _MOST_ROWS or changes.size >= _MOST_BYTES:
            yield from self._flush_inside()

    def _flush_inside(self) -> Iterator[Item]:
        """Give what was gathered, of whole transactions and of the open one."""
        self.is_open = True
        yield from self.flush()

    def _logged_table(self, table: CapturedTable, table_map: TableMap, where: str) -> LoggedTable:
        known = self._layouts.get(table.name)
        if known is not None and known[0] == table_map.definition:
            return known[1]
        try:
            layout = events.table_layout(table_map.definition)
        except ValueError as error:
            raise DeclarationError(f"{where}: {error}", hint="change the type of the column") from error
        state = self._state(table)
        logged = logged_table(table, layout, state.key, charsets=self.charsets, where=where)
        check_columns(logged.types, state.columns or {}, dropped=self.dropped, table=table.name, where=where)
        if logged.types != state.columns:
            self.set_table(table.name, replace(state, columns=logged.types))
        self._layouts[table.name] = (table_map.definition, logged)
        return logged

    # -- the end of transactions, and definitions

    def _follow_mark(self, event: Mark) -> None:
        if event.type in (events.XID, events.XA_PREPARE):
            self.is_open = False
        elif event.type == events.INCIDENT:
            raise ChangesLostError(
                f"database {self.shown}: the server says that changes are missing in its binary log at {self._place}",
                hint="copy the tables again: penstock capture snapshot NAME",
            )
        elif event.type not in events.HARMLESS and event.type not in (events.FORMAT, events.HEARTBEAT):
            raise DeclarationError(
                f"database {self.shown}: the binary log has an event of an unknown type at {self._place}; "
                f"found {event.type}",
                hint="this version of the server is newer than what is supported",
            )

    def _follow_statement(self, event: Query) -> Iterator[Item]:
        kind = statement_kind(event.statement)
        if kind in ("BEGIN", "START", "SAVEPOINT", "RELEASE", "XA"):
            self.is_open = kind in ("BEGIN", "START") or self.is_open
        elif kind == "COMMIT":
            self.is_open = False
        elif kind == "ROLLBACK":
            self._roll_back(event.statement)
        elif writes_rows(event.statement):
            self._refuse_logged_statement(event)
        else:
            yield from self._follow_definition(event)
        if self._gtid is not None and self._gtid.standalone:
            self.is_open = False

    def _roll_back(self, statement: str) -> None:
        """Such a transaction is logged only for tables without transactions. Rows of others in it never came to be."""
        if self._changed_in_open:
            raise DeclarationError(
                f"database {self.shown}: a transaction at {self._place} was rolled back after it had changed "
                "tables that have no transactions",
                hint="copy the tables again: penstock capture snapshot NAME; and change tables of other engines in "
                "transactions of their own",
            )
        if "TO" not in statement.upper().split():
            self.is_open = False

    def _refuse_logged_statement(self, event: Query) -> None:
        for table in self.tables:
            if mentions(event.statement, table.table) and self._state(table).state != "waiting":
                raise DeclarationError(
                    f"{self._where(table)}: a session has logged a statement in place of rows: {event.statement:.200}",
                    hint="SET GLOBAL binlog_format = ROW, in no session otherwise; then copy the tables again: "
                    "penstock capture snapshot NAME",
                )

    def _follow_definition(self, event: Query) -> Iterator[Item]:
        try:
            changes = table_changes(event.statement, event.database)
        except ValueError as error:
            raise DeclarationError(f"database {self.shown}: at {self._place}, {error}") from error
        for change in changes:
            for table in self.tables:
                if change.database == table.database and change.table in (table.table, "*"):
                    self._layouts.pop(table.name, None)
                    yield from self._follow_change(table, change, event.statement)

    def _follow_change(self, table: CapturedTable, change: TableChange, statement: str) -> Iterator[Item]:
        state = self._state(table)
        if state.state == "waiting" or change.effect == "harmless":
            return
        if change.effect == "truncated":
            yield from self._give_truncated(table)
        elif change.effect == "rewritten":
            self.set_table(table.name, _waiting_again(state))
        elif change.effect == "column gone":
            self._drop_column(table, state, change, statement)
        else:
            self._refuse_change(table, change, statement)

    def _give_truncated(self, table: CapturedTable) -> Iterator[Item]:
        place = self._place
        yield from self._flush_inside()
        assert place is not None
        self.is_open = False
        self.position = replace(self.position, place=place)
        self._has_given_part = False
        if not table.spec.inserts_only:
            yield TableEvent(table.name, "truncated", self.encoded_position)

    def _drop_column(self, table: CapturedTable, state: TableState, change: TableChange, statement: str) -> None:
        columns = state.columns or {}
        name = next((name for name in columns if name.lower() == change.column.lower()), None)
        if name is None:
            return  # it is not captured
        if f"{table.name}.{name}" not in self.dropped:
            raise column_gone(table.name, name, f"{self._where(table)}: {statement:.200}")
        state = replace(state, columns={key: type_ for key, type_ in columns.items() if key != name})
        # With RENAME and CHANGE, the rows that exist have values under the new name.
        is_drop = "DROP" in statement.upper().split()
        self.set_table(table.name, state if is_drop else _waiting_again(state))

    def _refuse_change(self, table: CapturedTable, change: TableChange, statement: str) -> NoReturn:
        raise DeclarationError(
            f"{self._where(table)}: the table was {change.effect}: {statement:.200}",
            hint=f"if there is a table of this name again, copy it: penstock capture snapshot NAME {table.name}; "
            "or else leave it out of the capture",
        )

    def _state(self, table: CapturedTable) -> TableState:
        return self.position.tables[table.name]

    def _where(self, table: CapturedTable) -> str:
        return f"database {self.shown}: table '{table.name}' at {self._place}"


def _waiting_again(state: TableState) -> TableState:
    """To be copied from its beginning. What its columns were is remembered, to be compared."""
    return replace(state, state="waiting", after=(), rows=0)


def next_to_copy(tables: Mapping[str, TableState]) -> str | None:
    """The table whose copy goes on: one that has begun, or else the first that waits."""
    names = sorted(tables, key=lambda name: tables[name].state == "waiting")
    return next((name for name in names if tables[name].state != "complete"), None)
