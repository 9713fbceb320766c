"""How many rows of pgoutput a second become Arrow columns, by processor time: `python benchmarks/pgoutput_rows.py`."""

from __future__ import annotations

import sys
import time
from struct import pack

import numpy as np

from penstock.capture.postgres.pgoutput import Relation, RelationColumn
from penstock.capture.postgres.rows import decode_rows
from penstock.capture.postgres.types import PostgresType, column_layout, table_layout

ROWS = 200_000
TYPES = {
    "id": PostgresType(20, "int8"),
    "customer": PostgresType(23, "int4"),
    "status": PostgresType(25, "text"),
    "amount": PostgresType(1700, "numeric", (10 << 16 | 2) + 4),
    "placed_at": PostgresType(1184, "timestamptz"),
    "note": PostgresType(25, "text"),
}


def measure(rows: int = ROWS) -> dict[str, float]:
    """Rows a second, for inserts and for updates with their old row."""
    layout = table_layout("bench", [column_layout(name, type_, is_key=name == "id") for name, type_ in TYPES.items()])
    columns = tuple(RelationColumn(name, type_.oid, type_.modifier, name == "id") for name, type_ in TYPES.items())
    relation = Relation(1, "public", "bench", "f", columns)
    tuples = [_tuple(number) for number in range(rows)]
    kinds = {
        "inserts": [b"I\0\0\0\x01N" + row for row in tuples],
        "updates with the old row": [b"U\0\0\0\x01O" + row + b"N" + row for row in tuples],
    }
    times = np.zeros(rows, np.int64)
    speeds = {}
    for name, messages in kinds.items():
        seconds = []
        for _ in range(5):
            began = time.process_time()
            changes = decode_rows(messages, relation, layout, times, streaming=False)
            seconds.append(time.process_time() - began)
            assert changes.batch.num_rows == rows
        speeds[name] = rows / min(seconds)
    return speeds


def _tuple(number: int) -> bytes:
    texts = [
        b"%d" % number,
        b"%d" % (number % 5000),
        b"shipped" if number % 3 else b"open",
        b"%d.%02d" % (number % 10_000, number % 100),
        b"2024-05-%02d 12:%02d:%02d.123456+00" % (number % 28 + 1, number % 60, number % 60),
    ]
    values = b"".join(b"t" + pack(">I", len(text)) + text for text in texts)
    return pack(">H", len(TYPES)) + values + (b"n" if number % 2 else b"t\0\0\0\x0bhello world")


if __name__ == "__main__":
    for name, speed in measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS).items():
        print(f"{name}: {speed:,.0f} rows/s")
