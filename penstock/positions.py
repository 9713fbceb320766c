"""Positions of writers as JSON text: the same text for the same value, whoever stores it."""

from __future__ import annotations

import json

from penstock.contracts import Position
from penstock.errors import DeclarationError

# It is stored with every write. A set of GTIDs or the offsets of some thousand files stay well below.
MOST_POSITION_BYTES = 1024 * 1024


def encode_position(position: Position, *, where: str) -> str:
    """The text of a position. DeclarationError if it is no JSON value, or too large."""
    try:
        text = json.dumps(position, sort_keys=True, separators=(",", ":"), allow_nan=False)
        exact = text != "null" and json.loads(text) == position
    except (TypeError, ValueError, RecursionError):
        exact, text = False, ""
    if not exact:
        raise DeclarationError(
            f"{where}: a position is a JSON value; found {position!r:.200}",
            hint="give numbers, texts, lists, and dicts whose keys are texts",
        )
    if len(text) > MOST_POSITION_BYTES:
        raise DeclarationError(
            f"{where}: a position has at most {MOST_POSITION_BYTES} bytes as JSON; found {len(text)}"
        )
    return text


def decode_position(text: str) -> Position:
    position: Position = json.loads(text)
    return position
