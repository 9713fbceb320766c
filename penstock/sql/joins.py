"""A JOIN as the verb `join`: equalities become its keys, bounds of time `within`, and other conditions a `where`.

Columns of one name are told apart by renaming the right one before the join. The steps are numbered in `joined`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import DeclarationError
from penstock.flow.columns import column_of
from penstock.flow.joins import AsOf
from penstock.flow.plan import How
from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.log.ddl import type_ddl
from penstock.sql.bounds import Bounds, Times, bounds_of, within_and_before
from penstock.sql.clauses import JoinClause
from penstock.sql.conditions import comparison, conjuncts, together
from penstock.sql.scope import Part, Rows, Scope, name_like, scope_of, unused_name
from penstock.sql.text import Span, name_of

_EQUAL_HINT = "say which columns are equal: ON a.id = b.id"


@dataclass(frozen=True)
class Joined:
    """Rows and what names mean in them; `timed` says that they come from a join that can be told what to KEEP."""

    rows: Rows
    scope: Scope
    timed: bool = False


@dataclass
class _Conditions:
    """ON, sorted: pairs that must be equal, bounds in time, and conditions of one side or of both."""

    pairs: list[tuple[Span, Span]] = field(default_factory=list)
    signs: list[str] = field(default_factory=list)
    bounds: Bounds | None = None
    left: list[Span] = field(default_factory=list)
    right: list[Span] = field(default_factory=list)
    both: list[Span] = field(default_factory=list)


@dataclass(frozen=True)
class _Side:
    """One side, ready to be joined: its rows, and the columns that are joined on, in the order of the pairs."""

    rows: Rows
    keys: tuple[str, ...]


def joined(left: Joined, clause: JoinClause, right: Rows, alias: str | None, keep: str | None) -> Joined:
    """1. sort the conditions, 2. prepare both sides, 3. tell columns apart, 4. join, 5. what is left of ON."""
    _check_alias(left.scope, alias, clause)
    own = scope_of(right, alias)
    sorted_on = _using(clause) if clause.using else _sorted(left, clause, right, own)  # 1
    _refuse_what_joins_do_not_take(sorted_on, clause)
    with clause.span.text.at(clause.span.at):
        taken = (*(left.rows.columns or ()), *(right.columns or ()))
        one = _side(left.rows, left.scope, sorted_on.left, [pair[0] for pair in sorted_on.pairs], taken)  # 2
        other = _side(right, own, sorted_on.right, [pair[1] for pair in sorted_on.pairs], (*taken, *one.keys))
        _check_keys(one, other, sorted_on, clause)
        names = _names(one, other, clause, alias)  # 3
        renamed = {new: old for old, new in names.items() if new != old}
        ready = _looked_up(other.rows.rename(**renamed) if renamed else other.rows, left.scope, clause)
        asked = _asked(one, other, names, sorted_on, clause)
        timed = (isinstance(ready, AsOf) and ready.column is not None) or "within" in asked
        if keep is not None and timed:
            asked["keep"] = keep
        rows = one.rows.join(ready, **asked)  # 4
    scope = _scope(left.scope, Part(alias, None if right.columns is None else _own(names, right)), clause, one)
    if sorted_on.both:  # 5
        with clause.span.text.at(sorted_on.both[0].at):
            rows = rows.where(together([scope.text(condition, "on") for condition in sorted_on.both]))
    return Joined(rows, scope, left.timed or timed)


# -- 1 ----------------------------------------------------------------------------------------------------------------


def _check_alias(scope: Scope, alias: str | None, clause: JoinClause) -> None:
    if alias is not None and any(part.alias == alias for part in scope.parts):
        raise clause.span.refusal(
            "join", f"two tables have the name '{alias}' here", f"give one another name: JOIN {alias} AS other_{alias}"
        )


def _using(clause: JoinClause) -> _Conditions:
    return _Conditions(pairs=[(column, column) for column in clause.using], signs=["="] * len(clause.using))


def _sorted(left: Joined, clause: JoinClause, right: Rows, own: Scope) -> _Conditions:
    assert clause.on is not None
    scope = Scope((*left.scope.parts, *map(_told_apart, own.parts)), None)
    times = _times(left.rows, right, clause, scope)
    found = _Conditions()
    bounded: list[Span] = []
    for condition in conjuncts(clause.on):
        if _is_pair(found, condition, scope, clause.how):
            continue
        bounds = None if times is None else bounds_of(condition, times)
        if bounds is None:
            _other(found, condition, scope)
        else:
            bounded.append(condition)
            found.bounds = bounds if found.bounds is None else found.bounds.and_also(bounds)
    if found.bounds is not None and None in (found.bounds.least, found.bounds.greatest):
        found.bounds = None
        found.both.extend(bounded)
        found.both.sort(key=lambda condition: condition.at)
    return found


def _times(left: Rows, right: Rows, clause: JoinClause, scope: Scope) -> Times | None:
    times = (left.node.shape.time, right.node.shape.time)
    streams = isinstance(left, Stream) and isinstance(right, Stream)
    if clause.right.as_of is not None or not streams or times[0] is None or times[1] is None:
        return None
    return Times(scope, times[0], _apart(times[1]))


def _told_apart(part: Part) -> Part:
    """The right side before the join: its columns are not those of the left, also where they are called alike."""
    return replace(part, columns=None if part.columns is None else {name: _apart(name) for name in part.columns})


def _apart(name: str) -> str:
    return f"right.{name}"


def _is_pair(found: _Conditions, condition: Span, scope: Scope, how: How) -> bool:
    """Whether it says that something of the left side is equal to something of the right one; then it is noted."""
    one = comparison(condition)
    if one is None or one.sign not in ("=", "==", "<=>"):
        return False
    sides = [_sides(side, scope) for side in (one.left, one.right)]
    if sides not in ([{"left"}, {"right"}], [{"right"}, {"left"}]):
        return False
    pair = (one.left, one.right) if sides[0] == {"left"} else (one.right, one.left)
    said = {_said(side, scope) for known in found.pairs for side in known}
    if how == "inner" and said & {_said(pair[0], scope), _said(pair[1], scope)}:
        return False  # a column is joined on once; the second equality is a condition like others
    found.pairs.append(pair)
    found.signs.append(one.sign)
    return True


def _said(span: Span, scope: Scope) -> str:
    return scope.text(span, "on")


def _sides(span: Span, scope: Scope) -> set[str]:
    last = len(scope.parts) - 1
    return {"right" if one.part == last else "left" for one in scope.references(span, "on")}


def _other(found: _Conditions, condition: Span, scope: Scope) -> None:
    sides = _sides(condition, scope)
    chosen = {frozenset({"left"}): found.left, frozenset({"right"}): found.right}.get(frozenset(sides), found.both)
    chosen.append(condition)


def _refuse_what_joins_do_not_take(on: _Conditions, clause: JoinClause) -> None:
    if not on.pairs:
        raise clause.span.refusal("join", "a join needs columns that are equal; found none", _EQUAL_HINT)
    if len({sign == "<=>" for sign in on.signs}) > 1:
        raise clause.span.refusal("join", "either all columns are compared with = or all with <=>", None)
    before_left = clause.how in ("inner", "right")
    before_right = clause.how in ("inner", "left", "semi", "anti")
    other = [*on.both] if clause.how != "inner" else []
    other += [] if before_left else on.left
    other += [] if before_right else on.right
    if other:
        raise _refused_condition(other[0], clause.how)


def _refused_condition(condition: Span, how: How) -> DeclarationError:
    name = {"semi": "LEFT SEMI", "anti": "LEFT ANTI"}.get(how, how.upper())
    side = {"right": ", and conditions on the left side alone", "full": ""}.get(
        how, ", and conditions on the right side alone"
    )
    return condition.refusal(
        "on",
        f"in ON of a {name} JOIN stand equalities, bounds of time on both ends{side}; found: {condition}",
        "put a condition on rows that are kept anyway into CASE in the SELECT list, or into WHERE if rows are to go",
    )


# -- 2 ----------------------------------------------------------------------------------------------------------------


def _side(rows: Rows, scope: Scope, conditions: Sequence[Span], keys: Sequence[Span], taken: Sequence[str]) -> _Side:
    """The side behind its conditions, with a column for everything that it is joined on."""
    if conditions:
        rows = rows.where(together([scope.text(condition, "on") for condition in conditions]))
    names: list[str] = []
    computed: dict[str, str] = {}
    for key in keys:
        name = scope.column(key, "on")
        if name is None:
            name = unused_name("key", (*taken, *computed))
            computed[name] = scope.text(key, "on")
        names.append(name)
    return _Side(rows.with_columns(**computed) if computed else rows, tuple(names))


def _check_keys(one: _Side, other: _Side, sorted_on: _Conditions, clause: JoinClause) -> None:
    """What the verb would refuse too, in the names that the user knows."""
    whole = other.rows.node.shape.key or ()
    if clause.right.as_of is not None and other.keys and isinstance(other.rows, Table) and {*other.keys} != {*whole}:
        found = ", ".join(str(pair[1]) for pair in sorted_on.pairs)
        raise clause.span.refusal(
            "join",
            f"rows are looked up by the whole key of the table, which is {', '.join(whole) or 'empty'}; found {found}",
            "join the table itself, without FOR SYSTEM_TIME, for all rows that match",
        )
    for pair, left, right in zip(sorted_on.pairs, one.keys, other.keys, strict=True):
        types = [column_of(side.rows.node, name) for side, name in ((one, left), (other, right))]
        left_type, right_type = (None if column is None else type_ddl(column.type) for column in types)
        if left_type is not None and right_type is not None and left_type != right_type:
            raise pair[0].refusal(
                "join",
                "columns that are joined on have the same type; "
                f"'{pair[0]}' is {left_type} on the left, '{pair[1]}' is {right_type} on the right",
                f"declare them alike, or cast one of them: ON CAST({pair[0]} AS {right_type}) = ...",
            )


# -- 3 ----------------------------------------------------------------------------------------------------------------


def _names(one: _Side, other: _Side, clause: JoinClause, alias: str | None) -> dict[str, str]:
    """The columns of the right side, each with the name that it has behind the join."""
    columns = other.rows.columns
    if columns is None or one.rows.columns is None:
        _refuse_merging(one, other, clause)
        return {}
    if clause.how in ("semi", "anti"):
        return {name: name for name in columns}
    once = {right: left for left, right in zip(one.keys, other.keys, strict=True) if _once(left, right, clause)}
    names: dict[str, str] = {}
    taken = {name.lower() for name in (*one.rows.columns, *columns)}
    on_left = {name.lower() for name in one.rows.columns}
    for name in columns:
        names[name] = once.get(name, name)
        if name not in once and name.lower() in on_left:
            wanted = f"{(alias or '').lstrip('_') or 'right'}_{name}"
            names[name] = name_like(wanted, taken)
            taken.add(names[name].lower())
    return names


def _refuse_merging(one: _Side, other: _Side, clause: JoinClause) -> None:
    """In an outer join two columns of one name are told apart by renaming one, for which all must be known."""
    outer = clause.how in ("left", "right", "full") and not clause.using
    alike = [left for left, right in zip(one.keys, other.keys, strict=True) if left == right]
    if outer and alike:
        raise clause.span.refusal(
            "join",
            f"both sides have '{alike[0]}', and the columns behind a map without a schema are not known yet",
            f"give map a schema; or USING ({alike[0]}), if it may be one column",
        )


def _once(left: str, right: str, clause: JoinClause) -> bool:
    """Whether the two stand once in the result: with USING, and where they cannot differ."""
    return bool(clause.using) or (clause.how == "inner" and left == right)


def _own(names: dict[str, str], right: Rows) -> dict[str, str]:
    """The columns that the user knows, without those that were computed to be joined on."""
    return {name: names.get(name, name) for name in right.columns or ()}


# -- 4 ----------------------------------------------------------------------------------------------------------------


def _looked_up(rows: Rows, left: Scope, clause: JoinClause) -> Rows | AsOf:
    as_of = clause.right.as_of
    if as_of is None:
        return rows
    if not isinstance(rows, Table):
        raise clause.right.span.refusal(
            "join",
            "FOR SYSTEM_TIME AS OF looks up rows of a table, and this is a stream",
            "make it a table: FROM latest(stream, key)",
        )
    if as_of.column is None:
        return rows.latest()
    column = left.column(as_of.column, "for system_time as of")
    if column is None:
        raise as_of.column.refusal(
            "for system_time as of", f"a column of the stream is needed; found '{as_of.column}'", None
        )
    return rows.as_of(column)


def _asked(one: _Side, other: _Side, names: dict[str, str], on: _Conditions, clause: JoinClause) -> dict[str, Any]:
    pairs = {left: names.get(right, right) for left, right in zip(one.keys, other.keys, strict=True)}
    if len(pairs) < len(one.keys):
        raise clause.span.refusal("join", "each column is joined on once; found one twice", _EQUAL_HINT)
    asked: dict[str, Any] = {"on": pairs, "how": clause.how}
    if on.signs[0] == "<=>":
        asked["nulls_match"] = True
    if on.bounds is not None:
        asked["within"], asked["before"] = within_and_before(on.bounds, clause.on or clause.span)
    return asked


# -- the names behind it ----------------------------------------------------------------------------------------------


def _scope(left: Scope, right: Part, clause: JoinClause, one: _Side) -> Scope:
    if clause.how in ("semi", "anti"):
        return left
    using = {name_of(column.tokens[0]): key for column, key in zip(clause.using, one.keys, strict=False)}
    lost = frozenset(using)
    parts = [*left.parts]
    if clause.how in ("right", "full"):
        parts = [replace(part, lost=part.lost | _meant(part, using)) for part in parts]
    if clause.how in ("left", "full"):
        right = replace(right, lost=lost)
    return Scope((*parts, right), _star(left, right, using))


def _meant(part: Part, using: dict[str, str]) -> frozenset[str]:
    return frozenset(name for name, key in using.items() if (part.columns or {}).get(name) == key)


def _star(left: Scope, right: Part, using: dict[str, str]) -> tuple[tuple[str, str], ...] | None:
    """The columns of both, first those of USING; what the two have in common stands once."""
    if left.star is None or right.columns is None:
        return None
    first = tuple(using.items())
    rest = tuple(column for column in left.star if column[1] not in using.values())
    there = {actual for _, actual in left.star}
    return (*first, *rest, *(column for column in right.columns.items() if column[1] not in there))
