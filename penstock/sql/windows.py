"""`window(...)`, `session_window(...)` and `sliding_window(...)` of GROUP BY as the windows of the verb `window`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.flow.plan import Window
from penstock.flow.windows import hopping, microseconds, session, sliding, tumbling
from penstock.log.ddl import closest
from penstock.sql.durations import duration
from penstock.sql.scope import Rows, Scope
from penstock.sql.text import Span, closing, is_literal, literal, parts

_FUNCTIONS = {
    "window": ("size", "every", "offset", "zone"),
    "session_window": ("gap",),
    "sliding_window": ("size",),
}
_ELSEWHERE = {
    "tumble": "window(time, '10 seconds')",
    "hop": "window(time, '10 seconds', '2 seconds')",
    "session": "session_window(time, '10 seconds')",
    "cumulate": "window(time, '10 seconds') with EMIT CHANGES",
}


@dataclass(frozen=True)
class WindowClause:
    """A window of GROUP BY. `function` is what its start and end are asked of: `window.start`."""

    span: Span
    function: str
    window: Window


def window_in(span: Span, rows: Rows, scope: Scope) -> WindowClause | None:
    """The window that an element of GROUP BY is; None if it is anything else."""
    function = span.keywords[0]
    called = span.keywords[1:2] == ("(",) and closing(span.tokens, 1) == len(span) - 1
    if not called:
        return None
    if function in _ELSEWHERE:
        raise span.refusal("group by", f"{function.upper()}(...) is not there", f"write {_ELSEWHERE[function]}")
    if function not in _FUNCTIONS:
        return None
    time, *arguments = parts(span.cut(2, -1))
    _check_time(time, rows, scope, function)
    given = _arguments(arguments, function, span)
    with span.text.at(span.at):
        return WindowClause(span, function, _window(function, given))


def window_column(span: Span, number: int, function: str | None) -> str | None:
    """`window_start` for `window.start` and the like, where they begin at the token of this number."""
    word, rest = span.keywords[number], span.keywords[number + 1 : number + 3]
    if function is None or word not in ("window", function) or rest not in ((".", "start"), (".", "end")):
        return None
    return f"window_{rest[1]}"


def _check_time(time: Span, rows: Rows, scope: Scope, function: str) -> None:
    """The first argument is the event time, by which windows end."""
    if not time:
        raise time.refusal("group by", f"{function}(...) begins with the column of the event time")
    found, right = scope.column(time, "group by"), rows.node.shape.time
    if right is not None and found != right:
        known = scope.shown(right)
        raise time.refusal(
            "group by", f"windows go by the event time, which is '{known}'; found '{time}'", f"{function}({known}, ...)"
        )


def _arguments(spans: list[Span], function: str, whole: Span) -> dict[str, str]:
    names = _FUNCTIONS[function]
    given: dict[str, str] = {}
    for number, span in enumerate(spans):
        if span.keywords[1:2] == ("=>",):
            name, value = span.keywords[0], span.cut(2)
        else:
            name, value = (names[number] if number < len(names) else ""), span
        if name not in names or name in given:
            shown = ", ".join(("time", *names))
            raise span.refusal("group by", f"{function} takes {shown}; found '{span}'", closest(name, list(names)))
        given[name] = _value(name, value)
    if names[0] not in given:
        raise whole.refusal("group by", f"{function} needs a {names[0]}; found none", f"{function}(time, '10 seconds')")
    return given


def _value(name: str, span: Span) -> str:
    if name != "zone":
        return duration(span, "group by")
    if len(span) != 1 or not is_literal(span.tokens[0]):
        raise span.refusal("group by", f"a zone is a text; found '{span}'", "zone => 'Europe/Berlin'")
    return literal(span.tokens[0])


def _window(function: str, given: dict[str, Any]) -> Window:
    if function == "session_window":
        return session(given["gap"])
    if function == "sliding_window":
        return sliding(given["size"])
    every = given.pop("every", None)
    size = given.pop("size")
    if every is None or microseconds(every, "every") == microseconds(size, "size"):
        return tumbling(size, **given)
    return hopping(size, every, **given)
