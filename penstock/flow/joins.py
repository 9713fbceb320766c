"""Checks the arguments of `join` and makes its node. Joins in which events look up rows of a table are in `as_of.py`.

A column that is joined on must have the same type on both sides. Types are compared here if both columns can be traced
back to a schema; the engine compares the others when the app starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import pyarrow as pa

from penstock.errors import DeclarationError
from penstock.flow import shapes
from penstock.flow.columns import column_of, never_null
from penstock.flow.expressions import check_column
from penstock.flow.habits import HOW
from penstock.flow.lateness import check_watermark, correction_period, lateness, with_late_bound
from penstock.flow.names import quote, unquote
from penstock.flow.plan import (
    How,
    Join,
    JoinKey,
    Location,
    Node,
    Shape,
    TimedJoin,
)
from penstock.flow.windows import DEFAULT_KEEP, microseconds
from penstock.schema.arrow import WIDER_TYPES
from penstock.schema.ddl import Field, type_ddl
from penstock.suggest import closest
from penstock.units import format_duration

On = str | Sequence[str] | Mapping[str, str]
"""The columns to join on: one name, several, or pairs `{"left column": "right column"}`."""

FOREVER = "forever"
"""What `within` says if events may be any time apart."""


@dataclass(frozen=True, slots=True)
class JoinArguments:
    """The arguments of `join`, as the user wrote them."""

    on: On
    how: How
    as_of: str | None
    within: str | None
    before: str | None
    keep: str | None
    nulls_match: bool


def is_bounded(arguments: JoinArguments) -> bool:
    """Whether time bounds a join of two streams. One of both must be said, because the other one is costly or wrong."""
    if arguments.within is None:
        raise DeclarationError(
            "say how far apart in time the events of the two streams may be; found no within",
            hint="within='1 hour' gives a stream and keeps events for an hour; "
            "within='forever' gives a table and keeps both streams forever",
        )
    return arguments.within != FOREVER


def untimed_join(left: Node, right: Node, arguments: JoinArguments, location: Location) -> Join:
    """A join without time bounds."""
    how = check_how(arguments.how, get_args(How))
    for name in ("before", "keep"):
        if (value := getattr(arguments, name)) is not None:
            raise DeclarationError(
                f"{name} has no meaning if both sides are kept forever; found {name}={value!r}",
                hint="say how far apart the events may be: within='1 hour'",
            )
    on, shape = keys_and_shape(left, right, arguments, how)
    return Join(left, right, on, how, arguments.nulls_match, shape, location)


def timed_join(left: Node, right: Node, arguments: JoinArguments, location: Location) -> TimedJoin:
    """A join of two streams within time bounds."""
    assert arguments.within is not None
    how = check_how(arguments.how, get_args(How))
    after = _duration(arguments.within, "within", "to look back, say before=... (within says how far to look ahead)")
    before = 0 if arguments.before is None else _duration(arguments.before, "before", "to look ahead, say within=...")
    for node, which in ((left, "left"), (right, "right")):
        check_watermark(node, "within needs", f"those on the {which}")
    on, shape = keys_and_shape(left, right, arguments, how)
    keep = keep_duration(arguments.keep, max(correction_period(left), correction_period(right)))
    timed = _shape_with_time(shape, left.shape, right.shape, on, how)
    join = TimedJoin(left, right, on, how, before, after, keep, arguments.nulls_match, timed, location)
    return replace(join, left=with_late_bound(left, lateness(join, 0)), right=with_late_bound(right, lateness(join, 1)))


def refuse_bounds(arguments: JoinArguments) -> None:
    """Refuse time bounds, because one side is a table."""
    for name in ("within", "before", "keep"):
        if (value := getattr(arguments, name)) is not None:
            raise DeclarationError(
                f"{name} is for the events of two streams, and one side is a table; found {name}={value!r}",
                hint="leave it out; or look up rows for events, as_of=...; or make a table a stream, .changes()",
            )


# -- what is joined on ------------------------------------------------------------------------------------------------


def keys_and_shape(left: Node, right: Node, arguments: JoinArguments, how: How) -> tuple[tuple[JoinKey, ...], Shape]:
    """The columns that are joined on, and the shape of the result, without its time."""
    if not isinstance(arguments.nulls_match, bool):
        raise DeclarationError(f"nulls_match is True or False; found {arguments.nulls_match!r}")
    on = _join_keys(left, right, arguments.on)
    for key in on:
        _check_types(left, right, key)
    unmatched_differ = how == "full" and _unmatched_rows_differ(left, right, on, nulls_match=arguments.nulls_match)
    return on, shapes.joined(left.shape, right.shape, on, how, unmatched_differ=unmatched_differ)


def _join_keys(left: Node, right: Node, on: On) -> tuple[JoinKey, ...]:
    keys = _pairs(on)
    if not keys:
        shared = [name for name in left.shape.columns or () if name in (right.shape.columns or ())]
        example = f'on="{shared[0]}"' if shared else 'on={"left column": "right column"}'
        raise DeclarationError("on is needed, the columns that must be equal; found none", hint=f"such as {example}")
    for key in keys:
        _check_side("left", key.left, left.shape, key.right)
        _check_side("right", key.right, right.shape, key.left)
    for side in ("left", "right"):
        names = [getattr(key, side) for key in keys]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise DeclarationError(f"each column is joined on once; found '{twice[0]}' of the {side} side twice")
    return keys


def _pairs(on: object) -> tuple[JoinKey, ...]:
    match on:
        case str():
            return (JoinKey(on, on),)
        case Mapping():
            return tuple(JoinKey(check_column(left, None), check_column(right, None)) for left, right in on.items())
        case Sequence():
            return tuple(JoinKey(check_column(name, None), name) for name in on)
        case None:
            return ()
    raise DeclarationError(
        f"on is a column, a list of columns, or pairs of them; found {on!r}",
        hint='on="id", on=["id", "day"], or on={"left column": "right column"}',
    )


def _check_side(side: str, name: str, shape: Shape, name_on_other_side: str) -> None:
    try:
        check_column(name, shape.columns)
    except DeclarationError as error:
        hint = error.hint
        if unquote(name) is None:
            hint = "on has names of columns; put other conditions into .where(...) before or after the join"
        elif hint is None and name == name_on_other_side:
            pair = {"left": f'{{"...": "{name}"}}', "right": f'{{"{name}": "..."}}'}[side]
            hint = f"where the names differ, give both: on={pair}"
        raise DeclarationError(f"on the {side} side: {error.message}", hint=hint) from None


def _check_types(left: Node, right: Node, key: JoinKey) -> None:
    left_column, right_column = column_of(left, key.left), column_of(right, key.right)
    for column in (left_column, right_column):
        if column is not None and _has_map(column.type):
            raise DeclarationError(
                f"a map cannot be joined on; column '{column.name}' is one",
                hint=f"use its entries: array_sort(map_entries({quote(column.name)}))",
            )
    if left_column is None or right_column is None or left_column.type == right_column.type:
        return
    raise DeclarationError(
        "columns that are joined on must have the same type; "
        f"'{key.left}' is {type_ddl(left_column.type)} on the left, "
        f"'{key.right}' is {type_ddl(right_column.type)} on the right",
        hint=_cast_hint(key, left_column, right_column),
    )


def _cast_hint(key: JoinKey, left: Field, right: Field) -> str:
    """How to make both types the same: cast the narrower one to the wider one, if one is wider."""
    narrow_right = left.type in WIDER_TYPES.get(right.type, ())
    side, name, type_ = ("right", key.right, left.type) if narrow_right else ("left", key.left, right.type)
    text = f'.with_columns({name}="cast({quote(name)} as {type_ddl(type_)})")'
    return f"declare them alike, or cast on the {side} side: {text}"


def _has_map(type_: pa.DataType) -> bool:
    inner = [type_.field(number).type for number in range(type_.num_fields)]
    return pa.types.is_map(type_) or any(map(_has_map, inner))


def _unmatched_rows_differ(left: Node, right: Node, on: Sequence[JoinKey], *, nulls_match: bool) -> bool:
    """Whether the keys of both sides distinguish a left row without a partner from a right row without a partner.

    They do if a key column that only one side has is never null: the row of the other side has null there. Otherwise
    only the columns that are joined on distinguish them: rows without a partner differ there, unless both have null.
    """
    shared = {key.left for key in on if key.left == key.right}
    sides = ((left, left.shape.key or ()), (right, right.shape.key or ()))
    if any(never_null(node, name) for node, key in sides for name in key if name not in shared):
        return True
    if len(shared) < len(on) or not shared <= {name for _, key in sides for name in key}:
        return False
    return nulls_match or all(never_null(left, name) or never_null(right, name) for name in shared)


# -- time -------------------------------------------------------------------------------------------------------------


def _shape_with_time(shape: Shape, left: Shape, right: Shape, on: Sequence[JoinKey], how: How) -> Shape:
    """The shape with the time of the side that keeps all its rows; in a full join, only a time that both share."""
    if how == "right":
        return replace(shape, time=right.time, time_is_end=right.time_is_end)
    same = (left.time, left.time_is_end) == (right.time, right.time_is_end)
    shared = same and any(key.left == key.right == left.time for key in on)
    if how == "full" and not shared:
        return shape
    return replace(shape, time=left.time, time_is_end=left.time_is_end)


def _duration(text: str, what: str, hint: str) -> int:
    if str(text).strip().startswith("-"):
        raise DeclarationError(f"{what} cannot be negative; found {text!r}", hint=hint)
    return microseconds(text, what)


def keep_duration(given: str | None, corrected: int) -> int:
    """How long partners are kept for corrections: at least as long as the joined rows can be corrected themselves."""
    if given is None:
        return max(microseconds(DEFAULT_KEEP, "keep"), corrected)
    keep = _duration(given, "keep", "keep='0 seconds' keeps nothing for corrections")
    if keep < corrected:
        kept = format_duration(corrected / 1_000_000)
        raise DeclarationError(
            f"rows that are joined can be corrected for {kept}, and this join would miss that; found keep={given!r}",
            hint=f"keep it as long: keep={kept!r}",
        )
    return keep


def check_how(how: How, known: Sequence[How], where: str = "") -> How:
    if how not in known:
        raise DeclarationError(
            f"how is one of {', '.join(map(repr, known))}{where}; found {how!r}", hint=_how_hint(how)
        )
    return how


def _how_hint(how: object) -> str | None:
    meant = HOW.get(str(how).lower())
    return closest(str(how), get_args(How)) if meant is None else f"did you mean {meant!r}?"
