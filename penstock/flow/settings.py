"""How an app runs, as far as the program decides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.calls import answer_constructor
from penstock.errors import DeclarationError
from penstock.flow.location import located
from penstock.units import parse_duration

SECOND = 1_000_000
RENAMED_SETTINGS = {"dead": "its name is on_bad_row: 'set_aside' or 'stop'"}
"""Settings that had other names, with what to write now."""


@dataclass(frozen=True, slots=True)
class ChangeRetention:
    """How long the changes of views stay readable: by age, by number of epochs and by size, whichever ends first."""

    microseconds: int = 3_600 * SECOND
    epochs: int = 1_000
    bytes: int = 1_000_000_000


@answer_constructor(RENAMED_SETTINGS, locate=located)
@dataclass(frozen=True, slots=True)
class AppSettings:
    """How an app runs.

    - `state_partitions`: into how many parts state is divided, which is how many tasks can work on it at once; None
      leaves it to the engine. It is fixed when the app first runs.
    - `max_rows`, `max_bytes`: the most that one epoch reads from the log, so that a backlog does not fill the memory.
    - `changes_kept_for`, `changes_kept_epochs`, `changes_kept_bytes`: for how long, for how many epochs and in how many
      bytes the changes of views stay readable (`app.changes`), whichever ends first. With 0 epochs none are kept.
    - `on_bad_row`: what happens to a row on which an expression or a function fails, or whose event time is missing or
      too far ahead. `"set_aside"` writes it with its origin and the error to the topic `<app>.dead` and continues.
      `"stop"` stops the app with an error that names the row; nothing of its epoch is committed.
    """

    state_partitions: int | None = None
    max_rows: int = 5_000_000
    max_bytes: int = 512_000_000
    changes_kept_for: str = "1 hour"
    changes_kept_epochs: int = 1_000
    changes_kept_bytes: int = 1_000_000_000
    on_bad_row: Literal["set_aside", "stop"] = "set_aside"

    def __post_init__(self) -> None:
        for name in ("state_partitions", "max_rows", "max_bytes"):
            value = getattr(self, name)
            if value is None and name == "state_partitions":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise DeclarationError(f"settings: {name} must be a whole number of at least 1; found {value!r}")
        for name in ("changes_kept_epochs", "changes_kept_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise DeclarationError(f"settings: {name} must be a whole number of at least 0; found {value!r}")
        parse_duration(self.changes_kept_for)
        if self.on_bad_row not in ("set_aside", "stop"):
            raise DeclarationError(f"settings: on_bad_row is 'set_aside' or 'stop'; found {self.on_bad_row!r}")

    @property
    def change_retention(self) -> ChangeRetention:
        """`changes_kept_for`, `changes_kept_epochs` and `changes_kept_bytes` as numbers."""
        seconds = parse_duration(self.changes_kept_for)
        return ChangeRetention(int(seconds * SECOND), self.changes_kept_epochs, self.changes_kept_bytes)
