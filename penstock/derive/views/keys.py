"""The key of a view: reading what a caller gives as a key, its hashes, and whether a row really has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engine.state.hashing import key_hasher
from penstock.engine.state.rows import Column
from penstock.errors import DeclarationError, RowError
from penstock.schema.ddl import type_ddl
from penstock.schema.from_python import MisfitError, reader_of

if TYPE_CHECKING:
    from penstock.engine.ledger.records import StoredView

_MASK = 0xFFFFFFFFFFFFFFFF
_PLAIN_KINDS = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_decimal,
)


class ViewKey:
    """The key columns of one view. DeclarationError for a view that is not keyed."""

    def __init__(self, view: str, stored: StoredView, schema: pa.Schema) -> None:
        if stored.key is None or stored.growth != "keyed":
            raise DeclarationError(
                f"view '{view}': it has no key, so a row cannot be looked up", hint="ask for its rows with SQL"
            )
        self._view = view
        self.columns = stored.key
        self.types = [schema.field(name).type for name in self.columns]
        self._hasher = key_hasher(self.types)
        self._compared = [
            (number, schema.get_field_index(name))
            for number, (name, type_) in enumerate(zip(self.columns, self.types, strict=True))
            if _has_plain_equality(type_)
        ]

    def values(self, key: object) -> tuple[object, ...]:
        """The values of a key in the order of its columns. A key is one value, a tuple, or a mapping by column name."""
        if isinstance(key, Mapping):
            if set(key) != set(self.columns):
                raise self._misfit_error(f"found {', '.join(map(str, key)) or 'nothing'}")
            return self._read([key[name] for name in self.columns])
        if isinstance(key, tuple) or (isinstance(key, list) and len(self.columns) != 1):
            if len(key) != len(self.columns):
                raise self._misfit_error(f"found {len(key)} values")
            return self._read(key)
        if len(self.columns) != 1:
            raise self._misfit_error(f"found {key!r}")
        return self._read([key])

    def _read(self, values: Sequence[object]) -> tuple[object, ...]:
        """The values, with times, dates and decimals from text, as rows are appended."""
        return tuple(
            self._from_text(value, type_) if isinstance(value, str) and _is_read_from_text(type_) else value
            for value, type_ in zip(values, self.types, strict=True)
        )

    def _from_text(self, text: str, type_: pa.DataType) -> object:
        try:
            return reader_of(type_, "key")(text)
        except MisfitError as error:
            raise self._misfit_error(f"found {text!r}", hint=error.hint) from None

    def hashes(self, values: Sequence[object]) -> tuple[int, int]:
        """The order and the id of a key, unsigned, as runs are searched by them."""
        try:
            order, id_ = self._hasher(values)
        except RowError as error:
            raise self._misfit_error(error.message) from None
        return order & _MASK, id_ & _MASK

    def matches(self, columns: Sequence[Column], at: int, values: Sequence[object]) -> bool:
        """Whether the row at a position has exactly this key. `columns` are those of the view.

        Floats, lists, structs and maps are compared by their hashes only.
        """
        return all(
            _without_zone(columns[index][at].as_py()) == _without_zone(values[number])
            for number, index in self._compared
        )

    def _misfit_error(self, found: str, hint: str | None = None) -> DeclarationError:
        columns = ", ".join(f"{name} {type_ddl(type_)}" for name, type_ in zip(self.columns, self.types, strict=True))
        return DeclarationError(
            f"view '{self._view}': its key is ({columns}); {found}",
            hint=hint or "give one value, a tuple in the order of the key, or a mapping by column",
        )


def _is_read_from_text(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) or pa.types.is_date32(type_) or pa.types.is_decimal(type_)


def _has_plain_equality(type_: pa.DataType) -> bool:
    """Whether two Python values are equal exactly if they are the same value of this type."""
    return any(is_kind(type_) for is_kind in _PLAIN_KINDS)


def _without_zone(value: object) -> object:
    """A datetime in UTC without its zone; any other value unchanged."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value
