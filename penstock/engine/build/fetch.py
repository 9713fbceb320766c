"""Late materialisation: what a view takes over from its topic unchanged does not go through Spark.

In a large epoch the handing over of rows, out of the JVM and into the task that writes them, costs more than anything
else that happens to them. So Spark gets the columns that expressions need, and each row's place in the log; the task
that writes the view fetches the others from the log itself (`engine/run/fetch.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.flow import plan as flow
from penstock.flow.names import unquoted
from penstock.log.schema import parse_schema

# A place takes as much as two numbers: fetching pays when it replaces more than that, or a text.
FEW_COLUMNS = 2


@dataclass(frozen=True, slots=True)
class Fetch:
    """What is fetched for a view: from which topic, and for columns of the view the column of the topic.

    `computed` are the other columns of the view, which Spark makes.
    """

    topic: flow.Topic
    columns: Mapping[str, str]
    computed: tuple[str, ...]


def fetch_for(output: flow.Output) -> Fetch | None:
    """What to fetch for an output; None where its rows are not simply those of a topic, or where it does not pay."""
    shape = output.node.shape
    if not isinstance(output, flow.View) or shape.key is not None or shape.retracts:
        return None
    node = output.node
    while isinstance(node, flow.Where | flow.Select):
        node = node.input
    if not isinstance(node, flow.Topic):
        return None
    copies = _copies(output.node)
    stored = parse_schema(node.schema)
    columns = {name: source for name, source in copies.items() if source in stored.names}
    if len(columns) <= FEW_COLUMNS and all(_is_narrow(stored.field(source).type) for source in columns.values()):
        return None
    return Fetch(node, columns, tuple(name for name in copies if name not in columns))


def _copies(node: flow.Node) -> dict[str, str]:
    """The columns of a node, each with the column of its topic that it copies; an empty name if it is computed."""
    if isinstance(node, flow.Topic):
        return {name: name for name in node.shape.columns or ()}
    if isinstance(node, flow.Where):
        return _copies(node.input)
    assert isinstance(node, flow.Select) and not node.rest, "the columns of a topic are known"
    given = _copies(node.input)
    return {column.name: given.get(unquoted(column.expression) or "", "") for column in node.columns}


def _is_narrow(type_: pa.DataType) -> bool:
    return pa.types.is_primitive(type_) or pa.types.is_decimal(type_)
