"""Targets by their URL: which module keeps answers under a scheme. Loaded when it is first needed."""

from __future__ import annotations

from importlib import import_module
from urllib.parse import urlsplit

from penstock.contracts import Target, TargetStatus
from penstock.errors import DeclarationError

_MODULES = {"sqlite": "penstock.derive.sqlite.target"}


def check_target(url: object) -> None:
    """Refuse what is not the URL of a target, before anything runs."""
    scheme = urlsplit(url).scheme if isinstance(url, str) else ""
    if scheme not in _MODULES:
        raise DeclarationError(
            f"to: a target is a URL; found {url!r}", hint=f"there is {_known()}, as in to='sqlite:///reports.db'"
        )
    import_module(_MODULES[scheme]).check_url(url)


def open_target(url: str) -> Target:
    """The target of a URL, opened for an instance of an app."""
    target: Target = import_module(_MODULES[urlsplit(url).scheme]).open_target(url)
    return target


def target_status(url: str, app: str) -> TargetStatus:
    """What a target has of an app, without taking it over or making anything."""
    status: TargetStatus = import_module(_MODULES[urlsplit(url).scheme]).target_status(url, app)
    return status


def _known() -> str:
    return ", ".join(f"{scheme}:" for scheme in sorted(_MODULES))
