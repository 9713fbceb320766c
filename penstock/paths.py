"""Where apps and captures are stored in the folder of a log. Light to import."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import DeclarationError
from penstock.suggest import closest

APPS_FOLDER = "apps"
CAPTURES_FOLDER = "captures"


def apps_folder(log: Path) -> Path:
    """Where the apps of a log have their folders."""
    return log / APPS_FOLDER


def app_directory(log: Path, app: str) -> Path:
    """The folder of an app: its epochs, its state, its views."""
    return apps_folder(log) / app


def app_names(log: Path) -> list[str]:
    """The names of the apps that have run on this log."""
    return sorted(path.name for path in apps_folder(log).glob("*/"))


def chosen_app(log: Path, app: str | None) -> str:
    """Check that this app has run on the log; without a name, choose the only one. DeclarationError otherwise."""
    apps = app_names(log)
    if not apps:
        raise DeclarationError(f"{log}: no app has run on this log", hint="run one: penstock run app.py")
    if app is None and len(apps) == 1:
        return apps[0]
    if app is None:
        raise DeclarationError(
            f"{log}: more than one app has run on this log: {', '.join(apps)}", hint="choose one with --app"
        )
    if app not in apps:
        hint = closest(app, apps) or f"the apps are: {', '.join(apps)}"
        raise DeclarationError(f"app '{app}': it has not run on the log {log}", hint=hint)
    return app


def captures_folder(apps: Path) -> Path:
    """Where the captures of a log have their folders: beside the folder of its apps."""
    return apps.parent / CAPTURES_FOLDER


def capture_names(captures: Path) -> list[str]:
    """The names of the captures that have run on this log."""
    return sorted(path.name for path in captures.glob("*/"))


def chosen_capture(captures: Path, name: str | None) -> str:
    """Check that there is this capture; without a name, choose the only one. DeclarationError otherwise."""
    names = capture_names(captures)
    if not names:
        raise DeclarationError(
            f"{captures.parent}: nothing has been captured into this log",
            hint="begin: penstock capture run URL --table TABLE",
        )
    if name is None and len(names) == 1:
        return names[0]
    if name is None:
        raise DeclarationError(
            f"{captures.parent}: there is more than one capture: {', '.join(names)}",
            hint="give the name of one of them",
        )
    if name not in names:
        raise DeclarationError(
            f"capture '{name}': there is none of this name in {captures.parent}",
            hint=closest(name, names) or f"the captures are: {', '.join(names)}",
        )
    return name
