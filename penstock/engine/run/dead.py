"""Finding the rows that make an epoch fail, so that it can run without them.

1. Expressions are evaluated again, guarded: one job finds every row on which one fails.
2. So are users' functions: in Spark's tasks, what a function fails on is given to it again in smaller pieces, down to
   single rows.
3. Functions that cannot be guarded are run over parts of the range, until single rows are left.

A row is found only if it fails alone, and with an error that is its own. If something else fails meanwhile, because
Spark has lost a process, nothing is found at all, and the epoch is run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from penstock.engine.ledger.records import Dead
from penstock.engine.run.compiled import CompiledPlan, EpochInput
from penstock.engine.run.failures import FAILURES, is_about_a_row, is_raised_by_python, plain_failure, reason
from penstock.engine.run.lost import narrowed
from penstock.errors import PenstockError
from penstock.flow import plan as flow

# More rows of one epoch than this, and it is the function.
MOST_FAILING = 100
# A job that fails has failed; how often an epoch is tried again without the rows found so far.
MOST_ROUNDS = 10
# Where nothing fails, the next part of the range is so much longer.
_LONGER = 8

_Place = tuple[str, int, int]


def find_dead(engine: CompiledPlan, plan: flow.Plan, work: EpochInput, error: BaseException) -> Dead:
    """The rows of this epoch that fail, with those found before; the same as before if no row is to blame.

    `error` is how the epoch has failed. Raises SparkLostError if the search itself does, for another reason than rows.
    """
    with _plain_failures(plan, work):
        by_python = is_raised_by_python(error)
        dead = {} if by_python else _in_expressions(engine, plan, work)  # 1
        if not dead and any(isinstance(node, flow.Map) for node in flow.nodes(plan)):
            dead = _in_functions(engine, work)  # 2, 3
        if not dead and by_python:
            dead = _in_expressions(engine, plan, work)
    return _with(work.dead, dead)


def find_failing_output(engine: CompiledPlan, plan: flow.Plan, work: EpochInput) -> flow.Output | None:
    """A view or sink that fails without the others, where no row is to blame; None if none does, now."""
    with _plain_failures(plan, work):
        return engine.failing_output(work)


@contextmanager
def _plain_failures(plan: flow.Plan, work: EpochInput) -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        raise plain_failure(error, f"app '{plan.app}', epoch {work.epoch}") from error


def _in_expressions(engine: CompiledPlan, plan: flow.Plan, work: EpochInput) -> dict[_Place, str]:
    try:
        rows = engine.failing(work)
    except FAILURES as error:
        if is_about_a_row(error):  # a function fails, and stands before the expressions that could be looked at
            return {}
        raise
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


def _in_functions(engine: CompiledPlan, work: EpochInput) -> dict[_Place, str]:
    rows, error = engine.failing_in_functions(work)
    if error is not None and not isinstance(error, AnalysisException) and not is_about_a_row(error):
        raise error
    dead = {(row["_topic"], row["_partition"], row["_offset"]): row["_error"] for row in rows}
    if len(dead) > MOST_FAILING:
        raise _too_many(*next(reversed(dead.items())))
    return dead if dead or error is None else dict(_in_parts(engine, work))


def _in_parts(engine: CompiledPlan, work: EpochInput) -> Iterator[tuple[_Place, str]]:
    probes = engine.probes(work)
    count = 0
    for topic, cut in work.cut.sources.items():
        for number in sorted(cut.starts):
            rows = _Rows(engine, work, probes, topic, number)
            for offset, why in rows.failing(cut.starts[number], cut.ends[number]):
                count += 1
                if count > MOST_FAILING:
                    raise _too_many((topic, number, offset), why)
                yield (topic, number, offset), why


class _Rows:
    """The rows of one partition, evaluated in parts."""

    def __init__(
        self, engine: CompiledPlan, work: EpochInput, probes: list[DataFrame], topic: str, number: int
    ) -> None:
        self._engine = engine
        self._work = work
        self._probes = probes
        self._topic = topic
        self._number = number

    def failing(self, start: int, end: int) -> Iterator[tuple[int, str]]:
        """The rows that fail alone, and why; none where rows fail only together."""
        size = 1
        while start < end:
            span = (start, min(start + size, end))
            if not self._fails(span):
                start, size = span[1], size * _LONGER
                continue
            first, _ = narrowed(span, self._fails)
            error = self._error((first, first + 1))
            if error is None:
                return
            yield first, reason(error)
            start, size = first + 1, 1

    def _fails(self, span: tuple[int, int]) -> bool:
        return self._error(span) is not None

    def _error(self, span: tuple[int, int]) -> BaseException | None:
        error = self._engine.fails(self._work, self._probes, self._topic, (self._number, *span))
        if error is not None and not is_about_a_row(error):
            raise error
        return error


def _too_many(place: _Place, why: str) -> PenstockError:
    topic, partition, offset = place
    return PenstockError(
        f"topic '{topic}': a function of the app fails on more than {MOST_FAILING} rows of one epoch; "
        f"the last was offset {offset} of partition {partition}: {why}",
        hint="mend the function; rows it cannot deal with can be filtered out before it",
    )


def _with(before: Dead, found: dict[_Place, str]) -> Dead:
    """Those that were found before, and those found now."""
    together = {topic: {number: dict(rows) for number, rows in parts.items()} for topic, parts in before.items()}
    for (topic, partition, offset), why in sorted(found.items()):
        together.setdefault(topic, {}).setdefault(partition, {})[offset] = why
    return together
