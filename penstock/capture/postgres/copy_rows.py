"""Copied rows: what `COPY (SELECT ...) TO STDOUT (FORMAT csv)` gives, into the same batches as changed rows. No I/O.

The texts of values are the same in both ways, so both are converted by the same code, and equal rows become equal.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import csv

from penstock.capture.postgres.conversion import convert_text
from penstock.capture.postgres.row_id import row_ids
from penstock.capture.postgres.types import ROW_ID_COLUMN, Column, TableLayout
from penstock.errors import DamagedError


def read_copy_csv(data: bytes | bytearray, layout: TableLayout, commit_time: int) -> pa.RecordBatch:
    """The rows of a chunk, with the columns of `TableLayout.schema` and one commit time, in microseconds since 1970.

    See `read_copy_texts` for the data. DeclarationError: a value does not fit its type.
    """
    return convert_copy(read_copy_texts(data, layout), layout, commit_time)


def read_copy_texts(data: bytes | bytearray, layout: TableLayout) -> pa.RecordBatch:
    """The texts of a chunk, as binaries: its columns are `layout.table_columns`, selected in this order.

    The data is CSV without a header, less than 2 GiB, of whole rows. Null is an empty field without quotes.
    """
    names = [column.name for column in layout.table_columns]
    schema = pa.schema([pa.field(name, pa.binary()) for name in names])
    if not len(data):
        return pa.RecordBatch.from_pylist([], schema=schema)
    try:
        table = csv.read_csv(
            pa.BufferReader(data),  # type: ignore[arg-type]
            read_options=csv.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types=schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise DamagedError(
            f"table {layout.name}: its copy is not CSV with {len(names)} columns; found {error}",
            hint="the columns of the table may have changed since: start the capture again",
        ) from None
    return table.combine_chunks().to_batches()[0]


def convert_copy(texts: pa.RecordBatch, layout: TableLayout, commit_time: int) -> pa.RecordBatch:
    """The rows of the texts that `read_copy_texts` returned."""
    columns: list[Column] = [
        row_ids(texts.columns)
        if column == ROW_ID_COLUMN
        else convert_text(texts.column(column.name), column, table=layout.name)
        for column in layout.columns
    ]
    times = pa.repeat(pa.scalar(commit_time, pa.timestamp("us", "UTC")), texts.num_rows)
    return pa.RecordBatch.from_arrays([*columns, times], schema=layout.schema)


def last_key(texts: pa.RecordBatch, layout: TableLayout) -> tuple[str, ...]:
    """The key of the last row as texts, in the order of `layout.key`: the next chunk begins after it.

    They are the texts that PostgreSQL itself gave, so `'...'::type` means exactly this value again.
    """
    return tuple(texts.column(name)[-1].as_py().decode() for name in layout.key)
