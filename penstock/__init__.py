"""Penstock keeps every view of your data in step with one log, exactly once, in Python, on Spark.

The names below are loaded when they are first used: importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.app import App
    from penstock.errors import PenstockError
    from penstock.flow.event_time import event_time
    from penstock.flow.settings import AppSettings
    from penstock.flow.sinks import topic
    from penstock.flow.stream import Stream
    from penstock.flow.table import Table
    from penstock.flow.windows import hopping, session, sliding, tumbling
    from penstock.log import Log, TopicSettings
    from penstock.summary import EpochSummary, RunSummary

__version__ = "0.1.0"

_HOMES = {
    "App": "penstock.app",
    "AppSettings": "penstock.flow.settings",
    "Stream": "penstock.flow.stream",
    "Table": "penstock.flow.table",
    "event_time": "penstock.flow.event_time",
    "hopping": "penstock.flow.windows",
    "session": "penstock.flow.windows",
    "sliding": "penstock.flow.windows",
    "topic": "penstock.flow.sinks",
    "tumbling": "penstock.flow.windows",
    "EpochSummary": "penstock.summary",
    "RunSummary": "penstock.summary",
    "Log": "penstock.log",
    "TopicSettings": "penstock.log",
    "PenstockError": "penstock.errors",
}

__all__ = [
    "App",
    "AppSettings",
    "EpochSummary",
    "Log",
    "PenstockError",
    "RunSummary",
    "Stream",
    "Table",
    "TopicSettings",
    "__version__",
    "event_time",
    "hopping",
    "session",
    "sliding",
    "topic",
    "tumbling",
]


def __getattr__(name: str) -> object:
    if name.startswith("_"):
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    if name not in _HOMES:
        from penstock.flow.habits import unknown_public_name

        raise unknown_public_name("penstock", name, __all__)
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
