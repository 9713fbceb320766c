"""Conditions as text: split at `and`, and rewritten with other column names.

Every part is a piece of the text as the user wrote it. If it is not certain what a word means, nothing is split and
nothing is renamed: the condition is correct as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import DeclarationError
from penstock.flow.expressions import columns_of
from penstock.flow.names import unquote

if TYPE_CHECKING:
    from penstock.flow.reading import Token


def conjuncts(text: str) -> tuple[str, ...]:
    """The conditions that must all be true, each as it was written; the text itself if it is only one."""
    from penstock.flow.reading import tokens_of

    tokens = tokens_of(text)
    parts, start = [], 0
    for at in outermost_ands(tokens):
        parts.append(text[start : tokens[at].start].strip())
        start = tokens[at].end
    parts.append(text[start:].strip())
    return tuple(parts) if len(parts) > 1 and all(map(_is_readable, parts)) else (text,)


def rename_columns(text: str, names: Mapping[str, str]) -> str | None:
    """The condition with its column names replaced; None if that cannot be done.

    The new names are expressions: in backquotes if they need them.
    """
    positions = columns_in(text)
    if positions is None or any(name not in names for _, _, name in positions):
        return None
    new, at = "", 0
    for start, end, name in positions:
        new += text[at:start] + (text[start:end] if unquote(names[name]) == name else names[name])
        at = end
    new += text[at:]
    # A new name may be that of a lambda's variable, or a word with another meaning in its new position.
    new_positions = columns_in(new)
    new_names = None if new_positions is None else [name for _, _, name in new_positions]
    return new if new_names == [unquote(names[name]) for _, _, name in positions] else None


def cannot_fail(text: str, types: Mapping[str, pa.DataType | None]) -> bool:
    """Whether the condition can certainly be evaluated on any row, given the types of its columns.

    Only comparisons of values of one kind are certain: a text that is compared with a number is cast, which may fail.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    def kind(part: exp.Expr | None) -> str | None:
        """The kind of value that a part of the condition has, if it cannot fail."""
        match part:
            case exp.Paren():
                return kind(part.this)
            case exp.And() | exp.Or():
                return truth_of(part.left, part.right, required="truth")
            case exp.Not():
                return truth_of(part.this, required="truth")
            case exp.EQ() | exp.NEQ() | exp.GT() | exp.GTE() | exp.LT() | exp.LTE() | exp.NullSafeEQ():
                return truth_of(part.left, part.right)
            case exp.Between():
                return truth_of(part.this, part.args.get("low"), part.args.get("high"))
            case exp.In() if part.expressions and not part.args.get("query"):
                return truth_of(part.this, *part.expressions)
            case exp.Is() if isinstance(part.expression, exp.Null):
                return truth_of(part.this)
            case exp.Mod() if isinstance(part.expression, exp.Literal) and part.expression.name.strip("0").isdecimal():
                return kind(part.this) if kind(part.this) == "number" else None
            case exp.Column() if len(part.parts) == 1:
                return _kind_of(types.get(part.name))
            case exp.Neg() if isinstance(part.this, exp.Literal):
                return kind(part.this)
            case exp.Literal():
                return "text" if part.is_string else "number"
            case exp.Boolean():
                return "truth"
        return None

    def truth_of(*parts: exp.Expr | None, required: str | None = None) -> str | None:
        """A truth, if all parts are of one kind (of `required`, if it is given)."""
        kinds = {kind(part) for part in parts}
        return "truth" if len(kinds) == 1 and None not in kinds and required in (None, *kinds) else None

    try:
        return kind(sqlglot.parse_one(text, dialect="spark", into=exp.Condition)) == "truth"
    except SqlglotError:
        return False


def _kind_of(type_: pa.DataType | None) -> str | None:
    if type_ is None:
        return None
    kinds = {
        "number": pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_),
        "text": pa.types.is_string(type_),
        "truth": pa.types.is_boolean(type_),
        "moment": pa.types.is_timestamp(type_),
        "day": pa.types.is_date(type_),
    }
    return next((kind for kind, applies in kinds.items() if applies), None)


def outermost_ands(tokens: Sequence[Token]) -> list[int]:
    """The positions of `and` outside of all brackets and not of a `between`; none if there is an `or` as well."""
    ands: list[int] = []
    opened, cases, betweens = 0, 0, 0
    for at, token in enumerate(tokens):
        word = "" if at and tokens[at - 1].raw == "." else token.raw.lower()
        opened += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        # A column may be called `end`.
        cases += (word == "case") - (word == "end" and cases > 0)
        if opened or cases:
            continue
        if word in ("or", "xor"):
            return []
        betweens += word == "between"
        if word == "and" and betweens:
            betweens -= 1
        elif word == "and":
            ands.append(at)
    return ands


def _is_readable(text: str) -> bool:
    try:
        columns_of(text)
    except DeclarationError:
        return False
    return True


def columns_in(text: str) -> list[tuple[int, int, str]] | None:
    """The positions of columns in the text, from the first to the last: the start, the end and the name of each.

    Only the tree distinguishes a column from a type, a unit or a field of the same name.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(text, dialect="spark", into=exp.Condition)
    except SqlglotError:
        return None
    positions = set()
    for column in tree.find_all(exp.Column):
        first = column.parts[0]
        start, end = first.meta.get("start"), first.meta.get("end")
        if start is None or end is None or unquote(text[start : end + 1]) != first.name:
            return None
        positions.add((start, end + 1, first.name))
    return sorted(positions)
