"""Late materialisation: columns that a view copies from its topic unchanged do not go through Spark.

In a large epoch, passing rows from the JVM to the task that writes them costs more than anything else. So Spark gets
only the columns that expressions need, and the origin of each row in the log; the task that writes the view fetches the
other columns from the log itself (`engine/run/fetch.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.flow import plan as flow
from penstock.flow.names import unquote
from penstock.schema.arrow import parse_schema

# An origin takes as much as two numbers: fetching pays if it saves more columns than that, or text.
FEW_COLUMNS = 2


@dataclass(frozen=True, slots=True)
class Fetch:
    """What is fetched for a view: the topic, and the columns of the view with the topic's column that each copies.

    `computed` are the other columns of the view, which Spark computes.
    """

    topic: flow.Topic
    columns: Mapping[str, str]
    computed: tuple[str, ...]


def fetch_for(output: flow.Output) -> Fetch | None:
    """What to fetch for an output; None if its rows are not simply those of a topic, or if it does not pay."""
    shape = output.node.shape
    if not isinstance(output, flow.View) or shape.key is not None or shape.retracts:
        return None
    node = output.node
    while isinstance(node, flow.Where | flow.Select):
        node = node.input
    if not isinstance(node, flow.Topic):
        return None
    copies = _copies(output.node)
    topic_schema = parse_schema(node.schema)
    columns = {name: source for name, source in copies.items() if source in topic_schema.names}
    if len(columns) <= FEW_COLUMNS and all(_is_narrow(topic_schema.field(source).type) for source in columns.values()):
        return None
    return Fetch(node, columns, tuple(name for name in copies if name not in columns))


def _copies(node: flow.Node) -> dict[str, str]:
    """The columns of a node, each with the topic's column that it copies; an empty name if it is computed."""
    if isinstance(node, flow.Topic):
        return {name: name for name in node.shape.columns or ()}
    if isinstance(node, flow.Where):
        return _copies(node.input)
    assert isinstance(node, flow.Select) and not node.rest, "the columns of a topic are known"
    sources = _copies(node.input)
    return {column.name: sources.get(unquote(column.expression) or "", "") for column in node.columns}


def _is_narrow(type_: pa.DataType) -> bool:
    return pa.types.is_primitive(type_) or pa.types.is_decimal(type_)
