"""Finding a group by its name, with a hint if there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import DeclarationError

if TYPE_CHECKING:
    from penstock.log import Group, Log


def find_group(log: Log, name: str) -> Group:
    """The group of this name. DeclarationError if nothing was ever read under it."""
    names = log.groups()
    if name not in names:
        from penstock.suggest import closest

        hint = closest(name, names) or (
            f"the groups are: {', '.join(names)}" if names else "this log has no groups yet"
        )
        raise DeclarationError(f"group '{name}': it does not exist in {log.path}", hint=hint)
    return log.group(name)
