"""The key of a view: what a caller gives for it, its hashes, and whether a row really has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engine.state.hashing import key_hasher
from penstock.engine.state.rows import Column
from penstock.errors import DeclarationError, RowError
from penstock.log.ddl import type_ddl

if TYPE_CHECKING:
    from penstock.engine.ledger.records import StoredView

_MASK = 0xFFFFFFFFFFFFFFFF


class ViewKey:
    """The key columns of one view. Only a keyed view has one."""

    def __init__(self, view: str, stored: StoredView, schema: pa.Schema) -> None:
        if stored.key is None or stored.growth != "keyed":
            raise DeclarationError(
                f"view '{view}': it has no key, so a row cannot be looked up", hint="ask for its rows with SQL"
            )
        self._view = view
        self.columns = stored.key
        self.types = [schema.field(name).type for name in self.columns]
        self._hasher = key_hasher(self.types)
        self._checked = [
            (number, schema.get_field_index(name))
            for number, (name, type_) in enumerate(zip(self.columns, self.types, strict=True))
            if _compares_plainly(type_)
        ]

    def values(self, key: object) -> tuple[object, ...]:
        """The values of a key in the order of its columns: given as one value, a tuple, or by the names of columns."""
        if isinstance(key, Mapping):
            if set(key) != set(self.columns):
                raise self._unfit(f"found {', '.join(map(str, key)) or 'nothing'}")
            return tuple(key[name] for name in self.columns)
        if isinstance(key, tuple) or (isinstance(key, list) and len(self.columns) != 1):
            if len(key) != len(self.columns):
                raise self._unfit(f"found {len(key)} values")
            return tuple(key)
        if len(self.columns) != 1:
            raise self._unfit(f"found {key!r}")
        return (key,)

    def hashes(self, values: Sequence[object]) -> tuple[int, int]:
        """The order and the id of a key, unsigned as runs are searched."""
        try:
            order, id_ = self._hasher(values)
        except RowError as error:
            raise self._unfit(error.message) from None
        return order & _MASK, id_ & _MASK

    def matches(self, columns: Sequence[Column], at: int, values: Sequence[object]) -> bool:
        """Whether the row at a position has exactly this key; `columns` are those of the view.

        Keys of floats, lists, structs and maps are told apart by their hashes alone.
        """
        return all(
            _comparable(columns[index][at].as_py()) == _comparable(values[number]) for number, index in self._checked
        )

    def _unfit(self, found: str) -> DeclarationError:
        columns = ", ".join(f"{name} {type_ddl(type_)}" for name, type_ in zip(self.columns, self.types, strict=True))
        return DeclarationError(
            f"view '{self._view}': its key is ({columns}); {found}",
            hint="give one value, a tuple in the order of the key, or a mapping by column",
        )


def _compares_plainly(type_: pa.DataType) -> bool:
    """Whether two values of Python are equal exactly if they are the same value of this type."""
    simple = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_string, pa.types.is_binary)
    others = (pa.types.is_date32, pa.types.is_timestamp, pa.types.is_decimal)
    return any(is_kind(type_) for is_kind in (*simple, *others))


def _comparable(value: object) -> object:
    """Times without their zones, all of them in UTC."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value
