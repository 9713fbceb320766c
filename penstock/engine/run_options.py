"""How an app is run. Light to import: it does not load Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How it is to be run. `once`: to the present, and then end. `master`: the Spark cluster; None: this machine.

    `spark` is a session that somebody else has started, and ends. Without it, one is started. `finish`, with `once`:
    end all windows at last, as if the input had ended. `rebuild`: build all views again from the log. `from_oldest`: do
    without rows that retention has removed, begin with the oldest that are left, and record the gap.
    """

    once: bool = False
    finish: bool = False
    rebuild: bool = False
    from_oldest: bool = False
    master: str | None = None
    spark: SparkSession | None = None

    def __post_init__(self) -> None:
        if self.finish and not self.once:
            raise DeclarationError(
                "finish: only a run that ends can finish its input", hint="add once: penstock run --once --finish"
            )
