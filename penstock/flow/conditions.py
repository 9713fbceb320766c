"""Conditions as text: taken apart where `and` joins them, and said with other names of their columns.

Every part is cut out of the text as it was written. Where it is not certain what a word means, nothing is taken apart
and nothing is renamed: the condition is right where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import DeclarationError
from penstock.flow.expressions import columns_of
from penstock.flow.names import unquoted

if TYPE_CHECKING:
    from penstock.flow.reading import Token


def conjuncts(text: str) -> tuple[str, ...]:
    """The conditions that must all be true, each as it was written; only one where no outermost `and` joins several."""
    from penstock.flow.reading import tokens_of

    tokens = tokens_of(text)
    parts, start = [], 0
    for at in outermost_ands(tokens):
        parts.append(text[start : tokens[at].start].strip())
        start = tokens[at].end
    parts.append(text[start:].strip())
    return tuple(parts) if len(parts) > 1 and all(map(_readable, parts)) else (text,)


def renamed(text: str, names: Mapping[str, str]) -> str | None:
    """The condition with the names of its columns replaced by those given; None if that cannot be done.

    The new names are expressions: backquoted where they have to be.
    """
    places = columns_in(text)
    if places is None or any(name not in names for _, _, name in places):
        return None
    new, at = "", 0
    for start, end, name in places:
        new += text[at:start] + (text[start:end] if unquoted(names[name]) == name else names[name])
        at = end
    new += text[at:]
    # A new name may be that of a lambda's variable, or a word that means something where it now stands.
    found = columns_in(new)
    said = None if found is None else [name for _, _, name in found]
    return new if said == [unquoted(names[name]) for _, _, name in places] else None


def cannot_fail(text: str, types: Mapping[str, pa.DataType | None]) -> bool:
    """Whether it is certain that the condition can be evaluated on any row, given the types of its columns.

    Only comparisons of values of one kind are certain: a text that is compared with a number is cast, and may be none.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    def kind(one: exp.Expr | None) -> str | None:
        """What the part is, if it cannot fail."""
        match one:
            case exp.Paren():
                return kind(one.this)
            case exp.And() | exp.Or():
                return together(one.left, one.right, all_are="truth")
            case exp.Not():
                return together(one.this, all_are="truth")
            case exp.EQ() | exp.NEQ() | exp.GT() | exp.GTE() | exp.LT() | exp.LTE() | exp.NullSafeEQ():
                return together(one.left, one.right)
            case exp.Between():
                return together(one.this, one.args.get("low"), one.args.get("high"))
            case exp.In() if one.expressions and not one.args.get("query"):
                return together(one.this, *one.expressions)
            case exp.Is() if isinstance(one.expression, exp.Null):
                return together(one.this)
            case exp.Mod() if isinstance(one.expression, exp.Literal) and one.expression.name.strip("0").isdecimal():
                return kind(one.this) if kind(one.this) == "number" else None
            case exp.Column() if len(one.parts) == 1:
                return _kind_of(types.get(one.name))
            case exp.Neg() if isinstance(one.this, exp.Literal):
                return kind(one.this)
            case exp.Literal():
                return "text" if one.is_string else "number"
            case exp.Boolean():
                return "truth"
        return None

    def together(*parts: exp.Expr | None, all_are: str | None = None) -> str | None:
        """A truth, if all parts are of one kind."""
        kinds = {kind(part) for part in parts}
        return "truth" if len(kinds) == 1 and None not in kinds and all_are in (None, *kinds) else None

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
    return next((kind for kind, is_it in kinds.items() if is_it), None)


def outermost_ands(tokens: Sequence[Token]) -> list[int]:
    """Where the words `and` stand outside of all brackets and of a `between`; nowhere if there is an `or` too."""
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


def _readable(text: str) -> bool:
    try:
        columns_of(text)
    except DeclarationError:
        return False
    return True


def columns_in(text: str) -> list[tuple[int, int, str]] | None:
    """Where columns stand in the text, from the first to the last: the start, the end, and the name of each.

    Only the tree tells a column from a type, a unit or a field of the same name.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(text, dialect="spark", into=exp.Condition)
    except SqlglotError:
        return None
    places = set()
    for column in tree.find_all(exp.Column):
        first = column.parts[0]
        start, end = first.meta.get("start"), first.meta.get("end")
        if start is None or end is None or unquoted(text[start : end + 1]) != first.name:
            return None
        places.add((start, end + 1, first.name))
    return sorted(places)
