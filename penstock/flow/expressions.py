"""Expressions are Spark SQL text. Every mistake that can be known without running it is found when it is declared.

Column names are case-sensitive: Spark would accept another case, Penstock suggests the right spelling instead. Types
are not checked here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import DeclarationError
from penstock.flow.functions import WITHOUT_PARENTHESES, kind_of
from penstock.flow.habits import check_text
from penstock.flow.names import unquote
from penstock.suggest import closest

if TYPE_CHECKING:
    from penstock.flow.reading import Invocation, Reading

Columns = Collection[str] | None
"""The columns that an expression may use; None if they are not known before the app starts."""

_ALL_COLUMNS = (
    'leave select out to keep all columns; .with_columns(total="price * n") adds to them, .drop("note") removes some'
)
_ALIASED = re.compile(r"(?P<expression>\S.*?)\s+as\s+`?(?P<alias>[A-Za-z]\w*)`?", re.IGNORECASE | re.DOTALL)
_REPEAT = "an answer must not depend on when or where it is computed"
_LITERALS_OF_NOW = frozenset({"now", "today", "tomorrow", "yesterday"})


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an aggregate function.

    `text` is the whole call as it was written, `filter` the condition of `filter (where ...)`. `clause` is
    `within group (...)` or `ignore nulls`: a call that has one is only complete as `text`. The arguments of `count(*)`
    are `("1",)`, which means the same.
    """

    function: str
    arguments: tuple[str, ...]
    distinct: bool
    filter: str | None
    text: str
    clause: str | None = None


@dataclass(frozen=True, slots=True)
class Aggregates:
    """An expression in two steps: its aggregate calls, and `outer`, which uses their results as `_a0`, `_a1`, ..."""

    outer: str
    calls: tuple[Call, ...]


def columns_of(text: str) -> frozenset[str]:
    """The columns that an expression uses: of `a.b` only `a`, and no variables of lambdas."""
    return _read(text).columns


def split_aggregates(text: str, *, first: int = 0) -> Aggregates:
    """Split a checked expression; results are named from `_a<first>` on, and equal calls share a result."""
    reading = _read(text)
    text = reading.text
    calls: dict[Call, str] = {}
    outer, at = "", 0
    for found in outermost_aggregates(reading):
        call = _aggregate_call(text, found)
        name = calls.setdefault(call, f"_a{first + len(calls)}")
        outer += text[at : found.start] + name
        # Without parentheses the name could run into the next word.
        outer += " " if text[found.end : found.end + 1].isalnum() else ""
        at = found.end
    return Aggregates(outer + text[at:], tuple(calls))


def aggregates_in(reading: Reading) -> list[Invocation]:
    return [call for call in reading.calls if kind_of(call.function) == "aggregate"]


def outermost_aggregates(reading: Reading) -> list[Invocation]:
    """The calls of aggregates that are not inside another."""
    outermost: list[Invocation] = []
    for call in aggregates_in(reading):  # in the order of their starts
        if not outermost or call.start >= outermost[-1].end:
            outermost.append(call)
    return outermost


def check_expression(text: str, columns: Columns, *, instead: str) -> str:
    """Check an expression over the columns of one row and return it; `instead` is the hint for aggregates."""
    reading = _read_and_check(text, columns)
    for call in aggregates_in(reading):
        raise DeclarationError(f"an aggregate is not allowed here; found {_call_text(text, call)}", hint=instead)
    _check_columns(reading.columns, columns)
    return reading.text


def check_aggregate(text: str, columns: Columns, keys: Sequence[str]) -> str:
    """Check an expression over a group: aggregates of its rows, and outside of them only grouping columns."""
    reading = _read_and_check(text, columns)
    if not aggregates_in(reading):
        raise DeclarationError(
            f"there is no aggregate in it; found {text!r}",
            hint="use an aggregate such as sum(...), or add the column to group_by",
        )
    split = split_aggregates(text)
    for part in split.calls:
        if aggregates_in(_read(part.text))[1:]:
            raise DeclarationError(
                f"an aggregate is inside another; found {part.text!r}",
                hint="aggregate in two steps: group_by(...).agg(...).group_by(...).agg(...)",
            )
        _check_columns(columns_of(part.text), columns)
    _check_keys(columns_of(split.outer) - {f"_a{number}" for number in range(len(split.calls))}, keys)
    return reading.text


def check_column(name: str, columns: Columns) -> str:
    """Check the name of a column and return it. Expressions are refused."""
    check_text(name, "a column is given by its name")
    if name == "*":
        raise DeclarationError("'*' is not a column", hint=_ALL_COLUMNS)
    if columns is not None and name not in columns:
        raise _missing_column(name, columns, _column_hint(name, columns))
    return name


def _column_hint(name: str, columns: Collection[str]) -> str | None:
    """What was probably meant by text that is not the name of a column."""
    if aliased := _ALIASED.fullmatch(name):
        return f'write {aliased["alias"]}="{aliased["expression"]}"'
    hint = None if "(" in name or " " in name else closest(name, list(columns))
    if hint is None and unquote(name) is None:
        return f'an expression needs a name: name="{name}"'
    return hint


def _read(text: str) -> Reading:
    from penstock.flow.reading import read

    return read(check_text(text, "an expression is Spark SQL as text").strip())


def _read_and_check(text: str, columns: Columns) -> Reading:
    """Read an expression and make the checks that apply to all of them."""
    reading = _read(text)
    for call in reading.calls:
        _check_call(reading.text, call)
    _check_current_values(reading, columns)
    return reading


def _check_call(text: str, call: Invocation) -> None:
    from penstock.flow.reading import check_function

    kind = kind_of(call.function)
    found = _call_text(text, call)
    if call.over or kind == "window":
        raise DeclarationError(
            f"functions over other rows are not allowed; found {found}",
            hint="use group_by(...).agg(...), .window(...) or .top(...)",
        )
    check_function(text, call)
    if kind == "unrepeatable" or (call.function.endswith("unix_timestamp") and not call.arguments):
        raise DeclarationError(f"{_REPEAT}; found {found}", hint="store the value with the event")
    if kind == "generator":
        raise DeclarationError(
            f"a function that makes several rows is not allowed here; found {found}",
            hint="use map: .map(lambda rows: rows.selectExpr('*', 'explode(items) as item'))",
        )
    if kind == "time window":
        raise DeclarationError(
            f"windows are not made in expressions; found {found}",
            hint="use .window(tumbling('1 minute')).group_by(...).agg(...)",
        )
    if kind == "grouping":
        raise DeclarationError(f"there are no grouping sets and no measures; found {found}")


def _check_current_values(reading: Reading, columns: Columns) -> None:
    """Refuse words that ask for the current time or user without being a call."""
    tokens = reading.tokens
    for at, token in enumerate(tokens):
        follows = tokens[at + 1].raw if at + 1 < len(tokens) else ""
        asks = token.raw.lower() in WITHOUT_PARENTHESES and follows != "(" and (not at or tokens[at - 1].raw != ".")
        if asks and not (token.raw in (columns or ()) and token.raw in reading.columns):
            raise DeclarationError(f"{_REPEAT}; found {token.raw}", hint=f"a column of that name: `{token.raw}`")
        typed = token.raw.lower() in ("date", "timestamp", "timestamp_ntz", "timestamp_ltz", "time")
        if typed and follows[:1] in ("'", '"') and follows[1:-1].strip().lower() in _LITERALS_OF_NOW:
            raise DeclarationError(f"{_REPEAT}; found {token.raw} {follows}")


def _check_columns(needed: Collection[str], columns: Columns) -> None:
    if columns is None:
        return
    for name in sorted(needed):
        if name not in columns:
            raise _missing_column(name, columns, closest(name, list(columns)))


def _check_keys(outside: Collection[str], keys: Sequence[str]) -> None:
    for name in sorted(outside):
        if name not in keys:
            groups = ", ".join(keys) or "nothing"
            raise DeclarationError(
                f"column '{name}' is used outside of an aggregate, and the rows are grouped by {groups}",
                hint=f"add it to group_by, or choose one of its values: max({name}), any_value({name})",
            )


def _missing_column(name: str, columns: Collection[str], hint: str | None) -> DeclarationError:
    return DeclarationError(f"there is no column '{name}'; there are {', '.join(columns)}", hint=hint)


def _aggregate_call(text: str, found: Invocation) -> Call:
    arguments = ("1",) if found.arguments == ("*",) else found.arguments
    whole = text[found.start : found.end]
    return Call(found.function, arguments, found.distinct, found.filter, whole, found.clause)


def _call_text(text: str, call: Invocation) -> str:
    return repr(text[call.start : call.end])
