"""What the readers of all formats give: changes of rows, as the tool wrote their values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple


class FieldType(NamedTuple):
    """What a message says about the type of a field: the name of its logical type, and the scale of a decimal."""

    name: str
    scale: int = 0


Values = Mapping[str, object]
Types = Mapping[str, FieldType]


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row as it is now, or with `is_delete` the key of a row that is gone. `types` is empty if nothing is known."""

    values: Values
    types: Types = field(default_factory=dict)
    is_delete: bool = False


class MessageError(Exception):
    """A message cannot be read as a change. The text continues the sentence "This message is set aside because"."""


_DECODER = json.JSONDecoder(parse_float=Decimal)


def read_json(text: str, what: str) -> object:
    """The value of a JSON text. Numbers with a point keep all their digits, as decimals."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise MessageError(f"its {what} is not JSON: {error}") from None


def mapping(value: object, what: str) -> dict[str, object]:
    """The value, which must be an object."""
    if not isinstance(value, dict):
        raise MessageError(f"its {what} is no JSON object")
    return value
