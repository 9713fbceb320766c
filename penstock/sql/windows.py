"""`window(...)`, `session_window(...)` and `sliding_window(...)` of GROUP BY as the windows of the verb `window`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.flow.plan import Window
from penstock.flow.windows import hopping, microseconds, session, sliding, tumbling
from penstock.sql.reader import duration_of
from penstock.sql.scope import Rows, Scope
from penstock.sql.text import Span, closing_parenthesis, is_literal, literal_value, split_at_commas
from penstock.suggest import closest

_PARAMETERS = {
    "window": ("size", "every", "offset", "zone"),
    "session_window": ("gap",),
    "sliding_window": ("size",),
}
_OF_OTHER_SYSTEMS = {
    "tumble": "window(time, '10 seconds')",
    "hop": "window(time, '10 seconds', '2 seconds')",
    "session": "session_window(time, '10 seconds')",
    "cumulate": "window(time, '10 seconds') with EMIT CHANGES",
}


@dataclass(frozen=True)
class WindowClause:
    """A window of GROUP BY. `function` is the name before the dot of `window.start` and `window.end`."""

    span: Span
    function: str
    window: Window


def is_window_call(span: Span) -> bool:
    """Whether an element of GROUP BY calls a window function. Its arguments are not checked."""
    return span.keywords[:1] != () and span.keywords[0] in _PARAMETERS and len(span) > 1


def as_window(span: Span, rows: Rows, scope: Scope) -> WindowClause | None:
    """The window that an element of GROUP BY is; None if it is anything else."""
    function = span.keywords[0]
    is_call = span.keywords[1:2] == ("(",) and closing_parenthesis(span.tokens, 1) == len(span) - 1
    if not is_call:
        return None
    if function in _OF_OTHER_SYSTEMS:
        raise span.refusal(
            "group by", f"{function.upper()}(...) is not supported", f"write {_OF_OTHER_SYSTEMS[function]}"
        )
    if function not in _PARAMETERS:
        return None
    time, *arguments = split_at_commas(span.cut(2, -1))
    _check_time(time, rows, scope, function)
    values = _read_arguments(arguments, function, span)
    with span.declaring_here():
        return WindowClause(span, function, _make_window(function, values))


def window_column(span: Span, number: int, function: str | None) -> str | None:
    """`window_start` for `window.start` and the like, if they begin at the token of this number."""
    word, rest = span.keywords[number], span.keywords[number + 1 : number + 3]
    if function is None or word not in ("window", function) or rest not in ((".", "start"), (".", "end")):
        return None
    return f"window_{rest[1]}"


def _check_time(time: Span, rows: Rows, scope: Scope, function: str) -> None:
    """Refuse a first argument that is not the event time, by which windows end."""
    if not time:
        raise time.refusal("group by", f"{function}(...) begins with the column of the event time")
    column, event_time = scope.resolve_column(time, "group by"), rows.node.shape.time
    if event_time is not None and column != event_time:
        known = scope.display_name(event_time)
        raise time.refusal(
            "group by", f"windows go by the event time, which is '{known}'; found '{time}'", f"{function}({known}, ...)"
        )


def _read_arguments(spans: list[Span], function: str, whole: Span) -> dict[str, str]:
    names = _PARAMETERS[function]
    values: dict[str, str] = {}
    for number, span in enumerate(spans):
        if span.keywords[1:2] == ("=>",):
            name, value = span.keywords[0], span.cut(2)
        else:
            name, value = (names[number] if number < len(names) else ""), span
        if name not in names or name in values:
            parameters = ", ".join(("time", *names))
            raise span.refusal("group by", f"{function} takes {parameters}; found '{span}'", closest(name, list(names)))
        values[name] = _read_value(name, value)
    if names[0] not in values:
        raise whole.refusal("group by", f"{function} needs a {names[0]}; found none", f"{function}(time, '10 seconds')")
    return values


def _read_value(name: str, span: Span) -> str:
    if name != "zone":
        return duration_of(span, "group by")
    if len(span) != 1 or not is_literal(span.tokens[0]):
        raise span.refusal("group by", f"a zone is a text; found '{span}'", "zone => 'Europe/Berlin'")
    return literal_value(span.tokens[0])


def _make_window(function: str, values: dict[str, Any]) -> Window:
    if function == "session_window":
        return session(values["gap"])
    if function == "sliding_window":
        return sliding(values["size"])
    every = values.pop("every", None)
    size = values.pop("size")
    if every is None or microseconds(every, "every") == microseconds(size, "size"):
        return tumbling(size, **values)
    return hopping(size, every, **values)
