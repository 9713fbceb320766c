"""A capture that dies at a given place: `python -m tests.capture.proof.doomed`, one line of JSON on stdin.

Each attempt is a process of its own, forked before anything is open, that ends as `kill -9` ends it: when it has
counted so many occasions of one kind. After each death, the next attempt goes one occasion further or, with `again`,
counts from its own beginning. At last one attempt comes to the end. It prints how often it died.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from penstock import Log
from penstock.capture.declaration import CaptureDeclaration, CapturedTable
from penstock.capture.pump import PumpOptions
from penstock.capture.run import run_capture
from penstock.contracts import Captured, Database, Position, SourceOptions, SourceTable, TableEvent
from penstock.databases import open_database


@dataclass(frozen=True, slots=True)
class Doom:
    """`kind`: what is counted. `item`: before an item is given; `rows`: the same for those with rows; `event`: those of
    whole tables; `confirm`: rows are durable, and the server does not know it yet; `confirmed`: just afterwards.
    """

    log: str
    url: str
    tables: tuple[str, ...]
    kind: str
    step: int = 1
    again: bool = False
    chunk_rows: int = 50_000
    most_rows: int = 200
    most_deaths: int = 1_000

    def to_line(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}) + "\n"


class DoomedDatabase:
    """A database that ends its process."""

    def __init__(self, database: Database, kind: str, fatal: int) -> None:
        self._database, self._kind, self._left = database, kind, fatal

    def read(self, after: Position | None) -> Iterator[Captured | TableEvent]:
        for item in self._database.read(after):
            self._count("item")
            if isinstance(item, TableEvent):
                self._count("event")
            elif len(item.rows):
                self._count("rows")
            yield item

    def confirm(self, position: Position) -> None:
        self._count("confirm")
        self._database.confirm(position)
        self._count("confirmed")

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)

    def _count(self, kind: str) -> None:
        if kind == self._kind:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def capture(doom: Doom, fatal: int) -> None:
    """Capture what there is, or die."""

    def open_doomed(url: str, tables: Sequence[SourceTable], options: SourceOptions) -> Database:
        options = replace(options, chunk_rows=doom.chunk_rows, heartbeat_seconds=0.5)
        return DoomedDatabase(open_database(url, tables, options), doom.kind, fatal)  # type: ignore[return-value]

    tables = tuple(CapturedTable(table, table) for table in doom.tables)
    declaration = CaptureDeclaration("bank", doom.url, tables)
    options = PumpOptions(batch_rows=100, most_rows=doom.most_rows)
    with closing(Log(Path(doom.log))) as log:
        run_capture(declaration, log, once=True, options=options, open_source=open_doomed)


def main() -> None:
    content = json.loads(sys.stdin.readline())
    doom = Doom(**{**content, "tables": tuple(content["tables"])})
    deaths, fatal = 0, doom.step
    while True:
        is_last = deaths >= doom.most_deaths
        child = os.fork()
        if child == 0:
            capture(doom, 0 if is_last else fatal)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status == 0:
            break
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            sys.exit(f"it ended with {status}")
        deaths += 1
        fatal += 0 if doom.again else doom.step
    sys.stdout.write(f"{deaths}\n")


if __name__ == "__main__":
    main()
