"""Reads the views of an app from the runs that its commits name: SQL, look-ups, status, changes. Writes nothing.

The main path: `ViewReader.refresh` -> `Snapshot` (one commit) -> `OpenView` (mapped runs, and which rows count) ->
`run_query` (DuckDB) -> `Answer`. The names below are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.derive.views.answer import Answer
    from penstock.derive.views.follow import ViewChange, changes
    from penstock.derive.views.reader import ViewReader, get, query, views
    from penstock.derive.views.snapshot import Snapshot
    from penstock.derive.views.sql import QueryLimits
    from penstock.derive.views.status import ViewStatus

_HOMES = {
    "Answer": "answer",
    "QueryLimits": "sql",
    "Snapshot": "snapshot",
    "ViewChange": "follow",
    "ViewReader": "reader",
    "ViewStatus": "status",
    "changes": "follow",
    "get": "reader",
    "query": "reader",
    "views": "reader",
}

__all__ = [
    "Answer",
    "QueryLimits",
    "Snapshot",
    "ViewChange",
    "ViewReader",
    "ViewStatus",
    "changes",
    "get",
    "query",
    "views",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock.derive.views' has no attribute {name!r}")
    return getattr(import_module(f"penstock.derive.views.{_HOMES[name]}"), name)
