"""What a capture is: plain data, stored as JSON in its folder.

The URL is stored as it was written, so with the names of variables and not with their values. Whoever wrote a password
into it finds it there: only the owner can read the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from penstock.contracts import SourceOptions, SourceTable
from penstock.errors import DeclarationError
from penstock.names import NAME_PATTERN, NAME_RULE
from penstock.secrets import masked_url
from penstock.storage.document import Content, load_document, store_document
from penstock.storage.files import Disk, disk_errors, draft_of
from penstock.suggest import closest

DECLARATION_NAME = "capture.json"
_DEFAULT_SCHEMAS = ("public", "main")


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table to capture, and the topic that gets its rows. `columns` narrows it (None: all).

    Columns in `as_text` are captured as the text that the database shows. With `inserts_only` the table is a list of
    events, such as an outbox: only inserted rows are captured. `partitions` is used when the topic is created.
    """

    table: str
    topic: str
    columns: tuple[str, ...] | None = None
    as_text: tuple[str, ...] = ()
    inserts_only: bool = False
    partitions: int = 1

    def source_table(self) -> SourceTable:
        return SourceTable(
            self.table, columns=self.columns, as_text=frozenset(self.as_text), inserts_only=self.inserts_only
        )


@dataclass(frozen=True, slots=True)
class CaptureDeclaration:
    """A capture: its name, the URL of its database as it was written, and its tables.

    `dropped` names columns, as "table.column", that may be gone from the source: `penstock capture accept`.
    """

    name: str
    url: str
    tables: tuple[CapturedTable, ...]
    max_retained_bytes: int | None = None
    dropped: frozenset[str] = frozenset()

    def check(self) -> None:
        """Raise DeclarationError for anything that can be seen to be wrong without asking the database."""
        where = f"capture '{self.name}'"
        if not NAME_PATTERN.fullmatch(self.name):
            raise DeclarationError(f"{where}: this is not a name for a capture", hint=NAME_RULE)
        if not self.tables:
            raise DeclarationError(f"{where}: it has no tables", hint="name them: --table orders --table customers")
        for field in ("table", "topic"):
            names = [getattr(table, field) for table in self.tables]
            for name in names:
                if names.count(name) > 1:
                    raise DeclarationError(f"{where}: the {field} '{name}' is named twice")

    @property
    def shown_url(self) -> str:
        """The URL as it may be shown."""
        return masked_url(self.url)

    @property
    def topics(self) -> dict[str, str]:
        """The topic of each table."""
        return {table.table: table.topic for table in self.tables}

    @property
    def source_tables(self) -> list[SourceTable]:
        return [table.source_table() for table in self.tables]

    def options(self, *, identity: str) -> SourceOptions:
        return SourceOptions(
            name=self.name, identity=identity, max_retained_bytes=self.max_retained_bytes, dropped=self.dropped
        )

    def checked_tables(self, tables: tuple[str, ...]) -> tuple[str, ...]:
        """These of its tables; all of them without names. DeclarationError for a table that it does not capture."""
        known = [table.table for table in self.tables]
        for table in tables:
            if table not in known:
                raise DeclarationError(
                    f"capture '{self.name}': it does not capture a table '{table}'",
                    hint=closest(table, known) or f"its tables are: {', '.join(known)}",
                )
        return tables or tuple(known)

    def check_continues(self, stored: CaptureDeclaration) -> None:
        """Raise DeclarationError if the stored declaration is of another database: its position means nothing here.

        Servers move and passwords change, so only the name of the database counts.
        """
        if urlsplit(self.url).path != urlsplit(stored.url).path:
            raise DeclarationError(
                f"capture '{self.name}': it captures {stored.shown_url}; found {self.shown_url}",
                hint=f"choose another --name, or remove the first: penstock capture remove {self.name}",
            )

    def accepting(self, dropped: frozenset[str]) -> CaptureDeclaration:
        return replace(self, dropped=self.dropped | dropped)

    def to_json(self) -> Content:
        return {
            "name": self.name,
            "url": self.url,
            "tables": [
                {
                    "table": table.table,
                    "topic": table.topic,
                    "columns": None if table.columns is None else list(table.columns),
                    "as_text": list(table.as_text),
                    "inserts_only": table.inserts_only,
                    "partitions": table.partitions,
                }
                for table in self.tables
            ],
            "max_retained_bytes": self.max_retained_bytes,
            "dropped": sorted(self.dropped),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> CaptureDeclaration:
        """What `to_json` gave."""
        found: Content = dict(content)
        tables = tuple(
            CapturedTable(
                table["table"],
                table["topic"],
                None if table["columns"] is None else tuple(table["columns"]),
                tuple(table["as_text"]),
                table["inserts_only"],
                table["partitions"],
            )
            for table in found["tables"]
        )
        return cls(found["name"], found["url"], tables, found["max_retained_bytes"], frozenset(found["dropped"]))


def default_topic(table: str) -> str:
    """The topic of a table without a name of its own: the table, without the schema that databases take as given."""
    schema, dot, bare = table.partition(".")
    return bare if dot and schema in _DEFAULT_SCHEMAS else table


def default_capture(url: str) -> str:
    """The name of a capture that is given none: that of the database."""
    parts = urlsplit(url)
    database = Path(parts.path).stem or parts.hostname or parts.scheme
    return re.sub(r"[^A-Za-z0-9._-]", "_", database).lstrip("._-") or parts.scheme


def store_declaration(folder: Path, declaration: CaptureDeclaration) -> None:
    """Write the declaration of a capture into its folder. It is on disk when this returns."""
    path = folder / DECLARATION_NAME
    with disk_errors(f"capture '{declaration.name}'"):
        folder.mkdir(parents=True, exist_ok=True)
        # The draft becomes the file, with the rights that it was created with.
        os.close(os.open(draft_of(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        store_document(Disk(), path, declaration.to_json())


def load_declaration(folder: Path) -> CaptureDeclaration | None:
    """The declaration of the capture in this folder; None if there is none."""
    try:
        with disk_errors(f"capture '{folder.name}'", but=FileNotFoundError):
            content = load_document(Disk(), folder / DECLARATION_NAME, what="capture")
    except FileNotFoundError:
        return None
    return CaptureDeclaration.from_json(content)
