"""What it means for a capture that a table has changed: to follow it, to copy it again, or to stop. No I/O."""

from __future__ import annotations

import pyarrow as pa

from penstock.capture.postgres.catalog import CapturedTable
from penstock.capture.postgres.pgoutput import Relation
from penstock.capture.postgres.position import ColumnIds
from penstock.contracts import SourceOptions
from penstock.errors import DeclarationError


def looks_the_same(table: CapturedTable, relation: Relation) -> bool:
    """Whether the stream describes a table as we know it. If not, the catalogue must be asked."""
    described = {column.name: (column.type_oid, column.type_modifier) for column in relation.columns}
    known = {column.name: (column.type.oid, column.type.modifier) for column in table.layout.table_columns}
    return described == known


def must_copy_again(old: ColumnIds, table: CapturedTable, options: SourceOptions, layout: CapturedTable | None) -> bool:
    """Whether rows have changed without changes in the stream, since the table had the old columns.

    DeclarationError: the table cannot be followed. `layout` is the table as it was, if that is known.
    """
    numbers = {number: name for name, (number, _) in table.columns.items()}
    for name, (number, _) in old.items():
        if name not in table.columns and f"{table.name}.{name}" not in options.dropped:
            raise _gone_error(table.name, name, numbers.get(number), options)
    if layout is not None and layout.layout.key != table.layout.key:
        raise _key_error(table.name, layout.layout.key, table.layout.key, options)
    for name, (number, type_oid) in table.columns.items():
        if name not in old:
            if name in table.with_default:
                return True
        elif old[name][0] != number or (old[name][1] != type_oid and not _is_widened(name, layout, table)):
            return True
    return False


def _is_widened(name: str, old: CapturedTable | None, new: CapturedTable) -> bool:
    """Whether old values are the same in the new type. Where the old type is not known, they may not be."""
    if old is None:
        return False
    before, after = old.layout.schema.field(name).type, new.layout.schema.field(name).type
    if pa.types.is_integer(before) and pa.types.is_integer(after):
        return bool(before.bit_width <= after.bit_width)
    return False


def _gone_error(table: str, column: str, new_name: str | None, options: SourceOptions) -> DeclarationError:
    what = f"was renamed to '{new_name}'" if new_name else "was dropped"
    return DeclarationError(
        f"table {table}: the column '{column}' {what}",
        hint=f"if it may go: penstock capture accept {options.name} --dropped {table}.{column}",
    )


def _key_error(table: str, old: tuple[str, ...], new: tuple[str, ...], options: SourceOptions) -> DeclarationError:
    return DeclarationError(
        f"table {table}: its key changed from ({', '.join(old)}) to ({', '.join(new)}); a topic keeps its key",
        hint=f"change the key back, or capture the table under another name than {options.name}",
    )
