"""The schemas that versions of a program have declared for a topic, oldest first: what fingerprints are compared by.

One more column must not discard the state of steps that do not use it. So an app remembers how its topics were declared
before, and `fingerprint` takes the first schema in which the used columns are as they are now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.flow.plan import Node, Plan, Topic, nodes
from penstock.flow.pushdown import rebuild, with_inputs

Schemas = Mapping[str, tuple[str, ...]]
"""By topic: every schema that was declared for it."""


def with_earlier_schemas(plan: Plan, schemas: Schemas) -> Plan:
    """The plan, in which topics know how they were declared before."""

    def recall(node: Node, new_inputs: tuple[Node, ...]) -> Node:
        if not isinstance(node, Topic):
            return with_inputs(node, new_inputs)
        declared = schemas.get(node.name, ())
        earlier = declared[: declared.index(node.schema)] if node.schema in declared else declared
        return node if earlier == node.earlier_schemas else replace(node, earlier_schemas=earlier)

    return rebuild(plan, recall)


def with_schemas_of(plan: Plan, schemas: Schemas) -> Schemas:
    """What is known about the topics of an app once it runs this plan."""
    declared = {node.name: node.schema for node in nodes(plan) if isinstance(node, Topic)}
    known = {name: schemas.get(name, ()) for name in declared}
    added = {
        name: (*known[name], schema) if schema not in known[name] else known[name] for name, schema in declared.items()
    }
    return {**schemas, **added}
