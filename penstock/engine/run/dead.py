"""Finding the rows that make an epoch fail, so that it can run without them.

1. Expressions are evaluated again, guarded: one job finds all rows on which one fails.
2. So are users' functions: in Spark's tasks, rows on which a function fails are given to it again in smaller pieces,
   down to single rows.
3. Functions that cannot be guarded are run over smaller and smaller parts of the range, down to single rows.

A row is found only if it fails alone, and with an error of its own. If something else fails during the search, because
Spark has lost a process, nothing is found, and the epoch is run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from penstock.engine.ledger.records import Dead
from penstock.engine.run.compiled import CompiledPlan, EpochInput
from penstock.engine.run.failures import FAILURES, is_about_a_row, is_raised_by_python, plain_failure, reason
from penstock.engine.run.halving import Span, narrow
from penstock.errors import PenstockError, RowError
from penstock.flow import plan as flow

# If more rows of one epoch fail than this, the function is to blame.
MOST_FAILING = 100
# How often an epoch is tried again without the rows found so far.
MOST_ROUNDS = 10
# After a part of the range that does not fail, the next part is this many times longer.
_SPAN_GROWTH = 8

_Origin = tuple[str, int, int]


def find_dead(compiled_plan: CompiledPlan, plan: flow.Plan, epoch_input: EpochInput, error: BaseException) -> Dead:
    """The rows of this epoch that fail, and those found before; only the latter if no other row is to blame.

    `error` is the failure of the epoch. Raises SparkLostError if the search itself fails for another reason than rows.
    """
    with _translate_failures(plan, epoch_input):
        by_python = is_raised_by_python(error)
        dead = {} if by_python else _find_in_expressions(compiled_plan, epoch_input)  # 1
        if not dead and any(isinstance(node, flow.Map) for node in flow.nodes(plan)):
            dead = _find_in_functions(compiled_plan, epoch_input)  # 2, 3
        if not dead and by_python:
            dead = _find_in_expressions(compiled_plan, epoch_input)
    return merge_dead(epoch_input.dead, dead)


def find_failing_output(compiled_plan: CompiledPlan, plan: flow.Plan, epoch_input: EpochInput) -> flow.Output | None:
    """A view or sink that fails without the others, when no row is to blame; None if none fails now."""
    with _translate_failures(plan, epoch_input):
        return compiled_plan.find_failing_output(epoch_input)


@contextmanager
def _translate_failures(plan: flow.Plan, epoch_input: EpochInput) -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        raise plain_failure(error, f"app '{plan.app}', epoch {epoch_input.epoch}") from error


def _find_in_expressions(compiled_plan: CompiledPlan, epoch_input: EpochInput) -> dict[_Origin, str]:
    try:
        rows = compiled_plan.find_failing_rows(epoch_input)
    except FAILURES as error:
        if is_about_a_row(error):  # a function fails before the expressions are reached
            return {}
        raise
    return {(row["_topic"], row["_partition"], row["_offset"]): row["_error"] for row in rows}


def _find_in_functions(compiled_plan: CompiledPlan, epoch_input: EpochInput) -> dict[_Origin, str]:
    rows, error = compiled_plan.find_failing_in_functions(epoch_input)
    if error is not None and not isinstance(error, AnalysisException) and not is_about_a_row(error):
        raise error
    dead = {(row["_topic"], row["_partition"], row["_offset"]): row["_error"] for row in rows}
    if len(dead) > MOST_FAILING:
        raise _too_many(*next(reversed(dead.items())))
    return dead if dead or error is None else dict(_find_in_parts(compiled_plan, epoch_input))


def _find_in_parts(compiled_plan: CompiledPlan, epoch_input: EpochInput) -> Iterator[tuple[_Origin, str]]:
    probes = compiled_plan.probes(epoch_input)
    count = 0
    for topic, cut in epoch_input.cut.sources.items():
        for number in sorted(cut.starts):
            rows = _PartitionProbe(compiled_plan, epoch_input, probes, topic, number)
            for offset, cause in rows.find_failing_rows(cut.starts[number], cut.ends[number]):
                count += 1
                if count > MOST_FAILING:
                    raise _too_many((topic, number, offset), cause)
                yield (topic, number, offset), cause


class _PartitionProbe:
    """Evaluates the rows of one partition in parts."""

    def __init__(
        self, compiled_plan: CompiledPlan, epoch_input: EpochInput, probes: list[DataFrame], topic: str, number: int
    ) -> None:
        self._engine = compiled_plan
        self._work = epoch_input
        self._probes = probes
        self._topic = topic
        self._number = number

    def find_failing_rows(self, start: int, end: int) -> Iterator[tuple[int, str]]:
        """The rows that fail alone, and why; nothing if rows fail only in combination."""
        size = 1
        while start < end:
            span = (start, min(start + size, end))
            if not self._fails(span):
                start, size = span[1], size * _SPAN_GROWTH
                continue
            first, _ = narrow(span, self._fails)
            error = self._error((first, first + 1))
            if error is None:
                return
            yield first, reason(error)
            start, size = first + 1, 1

    def _fails(self, span: Span) -> bool:
        return self._error(span) is not None

    def _error(self, span: Span) -> BaseException | None:
        error = self._engine.failure_over(self._work, self._probes, self._topic, (self._number, *span))
        if error is not None and not is_about_a_row(error):
            raise error
        return error


def _too_many(origin: _Origin, cause: str) -> PenstockError:
    topic, partition, offset = origin
    return PenstockError(
        f"topic '{topic}': a function of the app fails on more than {MOST_FAILING} rows of one epoch; "
        f"the last was offset {offset} of partition {partition}: {cause}",
        hint="mend the function; rows it cannot deal with can be filtered out before it",
    )


def bad_row_error(app: str, dead: Dead, error: BaseException | None = None) -> RowError:
    """What an app ends with that stops at bad rows: the first of them. `error` is what the epoch failed with."""
    rows = [(topic, number, *row) for topic, parts in dead.items() for number in parts for row in parts[number].items()]
    topic, partition, offset, cause = rows[0]
    more = f"; {len(rows) - 1} more rows of this epoch fail too" if len(rows) > 1 else ""
    # With several rows, nobody can say which of them Spark's error is about.
    why = "" if error is None or len(rows) > 1 or reason(error) in cause else f": {reason(error)}"
    return RowError(
        f"app '{app}': topic '{topic}', partition {partition}, offset {offset}: {cause}{why}{more}",
        hint="nothing of this epoch is committed: mend the program and start it again, or have such rows set aside: "
        'AppSettings(on_bad_row="set_aside")',
    )


def merge_dead(known_rows: Dead, new_rows: dict[_Origin, str]) -> Dead:
    """The rows that were found before, and those found now."""
    merged_rows = {topic: {number: dict(rows) for number, rows in parts.items()} for topic, parts in known_rows.items()}
    for (topic, partition, offset), cause in sorted(new_rows.items()):
        merged_rows.setdefault(topic, {}).setdefault(partition, {})[offset] = cause
    return merged_rows
