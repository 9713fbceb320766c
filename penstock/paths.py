"""Where an app lives in the folder of its log. Light to import."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import DeclarationError

APPS_FOLDER = "apps"


def app_directory(log: Path, app: str) -> Path:
    """The folder of an app: its epochs, its state, its views."""
    return log / APPS_FOLDER / app


def app_names(log: Path) -> list[str]:
    """The apps that have run on this log."""
    return sorted(path.name for path in (log / APPS_FOLDER).glob("*/"))


def chosen_app(log: Path, app: str | None) -> str:
    """The app of this name; without a name, the only one there is."""
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
        from penstock.log.ddl import closest

        hint = closest(app, apps) or f"there is {', '.join(apps)}"
        raise DeclarationError(f"app '{app}': it has not run on the log {log}", hint=hint)
    return app
