"""A JOIN as the verb `join`: equalities become its keys, time bounds `within`, and other conditions a `where`.

If both sides have a column of the same name, that of the right side is renamed before the join. The steps are numbered
in `apply_join`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import DeclarationError
from penstock.flow.as_of import NOW
from penstock.flow.columns import column_of
from penstock.flow.joins import FOREVER
from penstock.flow.plan import How
from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.schema.ddl import type_ddl
from penstock.sql.clauses import AsOfClause, JoinClause
from penstock.sql.conditions import (
    EventTimes,
    TimeBounds,
    all_of,
    as_comparison,
    conjuncts,
    time_bounds,
    within_and_before,
)
from penstock.sql.scope import FromTable, Rows, Scope, name_like, scope_of, unused_name
from penstock.sql.text import Span, name_of

_EQUAL_HINT = "say which columns are equal: ON a.id = b.id"


@dataclass(frozen=True)
class JoinedRows:
    """Rows, and what names mean in them. `timed`: they come from a join in time, for which KEEP has a meaning."""

    rows: Rows
    scope: Scope
    timed: bool = False


@dataclass
class _JoinConditions:
    """ON, sorted: pairs that must be equal, with their signs, time bounds, and conditions on one side or on both."""

    pairs: list[tuple[Span, Span]] = field(default_factory=list)
    signs: list[str] = field(default_factory=list)
    bounds: TimeBounds | None = None
    left: list[Span] = field(default_factory=list)
    right: list[Span] = field(default_factory=list)
    both: list[Span] = field(default_factory=list)


@dataclass(frozen=True)
class _Side:
    """A side, ready to be joined: its rows, and the columns that are joined on, in the order of the pairs."""

    rows: Rows
    keys: tuple[str, ...]


def apply_join(joined: JoinedRows, clause: JoinClause, right: Rows, keep: str | None) -> JoinedRows:
    """1. sort the conditions, 2. prepare both sides, 3. rename columns, 4. join, 5. apply the rest of ON."""
    alias = clause.right.name
    _check_alias(joined.scope, alias, clause)
    right_scope = scope_of(right, alias)
    conditions = (
        _using_conditions(clause) if clause.using else _sort_conditions(joined, clause, right, right_scope)  # 1
    )
    _refuse_unsupported_conditions(conditions, clause)
    with clause.span.declaring_here():
        taken = (*(joined.rows.columns or ()), *(right.columns or ()))
        left_keys, right_keys = [pair[0] for pair in conditions.pairs], [pair[1] for pair in conditions.pairs]
        left_side = _prepare_side(joined.rows, joined.scope, conditions.left, left_keys, taken)  # 2
        right_side = _prepare_side(right, right_scope, conditions.right, right_keys, (*taken, *left_side.keys))
        _check_keys(left_side, right_side, conditions, clause)
        names = _names_after_join(left_side, right_side, clause)  # 3
        new_names = {new: old for old, new in names.items() if new != old}
        renamed = right_side.rows.rename(**new_names) if new_names else right_side.rows
        arguments = _join_arguments(left_side, right_side, names, conditions, clause)
        arguments |= _time_arguments(joined, right, conditions, clause)
        timed = arguments.get("as_of", NOW) != NOW or arguments.get("within", FOREVER) != FOREVER
        if keep is not None and timed:
            arguments["keep"] = keep
        rows = left_side.rows.join(renamed, **arguments)  # 4
    table = FromTable(alias, None if right.columns is None else {name: names.get(name, name) for name in right.columns})
    scope = _scope_after_join(joined.scope, table, clause, left_side)
    if conditions.both:  # 5
        with conditions.both[0].declaring_here():
            rows = rows.where(all_of([scope.resolve(condition, "on") for condition in conditions.both]))
    return JoinedRows(rows, scope, joined.timed or timed)


# -- 1 ----------------------------------------------------------------------------------------------------------------


def _check_alias(scope: Scope, alias: str | None, clause: JoinClause) -> None:
    if alias is not None and any(table.alias == alias for table in scope.tables):
        raise clause.span.refusal(
            "join", f"two tables have the name '{alias}' here", f"give one another name: JOIN {alias} AS other_{alias}"
        )


def _using_conditions(clause: JoinClause) -> _JoinConditions:
    return _JoinConditions(pairs=[(column, column) for column in clause.using], signs=["="] * len(clause.using))


def _sort_conditions(joined: JoinedRows, clause: JoinClause, right: Rows, right_scope: Scope) -> _JoinConditions:
    assert clause.on is not None
    scope = Scope((*joined.scope.tables, *map(_with_right_names, right_scope.tables)), None)
    times = _event_times(joined.rows, right, clause, scope)
    conditions = _JoinConditions()
    bounding: list[Span] = []
    for condition in conjuncts(clause.on):
        if _add_pair(conditions, condition, scope, clause.how):
            continue
        bounds = None if times is None else time_bounds(condition, times)
        if bounds is None:
            _add_condition(conditions, condition, scope)
        else:
            bounding.append(condition)
            conditions.bounds = bounds if conditions.bounds is None else conditions.bounds.intersect(bounds)
    if conditions.bounds is not None and None in (conditions.bounds.least, conditions.bounds.greatest):
        conditions.bounds = None
        conditions.both.extend(bounding)
        conditions.both.sort(key=lambda condition: condition.start)
    return conditions


def _event_times(left: Rows, right: Rows, clause: JoinClause, scope: Scope) -> EventTimes | None:
    left_time, right_time = left.node.shape.time, right.node.shape.time
    are_streams = isinstance(left, Stream) and isinstance(right, Stream)
    if clause.right.as_of is not None or not are_streams or left_time is None or right_time is None:
        return None
    return EventTimes(scope, left_time, _right_name(right_time))


def _with_right_names(table: FromTable) -> FromTable:
    """The right side before the join, with names that are not those of the left side."""
    return replace(
        table, columns=None if table.columns is None else {name: _right_name(name) for name in table.columns}
    )


def _right_name(name: str) -> str:
    return f"right.{name}"


def _add_pair(conditions: _JoinConditions, condition: Span, scope: Scope, how: How) -> bool:
    """Add a condition that something of the left side equals something of the right side; False if it is another."""
    comparison = as_comparison(condition)
    if comparison is None or comparison.sign not in ("=", "==", "<=>"):
        return False
    if _sides(comparison.left, scope) == {"right"}:
        comparison = comparison.mirrored
    if (_sides(comparison.left, scope), _sides(comparison.right, scope)) != ({"left"}, {"right"}):
        return False
    pair = (comparison.left, comparison.right)
    known = {scope.resolve(side, "on") for known_pair in conditions.pairs for side in known_pair}
    if how == "inner" and known & {scope.resolve(side, "on") for side in pair}:
        return False  # a column is joined on once; a second equality is a condition like others
    conditions.pairs.append(pair)
    conditions.signs.append(comparison.sign)
    return True


def _sides(span: Span, scope: Scope) -> set[str]:
    last = len(scope.tables) - 1
    return {"right" if reference.table == last else "left" for reference in scope.references(span, "on")}


def _add_condition(conditions: _JoinConditions, condition: Span, scope: Scope) -> None:
    match sorted(_sides(condition, scope)):
        case ["left"]:
            conditions.left.append(condition)
        case ["right"]:
            conditions.right.append(condition)
        case _:
            conditions.both.append(condition)


def _refuse_unsupported_conditions(conditions: _JoinConditions, clause: JoinClause) -> None:
    if not conditions.pairs:
        raise clause.span.refusal("join", "a join needs columns that are equal; found none", _EQUAL_HINT)
    if len({sign == "<=>" for sign in conditions.signs}) > 1:
        raise clause.span.refusal("join", "either all columns are compared with = or all with <=>", None)
    unsupported = [*conditions.both] if clause.how != "inner" else []
    unsupported += [] if clause.how in ("inner", "right") else conditions.left
    unsupported += [] if clause.how in ("inner", "left", "semi", "anti") else conditions.right
    if unsupported:
        raise _condition_refusal(unsupported[0], clause.how)


def _condition_refusal(condition: Span, how: How) -> DeclarationError:
    name = {"semi": "LEFT SEMI", "anti": "LEFT ANTI"}.get(how, how.upper())
    side = {"right": ", and conditions on the left side alone", "full": ""}.get(
        how, ", and conditions on the right side alone"
    )
    return condition.refusal(
        "on",
        f"ON of a {name} JOIN takes equalities, bounds of time on both ends{side}; found: {condition}",
        "put a condition on rows that are kept anyway into CASE in the SELECT list, or into WHERE if rows are to go",
    )


# -- 2 ----------------------------------------------------------------------------------------------------------------


def _prepare_side(
    rows: Rows, scope: Scope, conditions: Sequence[Span], keys: Sequence[Span], taken: Sequence[str]
) -> _Side:
    """A side filtered by its conditions, with a column for everything that it is joined on."""
    if conditions:
        rows = rows.where(all_of([scope.resolve(condition, "on") for condition in conditions]))
    names: list[str] = []
    computed: dict[str, str] = {}
    for key in keys:
        name = scope.resolve_column(key, "on")
        if name is None:
            name = unused_name("key", (*taken, *computed))
            computed[name] = scope.resolve(key, "on")
        names.append(name)
    return _Side(rows.with_columns(**computed) if computed else rows, tuple(names))


def _check_keys(left: _Side, right: _Side, conditions: _JoinConditions, clause: JoinClause) -> None:
    """Refuse what the verb would refuse too, but in the names that the user knows."""
    key = right.rows.node.shape.key or ()
    if clause.right.as_of is not None and right.keys and isinstance(right.rows, Table) and {*right.keys} != {*key}:
        found = ", ".join(str(pair[1]) for pair in conditions.pairs)
        raise clause.span.refusal(
            "join",
            f"rows are looked up by the whole key of the table, which is {', '.join(key) or 'empty'}; found {found}",
            "join the table itself, without FOR SYSTEM_TIME, for all rows that match",
        )
    for (left_span, right_span), left_key, right_key in zip(conditions.pairs, left.keys, right.keys, strict=True):
        left_type, right_type = _type_of(left, left_key), _type_of(right, right_key)
        if left_type is not None and right_type is not None and left_type != right_type:
            raise left_span.refusal(
                "join",
                "columns that are joined on must have the same type; "
                f"'{left_span}' is {left_type} on the left, '{right_span}' is {right_type} on the right",
                f"declare them alike, or cast one of them: ON CAST({left_span} AS {right_type}) = ...",
            )


def _type_of(side: _Side, name: str) -> str | None:
    column = column_of(side.rows.node, name)
    return None if column is None else type_ddl(column.type)


# -- 3 ----------------------------------------------------------------------------------------------------------------


def _names_after_join(left: _Side, right: _Side, clause: JoinClause) -> dict[str, str]:
    """The columns of the right side, each with the name that it has after the join."""
    columns = right.rows.columns
    if columns is None or left.rows.columns is None:
        _refuse_renaming(left, right, clause)
        return {}
    if clause.how in ("semi", "anti"):
        return {name: name for name in columns}
    keys = zip(left.keys, right.keys, strict=True)
    merged = {right_key: left_key for left_key, right_key in keys if _is_one_column(left_key, right_key, clause)}
    names: dict[str, str] = {}
    taken = {name.lower() for name in (*left.rows.columns, *columns)}
    on_left = {name.lower() for name in left.rows.columns}
    for name in columns:
        names[name] = merged.get(name, name)
        if name not in merged and name.lower() in on_left:
            wanted = f"{(clause.right.name or '').lstrip('_') or 'right'}_{name}"
            names[name] = name_like(wanted, taken)
            taken.add(names[name].lower())
    return names


def _refuse_renaming(left: _Side, right: _Side, clause: JoinClause) -> None:
    """An outer join has to rename one of two columns of the same name, and for that all columns must be known."""
    outer = clause.how in ("left", "right", "full") and not clause.using
    shared = [left_key for left_key, right_key in zip(left.keys, right.keys, strict=True) if left_key == right_key]
    if outer and shared:
        raise clause.span.refusal(
            "join",
            f"both sides have '{shared[0]}', and the columns after a map without a schema are not known yet",
            f"give map a schema; or USING ({shared[0]}), if it may be one column",
        )


def _is_one_column(left: str, right: str, clause: JoinClause) -> bool:
    """Whether two key columns are one column of the result: with USING, and if they cannot differ."""
    return bool(clause.using) or (clause.how == "inner" and left == right)


# -- 4 ----------------------------------------------------------------------------------------------------------------


def _as_of(as_of: AsOfClause, right: Rows, left: Scope, clause: JoinClause) -> str:
    if not isinstance(right, Table):
        raise clause.right.span.refusal(
            "join",
            "FOR SYSTEM_TIME AS OF looks up rows of a table, and this is a stream",
            "make it a table: FROM latest(stream, key)",
        )
    if as_of.column is None:
        return NOW
    column = left.resolve_column(as_of.column, "for system_time as of")
    if column is None:
        raise as_of.column.refusal(
            "for system_time as of", f"a column of the stream is needed; found '{as_of.column}'", None
        )
    return "`now`" if column == NOW else column


def _join_arguments(
    left: _Side, right: _Side, names: dict[str, str], conditions: _JoinConditions, clause: JoinClause
) -> dict[str, Any]:
    pairs = {
        left_key: names.get(right_key, right_key) for left_key, right_key in zip(left.keys, right.keys, strict=True)
    }
    if len(pairs) < len(left.keys):
        raise clause.span.refusal("join", "each column is joined on once; found one twice", _EQUAL_HINT)
    arguments: dict[str, Any] = {"on": pairs, "how": clause.how}
    if conditions.signs[0] == "<=>":
        arguments["nulls_match"] = True
    return arguments


def _time_arguments(left: JoinedRows, right: Rows, conditions: _JoinConditions, clause: JoinClause) -> dict[str, str]:
    """What the join says about time: which version of a row events look up, or how far apart two events may be."""
    if clause.right.as_of is not None:
        return {"as_of": _as_of(clause.right.as_of, right, left.scope, clause)}
    if conditions.bounds is not None:
        if clause.within is not None:
            raise clause.span.refusal("join", "a bound in time is said with WITHIN or in ON; found both")
        within, before = within_and_before(conditions.bounds, clause.on or clause.span)
        return {"within": within, "before": before}
    if clause.within is not None:
        return {"within": clause.within}
    if isinstance(left.rows, Stream) and isinstance(right, Stream):
        raise _unbounded_refusal(left, right, clause)
    return {}


def _unbounded_refusal(left: JoinedRows, right: Stream, clause: JoinClause) -> DeclarationError:
    name = clause.right.name or "b"
    left_time, right_time = left.rows.node.shape.time, right.node.shape.time
    bound = "WITHIN '1 hour'"
    if left_time is not None and right_time is not None:
        shown = left.scope.display_name(left_time)
        first = left.scope.tables[0].alias
        earlier = shown if "." in shown or first is None else f"{first}.{shown}"
        bound = f"{name}.{right_time} BETWEEN {earlier} AND {earlier} + INTERVAL 1 HOUR in ON"
    return clause.span.refusal(
        "join",
        "say how far apart in time the events of the two streams may be; found no bound on both ends",
        f"{bound} gives a stream and keeps events for an hour; "
        f"JOIN {name} WITHIN FOREVER gives a table and keeps both streams forever",
    )


# -- names after the join ---------------------------------------------------------------------------------------------


def _scope_after_join(left: Scope, right: FromTable, clause: JoinClause, left_side: _Side) -> Scope:
    if clause.how in ("semi", "anti"):
        return left
    using = {name_of(column.tokens[0]): key for column, key in zip(clause.using, left_side.keys, strict=False)}
    tables = [*left.tables]
    if clause.how in ("right", "full"):
        tables = [replace(table, merged=table.merged | _columns_of_using(table, using)) for table in tables]
    if clause.how in ("left", "full"):
        right = replace(right, merged=frozenset(using))
    return Scope((*tables, right), _star_after_join(left, right, using))


def _columns_of_using(table: FromTable, using: dict[str, str]) -> frozenset[str]:
    return frozenset(name for name, key in using.items() if (table.columns or {}).get(name) == key)


def _star_after_join(left: Scope, right: FromTable, using: dict[str, str]) -> tuple[tuple[str, str], ...] | None:
    """The columns of both sides, first those of USING; a column that both share is included once."""
    if left.star is None or right.columns is None:
        return None
    rest = tuple(column for column in left.star if column[1] not in using.values())
    on_left = {joined_name for _, joined_name in left.star}
    return (*using.items(), *rest, *(column for column in right.columns.items() if column[1] not in on_left))
