"""Transactions that are streamed before they have ended: their messages, in a temporary file each, until they commit.

Memory stays flat whatever their size. Each message has the id of its subtransaction, so a part that is rolled back is
left out when the file is read. The files have no names, so they are gone with the process, however it ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from struct import Struct
from typing import BinaryIO, cast

from penstock.capture.postgres.pgoutput import StreamAbort

_LENGTH = Struct(">I")
_XID = Struct(">xI")
_BUFFER = 1 << 20
_ROW_KINDS = b"IUDTM"


@dataclass(slots=True)
class StagedTransaction:
    """One transaction in progress, by the id of its top level."""

    xid: int
    file: BinaryIO
    aborted: set[int] = field(default_factory=set)

    def append(self, message: bytes) -> None:
        self.file.write(_LENGTH.pack(len(message)))
        self.file.write(message)

    def messages(self) -> Iterator[bytes]:
        """All messages that were not rolled back, in order. Descriptions of tables always count.

        The server describes a table once for each transaction, even if that was in a part which was rolled back.
        """
        self.file.seek(0)
        while head := self.file.read(_LENGTH.size):
            message = self.file.read(_LENGTH.unpack(head)[0])
            if self.aborted and message[0] in _ROW_KINDS and _XID.unpack_from(message)[0] in self.aborted:
                continue
            yield message


class Staging:
    """All transactions in progress that the server has begun to stream."""

    def __init__(self) -> None:
        self._transactions: dict[int, StagedTransaction] = {}

    def open(self, xid: int) -> StagedTransaction:
        """The transaction to which the messages of a block belong."""
        if xid not in self._transactions:
            # It has no name, so nothing is left of it when the process is killed.
            file = tempfile.TemporaryFile(buffering=_BUFFER)  # noqa: SIM115 - `remove` closes it
            self._transactions[xid] = StagedTransaction(xid, cast("BinaryIO", file))
        return self._transactions[xid]

    def abort(self, message: StreamAbort) -> None:
        if message.xid == message.subxid:
            self.remove(message.xid)
        elif message.xid in self._transactions:
            self._transactions[message.xid].aborted.add(message.subxid)

    def remove(self, xid: int) -> None:
        transaction = self._transactions.pop(xid, None)
        if transaction is not None:
            with suppress(OSError):  # what a full disk refuses is no longer needed
                transaction.file.close()

    def close(self) -> None:
        for xid in list(self._transactions):
            self.remove(xid)
