"""Every error Penstock raises on purpose, one class per thing the reader of it can do next.

A message reads *where: what is wrong; what was found*. The `hint` is the next step, kept apart from the message so
that the CLI can show it on a line of its own.
"""

from __future__ import annotations

from collections.abc import Sequence


class PenstockError(Exception):
    """The parent of all of them: catch this to catch everything Penstock raises on purpose."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class DeclarationError(PenstockError):
    """Fix your declaration: a name, a schema, an option or a path is wrong. Nothing was changed."""


class RowError(PenstockError):
    """Fix this input: a row or a batch does not fit its topic. Nothing of it was stored."""


class TooMuchError(RowError):
    """Give less at once: the rows of an epoch are more than a target can take in one step. Nothing was stored."""


class RangeError(PenstockError):
    """Ask for something else: an offset is before what is kept or behind the end."""


class ChangesLostError(RangeError):
    """Begin again: changes since the epoch you have seen are not there. Take all rows, then follow from their epoch."""


class LimitError(PenstockError):
    """Ask for less, or allow more: an answer would take more time, memory or rows than it may."""


class UnavailableError(PenstockError):
    """Try again later: a lock is held, the disk is full, a permission is missing. Nothing of the call was stored."""


class ConflictError(PenstockError):
    """Read again and decide again: the key has moved on since you looked. Nothing was stored."""

    def __init__(self, message: str, *, expected: int, actual: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.expected = expected
        self.actual = actual


class FencedError(PenstockError):
    """Stop: someone else took over this name. Nothing of the call was stored."""


class UnknownOutcomeError(PenstockError):
    """Reopen and look: the call may or may not have been stored, and Penstock will not guess."""


class PartlyStoredError(PenstockError):
    """Some partitions took their rows and one refused; `stored` tells which. A repeat would store those again."""

    def __init__(self, message: str, *, stored: Sequence[object], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.stored = tuple(stored)


class DamagedError(PenstockError):
    """Restore or cut: stored data is damaged. It is never returned as data and never skipped in silence."""
