"""Targets by their URL: which module keeps answers under a scheme. Loaded when it is first needed.

A package brings another one with an entry point in the group `penstock.targets`: a module with the functions
`check_url(url)`, `open_target(url)` and `target_status(url, app)`, which do what the functions below say.
"""

from __future__ import annotations

from penstock.contracts import Target, TargetStatus
from penstock.plugins import Plugins

TARGETS = Plugins(
    kind="target",
    group="penstock.targets",
    built_in={"sqlite": "penstock.derive.sqlite.target"},
    functions=("check_url", "open_target", "target_status"),
    example="sqlite:///reports.db",
)


def check_target(url: object) -> None:
    """Refuse what is not the URL of a target, before anything runs."""
    TARGETS.module(url, where="to").check_url(url)


def open_target(url: str) -> Target:
    """The target of a URL, opened for an instance of an app."""
    target: Target = TARGETS.module(url, where="to").open_target(url)
    return target


def target_status(url: str, app: str) -> TargetStatus:
    """What a target has of an app, without taking it over or creating anything."""
    status: TargetStatus = TARGETS.module(url, where="to").target_status(url, app)
    return status
