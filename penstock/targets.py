"""Targets by URL: which module stores answers under a scheme. Modules are loaded on first use.

Another package adds a target through an entry point in the group `penstock.targets`. It names a module with the
functions `check_url(url)`, `open_target(url)` and `target_status(url, app)`, whose contracts are those of the
functions below.
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
    """Raise DeclarationError unless this is the URL of a target. Called before anything runs; opens nothing."""
    TARGETS.module(url, where="to").check_url(url)


def open_target(url: str) -> Target:
    """Open the target of a URL for one instance of an app."""
    target: Target = TARGETS.module(url, where="to").open_target(url)
    return target


def target_status(url: str, app: str) -> TargetStatus:
    """What a target has stored for an app. Takes nothing over and creates nothing."""
    status: TargetStatus = TARGETS.module(url, where="to").target_status(url, app)
    return status
