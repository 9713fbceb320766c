"""A fingerprint of a node: of what it does, and of everything it reads.

The state of a node is kept from one version of a program to the next as long as its fingerprint stays the same. The
fingerprint includes neither the location nor the shape, which follows from the rest. Of the schema of a topic, only the
columns count that are used on the way to the node.

The names of the classes and fields in `plan.py` are part of it: renaming one would discard the state of all apps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import get_args

from penstock.flow.code import digest
from penstock.flow.needs import EVERYTHING, Columns, in_lower_case, is_needed, needed_of_input
from penstock.flow.plan import Node, Topic, inputs
from penstock.schema.arrow import parse_schema
from penstock.schema.ddl import Field

_NOT_INCLUDED = ("shape", "earlier_schemas")
_Known = dict[tuple[int, Columns], str]


def fingerprint(node: Node) -> str:
    """Sixteen hexadecimal digits, the same in every process for the same program."""
    known: _Known = {}
    for step, needed in _steps(node):
        _fingerprint(step, needed, known)
    return known[id(node), EVERYTHING]


def _steps(node: Node) -> Iterator[tuple[Node, Columns]]:
    """A node and all upstream ones, with the columns that are needed of them.

    Inputs come first, so that plans may be deeper than Python's stack.
    """
    seen: set[tuple[int, Columns]] = set()
    stack = [(node, EVERYTHING, False)]
    while stack:
        step, needed, inputs_are_done = stack.pop()
        if inputs_are_done:
            yield step, needed
        elif (id(step), needed) not in seen:
            seen.add((id(step), needed))
            of_inputs = needed_of_input(step, needed)
            stack += [(step, needed, True), *((input_, of_inputs, False) for input_ in inputs(step))]


def _fingerprint(value: object, needed: Columns, known: _Known) -> str:
    """The fingerprint of a dataclass of which these columns are needed, computed once however many nodes read it."""
    if (id(value), needed) not in known:
        assert is_dataclass(value)
        of_inputs = needed_of_input(value, needed) if isinstance(value, get_args(Node)) else EVERYTHING
        parts = []
        for field in fields(value):
            if field.compare and field.name not in _NOT_INCLUDED:
                part = getattr(value, field.name)
                if isinstance(value, Topic) and field.name == "schema":
                    part = _oldest_same_schema(value, needed)
                parts.append(f"{field.name}={_text(part, of_inputs, known)}")
        known[id(value), needed] = digest(f"{type(value).__name__}({', '.join(parts)})")
    return known[id(value), needed]


def _text(value: object, needed: Columns, known: _Known) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_text(part, needed, known) for part in value)})"
    return _fingerprint(value, needed, known) if is_dataclass(value) else repr(value)


def _oldest_same_schema(topic: Topic, needed: Columns) -> str:
    """The first schema with which these columns were declared as they are now."""
    timing = topic.timing
    used = needed | in_lower_case(topic.key)
    if timing is not None:
        used |= in_lower_case(name for name in (timing.column, timing.sent, timing.received) if name is not None)
    columns = _columns_of(topic.schema, used)
    same = (earlier for earlier in topic.earlier_schemas if _columns_of(earlier, used) == columns)
    return next(same, topic.schema)


def _columns_of(schema: str, used: Columns) -> list[Field]:
    """The used columns. If all of them are, their order counts too, as in the rows that are made of them."""
    columns = [column for column in parse_schema(schema) if is_needed(column.name, used)]
    return columns if "*" in used else sorted(columns, key=lambda column: column.name)
