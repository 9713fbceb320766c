"""Penstock keeps every view of your data in step with one log, exactly once, in Python, on Spark.

The names below are loaded when they are first used: importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.log import Log, TopicSettings

__version__ = "0.1.0"

_HOMES = {
    "Log": "penstock.log",
    "TopicSettings": "penstock.log",
    "PenstockError": "penstock.errors",
}

__all__ = ["Log", "PenstockError", "TopicSettings", "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
