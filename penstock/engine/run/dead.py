"""Finding the rows that make an epoch fail, so that it can run without them.

1. Expressions are evaluated again, guarded: one job finds every row on which one fails.
2. What a user's function does cannot be guarded. If it is in the way, or no expression failed, the range is halved
   until single rows are left.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine.run.compiled import Dead, Engine, Work
from penstock.engine.run.failures import FAILURES
from penstock.errors import PenstockError
from penstock.flow import plan as flow

# Each row that a function fails on costs some twenty jobs to find.
MOST_HALVED = 100
# A job that fails has failed; how often an epoch is tried again without the rows found so far.
MOST_ROUNDS = 10

_Place = tuple[str, int, int]


def find_dead(engine: Engine, plan: flow.Plan, work: Work) -> Dead:
    """The rows of this epoch that fail, with those found before; the same as before if no row is to blame."""
    dead = _guarded(engine, plan, work) or dict(_halved(engine, work))
    return _with(work.dead, dead)


def _guarded(engine: Engine, plan: flow.Plan, work: Work) -> dict[_Place, str]:
    try:
        rows = engine.failing(work)
    except FAILURES:  # a function fails, and stands before the expressions that could be looked at
        return {}
    steps = list(flow.nodes(plan))
    return {(row["_topic"], row["_partition"], row["_offset"]): _said(steps[row["_step"]]) for row in rows}


def _said(node: flow.Node) -> str:
    match node:
        case flow.Where():
            return f"{node.place}: where({node.condition!r}) fails on it"
        case flow.Select():
            made = ", ".join(f"{one.name}={one.expression!r}" for one in node.columns if one.expression != one.name)
            return f"{node.place}: an expression of select({made}) fails on it"
        case flow.Aggregate():
            made = ", ".join(f"{one.name}={one.expression!r}" for one in (*node.keys, *node.aggregates))
            return f"{node.place}: an expression of group_by and agg({made}) fails on it"
        case _:
            return f"{node.place}: an expression fails on it"


def _halved(engine: Engine, work: Work) -> Iterator[tuple[_Place, str]]:
    count = 0
    for topic, cut in work.cut.sources.items():
        spans = [(number, cut.starts[number], cut.ends[number]) for number in cut.starts]
        while spans:
            partition, start, end = spans.pop()
            why = engine.fails(work, topic, (partition, start, end)) if start < end else None
            if why is None:
                continue
            if end - start > 1:
                middle = (start + end) // 2
                spans += [(partition, middle, end), (partition, start, middle)]
                continue
            count += 1
            if count > MOST_HALVED:
                raise PenstockError(
                    f"topic '{topic}': a function of the app fails on more than {MOST_HALVED} rows of one epoch; "
                    f"the last was offset {start} of partition {partition}: {why}",
                    hint="mend the function; rows it cannot deal with can be filtered out before it",
                )
            yield (topic, partition, start), why


def _with(before: Dead, found: dict[_Place, str]) -> Dead:
    """As the plan of an epoch stores it: keys of JSON are text."""
    together = {topic: {number: dict(rows) for number, rows in parts.items()} for topic, parts in before.items()}
    for (topic, partition, offset), why in sorted(found.items()):
        together.setdefault(topic, {}).setdefault(str(partition), {})[str(offset)] = why
    return together
