"""The stream of the binary log: the one connection on which the server sends events, from a place on."""

from __future__ import annotations

import struct
import time

import pymysql

from penstock.capture.mysql.connection import Address, Session, error_parts
from penstock.capture.mysql.events import (
    FORMAT,
    HEARTBEAT,
    Event,
    Header,
    Mark,
    Rotate,
    event_body,
    parse_event,
    parse_header,
)
from penstock.capture.mysql.position import Place
from penstock.errors import ChangesLostError, DeclarationError, PenstockError, UnavailableError

_BINLOG_DUMP = 0x12
_READ_BYTES = 1 << 18
_LARGEST_PACKET = 0xFFFFFF
_SILENCE_SECONDS = 60.0  # the server sends a heartbeat every second
_NO_BINLOG = 1236


class BinlogStream:
    """Events from `start` on. `place` is behind the last event, `file_time` when its file was begun (0: not known)."""

    def __init__(self, address: Address, start: Place, *, server_id: int, file_time: int, name: str) -> None:
        self.place, self.file_time, self._name = start, file_time, name
        self._buffer, self._read = bytearray(), 0
        self._heard = time.monotonic()
        self._session = Session(address)
        self._has_checksums = self._session.value("SELECT @@global.binlog_checksum") != "NONE"
        self._session.execute("SET @master_binlog_checksum = @@global.binlog_checksum")
        self._session.execute("SET @mariadb_slave_capability = 4, @master_heartbeat_period = 1000000000")
        # The protocol has four bytes for the place. The server begins a new file when one is that large.
        first = start if start.byte < 1 << 32 else start.next_file()
        request = struct.pack("<IHI", first.byte, 0, server_id) + first.file.encode()
        with self._session.answers():
            self._session.raw._execute_command(_BINLOG_DUMP, request)

    def next_event(self, timeout: float) -> tuple[Header, Event] | None:
        """The next event, or None if none comes within so many seconds."""
        deadline = time.monotonic() + timeout
        while (packet := self._next_packet(deadline)) is not None:
            header = parse_header(packet)
            try:
                body = event_body(packet, has_checksum=self._has_checksums)
                if header.type == HEARTBEAT:
                    self._move(Header(0, HEARTBEAT, 0, 0, header.next_place))
                    return header, Mark(HEARTBEAT)
                event = parse_event(header.type, body)
            except (ValueError, IndexError, KeyError, struct.error) as error:
                raise self._lost(
                    f"the event before {header.next_place} in {self.place.file} is damaged; {error}"
                ) from error
            self._follow(header, event)
            return header, event
        return None

    def close(self) -> None:
        self._session.raw._force_close()  # there is nothing to say to a server that is sending

    def _follow(self, header: Header, event: Event) -> None:
        if isinstance(event, Rotate):
            moved = Place(event.file, event.place)
            if moved.file != self.place.file:
                self.file_time = 0
                self.place = moved
        elif header.type == FORMAT:
            if self.file_time and header.time != self.file_time:
                raise self._lost(f"the server has another file {self.place.file} now: its binary logs were reset")
            self.file_time = header.time
            if header.next_place and self.place.byte <= 4:
                self._move(header)
        elif header.next_place:
            self._move(header)

    def _move(self, header: Header) -> None:
        """Move to the end of an event. Its header has only the lower four bytes of the place."""
        byte = self.place.byte >> 32 << 32 | header.next_place
        if byte < self.place.byte and header.size:
            byte += 1 << 32
        self.place = Place(self.place.file, max(byte, self.place.byte))

    # -- packets

    def _next_packet(self, deadline: float) -> bytes | None:
        while (packet := self._take_packet()) is None:
            if not self._receive(deadline - time.monotonic()):
                if time.monotonic() - self._heard > _SILENCE_SECONDS:
                    raise UnavailableError(f"database {self._session.address.shown}: it has said nothing for a minute")
                return None
        if packet[0] == 0:
            return packet[1:]
        if packet[0] == 0xFE:
            raise UnavailableError(f"database {self._session.address.shown}: it has ended the stream")
        raise self._error_of(packet)

    def _take_packet(self) -> bytes | None:
        """The next whole packet of the buffer. A long one comes in parts of 16 MiB."""
        at, parts = self._read, []
        while len(self._buffer) - at >= 4:
            size = int.from_bytes(self._buffer[at : at + 3], "little")
            if len(self._buffer) - at - 4 < size:
                break
            parts.append(self._buffer[at + 4 : at + 4 + size])
            at += 4 + size
            if size < _LARGEST_PACKET:
                self._read = at
                return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)
        return None

    def _receive(self, timeout: float) -> bool:
        """Read what has arrived. False if nothing does in time."""
        socket = self._session.raw._sock
        if self._read:
            del self._buffer[: self._read]
            self._read = 0
        with self._session.answers():
            try:
                socket.settimeout(max(timeout, 0.001))
                data = socket.recv(_READ_BYTES)
            except TimeoutError:
                return False
            if not data:
                raise pymysql.err.OperationalError(2013, "the server has closed the connection")
        self._heard = time.monotonic()
        self._buffer += data
        return True

    def _error_of(self, packet: bytes) -> PenstockError:
        try:
            pymysql.err.raise_mysql_exception(packet)
        except pymysql.err.MySQLError as error:
            code, text = error_parts(error)
            if code != _NO_BINLOG:
                return self._session.our_error(error)
            if "max_allowed_packet" in text:
                return DeclarationError(
                    f"database {self._session.address.shown}: a row is larger than the server sends; {text}",
                    hint="SET GLOBAL max_allowed_packet = 1073741824",
                )
            if "same server_uuid/server_id" in text:
                return UnavailableError(
                    f"database {self._session.address.shown}: another process captures under this name; {text}"
                )
            return self._lost(text)
        raise AssertionError("the server has sent an error without one")

    def _lost(self, found: str) -> ChangesLostError:
        return changes_lost(self._session.address.shown, self.place, self._name, found)


def changes_lost(shown: str, place: Place, name: str, found: str) -> ChangesLostError:
    """The error for changes that the server no longer has."""
    return ChangesLostError(
        f"database {shown}: the server no longer has what came after {place}; {found}",
        hint=f"copy the tables again: penstock capture snapshot {name}",
    )
