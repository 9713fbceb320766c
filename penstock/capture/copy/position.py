"""The position of a copy: that of its source, and where the copies of tables that run at the moment began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.contracts import Position
from penstock.errors import DeclarationError

# JSON that `to_json` made; the one place where a position has no static type.
_Content = Any


@dataclass(frozen=True, slots=True)
class CopyBegin:
    """Where the topic of a table ended when its copy began, and when that was (microseconds since 1970)."""

    offsets: Mapping[int, int]
    time: int


@dataclass(frozen=True, slots=True)
class CopyPosition:
    """What the writer of a capture stores. `source` is the position of the database."""

    source: Position | None = None
    copying: Mapping[str, CopyBegin] = field(default_factory=dict)  # by table

    def to_json(self) -> Position:
        copying = {
            table: {"offsets": {str(number): offset for number, offset in begin.offsets.items()}, "time": begin.time}
            for table, begin in self.copying.items()
        }
        return cast(Position, {"source": self.source, "copying": copying})

    @classmethod
    def parse(cls, position: Position | None) -> CopyPosition:
        """The position that `to_json` gave; None is the beginning."""
        if position is None:
            return cls()
        found: _Content = position
        try:
            copying = {
                table: CopyBegin({int(number): offset for number, offset in begin["offsets"].items()}, begin["time"])
                for table, begin in found["copying"].items()
            }
            return cls(found["source"], copying)
        except (KeyError, TypeError, AttributeError, ValueError):
            raise DeclarationError(
                f"capture: {position!r:.200} is not a position of a capture",
                hint="another program writes under the name of this capture; choose another name for one of the two",
            ) from None
