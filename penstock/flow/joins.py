"""What `join` was given, checked, and the node it becomes: one of three kinds, by whether and how time bounds it.

A column that is joined on must have the same type on both sides. Types are compared here where both columns can be
followed back to a schema; the engine compares the others when the app starts.
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
from penstock.flow.lateness import check_watermark, corrected_for, in_time, lateness
from penstock.flow.names import quoted, unquoted
from penstock.flow.plan import (
    AsOfJoin,
    Changelog,
    How,
    Join,
    JoinKey,
    Latest,
    Map,
    Node,
    Place,
    Select,
    Shape,
    TimedJoin,
    Where,
)
from penstock.flow.windows import DEFAULT_KEEP, microseconds
from penstock.log.ddl import Field, type_ddl
from penstock.log.schema import WIDER_TYPES
from penstock.units import format_duration

On = str | Sequence[str] | Mapping[str, str]
"""The columns to join on: one name, several, or pairs `{"left column": "right column"}`."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """A table in which the events of a stream look up rows: what `Table.as_of` and `Table.latest` give to `join`."""

    node: Node
    column: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What `join` was given, as the user wrote it."""

    on: On
    how: How
    within: str | None
    before: str | None
    keep: str | None
    nulls_match: bool


def as_of(node: Node, column: object) -> AsOf:
    """A table to look up what was valid at the moment in a column of the stream, where it knows that."""
    if not isinstance(column, str) or not column:
        raise DeclarationError(
            f"the column of the stream with the moment is needed; found {column!r}",
            hint="look up the newest rows with .latest()",
        )
    _check_history(node)
    return replace(latest(node), column=column)


def latest(node: Node) -> AsOf:
    """A table to look up the newest rows in."""
    if node.shape.key is None:
        raise DeclarationError(
            "rows are looked up by the key of a table, and this one has none",
            hint="keep the columns of the key in select, drop and map; join the table itself for all rows that match",
        )
    return AsOf(node, None)


def joined(left: Node, right: Node, asked: Asked, place: Place) -> Join:
    """A join without bounds in time."""
    how = _checked_how(asked.how, get_args(How))
    for name in ("before", "keep"):
        if getattr(asked, name) is not None:
            raise DeclarationError(
                f"{name} needs within: without it both sides are kept for ever; found {name}={getattr(asked, name)!r}",
                hint="say how far apart the events may be: within='1 hour'",
            )
    on, shape = _matched(left, right, asked, how)
    return Join(left, right, on, how, asked.nulls_match, shape, place)


def timed_join(left: Node, right: Node, asked: Asked, place: Place) -> TimedJoin:
    """A join of two streams within bounds in time."""
    assert asked.within is not None
    how = _checked_how(asked.how, get_args(How))
    after = _bound(asked.within, "within", "to look back, say before=... (within says how far to look ahead)")
    before = 0 if asked.before is None else _bound(asked.before, "before", "to look ahead, say within=...")
    for node, which in ((left, "left"), (right, "right")):
        check_watermark(node, "within needs", f"those on the {which}")
    on, shape = _matched(left, right, asked, how)
    keep = _keep(asked.keep, max(corrected_for(left), corrected_for(right)))
    timed = _timed(shape, left.shape, right.shape, on, how)
    join = TimedJoin(left, right, on, how, before, after, keep, asked.nulls_match, timed, place)
    return replace(join, left=in_time(left, lateness(join, 0)), right=in_time(right, lateness(join, 1)))


def as_of_join(left: Node, right: AsOf, asked: Asked, place: Place) -> AsOfJoin:
    """A join of the events of a stream with the rows of a table that they find by its key."""
    how = _checked_how(asked.how, ("inner", "left"), " where rows are looked up")
    for name in ("within", "before"):
        if getattr(asked, name) is not None:
            raise DeclarationError(f"{name} bounds the time between two streams; this one is joined with a table")
    if asked.nulls_match:
        raise DeclarationError("nulls_match has no meaning here: rows are looked up by the key of a table")
    on, shape = _matched(left, right.node, asked, how)
    _check_key(on, right.node)
    keep = _looked_up_keep(left, right, asked.keep)
    # The newest row is looked up once; what was found for an event is not corrected.
    retracts = right.column is not None
    timed = replace(shape, time=left.shape.time, time_is_end=left.shape.time_is_end, retracts=retracts)
    join = AsOfJoin(left, right.node, on, how, right.column, keep, timed, place)
    return join if right.column is None else replace(join, left=in_time(left, lateness(join)))


def refuse_bounds(asked: Asked) -> None:
    """Bounds in time were given, and one side is a table."""
    for name in ("within", "before", "keep"):
        if (value := getattr(asked, name)) is not None:
            raise DeclarationError(
                f"{name} is for the events of two streams, and one side is a table; found {name}={value!r}",
                hint="leave it out; or look up rows for events, table.as_of(...); or make a table a stream, .changes()",
            )


# -- what is joined on ------------------------------------------------------------------------------------------------


def _matched(left: Node, right: Node, asked: Asked, how: How) -> tuple[tuple[JoinKey, ...], Shape]:
    """The columns that are joined on, and the shape of the result without its time."""
    if not isinstance(asked.nulls_match, bool):
        raise DeclarationError(f"nulls_match is True or False; found {asked.nulls_match!r}")
    on = _checked_on(left, right, asked.on)
    for key in on:
        _check_types(left, right, key)
    apart = how == "full" and _apart(left, right, on, nulls_match=asked.nulls_match)
    return on, shapes.joined(left.shape, right.shape, on, how, apart=apart)


def _checked_on(left: Node, right: Node, on: On) -> tuple[JoinKey, ...]:
    keys = _pairs(on)
    if not keys:
        both = [name for name in left.shape.columns or () if name in (right.shape.columns or ())]
        example = f'on="{both[0]}"' if both else 'on={"left column": "right column"}'
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


def _check_side(side: str, name: str, shape: Shape, other: str) -> None:
    try:
        check_column(name, shape.columns)
    except DeclarationError as error:
        hint = error.hint
        if unquoted(name) is None:
            hint = "on has names of columns; put other conditions into .where(...) before or behind the join"
        elif hint is None and name == other:
            pair = {"left": f'{{"...": "{name}"}}', "right": f'{{"{name}": "..."}}'}[side]
            hint = f"where the names differ, give both: on={pair}"
        raise DeclarationError(f"on the {side} side: {error.message}", hint=hint) from None


def _check_types(left: Node, right: Node, key: JoinKey) -> None:
    one, other = column_of(left, key.left), column_of(right, key.right)
    for column in (one, other):
        if column is not None and _has_map(column.type):
            raise DeclarationError(
                f"a map cannot be joined on; column '{column.name}' is one",
                hint=f"use its entries: array_sort(map_entries({quoted(column.name)}))",
            )
    if one is None or other is None or one.type == other.type:
        return
    found = f"'{key.left}' is {type_ddl(one.type)} on the left, '{key.right}' is {type_ddl(other.type)} on the right"
    raise DeclarationError(f"columns that are joined on have the same type; {found}", hint=_cast(key, one, other))


def _cast(key: JoinKey, left: Field, right: Field) -> str:
    """How to make two types one: the narrower one becomes the wider one, where there is such."""
    narrow_right = left.type in WIDER_TYPES.get(right.type, ())
    side, name, type_ = ("right", key.right, left.type) if narrow_right else ("left", key.left, right.type)
    text = f'.with_columns({name}="cast({quoted(name)} as {type_ddl(type_)})")'
    return f"declare them alike, or cast on the {side} side: {text}"


def _has_map(type_: pa.DataType) -> bool:
    inner = [type_.field(number).type for number in range(type_.num_fields)]
    return pa.types.is_map(type_) or any(map(_has_map, inner))


def _apart(left: Node, right: Node, on: Sequence[JoinKey], *, nulls_match: bool) -> bool:
    """Whether a left row and a right one that both have no partner differ in the keys, so that those stay a key.

    They do if a column of a key that is not in both is never null: the other row has null there. Else they are only
    told apart by the columns that are joined on, in which they differ, if they cannot both have null there.
    """
    once = {key.left for key in on if key.left == key.right}
    sides = ((left, left.shape.key or ()), (right, right.shape.key or ()))
    if any(never_null(node, name) for node, key in sides for name in key if name not in once):
        return True
    if len(once) < len(on) or not once <= {name for _, key in sides for name in key}:
        return False
    return nulls_match or all(never_null(left, name) or never_null(right, name) for name in once)


# -- time -------------------------------------------------------------------------------------------------------------


def _timed(shape: Shape, left: Shape, right: Shape, on: Sequence[JoinKey], how: How) -> Shape:
    """The shape with the time of the side of which every row is there; in a full join, only one that both share."""
    if how == "right":
        return replace(shape, time=right.time, time_is_end=right.time_is_end)
    alike = (left.time, left.time_is_end) == (right.time, right.time_is_end)
    shared = alike and any(key.left == key.right == left.time for key in on)
    if how == "full" and not shared:
        return shape
    return replace(shape, time=left.time, time_is_end=left.time_is_end)


def _bound(text: str, what: str, hint: str) -> int:
    if str(text).strip().startswith("-"):
        raise DeclarationError(f"{what} cannot be negative; found {text!r}", hint=hint)
    return microseconds(text, what)


def _keep(given: str | None, corrected: int) -> int:
    """How long partners are kept for corrections: at least as long as the rows themselves can be corrected."""
    if given is None:
        return max(microseconds(DEFAULT_KEEP, "keep"), corrected)
    keep = _bound(given, "keep", "keep='0 seconds' keeps nothing for corrections")
    if keep < corrected:
        kept = format_duration(corrected / 1_000_000)
        raise DeclarationError(
            f"rows that are joined can be corrected for {kept}, and this join would miss that; found keep={given!r}",
            hint=f"keep it as long: keep={kept!r}",
        )
    return keep


def _looked_up_keep(left: Node, right: AsOf, given: str | None) -> int:
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
    return _keep(given, max(corrected_for(left), corrected_for(right.node)))


def _check_moment(left: Node, right: Node, name: str) -> None:
    """The column with the moment is a timestamp, of the same kind as the time of the table."""
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
    if {one.right for one in on} != {*key}:
        raise DeclarationError(
            f"rows are looked up by the whole key of the table, which is {', '.join(key) or 'empty'}; "
            f"found {', '.join(one.right for one in on)}",
            hint="join the table itself, without as_of or latest, for all rows that match",
        )


def _check_history(node: Node) -> None:
    """A table knows what was valid at a time if its rows say since when they hold, and nothing but rows was changed."""
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


def _checked_how(how: How, known: Sequence[How], where: str = "") -> How:
    if how not in known:
        raise DeclarationError(f"how is one of {', '.join(map(repr, known))}{where}; found {how!r}")
    return how
