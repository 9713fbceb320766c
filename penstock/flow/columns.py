"""What is known of a column before anything runs: its type, and whether it can be null.

A column is followed back to the schema it was declared in. Nothing is known of what an expression computes, or of what
lies behind a map without a schema: Spark tells that when the app starts.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.flow.names import CHANGE, EVENT_TIME, RANK, unquoted
from penstock.flow.plan import (
    Aggregate,
    AsOfJoin,
    Changelog,
    Changes,
    Distinct,
    Join,
    Latest,
    Map,
    Named,
    Node,
    Select,
    TimedJoin,
    Top,
    Topic,
    Union,
    Where,
)
from penstock.log.ddl import Field
from penstock.log.schema import parse_schema

_MOMENT = pa.timestamp("us", "UTC")
_ADDED: dict[str, pa.DataType] = {"window_start": _MOMENT, "window_end": _MOMENT, "revision": pa.int64()}


def column_of(node: Node, name: str) -> Field | None:
    """The column of that name in the rows of a node; None where nothing is known of it."""
    return _Search().column(node, name)


def never_null(node: Node, name: str) -> bool:
    """Whether it is certain that the column has a value in every row."""
    column = column_of(node, name)
    return column is not None and not column.nullable


class _Search:
    """Looks at each node once for each column, however many ways lead to it."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, str], Field | None] = {}

    def column(self, node: Node, name: str) -> Field | None:
        known = (id(node), name)
        if known not in self.found:
            self.found[known] = self._look(node, name)
        return self.found[known]

    def _look(self, node: Node, name: str) -> Field | None:
        match node:
            case Topic() | Changelog():
                return _declared(node, name)
            case Where() | Distinct() | Latest():
                return self.column(node.input, name)
            case Changes():
                return _added(name, pa.string()) if name == CHANGE else self.column(node.input, name)
            case Top():
                return _added(name, pa.int32()) if name == RANK else self.column(node.input, name)
            case Select():
                return self._selected(node, name)
            case Map():
                # A function may give nulls whatever its schema promises.
                return None if node.schema is None else _nullable(_field(parse_schema(node.schema), name))
            case Union():
                return _common([self.column(one, name) for one in node.inputs])
            case Aggregate():
                return self._grouped(node, name)
            case Join() | TimedJoin() | AsOfJoin():
                return self._joined(node, name)

    def _selected(self, node: Select, name: str) -> Field | None:
        if node.rest and name not in node.without and name not in {one.name for one in node.columns}:
            return self.column(node.input, name)
        return self._copied(node.input, node.columns, name)

    def _grouped(self, node: Aggregate, name: str) -> Field | None:
        if node.windowing is not None and name in _ADDED:
            return _added(name, _ADDED[name])
        return self._copied(node.input, node.keys, name)

    def _copied(self, node: Node, columns: Sequence[Named], name: str) -> Field | None:
        """The column that another one repeats under this name."""
        source = next((unquoted(one.expression) for one in columns if one.name == name), None)
        return None if source is None else self.column(node, source)

    def _joined(self, node: Join | TimedJoin | AsOfJoin, name: str) -> Field | None:
        left = None if name not in (node.left.shape.columns or ()) else self.column(node.left, name)
        right = None if name not in (node.right.shape.columns or ()) else self.column(node.right, name)
        if node.how in ("semi", "anti"):
            return left
        if left is not None and right is not None:
            return _common([left, right])
        alone = right if left is None else left
        kept = node.how in ("inner", "left" if alone is left else "right")
        return alone if kept else _nullable(alone)


def _declared(node: Topic | Changelog, name: str) -> Field | None:
    corrected = isinstance(node, Topic) and node.timing is not None and node.timing.sent is not None
    if corrected and name == EVENT_TIME:
        return _added(name, _MOMENT)
    return _field(parse_schema(node.schema), name)


def _field(schema: pa.Schema, name: str) -> Field | None:
    return schema.field(name) if name in schema.names else None


def _added(name: str, type_: pa.DataType) -> Field:
    return pa.field(name, type_, nullable=False)


def _nullable(column: Field | None) -> Field | None:
    return None if column is None else column.with_nullable(True)


def _common(columns: Sequence[Field | None]) -> Field | None:
    """What is true of all of them."""
    known = [column for column in columns if column is not None]
    if len(known) < len(columns) or len({column.type for column in known}) > 1:
        return None
    return known[0].with_nullable(any(column.nullable for column in known))
