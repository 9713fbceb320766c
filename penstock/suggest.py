"""What was probably meant: hints for names that do not exist. Light to import."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def closest(name: str, known: Sequence[str]) -> str | None:
    """Return a hint with the known name that was probably meant, if there is a similar one."""
    matches = difflib.get_close_matches(name.lower(), [each.lower() for each in known], n=1, cutoff=0.7)
    if not matches:
        return None
    return f"did you mean {next(each for each in known if each.lower() == matches[0])!r}?"
