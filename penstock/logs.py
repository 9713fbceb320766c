"""Logs by their URL: which module keeps a log under a scheme. Loaded when it is first needed.

A plain path is the folder of an embedded log. A package brings another kind of log with an entry point in the group
`penstock.logs`: a module with the functions `check_url(url)`, `open_log(url, create)`, `log_exists(url)` and
`apps_folder(url)`, which do what the functions below say.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from penstock.contracts import Log
from penstock.plugins import Plugins

LOGS = Plugins(
    kind="log",
    group="penstock.logs",
    built_in={"file": "penstock.log.url", "memory": "penstock.testing.memory_log"},
    functions=("check_url", "open_log", "log_exists", "apps_folder"),
    example="file:///data/shop-log",
)


def named_log(log: str | Path) -> str | Path:
    """A URL as it is; anything else is the path of a folder."""
    if isinstance(log, str) and ("://" in log or urlsplit(log).scheme in LOGS.schemes()):
        return log
    return Path(log)


def log_url(log: str | Path) -> str:
    """The URL of a log that is given by its URL or by the path of its folder. It is the same from any folder."""
    named = named_log(log)
    return named.absolute().as_uri() if isinstance(named, Path) else named


def check_log(log: str | Path) -> None:
    """Refuse what names no log, before anything runs. Nothing is opened."""
    url = log_url(log)
    LOGS.module(url, where="log").check_url(url)


def log_exists(log: str | Path) -> bool:
    url = log_url(log)
    return bool(LOGS.module(url, where="log").log_exists(url))


def apps_folder(log: str | Path) -> Path:
    """Where the apps of a log keep their epochs, states and views. The log is not opened, and need not exist."""
    url = log_url(log)
    folder: Path = LOGS.module(url, where="log").apps_folder(url)
    return folder


def open_log(log: str | Path, *, create: bool = False) -> Log:
    """Open a log by its URL or the path of its folder. DeclarationError if it does not exist, unless `create`."""
    url = log_url(log)
    opened: Log = LOGS.module(url, where="log").open_log(url, create=create)
    return opened
