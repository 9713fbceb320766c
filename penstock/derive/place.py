"""Where the views of an app are, in the folder of its log."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import DeclarationError

APPS_FOLDER = "apps"
STORE_NAME = "views.sqlite"


def store_path(log: Path, app: str) -> Path:
    """The file with the views of an app."""
    return log / APPS_FOLDER / app / STORE_NAME


def apps_with_views(log: Path) -> list[str]:
    return sorted(path.parent.name for path in (log / APPS_FOLDER).glob(f"*/{STORE_NAME}"))


def chosen_app(log: Path, app: str | None) -> str:
    """The app of this name; without a name, the only one there is."""
    apps = apps_with_views(log)
    if not apps:
        raise DeclarationError(f"{log}: there are no views here", hint="run an app on this log first")
    if app is None and len(apps) == 1:
        return apps[0]
    if app is None:
        raise DeclarationError(f"{log}: several apps have views here: {', '.join(apps)}", hint="choose one with --app")
    if app not in apps:
        from penstock.log.ddl import closest

        hint = closest(app, apps) or "choose one of these with --app"
        raise DeclarationError(f"app '{app}': it has no views in {log}; there is {', '.join(apps)}", hint=hint)
    return app
