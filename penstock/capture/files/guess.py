"""Guesses the schema of an input from a sample of its values. Pure; what is read, and how much, is in sample.py.

Whole numbers become bigint, other numbers double, ISO 8601 text timestamp or date, nested JSON structs and arrays. All
columns can be null but those of the key and the time: no sample proves that a later row has a value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?\s?(Z|[+-]\d\d:?\d\d)?")
# Leading zeros are kept by text alone: 00123 is a postal code and not a number.
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d*)")
_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)?\.?\d+([eE][+-]?\d+)?")
_LARGEST = 2**63
_MOST_DEPTH = 30

_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "bigint": pa.int64(),
    "large": pa.decimal128(38, 0),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "string": pa.string(),
}
# Kinds that one type can hold, the most general last.
_FAMILIES = (("bigint", "large"), ("bigint", "large", "double"), ("date", "timestamp"), ("date", "timestamp", "string"))


@dataclass(slots=True)
class Guess:
    """What was seen of the values of one column, or of one field in it."""

    kinds: Counter[str] = field(default_factory=Counter)
    members: dict[str, Guess] = field(default_factory=dict)
    items: Guess | None = None

    def add(self, value: object, *, depth: int = 0) -> None:
        """Take a value from JSON into account, but not what is nested more deeply than anyone declares."""
        if value is None or depth > _MOST_DEPTH:
            return
        kind = json_kind(value)
        self.kinds[kind] += 1
        if isinstance(value, Mapping):
            for name, member in value.items():
                self.members.setdefault(str(name), Guess()).add(member, depth=depth + 1)
        elif isinstance(value, list):
            self.items = self.items or Guess()
            for item in value:
                self.items.add(item, depth=depth + 1)

    def add_text(self, text: str) -> None:
        """Take a field of CSV into account."""
        self.kinds[text_kind(text)] += 1

    @property
    def type(self) -> pa.DataType:
        """The type that holds all values, or the most common kind of them; string if there are none."""
        kinds = set(self.kinds)
        family = next((family for family in _FAMILIES if kinds and kinds <= set(family)), None)
        kind = max(kinds, key=family.index) if family else (self.kinds.most_common(1) or [("string", 0)])[0][0]
        if kind == "array":
            return pa.list_((self.items or Guess()).type)
        if kind == "struct":
            return pa.struct([pa.field(name, member.type) for name, member in self.members.items()])
        return _TYPES.get(kind, pa.string())

    def misfits(self) -> int:
        """How many values are not of the guessed type."""
        kinds = set(self.kinds)
        if len(kinds) < 2 or any(kinds <= set(family) for family in _FAMILIES):
            return 0
        return self.kinds.total() - self.kinds.most_common(1)[0][1]


@dataclass(frozen=True, slots=True)
class GuessedSchema:
    """A schema, from how many records it was guessed, and what the user should know about it."""

    schema: pa.Schema
    records: int
    notes: tuple[str, ...] = ()


def guessed_schema(columns: Mapping[str, Guess], records: int, *, needed: Sequence[str] = ()) -> GuessedSchema:
    """The schema of columns that were sampled. Those that are `needed`, as a key or a time is, cannot be null."""
    fields = [pa.field(name, guess.type, nullable=name not in needed) for name, guess in columns.items()]
    notes = []
    for name, guess in columns.items():
        if misfits := guess.misfits():
            notes.append(f"column '{name}': {misfits} of {guess.kinds.total()} values are of another type")
        if not guess.kinds:
            notes.append(f"column '{name}': no value was seen; string is only a guess")
    return GuessedSchema(pa.schema(fields), records, tuple(notes))


def json_kind(value: object) -> str:
    """The kind of a JSON value: the name of a type, or `large` for whole numbers that bigint cannot hold."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return _integer_kind(value)
    if isinstance(value, float | Decimal):
        return "double"
    if isinstance(value, Mapping):
        return "struct" if value else "nothing"
    if isinstance(value, list):
        return "array"
    return _time_kind(str(value)) or "string"


def text_kind(text: str) -> str:
    """The kind of a field of CSV, which is not empty."""
    if text.lower() in ("true", "false"):
        return "boolean"
    if len(text) <= 40 and _INTEGER.fullmatch(text):
        return _integer_kind(int(text))
    if _NUMBER.fullmatch(text) and not _INTEGER.fullmatch(text.lstrip("+-0") or "0"):
        return "double"
    return _time_kind(text) or "string"


def _integer_kind(number: int) -> str:
    if -_LARGEST <= number < _LARGEST:
        return "bigint"
    return "large" if abs(number) < 10**38 else "double"


def _time_kind(text: str) -> str | None:
    try:
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return "date"
        if _TIME.fullmatch(text):
            datetime.fromisoformat(text)
            return "timestamp"
    except ValueError:
        pass
    return None
