"""What a plan says that is allowed, but probably not meant. `penstock explain`, `plan` and `run` print it.

So far there is one case: groups by a part of the event time without a window. They are kept forever, while windows of
the same length are dropped when they are done.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.errors import DeclarationError
from penstock.flow.lateness import check_watermark
from penstock.flow.names import unquote
from penstock.flow.plan import Aggregate, Distinct, Location, Named, Node, Plan, Select, Where, nodes
from penstock.flow.reading import Invocation, read
from penstock.flow.windows import microseconds

# Months, quarters and years have no windows, because they differ in length; there are few of them.
_UNITS = {
    **dict.fromkeys(("second", "seconds", "sec", "s"), "1 second"),
    **dict.fromkeys(("minute", "minutes", "min", "m"), "1 minute"),
    **dict.fromkeys(("hour", "hours", "hr", "h"), "1 hour"),
    **dict.fromkeys(("day", "days", "dd", "d", "dow", "doy", "dayofweek", "dayofmonth", "dayofyear"), "1 day"),
    **dict.fromkeys(("week", "weeks", "w", "weekofyear", "weekday"), "7 days"),
}
_PARTS = {
    **dict.fromkeys(("day", "dayofmonth", "dayofweek", "dayofyear", "dayname", "weekday"), "1 day"),
    "second": "1 second",
    "minute": "1 minute",
    "hour": "1 hour",
    "weekofyear": "7 days",
}
"""Functions that give a part of a time, which comes again and again."""
_PATTERN_LETTERS = (("s", "1 second"), ("m", "1 minute"), ("H", "1 hour"), ("h", "1 hour"), ("d", "1 day"))
_CAST_TO_DATE = re.compile(r"cast\s*\([^()]*\bas\s+date\s*\)|::\s*date\b", re.IGNORECASE)
# The first days of 1970 are counted from a Thursday, and weeks begin on Monday.
_WEEK = ('"7 days", offset="4 days"', "'7 days', offset => '4 days'")


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """Something that is probably not meant, where it was declared, and what to write instead."""

    location: Location
    message: str
    hint: str

    def __str__(self) -> str:
        return f"warning: {self.location}: {self.message}\n  hint: {self.hint}"


@dataclass(frozen=True, slots=True)
class _TimePart:
    """What an expression makes of a time: stretches of this length, or a part of it that comes `again`."""

    expression: str
    length: str
    again: bool = False


def plan_warnings(plan: Plan) -> tuple[PlanWarning, ...]:
    """What is probably not meant, in the order of the plan."""
    return tuple(warning for node in nodes(plan) if isinstance(node, Aggregate) for warning in _warnings_of(node))


def _warnings_of(node: Aggregate) -> Iterator[PlanWarning]:
    if node.windowing is not None or not _can_have_windows(node.input):
        return
    parts = [part for key in node.keys if (part := _time_part(*_definition(node.input, key))) is not None]
    if parts:
        shortest = min(parts, key=lambda part: microseconds(part.length, "length"))
        again = all(part.again for part in parts)
        yield _endless_groups(node.location, replace(shortest, again=again), str(node.input.shape.time))


def _can_have_windows(node: Node) -> bool:
    try:
        check_watermark(node, "windows need")
    except DeclarationError:
        return False
    return True


def _definition(node: Node, key: Named) -> tuple[str, Node]:
    """The expression of a key, and the rows over whose columns it is written: a select may have computed it before."""
    expression = key.expression
    while (name := unquote(expression)) is not None:
        while isinstance(node, Where | Distinct):
            node = node.input
        selected = [column for column in node.columns if column.name == name] if isinstance(node, Select) else []
        if not selected or not isinstance(node, Select):
            break
        expression, node = selected[0].expression, node.input
    return expression, node


def _time_part(expression: str, source: Node) -> _TimePart | None:
    """The part of the event time that an expression gives; None if it gives anything else."""
    reading = read(expression)
    if reading.columns != {source.shape.time}:
        return None
    if _CAST_TO_DATE.search(expression):
        return _TimePart(expression, "1 day")
    for call in reading.calls:
        length, again = _length_of_part(call)
        if length is not None:
            return _TimePart(expression, length, again)
    return None


def _length_of_part(call: Invocation) -> tuple[str | None, bool]:
    """How long the part of a time is that a function gives, and whether that part comes again."""
    function, arguments = call.function.lower(), [argument.strip().strip("'\"") for argument in call.arguments]
    if function in ("to_date", "date"):
        return "1 day", False
    if function in _PARTS:
        return _PARTS[function], True
    if len(arguments) == 2 and function == "date_format":
        length = next((length for letter, length in _PATTERN_LETTERS if letter in arguments[1]), None)
        return length, "y" not in arguments[1]
    unit = arguments[0].split()[0].lower() if arguments and arguments[0] else ""
    if function in ("date_trunc", "extract", "date_part", "datepart"):
        return _UNITS.get(unit), function != "date_trunc"
    return None, False


def _endless_groups(location: Location, part: _TimePart, time: str) -> PlanWarning:
    python, sql = _WEEK if part.length == "7 days" else (f'"{part.length}"', f"'{part.length}'")
    what = "the same few groups come again and again" if part.again else "there are ever more groups"
    return PlanWarning(
        location,
        f"it is grouped by {' '.join(part.expression.split())} without a window: {what}, and they are kept forever",
        f"if each {part.length.removeprefix('1 ')} is meant, use a window, whose state is dropped when it is done: "
        f".window(ps.tumbling({python})).group_by(...), or in SQL GROUP BY window({time}, {sql})",
    )
