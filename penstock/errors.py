"""Every error Penstock raises on purpose, one class per thing the reader of it can do next.

A message reads *where: what is wrong; what was found*. The `hint` is the next step, kept apart from the message so
that the CLI can show it on a line of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

DEBUG = "PENSTOCK_DEBUG"
"""The environment variable with which tracebacks are whole."""


class PenstockError(Exception):
    """The parent of all of them: catch this to catch everything Penstock raises on purpose.

    `message` reads *where: what is wrong; what was found*. `hint` is the next step, or None.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """What notebooks show instead of a traceback: IPython asks for it, and shows its own if this fails."""
        if os.environ.get(DEBUG):
            raise NotImplementedError
        return [f"error: {self.message}", *([f"hint: {self.hint}"] if self.hint else [])]


class DeclarationError(PenstockError):
    """Fix your declaration: a name, a schema, an option or a path is wrong. Nothing was changed.

    Raised where the mistake is made: when a stream, a view or a window is declared, when a topic is created or
    opened, when a command is given an option. For a declaration, the message begins with the file and the line of
    your program.

    Correct what the message names; the hint often has the nearest valid name.
    """


class RowError(PenstockError):
    """Fix this input: a row or a batch does not fit its topic. Nothing of it was stored.

    Raised by an append when a column is missing, unknown or of the wrong type, when a key or an event time is null, or
    when the rows are too large. The message names the row by its position and the column.

    Correct the row and append it again. `penstock produce --skip-bad` counts such rows and continues.
    """


class TooMuchError(RowError):
    """Give less at once: the rows of an epoch are more than a target can take in one step. Nothing was stored.

    Raised by a target. The engine plans the epoch again with fewer rows, so you only see this error if a single epoch
    cannot be made small enough, or if you write a target yourself.

    Lower `max_rows` in the app's settings, or write fewer rows to sinks.
    """


class RangeError(PenstockError):
    """Ask for something else: an offset, a partition or an epoch is outside of what is kept.

    Raised when you read from an offset that retention has removed or that lies beyond the end, name a partition that
    does not exist, or commit or hold offsets that are not there. The message has the range that exists.

    Read from `"start"`, `"end"`, a time, or an offset within the range.
    """


class ChangesLostError(RangeError):
    """Begin again: changes since the epoch you have seen are not there. Take all rows, then follow from their epoch.

    Raised while following a view (`app.changes`), if the changes are older than what the app keeps, or if the view was
    replaced as a whole: the program changed, or a savepoint was restored.

    Take a snapshot, replace everything you hold by its rows, and follow after its epoch.
    """


class LimitError(PenstockError):
    """Ask for less, or allow more: an answer would take more time, memory or rows than it may.

    Raised by queries over views that were given `QueryLimits`. An answer is never cut short instead.

    Add a condition or a LIMIT to the query, or raise the limit.
    """


class UnavailableError(PenstockError):
    """Try again later: a lock is held, the disk is full, a permission is missing. Nothing of the call was stored.

    Raised by anything that touches files or starts processes. A running app waits and tries again by itself before it
    gives up.

    Remove the cause that the message names - the process that holds the lock, the full disk, the missing right - and
    repeat the call.
    """


class ConflictError(PenstockError):
    """Read again and decide again: the key has moved on since you looked. Nothing was stored.

    Raised by a conditional append (`append(row, expect=version)`) to a versioned topic, when another process has
    appended to the same key in the meantime. `expected` is what you passed, `actual` the version that the key has
    now.

    Read the events of the key again, decide again, and append with the new version.
    """

    def __init__(self, message: str, *, expected: int, actual: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.expected = expected
        self.actual = actual


class FencedError(PenstockError):
    """Stop: someone else took over this name. Nothing of the call was stored.

    Raised in a process that was replaced: the same producer, writer or app was opened elsewhere, or a member of a group
    lost its partition. Also raised by an app whose savepoint was restored while it ran.

    End this process, if the other one was started on purpose. Only one process can hold a name at a time.
    """


class UnknownOutcomeError(PenstockError):
    """Reopen and look: the call may or may not have been stored, and Penstock will not guess.

    Raised when a sync to disk fails. The kernel may have dropped pages that it will never write, so this process
    refuses further appends to the same partition.

    Check the disk, close the log and open it again; then look whether the rows are there. A named producer can repeat
    its last sequence without storing it twice. An app is simply started again.
    """


class PartlyStoredError(PenstockError):
    """Some partitions took their rows and one refused; `stored` tells which. A repeat would store those again.

    Raised by an append whose rows go to several partitions. `stored` lists what was stored, by partition.

    Append the rest. To avoid the situation, append in a transaction, or as a named producer with a sequence, which can
    repeat everything safely.
    """

    def __init__(self, message: str, *, stored: Sequence[object], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.stored = tuple(stored)


class DamagedError(PenstockError):
    """Restore or cut: stored data is damaged. It is never returned as data and never skipped in silence.

    Raised when a file of the log, of a state or of a view is missing, or does not match its checksum. The message
    names the file, and for the log the byte and the offsets at risk. Other partitions keep working.

    For the log, put the file back from a copy, or read from the offset that the hint names; `penstock verify` lists all
    damage. For states and views, `penstock run FILE --rebuild` computes them again from the log.
    """
