"""Converting the rows of many threads in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import RowError
from penstock.log.group_commit import GroupCommit
from penstock.schema.rows import rows_to_batch


@dataclass(slots=True)
class _Conversion:
    """The rows of one call, on their way to a batch."""

    rows: Sequence[Mapping[str, object]]
    schema: pa.Schema
    where: str
    batch: pa.RecordBatch | None = None
    error: BaseException | None = None

    @property
    def is_answered(self) -> bool:
        return self.batch is not None or self.error is not None

    def convert(self) -> None:
        try:
            self.batch = rows_to_batch(self.rows, self.schema, where=self.where)
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread whose rows these are
            self.error = error


class SharedConversion:
    """Converts the rows of calls that come at the same time in one go: a column of many costs little more than of one.

    Threads that each convert a row also hinder one another: Arrow lets go of the interpreter in every call.
    """

    def __init__(self) -> None:
        self._shared = GroupCommit(_convert_all)

    def batch(self, rows: Sequence[Mapping[str, object]], schema: pa.Schema, *, where: str) -> pa.RecordBatch:
        """The same as `rows_to_batch`."""
        conversion = _Conversion(rows, schema, where)
        self._shared.do(conversion)
        if conversion.error is not None:
            raise conversion.error
        assert conversion.batch is not None
        return conversion.batch


def _convert_all(conversions: list[_Conversion]) -> None:
    first = conversions[0]
    alike = [conversion for conversion in conversions if conversion.schema is first.schema]
    if len(alike) > 1:
        try:
            rows = [row for conversion in alike for row in conversion.rows]
            batch = rows_to_batch(rows, first.schema, where=first.where)
        except RowError:
            pass  # somebody's rows are bad: each is told of its own, below
        else:
            start = 0
            for conversion in alike:
                conversion.batch = batch.slice(start, len(conversion.rows))
                start += len(conversion.rows)
    for conversion in conversions:
        if not conversion.is_answered:
            conversion.convert()
