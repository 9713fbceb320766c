"""Finding a group by its name, or saying which ones there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import DeclarationError

if TYPE_CHECKING:
    from penstock.log import Group, Log


def known_group(log: Log, name: str) -> Group:
    """The group of this name; refused when nobody has ever read under it."""
    names = log.groups()
    if name not in names:
        from penstock.log.ddl import closest

        hint = closest(name, names) or (f"there is {', '.join(names)}" if names else "this log has no groups yet")
        raise DeclarationError(f"group '{name}': it does not exist in {log.path}", hint=hint)
    return log.group(name)
