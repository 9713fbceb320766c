"""What makes a node the same node: a fingerprint of what it says and of all it reads from.

The state of a node is kept from one version of a program to the next while its fingerprint stays. Where a node was
declared is no part of it, nor is its shape, which follows from the rest.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from penstock.flow.code import digest
from penstock.flow.plan import Node


def fingerprint(node: Node) -> str:
    """Sixteen hexadecimal digits, the same in every process for the same program."""
    return _fingerprint(node, {})


def _fingerprint(value: object, known: dict[int, str]) -> str:
    """The fingerprint of a dataclass; each is worked out once, however many read from it."""
    if id(value) not in known:
        assert is_dataclass(value)
        parts = [
            f"{field.name}={_text(getattr(value, field.name), known)}"
            for field in fields(value)
            if field.compare and field.name != "shape"
        ]
        known[id(value)] = digest(f"{type(value).__name__}({', '.join(parts)})")
    return known[id(value)]


def _text(value: object, known: dict[int, str]) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_text(part, known) for part in value)})"
    return _fingerprint(value, known) if is_dataclass(value) else repr(value)
