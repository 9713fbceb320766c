"""Tables that were altered while they are captured: what can be followed, and what is refused."""

from __future__ import annotations

from penstock.capture.sqlite.schema import Column, TableSchema
from penstock.capture.sqlite.types import arrow_type
from penstock.contracts import SourceOptions, SourceTable
from penstock.errors import DeclarationError


def refuse_incompatible(before: TableSchema, table: TableSchema, wanted: SourceTable, options: SourceOptions) -> None:
    """Raise DeclarationError if captured columns are gone or have another type, or the key is another one."""
    captured = [column for column in before.columns if wanted.columns is None or column.name in wanted.columns]
    for column in captured:
        path = f"{table.name}.{column.name}"
        if column.name in table.names:
            _refuse_other_type(column, table, as_text=column.name in wanted.as_text)
        elif path not in options.dropped:
            raise DeclarationError(
                f"table '{table.name}': column '{column.name}' is gone: it was dropped or renamed",
                hint=f"if its values may be null from now on: penstock capture accept {options.name} --dropped {path}",
            )
    if before.key != table.key:
        raise DeclarationError(
            f"table '{table.name}': its key was ({', '.join(before.key)}), and is now ({', '.join(table.key)})",
            hint="capture it under another name, into a new topic",
        )


def _refuse_other_type(before: Column, table: TableSchema, *, as_text: bool) -> None:
    column = table.column(before.name)
    type_before = arrow_type(before.declared, as_text=as_text)
    type_now = arrow_type(column.declared, as_text=as_text)
    if type_now != type_before:
        raise DeclarationError(
            f"table '{table.name}': column '{column.name}' was declared as '{before.declared}' ({type_before}), "
            f"and is now '{column.declared}' ({type_now})",
            hint="declare it as it was, or capture the table under another name, into a new topic",
        )
