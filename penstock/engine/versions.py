"""A plan beside the one that ran before: which views stay as they are, and which have to be built again. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.fingerprint import fingerprint

# What an app's program was like when it ran: for each view a version, which changes when its answers could.
Versions = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """Views by what becomes of them. `rebuilt` ones were there in another form, `new` ones were not there."""

    kept: tuple[str, ...]
    rebuilt: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]

    @property
    def built(self) -> tuple[str, ...]:
        """Those that are to be built from the log."""
        return (*self.rebuilt, *self.new)


def versions(plan: flow.Plan, generation: int) -> dict[str, str]:
    """Of each view, what tells it from other forms of it; `generation` counts how often everything was rebuilt."""
    return {view.name: f"{fingerprint(view.node)}.{generation}" for view in plan.views}


def difference(declared: Versions, stored: Versions) -> Difference:
    return Difference(
        kept=tuple(name for name in declared if stored.get(name) == declared[name]),
        rebuilt=tuple(name for name in declared if name in stored and stored[name] != declared[name]),
        new=tuple(name for name in declared if name not in stored),
        dropped=tuple(name for name in stored if name not in declared),
    )


def part_of(plan: flow.Plan, views: tuple[str, ...]) -> flow.Plan:
    return flow.Plan(plan.app, tuple(view for view in plan.views if view.name in views))


def check_reach(app: str, origins: Mapping[str, Mapping[str, int]], starts: Mapping[str, Mapping[int, int]]) -> None:
    """Refuse to build anew what the log no longer holds: `origins` is where the app began, `starts` what is kept."""
    for topic, partitions in starts.items():
        for number, start in partitions.items():
            began = origins.get(topic, {}).get(str(number), start)
            if start > began:
                raise DeclarationError(
                    f"app '{app}': views changed, but topic '{topic}' no longer has the rows to build them from: "
                    f"partition {number} begins at offset {start}, and the app had begun at {began}",
                    hint="run the program as it was, or start the changed one as a new app under another name",
                )


def origins_document(starts: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
    return {topic: {str(number): start for number, start in parts.items()} for topic, parts in starts.items()}
