"""Sources by URL: which module captures from a scheme. Modules are loaded on first use.

Another package adds a source through an entry point in the group `penstock.sources`. It names a module with the
functions `check_url(url)` and `open_source(url, tables)`, whose contracts are those of the functions below.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.contracts import Source, SourceTable
from penstock.plugins import Plugins

SOURCES = Plugins(
    kind="source",
    group="penstock.sources",
    built_in={"file": "penstock.capture.files.url"},
    functions=("check_url", "open_source"),
    example="file:orders.csv",
)


def check_source(url: object) -> None:
    """Raise DeclarationError unless this is the URL of a source. Called before anything runs; opens nothing."""
    SOURCES.module(url, where="source").check_url(url)


def open_source(url: str, tables: Sequence[SourceTable]) -> Source:
    """Open the source of a URL. `tables` are the tables to capture, with the columns of their topics where known."""
    source: Source = SOURCES.module(url, where="source").open_source(url, tables)
    return source
