"""Sources by their URL: which module captures from a scheme. Loaded when it is first needed.

A package brings another one with an entry point in the group `penstock.sources`: a module with the functions
`check_url(url)` and `open_source(url, tables)`, which do what the functions below say.
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
    """Refuse what is not the URL of a source, before anything runs. Nothing is opened."""
    SOURCES.module(url, where="source").check_url(url)


def open_source(url: str, tables: Sequence[SourceTable]) -> Source:
    """The source of a URL. `tables` are those to be captured, with the columns that their topics have, if known."""
    source: Source = SOURCES.module(url, where="source").open_source(url, tables)
    return source
