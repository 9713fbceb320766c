"""Joins in which the events of a stream look up rows of a table: as of a moment of the event, or as of now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.errors import DeclarationError
from penstock.flow.columns import column_of
from penstock.flow.expressions import check_column
from penstock.flow.joins import JoinArguments, check_how, keep_duration, keys_and_shape
from penstock.flow.lateness import check_watermark, correction_period, lateness, with_late_bound
from penstock.flow.names import unquote
from penstock.flow.plan import AsOfJoin, Changelog, JoinKey, Latest, Location, Map, Node, Select, Where
from penstock.schema.ddl import type_ddl

NOW = "now"
"""What `as_of` says if events look up the rows that are known when they come."""


def as_of_join(left: Node, table: Node, arguments: JoinArguments, location: Location) -> AsOfJoin:
    """A join of the events of a stream with the rows of a table that they look up by its key."""
    column = _moment_column(left, arguments.as_of)
    _refuse_other_arguments(arguments)
    how = check_how(arguments.how, ("inner", "left"), " where rows are looked up")
    if column is not None:
        _check_history(table)
    if table.shape.key is None:
        raise DeclarationError(
            "rows are looked up by the key of a table, and this one has none",
            hint="keep the columns of the key in select, drop and map; join without as_of for all rows that match",
        )
    on, shape = keys_and_shape(left, table, arguments, how)
    _check_key(on, table)
    keep = _keep_duration(left, table, column, arguments.keep)
    # What is known now is looked up once: the result of an event is never corrected.
    retracts = column is not None
    timed = replace(shape, time=left.shape.time, time_is_end=left.shape.time_is_end, retracts=retracts)
    join = AsOfJoin(left, table, on, how, column, keep, timed, location)
    return join if column is None else replace(join, left=with_late_bound(left, lateness(join)))


def _moment_column(left: Node, as_of: object) -> str | None:
    """The column of the stream with the moment; None for now. A column that is called now is written in backquotes."""
    if not isinstance(as_of, str) or not as_of:
        raise DeclarationError(
            f"as_of is a column of the stream with a moment, or 'now'; found {as_of!r}",
            hint="as_of='placed_at' looks up what was valid then, as_of='now' what is known when an event comes",
        )
    if as_of != NOW:
        return NOW if unquote(as_of) == NOW else as_of
    if NOW in (left.shape.columns or ()):
        raise DeclarationError(
            "as_of='now' looks up what is known when an event comes, and the stream has a column 'now' too",
            hint="for the column write as_of='`now`'; for what is known now, rename the column first",
        )
    return None


def _refuse_other_arguments(arguments: JoinArguments) -> None:
    for name in ("within", "before"):
        if (value := getattr(arguments, name)) is not None:
            raise DeclarationError(
                f"as_of looks up rows of a table, {name} bounds the time between two streams; "
                f"found as_of={arguments.as_of!r} and {name}={value!r}",
                hint=f"leave {name} out",
            )
    if arguments.nulls_match:
        raise DeclarationError("nulls_match has no meaning with as_of: rows are looked up by the key of a table")


def _check_key(on: Sequence[JoinKey], table: Node) -> None:
    key = table.shape.key or ()
    if {key.right for key in on} != {*key}:
        raise DeclarationError(
            f"rows are looked up by the whole key of the table, which is {', '.join(key) or 'empty'}; "
            f"found {', '.join(key.right for key in on)}",
            hint="leave as_of out for all rows that match: the result is a table that follows both sides",
        )


# -- the moment -------------------------------------------------------------------------------------------------------


def _check_history(node: Node) -> None:
    """Refuse tables without a history: their rows must say since when they are valid, and no step may lose versions."""
    source = node
    while isinstance(source, Where | Select):
        source = source.input
    if isinstance(source, Map):
        raise DeclarationError(
            "a table has no history after a map, which may leave out rows without a trace",
            hint="use where and select, or look up what is known now: as_of='now'",
        )
    if not isinstance(source, Changelog | Latest):
        raise DeclarationError(
            "only tables of the log and what latest(...) gives have a history, also after where and select",
            hint="look up what is known now, as_of='now', or leave as_of out",
        )
    if source.shape.time is None:
        name = f"table '{source.name}'" if isinstance(source, Changelog) else "the stream it is made of"
        raise DeclarationError(
            f"as_of needs to know since when a row is valid, and {name} was declared without a time",
            hint="name the column, time=..., or look up what is known now: as_of='now'",
        )
    if node.shape.time is None:
        raise DeclarationError(
            f"as_of needs to know since when a row is valid, and '{source.shape.time}' is no longer among the columns",
            hint="keep the column as it is in select, with_columns and drop",
        )


def _keep_duration(left: Node, table: Node, column: str | None, given: str | None) -> int:
    """How long events and versions are kept for corrections."""
    if column is None:
        if left.shape.retracts:
            raise DeclarationError(
                "these events can be retracted, and what as_of='now' found for them then would be gone",
                hint="look up what was valid at a time, as_of='placed_at', or leave as_of out",
            )
        if given is not None:
            raise DeclarationError(
                f"with as_of='now' nothing is kept for corrections; found keep={given!r}",
                hint="as_of='placed_at' looks up what was valid at a time, and is corrected",
            )
        return 0
    check_watermark(left, "as_of needs")
    _check_moment(left, table, column)
    return keep_duration(given, max(correction_period(left), correction_period(table)))


def _check_moment(left: Node, table: Node, name: str) -> None:
    """Refuse a column for `as_of` that is not a timestamp, or not of the same kind as the time of the table."""
    try:
        check_column(name, left.shape.columns)
    except DeclarationError as error:
        raise DeclarationError(f"as_of: {error.message}", hint=error.hint) from None
    column, since = column_of(left, name), column_of(table, str(table.shape.time))
    if column is None:
        return
    if not pa.types.is_timestamp(column.type):
        raise DeclarationError(
            f"as_of: '{name}' must be a timestamp; found {type_ddl(column.type)}",
            hint="name a column of the stream that says when, or look up what is known now: as_of='now'",
        )
    if since is not None and since.type != column.type:
        raise DeclarationError(
            f"as_of: '{name}' is {type_ddl(column.type)}, and '{since.name}' of the table is {type_ddl(since.type)}",
            hint="declare both alike",
        )
