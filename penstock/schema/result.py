"""Rows that were read from a topic or a view: held as Arrow, given as dicts, Arrow, pandas or Polars.

Dicts are made one batch at a time, and only if somebody asks for them.
"""

from __future__ import annotations

import html
import shutil
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, NoReturn, overload

import pyarrow as pa

from penstock.errors import DeclarationError
from penstock.schema.to_python import python_values
from penstock.schema.to_text import cell_text, table_lines

# How many rows become Python values at a time.
BATCH_ROWS = 16_384
# What a terminal or a notebook shows of a result.
SHOWN_ROWS = 10
SHOWN_COLUMNS = 50
LONGEST_CELL = 60


class Result(Sequence[dict[str, object]]):
    """Rows of a topic, a view or a query: a sequence of dicts that also becomes Arrow, pandas or Polars.

        rows = app.query("select * from revenue")
        for row in rows: ...
        frame = rows.to_pandas()

    Values have the Python types of their columns: datetime (in UTC if the column is a `timestamp`), date, Decimal,
    bytes, list, dict. It equals a list of the same dicts. `epoch` is the epoch that rows of views are of.
    """

    def __init__(
        self, table: pa.Table, *, epoch: int | None = None, whole_numbers: frozenset[int] = frozenset()
    ) -> None:
        """`whole_numbers` are the columns of integers that Arrow holds as decimals, because they exceed 64 bits."""
        self._table = table
        self._whole_numbers = whole_numbers
        self.epoch = epoch

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._table.schema.names)

    # -- as a sequence of dicts ---------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, object]]:
        names = self.columns
        return (dict(zip(names, row, strict=True)) for row in self._tuples())

    @overload
    def __getitem__(self, at: int) -> dict[str, object]: ...

    @overload
    def __getitem__(self, at: slice) -> Result: ...

    def __getitem__(self, at: int | slice | str) -> dict[str, object] | Result:
        if isinstance(at, str):
            raise TypeError(f"rows are found by their number, not by {at!r}; a column: .to_arrow()[{at!r}]")
        positions = range(len(self))[at]
        if isinstance(positions, int):
            return next(iter(self._with(self._table.slice(positions, 1))))
        if positions.step == 1:
            return self._with(self._table.slice(positions.start, len(positions)))
        return self._with(self._table.take(pa.array(positions, pa.int64())))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(row == found for row, found in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as that of a list

    def _with(self, table: pa.Table) -> Result:
        return Result(table, epoch=self.epoch, whole_numbers=self._whole_numbers)

    def _tuples(self) -> Iterator[tuple[object, ...]]:
        for batch in self._table.to_batches(max_chunksize=BATCH_ROWS):
            columns = [python_values(column) for column in batch.columns]
            for number in self._whole_numbers:
                columns[number] = [int(value) if isinstance(value, Decimal) else value for value in columns[number]]
            # A batch of no columns still has rows.
            yield from zip(*columns, strict=True) if columns else ((),) * batch.num_rows

    # -- as columns ---------------------------------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, without copying them."""
        return self._table

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame. Its columns have Arrow types, so that values are exact and nulls remain."""
        import pandas as pd  # type: ignore[import-untyped]

        return self._table.to_pandas(types_mapper=pd.ArrowDtype)

    def to_polars(self) -> Any:
        """The rows as a Polars DataFrame. Polars is not installed with Penstock."""
        try:
            import polars
        except ImportError:
            raise DeclarationError(
                "result: Polars is not installed",
                hint="pip install polars; or use .to_arrow() or .to_pandas()",
            ) from None
        return polars.from_arrow(self._table)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """For libraries that read Arrow: `polars.DataFrame(rows)`, `pyarrow.table(rows)`, `topic.append(rows)`."""
        stream: object = self._table.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]
        return stream

    def __getattr__(self, name: str) -> NoReturn:
        hint = "" if name.startswith("_") else "; use .to_arrow(), .to_pandas() or .to_polars() first"
        raise AttributeError(f"'Result' object has no attribute {name!r}{hint}")

    # -- as people see it ---------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """The first rows, as many columns as fit the terminal, and how much there is."""
        rows = [[_shortened(value) for value in row] for row in self[:SHOWN_ROWS]._tuples()]
        names = list(self.columns)
        fitting = _fitting_columns(names, rows, shutil.get_terminal_size().columns)
        lines = table_lines(names[:fitting], iter([row[:fitting] for row in rows]))
        return "\n".join([*lines, self._summary(fitting)])

    def _repr_html_(self) -> str:
        names = self.columns[:SHOWN_COLUMNS]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        rows = [
            "".join(f"<td>{html.escape(cell_text(_shortened(value)))}</td>" for value in row[:SHOWN_COLUMNS])
            for row in self[:SHOWN_ROWS]._tuples()
        ]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{self._summary(len(names))}</p>"

    def _summary(self, shown_columns: int) -> str:
        rows = "1 row" if len(self) == 1 else f"{len(self):,} rows"
        if len(self) > SHOWN_ROWS:
            rows += f"; the first {SHOWN_ROWS} are shown"
        hidden = len(self.columns) - shown_columns
        columns = f"; {hidden:,} more column{'s' if hidden > 1 else ''}" if hidden else ""
        return f"({rows}{columns})"


def _shortened(value: object) -> object:
    """The value itself, or its text if that is long: numbers stay numbers, so that they are aligned as such."""
    text = cell_text(value)
    return value if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 3]}..."


def _fitting_columns(names: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> int:
    """How many columns fit into a line of this width; at least one."""
    widths = [
        max(len(name), *(len(cell_text(row[number])) for row in rows), 0) + 2 for number, name in enumerate(names)
    ]
    return max(1, sum(end <= width + 2 for end in accumulate(widths))) if names else 0
