"""Checks the arguments of `join` and makes its node: one of three kinds, depending on whether and how time bounds it.

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
from penstock.flow.lateness import check_watermark, correction_period, lateness, with_late_bound
from penstock.flow.names import quote, unquote
from penstock.flow.plan import (
    AsOfJoin,
    Changelog,
    How,
    Join,
    JoinKey,
    Latest,
    Location,
    Map,
    Node,
    Select,
    Shape,
    TimedJoin,
    Where,
)
from penstock.flow.windows import DEFAULT_KEEP, microseconds
from penstock.schema.arrow import WIDER_TYPES
from penstock.schema.ddl import Field, type_ddl
from penstock.units import format_duration

On = str | Sequence[str] | Mapping[str, str]
"""The columns to join on: one name, several, or pairs `{"left column": "right column"}`."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """A table in which the events of a stream look up rows: what `Table.as_of` and `Table.latest` return for `join`."""

    node: Node
    column: str | None


@dataclass(frozen=True, slots=True)
class JoinArguments:
    """The arguments of `join`, as the user wrote them."""

    on: On
    how: How
    within: str | None
    before: str | None
    keep: str | None
    nulls_match: bool


def as_of(node: Node, column: object) -> AsOf:
    """A table to look up the rows that were valid at the time in a column of the stream. Not every table knows that."""
    if not isinstance(column, str) or not column:
        raise DeclarationError(
            f"the column of the stream with the moment is needed; found {column!r}",
            hint="look up the newest rows with .latest()",
        )
    _check_history(node)
    return replace(latest(node), column=column)


def latest(node: Node) -> AsOf:
    """A table to look up the newest rows."""
    if node.shape.key is None:
        raise DeclarationError(
            "rows are looked up by the key of a table, and this one has none",
            hint="keep the columns of the key in select, drop and map; join the table itself for all rows that match",
        )
    return AsOf(node, None)


def untimed_join(left: Node, right: Node, arguments: JoinArguments, location: Location) -> Join:
    """A join without time bounds."""
    how = _check_how(arguments.how, get_args(How))
    for name in ("before", "keep"):
        if (value := getattr(arguments, name)) is not None:
            raise DeclarationError(
                f"{name} needs within: without it both sides are kept for ever; found {name}={value!r}",
                hint="say how far apart the events may be: within='1 hour'",
            )
    on, shape = _keys_and_shape(left, right, arguments, how)
    return Join(left, right, on, how, arguments.nulls_match, shape, location)


def timed_join(left: Node, right: Node, arguments: JoinArguments, location: Location) -> TimedJoin:
    """A join of two streams within time bounds."""
    assert arguments.within is not None
    how = _check_how(arguments.how, get_args(How))
    after = _duration(arguments.within, "within", "to look back, say before=... (within says how far to look ahead)")
    before = 0 if arguments.before is None else _duration(arguments.before, "before", "to look ahead, say within=...")
    for node, which in ((left, "left"), (right, "right")):
        check_watermark(node, "within needs", f"those on the {which}")
    on, shape = _keys_and_shape(left, right, arguments, how)
    keep = _keep_duration(arguments.keep, max(correction_period(left), correction_period(right)))
    timed = _shape_with_time(shape, left.shape, right.shape, on, how)
    join = TimedJoin(left, right, on, how, before, after, keep, arguments.nulls_match, timed, location)
    return replace(join, left=with_late_bound(left, lateness(join, 0)), right=with_late_bound(right, lateness(join, 1)))


def as_of_join(left: Node, right: AsOf, arguments: JoinArguments, location: Location) -> AsOfJoin:
    """A join of the events of a stream with the rows of a table that they look up by its key."""
    how = _check_how(arguments.how, ("inner", "left"), " where rows are looked up")
    for name in ("within", "before"):
        if getattr(arguments, name) is not None:
            raise DeclarationError(f"{name} bounds the time between two streams; this one is joined with a table")
    if arguments.nulls_match:
        raise DeclarationError("nulls_match has no meaning here: rows are looked up by the key of a table")
    on, shape = _keys_and_shape(left, right.node, arguments, how)
    _check_key(on, right.node)
    keep = _as_of_keep(left, right, arguments.keep)
    # The newest row is looked up once: the result of an event is never corrected.
    retracts = right.column is not None
    timed = replace(shape, time=left.shape.time, time_is_end=left.shape.time_is_end, retracts=retracts)
    join = AsOfJoin(left, right.node, on, how, right.column, keep, timed, location)
    return join if right.column is None else replace(join, left=with_late_bound(left, lateness(join)))


def refuse_bounds(arguments: JoinArguments) -> None:
    """Refuse time bounds, because one side is a table."""
    for name in ("within", "before", "keep"):
        if (value := getattr(arguments, name)) is not None:
            raise DeclarationError(
                f"{name} is for the events of two streams, and one side is a table; found {name}={value!r}",
                hint="leave it out; or look up rows for events, table.as_of(...); or make a table a stream, .changes()",
            )


# -- what is joined on ------------------------------------------------------------------------------------------------


def _keys_and_shape(left: Node, right: Node, arguments: JoinArguments, how: How) -> tuple[tuple[JoinKey, ...], Shape]:
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
            hint = "on has names of columns; put other conditions into .where(...) before or behind the join"
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
        f"columns that are joined on have the same type; '{key.left}' is {type_ddl(left_column.type)} on the left, "
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


def _keep_duration(given: str | None, corrected: int) -> int:
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


def _as_of_keep(left: Node, right: AsOf, given: str | None) -> int:
    if right.column is None:
        if left.shape.retracts:
            raise DeclarationError(
                "these events can be taken back, and what latest() found for them then would be gone",
                hint="look up what was valid at a time, .as_of(...), or join the table itself",
            )
        if given is not None:
            raise DeclarationError(
                f"with latest() nothing is kept for corrections; found keep={given!r}",
                hint="as_of(...) looks up what was valid at a time, and is corrected",
            )
        return 0
    check_watermark(left, "as_of needs")
    _check_moment(left, right.node, right.column)
    return _keep_duration(given, max(correction_period(left), correction_period(right.node)))


def _check_moment(left: Node, right: Node, name: str) -> None:
    """Refuse a column for `as_of` that is not a timestamp, or not of the same kind as the time of the table."""
    try:
        check_column(name, left.shape.columns)
    except DeclarationError as error:
        raise DeclarationError(f"as_of: {error.message}", hint=error.hint) from None
    column, since = column_of(left, name), column_of(right, str(right.shape.time))
    if column is None:
        return
    if not pa.types.is_timestamp(column.type):
        raise DeclarationError(f"as_of: '{name}' must be a timestamp; found {type_ddl(column.type)}")
    if since is not None and since.type != column.type:
        raise DeclarationError(
            f"as_of: '{name}' is {type_ddl(column.type)}, and '{since.name}' of the table is {type_ddl(since.type)}",
            hint="declare both in the same way",
        )


# -- looking up -------------------------------------------------------------------------------------------------------


def _check_key(on: Sequence[JoinKey], table: Node) -> None:
    key = table.shape.key or ()
    if {key.right for key in on} != {*key}:
        raise DeclarationError(
            f"rows are looked up by the whole key of the table, which is {', '.join(key) or 'empty'}; "
            f"found {', '.join(key.right for key in on)}",
            hint="join the table itself, without as_of or latest, for all rows that match",
        )


def _check_history(node: Node) -> None:
    """Refuse tables without a history: their rows must say since when they are valid, and no step may lose versions."""
    source = node
    while isinstance(source, Where | Select):
        source = source.input
    if isinstance(source, Map):
        raise DeclarationError(
            "a table has no history behind a map, which may leave out rows without a trace",
            hint="use where and select, or look up the newest rows: .latest()",
        )
    if not isinstance(source, Changelog | Latest):
        raise DeclarationError(
            "only tables of the log and what latest(...) gives have a history, also behind where and select",
            hint="look up the newest rows, .latest(), or join the table itself",
        )
    if source.shape.time is None:
        name = f"table '{source.name}'" if isinstance(source, Changelog) else "the stream it is made of"
        raise DeclarationError(
            f"it must be known since when a row holds, and {name} was declared without a time",
            hint="name the column, time=..., or look up the newest rows: .latest()",
        )
    if node.shape.time is None:
        raise DeclarationError(
            f"it must be known since when a row holds, and '{source.shape.time}' did not come this far",
            hint="keep the column as it is in select, with_columns and drop",
        )


def _check_how(how: How, known: Sequence[How], where: str = "") -> How:
    if how not in known:
        raise DeclarationError(f"how is one of {', '.join(map(repr, known))}{where}; found {how!r}")
    return how
