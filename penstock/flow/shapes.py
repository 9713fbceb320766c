"""What is known about the rows that a verb returns: pure functions of the shape of its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.errors import DeclarationError
from penstock.flow.names import CHANGE, RANK, WINDOW_COLUMNS, check_columns, check_free, unquote
from penstock.flow.plan import How, JoinKey, Named, Session, Shape, Sliding, Ties, Windowing


def selected(shape: Shape, columns: Sequence[Named], *, rest: bool = False, without: Sequence[str] = ()) -> Shape:
    """The shape after a Select. The key and the time stay if their columns are selected as they are, under any name."""
    check_columns(column.name for column in columns)
    copies: dict[str, str] = {}
    for column in columns:
        source = unquote(column.expression)
        if source is not None and (source not in copies or column.name == source):
            copies[source] = column.name

    def name_of(old: str) -> str | None:
        return old if rest and old not in without else copies.get(old)

    key = tuple(name for old in shape.key or () if (name := name_of(old)) is not None)
    return Shape(
        columns=None if rest else tuple(column.name for column in columns),
        time=None if shape.time is None else name_of(shape.time),
        key=key if shape.key is not None and len(key) == len(shape.key) else None,
        retracts=shape.retracts,
        time_is_end=shape.time_is_end,
    )


def mapped(shape: Shape, columns: Sequence[str] | None) -> Shape:
    """The shape after a map; without a schema the names of key and time stay, and are checked when the app starts."""
    if columns is None:
        return replace(shape, columns=None)
    check_columns(columns)
    key = shape.key if shape.key is not None and all(name in columns for name in shape.key) else None
    time = shape.time if shape.time in columns else None
    return Shape(tuple(columns), time, key, shape.retracts, shape.time_is_end)


def united(shapes: Sequence[Shape]) -> Shape:
    """The shape of a union: the columns of the first input, which all others must have."""
    first = shapes[0]
    for number, shape in enumerate(shapes[1:], start=2):
        if first.columns is not None and shape.columns is not None and set(shape.columns) != set(first.columns):
            only = sorted(set(shape.columns) ^ set(first.columns))
            raise DeclarationError(
                f"all parts of a union have the same columns; number {number} differs in {', '.join(only)}",
                hint="make them equal with select(...)",
            )
    columns = None if any(shape.columns is None for shape in shapes) else first.columns
    same_time = all((shape.time, shape.time_is_end) == (first.time, first.time_is_end) for shape in shapes)
    time = first.time if same_time else None
    return Shape(columns, time, None, any(shape.retracts for shape in shapes), first.time_is_end)


def ranked(shape: Shape, count: int, per: tuple[str, ...], ties: Ties) -> Shape:
    """The first rows of each group. The key is the group if it has one row; otherwise its rows differ in their rank."""
    check_free(shape.columns or (), (RANK,), "top adds one")
    columns = None if shape.columns is None else (*shape.columns, RANK)
    key = (per if count == 1 else (*per, RANK)) if ties == "break" else None
    return Shape(columns, shape.time, key, retracts=True, time_is_end=shape.time_is_end)


def changed(shape: Shape) -> Shape:
    check_free(shape.columns or (), (CHANGE,), "changes adds one")
    columns = None if shape.columns is None else (*shape.columns, CHANGE)
    return Shape(columns, shape.time, time_is_end=shape.time_is_end)


def aggregated(keys: Sequence[Named], windowing: Windowing | None, aggregates: Sequence[Named]) -> Shape:
    """A row for each group; with a window, a row for each of its windows, with the columns that identify the window."""
    names = tuple(key.name for key in keys)
    made = tuple(aggregate.name for aggregate in aggregates)
    for name in made:
        if name in names:
            raise DeclarationError(
                f"column '{name}' is one that the rows are grouped by, and is in the result already",
                hint=f"leave it out, or choose another name for the aggregate, such as {_other_name(name)}",
            )
    if windowing is None:
        check_columns((*names, *made))
        return Shape((*names, *made), None, names, retracts=True)
    for name in (*names, *made):
        if name.lower() in WINDOW_COLUMNS:
            raise DeclarationError(
                f"the result of a window has a column {name!r} of its own",
                hint=f"choose another name, such as {_other_name(name)}; {name} needs no declaration",
            )
    columns = (*names, *WINDOW_COLUMNS, *made)
    check_columns(columns)
    key = (*names, *_of_window(windowing))
    return Shape(columns, "window_end", key, retracts=True, time_is_end=not isinstance(windowing.window, Sliding))


def _other_name(name: str) -> str:
    return f"{name}_of_rows"


def joined(left: Shape, right: Shape, on: Sequence[JoinKey], how: How, *, unmatched_differ: bool) -> Shape:
    """The shape of a join, without a time, which depends on the kind of join.

    `unmatched_differ` says that the keys of both sides distinguish a left row without a partner from a right row
    without one.
    """
    grows = how in ("inner", "semi") and not (left.retracts or right.retracts)
    return Shape(
        columns=joined_columns(left.columns, right.columns, on, how),
        key=_joined_key(left, right, on, how, unmatched_differ=unmatched_differ),
        retracts=not grows,
    )


def joined_columns(
    left: tuple[str, ...] | None, right: tuple[str, ...] | None, on: Sequence[JoinKey], how: How
) -> tuple[str, ...] | None:
    """The columns of a join: those of the left side, and of the right side those not joined by the same name."""
    if how in ("semi", "anti"):
        return left
    if left is None or right is None:
        return None
    shared = {key.left for key in on if key.left == key.right}
    added = tuple(name for name in right if name not in shared)
    taken = {name.lower() for name in left}
    both = [name for name in added if name.lower() in taken]
    if both:
        raise DeclarationError(
            f"both sides have a column of the same name, which is not joined on; found {', '.join(both)}",
            hint=f'rename it on one side, .rename(other_{both[0]}="{both[0]}"), or leave it out, .drop("{both[0]}")',
        )
    check_columns((*left, *added))
    return (*left, *added)


def _joined_key(
    left: Shape, right: Shape, on: Sequence[JoinKey], how: How, *, unmatched_differ: bool
) -> tuple[str, ...] | None:
    """The key of a join: the keys of both sides, or of one side if each of its rows has at most one partner."""
    if how in ("semi", "anti"):
        return left.key
    if how in ("inner", "left") and right.key is not None and {*right.key} <= {key.right for key in on}:
        return left.key
    if how in ("inner", "right") and left.key is not None and {*left.key} <= {key.left for key in on}:
        return right.key
    if left.key is None or right.key is None or (how == "full" and not unmatched_differ):
        return None
    return tuple(dict.fromkeys((*left.key, *right.key)))


def _of_window(windowing: Windowing) -> tuple[str, ...]:
    """The columns in which the windows of one group differ."""
    if isinstance(windowing.window, Sliding):
        return ("window_end",)
    return ("window_start", "window_end") if isinstance(windowing.window, Session) else ("window_start",)
