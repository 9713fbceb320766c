"""The embedded log by its URL, `file:///data/shop-log`, or simply the path of its folder."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock import paths
from penstock.errors import DeclarationError
from penstock.log.identity import LOG_NAME
from penstock.log.log import Log
from penstock.storage.files import disk_errors


def check_url(url: str) -> None:
    """Refuse what does not name a folder."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not parts.path:
        raise DeclarationError(
            f"log: '{url}' does not name a folder", hint="give a path, or a URL such as file:///data/shop-log"
        )


def open_log(url: str, *, create: bool) -> Log:
    return Log(_folder_of(url), create=create)


def log_exists(url: str) -> bool:
    with disk_errors(str(_folder_of(url))):
        return (_folder_of(url) / LOG_NAME).exists()


def apps_folder(url: str) -> Path:
    return paths.apps_folder(_folder_of(url))


def _folder_of(url: str) -> Path:
    check_url(url)
    return Path(unquote(urlsplit(url).path))
