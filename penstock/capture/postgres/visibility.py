"""Which transactions a snapshot of PostgreSQL shows. No I/O.

The stream has the ids of transactions in 32 bits, which are used again after four billion; snapshots have them in 64.
Ids of subtransactions do not matter: a snapshot shows a transaction as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

_WRAP = 1 << 32


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All transactions before `xmin` have ended, none from `xmax` on has; between them, `running` are running."""

    xmin: int
    xmax: int
    running: frozenset[int]

    def shows(self, xid: int) -> bool:
        """Whether a committed transaction, by its id in 32 bits, is visible."""
        full = self.xmax - ((self.xmax - xid + _WRAP // 2) % _WRAP - _WRAP // 2)
        return full < self.xmax and full not in self.running


def parse_snapshot(text: str) -> Snapshot:
    """A snapshot as `pg_current_snapshot()::text` writes it: `10:20:10,14,15`."""
    xmin, xmax, running = text.split(":")
    return Snapshot(int(xmin), int(xmax), frozenset(int(xid) for xid in running.split(",") if xid))
