"""Which columns a node needs of its inputs, so that nobody reads, stores or passes on the others.

Names are in lower case, because Spark does not distinguish upper and lower case.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.flow.expressions import columns_of
from penstock.flow.plan import Aggregate, Node, Select, Union, Where

Columns = frozenset[str]
EVERYTHING: Columns = frozenset({"*"})


def is_needed(name: str, needed: Columns) -> bool:
    return "*" in needed or name.lower() in needed


def needed_of_input(node: Node, needed: Columns) -> Columns:
    """What a node needs of its input (a union of each input) to give the columns that are needed of itself.

    All other nodes need everything. A ranking, a first or a newest row is chosen among rows that differ in any column.
    What a join needs of its sides is for the caller to decide.
    """
    match node:
        case Where():
            return needed | in_lower_case(columns_of(node.condition))
        case Select() if not node.rest:
            return _columns_in(column.expression for column in node.columns if is_needed(column.name, needed))
        case Union():
            return needed
        case Aggregate():
            time = node.input.shape.time if node.windowing else None
            columns = _columns_in(named.expression for named in (*node.keys, *node.aggregates))
            return columns if time is None else columns | {time.lower()}
        case _:
            return EVERYTHING


def in_lower_case(names: Iterable[str]) -> Columns:
    return frozenset(name.lower() for name in names)


def _columns_in(expressions: Iterable[str]) -> Columns:
    return in_lower_case(name for expression in expressions for name in columns_of(expression))
