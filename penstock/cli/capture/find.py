"""What the commands about a capture share: finding it in the log, and opening its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.capture.declaration import CaptureDeclaration
    from penstock.capture.folder import CaptureFolder
    from penstock.contracts import Database
    from penstock.log import Log

CaptureName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="The name of the capture; not needed where there is only one."),
]
ChosenTables = Annotated[
    list[str] | None, typer.Option("--table", metavar="TABLE", help="Only this table; may be given several times.")
]


@dataclass(frozen=True, slots=True)
class FoundCapture:
    """A capture of an open log."""

    log: Log
    folder: CaptureFolder
    declaration: CaptureDeclaration

    @property
    def name(self) -> str:
        return self.declaration.name

    @contextmanager
    def database(self) -> Iterator[Database]:
        """Its database, opened beside whoever captures."""
        from penstock.databases import open_database

        options = self.declaration.options(identity=self.folder.identity())
        with closing(open_database(self.declaration.url, self.declaration.source_tables, options)) as database:
            yield database


@contextmanager
def find_capture(log_path: Path, name: str | None) -> Iterator[FoundCapture]:
    """The capture of this name, or the only one. DeclarationError if there is none."""
    from penstock.capture.declaration import load_declaration
    from penstock.capture.folder import CaptureFolder
    from penstock.cli.options import open_log
    from penstock.errors import DeclarationError
    from penstock.paths import captures_folder, chosen_capture

    with open_log(log_path) as log:
        chosen = chosen_capture(captures_folder(log.apps_folder), name)
        folder = CaptureFolder.of(log, chosen)
        declaration = load_declaration(folder.path)
        if declaration is None:
            raise DeclarationError(
                f"capture '{chosen}': its declaration is not in {folder.path}",
                hint=f"declare it again: penstock capture run URL --name {chosen} --table TABLE",
            )
        yield FoundCapture(log, folder, declaration)
