"""The replication stream: messages of pgoutput in, and feedback out. One connection of libpq, without blocking reads.

It uses the libpq that psycopg 3 wraps. psycopg2 has a class for replication, but on its own it tells the server that
what the server sends last is durable as soon as all before it is; then the slot would be ahead of the log.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping
from struct import Struct

from psycopg import pq

from penstock.capture.postgres.catalog import literal, quoted
from penstock.capture.postgres.connection import connection_string
from penstock.capture.postgres.pgoutput import EPOCH_MICROSECONDS
from penstock.capture.postgres.position import lsn_text, parse_lsn
from penstock.errors import UnavailableError
from penstock.secrets import masked_url

_MESSAGE = ord("w")  # all others are keepalives
_ROW_KINDS = b"IUD"
_HEADER = 25  # the kind, two LSNs and a time
_FIRST_LSN = Struct(">Q")
_FEEDBACK = Struct(">cQQQqB")
_FEEDBACK_SECONDS = 10.0
_HANDOVER_SECONDS, _HANDOVER_PAUSE = 2.0, 0.05
_IN_USE = b"55006"
MESSAGE_BYTES = 400
"""What a message costs beside its bytes, in lists and in decoding."""

AddRow = Callable[[bytes], None]


class ReplicationStream:
    """An open stream. `received` is how far the server has sent: all of its log before that is here."""

    def __init__(self, url: str) -> None:
        self._shown = masked_url(url)
        self._connection = pq.PGconn.connect(connection_string(url, replication=True).encode())
        if self._connection.status != pq.ConnStatus.OK:
            message = self._problem()
            self._connection.finish()
            raise self._unavailable(message)
        self.received = 0
        self._durable = 0
        self._next_feedback = 0.0

    def identify(self) -> tuple[str, int, int]:
        """The identity of the server, its timeline, and how far its log is written."""
        ((system, timeline, lsn, *_),) = self._rows("IDENTIFY_SYSTEM")
        return system, int(timeline), parse_lsn(lsn)

    def history(self, timeline: int) -> Mapping[int, int]:
        """At which LSN each earlier timeline ended, in the history of this one."""
        if timeline == 1:
            return {}
        ((_, content),) = self._rows(f"TIMELINE_HISTORY {timeline}")
        lines = [line.split("\t") for line in content.splitlines() if line and line[0].isdigit()]
        return {int(line[0]): parse_lsn(line[1]) for line in lines}

    def start(self, slot: str, lsn: int, *, streams_transactions: bool) -> None:
        """Begin after an LSN."""
        streaming = ", streaming 'on'" if streams_transactions else ""
        command = (
            f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {lsn_text(lsn)} (proto_version "
            f"'{2 if streams_transactions else 1}', publication_names {literal(quoted(slot))}{streaming})"
        )
        # The server may need a moment to notice that an earlier stream of this slot has ended.
        until = time.monotonic() + _HANDOVER_SECONDS
        result = self._execute(command)
        while result.error_field(pq.DiagnosticField.SQLSTATE) == _IN_USE and time.monotonic() < until:
            time.sleep(_HANDOVER_PAUSE)
            result = self._execute(command)
        self._expect(result, pq.ExecStatus.COPY_BOTH)
        self._connection.nonblocking = 1
        self.received = self._durable = lsn
        self._send_feedback()

    def read(self, rows: Mapping[bytes, AddRow], budget: int) -> tuple[int, bytes | None]:
        """Read messages until one is no change of a row, or until the budget is used up, or no more is available.

        Changes are added to `rows`, by the four bytes that say which table (in a streamed block, which transaction);
        another message is returned. Also returns what is left of the budget: messages cost bytes.
        """
        get = self._connection.get_copy_data
        while budget > 0:
            length, data = get(1)
            if length <= 0:
                if length < 0:
                    raise self._end_error()
                if not self._receive_more():
                    break
                continue
            if data[0] != _MESSAGE:
                self._take_keepalive(data)
                continue
            message = bytes(data[_HEADER:])
            budget -= length + MESSAGE_BYTES
            if message[0] not in _ROW_KINDS:
                return budget, message
            rows[message[1:5]](message)
        return budget, None

    def wait(self, seconds: float, *wakers: int) -> None:
        """Wait until the server sends something, one of the other file descriptors is readable, or the time is over."""
        self.keep_alive()
        select.select([self._connection.socket, *wakers], [], [], seconds)

    def confirm(self, lsn: int) -> None:
        """Everything before this LSN is durable: the server may remove it from its log."""
        self._durable = max(self._durable, lsn)
        self._send_feedback()

    def keep_alive(self) -> None:
        """Say from time to time that this end is alive."""
        if time.monotonic() >= self._next_feedback:
            self._send_feedback()

    def close(self) -> None:
        self._connection.finish()

    def _receive_more(self) -> bool:
        """Take what has arrived since. False: nothing."""
        self._guard()
        readable, _, _ = select.select([self._connection.socket], [], [], 0)
        if not readable:
            return False
        try:
            self._connection.consume_input()
        except Exception as error:
            raise self._unavailable(self._problem() or str(error)) from error
        return True

    def _guard(self) -> None:
        if self._connection.status != pq.ConnStatus.OK:
            raise self._unavailable("the connection is closed")

    def _take_keepalive(self, data: memoryview | bytes) -> None:
        (lsn,) = _FIRST_LSN.unpack_from(data, 1)
        self.received = max(self.received, lsn)
        if data[17]:
            self._send_feedback()

    def _send_feedback(self) -> None:
        self._next_feedback = time.monotonic() + _FEEDBACK_SECONDS
        now = int(time.time() * 1_000_000) - EPOCH_MICROSECONDS
        received = max(self.received, self._durable)
        self._guard()
        try:
            self._connection.put_copy_data(_FEEDBACK.pack(b"r", received, self._durable, self._durable, now, 0))
            self._connection.flush()
        except Exception as error:
            raise self._unavailable(self._problem() or str(error)) from error

    def _end_error(self) -> UnavailableError:
        result = self._connection.get_result()
        message = (result.error_message if result is not None else b"").decode(errors="replace").strip()
        return self._unavailable(message.splitlines()[0] if message else "the server has ended the stream")

    def _rows(self, command: str) -> list[list[str]]:
        result = self._execute(command)
        self._expect(result, pq.ExecStatus.TUPLES_OK)
        return [
            [(result.get_value(row, column) or b"").decode() for column in range(result.nfields)]
            for row in range(result.ntuples)
        ]

    def _execute(self, command: str) -> pq.abc.PGresult:
        try:
            return self._connection.exec_(command.encode())
        except Exception as error:
            raise self._unavailable(str(error)) from error

    def _expect(self, result: pq.abc.PGresult, expected: pq.ExecStatus) -> None:
        if result.status != expected:
            message = result.error_message.decode(errors="replace").strip()
            raise self._unavailable(message.splitlines()[0] if message else self._problem())

    def _problem(self) -> str:
        lines = self._connection.error_message.decode(errors="replace").strip().splitlines()
        return lines[0] if lines else "the connection was lost"

    def _unavailable(self, message: str) -> UnavailableError:
        return UnavailableError(
            f"{self._shown}: {message}",
            hint="see that the server runs, that the role has REPLICATION, and that no other process uses this slot",
        )
