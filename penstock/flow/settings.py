"""How an app runs, as far as the program decides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class AppSettings:
    """How an app runs.

    - `state_partitions`: into how many parts state is divided, which is how many tasks can work on it at once; None
      leaves it to the engine. It is fixed when the app first runs.
    - `max_rows`, `max_bytes`: the most that one epoch takes from the log, so that a backlog does not fill the memory.
    - `dead`: what becomes of a row that makes an expression or a function fail. `"set aside"` writes it with its origin
      and the error to the topic `<app>.dead` and goes on, `"stop"` stops the app.
    """

    state_partitions: int | None = None
    max_rows: int = 5_000_000
    max_bytes: int = 512_000_000
    dead: Literal["set aside", "stop"] = "set aside"

    def __post_init__(self) -> None:
        for name in ("state_partitions", "max_rows", "max_bytes"):
            value = getattr(self, name)
            if value is None and name == "state_partitions":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise DeclarationError(f"settings: {name} must be a whole number of at least 1; found {value!r}")
        if self.dead not in ("set aside", "stop"):
            raise DeclarationError(f"settings: dead is 'set aside' or 'stop'; found {self.dead!r}")
