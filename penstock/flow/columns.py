"""What is known of a column before anything runs: its type, and whether it can be null.

A column is traced back to the schema that declares it. Nothing is known of computed columns, and of columns after a map
without a schema: Spark finds that out when the app starts.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.flow.names import CHANGE, EVENT_TIME, RANK, unquote
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
from penstock.schema.arrow import parse_schema
from penstock.schema.ddl import Field

_TIMESTAMP = pa.timestamp("us", "UTC")
_WINDOW_TYPES: dict[str, pa.DataType] = {"window_start": _TIMESTAMP, "window_end": _TIMESTAMP, "revision": pa.int64()}


def column_of(node: Node, name: str) -> Field | None:
    """The column of that name in the rows of a node; None if nothing is known of it."""
    return _Search().column(node, name)


def never_null(node: Node, name: str) -> bool:
    """Whether the column certainly has a value in every row."""
    column = column_of(node, name)
    return column is not None and not column.nullable


class _Search:
    """Visits each node once per column, however many paths lead to it."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, str], Field | None] = {}

    def column(self, node: Node, name: str) -> Field | None:
        key = (id(node), name)
        if key not in self.found:
            self.found[key] = self._find(node, name)
        return self.found[key]

    def _find(self, node: Node, name: str) -> Field | None:
        match node:
            case Topic() | Changelog():
                return _source_column(node, name)
            case Where() | Distinct() | Latest():
                return self.column(node.input, name)
            case Changes():
                return _column_without_nulls(name, pa.string()) if name == CHANGE else self.column(node.input, name)
            case Top():
                return _column_without_nulls(name, pa.int32()) if name == RANK else self.column(node.input, name)
            case Select():
                return self._column_of_select(node, name)
            case Map():
                # A function may return nulls whatever its schema promises.
                return None if node.schema is None else _with_nulls(_field(parse_schema(node.schema), name))
            case Union():
                return _common_column([self.column(input_, name) for input_ in node.inputs])
            case Aggregate():
                return self._column_of_aggregate(node, name)
            case Join() | TimedJoin() | AsOfJoin():
                return self._column_of_join(node, name)

    def _column_of_select(self, node: Select, name: str) -> Field | None:
        if node.rest and name not in node.without and name not in {column.name for column in node.columns}:
            return self.column(node.input, name)
        return self._copied_column(node.input, node.columns, name)

    def _column_of_aggregate(self, node: Aggregate, name: str) -> Field | None:
        if node.windowing is not None and name in _WINDOW_TYPES:
            return _column_without_nulls(name, _WINDOW_TYPES[name])
        return self._copied_column(node.input, node.keys, name)

    def _copied_column(self, node: Node, columns: Sequence[Named], name: str) -> Field | None:
        """The column that is selected under this name as it is."""
        source = next((unquote(column.expression) for column in columns if column.name == name), None)
        return None if source is None else self.column(node, source)

    def _column_of_join(self, node: Join | TimedJoin | AsOfJoin, name: str) -> Field | None:
        left = None if name not in (node.left.shape.columns or ()) else self.column(node.left, name)
        right = None if name not in (node.right.shape.columns or ()) else self.column(node.right, name)
        if node.how in ("semi", "anti"):
            return left
        if left is not None and right is not None:
            return _common_column([left, right])
        column = right if left is None else left
        always_present = node.how in ("inner", "left" if column is left else "right")
        return column if always_present else _with_nulls(column)


def _source_column(node: Topic | Changelog, name: str) -> Field | None:
    corrected = isinstance(node, Topic) and node.timing is not None and node.timing.sent is not None
    if corrected and name == EVENT_TIME:
        return _column_without_nulls(name, _TIMESTAMP)
    return _field(parse_schema(node.schema), name)


def _field(schema: pa.Schema, name: str) -> Field | None:
    return schema.field(name) if name in schema.names else None


def _column_without_nulls(name: str, type_: pa.DataType) -> Field:
    return pa.field(name, type_, nullable=False)


def _with_nulls(column: Field | None) -> Field | None:
    return None if column is None else column.with_nullable(True)


def _common_column(columns: Sequence[Field | None]) -> Field | None:
    """What holds for all of these columns; None if they differ in more than nulls."""
    known = [column for column in columns if column is not None]
    if len(known) < len(columns) or len({column.type for column in known}) > 1:
        return None
    return known[0].with_nullable(any(column.nullable for column in known))
