"""A fingerprint of a node: of what it does, and of everything it reads.

The state of a node is kept from one version of a program to the next as long as its fingerprint stays the same. The
fingerprint includes neither the location nor the shape, which follows from the rest.

The names of the classes and fields in `plan.py` are part of it: renaming one would discard the state of all apps.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from penstock.flow.code import digest
from penstock.flow.plan import Node, upstream


def fingerprint(node: Node) -> str:
    """Sixteen hexadecimal digits, the same in every process for the same program."""
    known: dict[int, str] = {}
    for step in upstream(node):  # inputs first, so that plans may be deeper than Python's stack
        _fingerprint(step, known)
    return _fingerprint(node, known)


def _fingerprint(value: object, known: dict[int, str]) -> str:
    """The fingerprint of a dataclass, computed once however many nodes read it."""
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
