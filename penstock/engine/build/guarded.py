"""Functions of the user, guarded: a row on which one fails is reported, and the others are evaluated as always.

PySpark makes every Python function in a plan by calling a `UserDefinedFunction`. While functions are guarded, that call
wraps the function: in Spark's tasks the wrapper evaluates what has failed again, in smaller and smaller pieces, until
single rows are left. A row is reported only if the function fails on it alone, after having failed before; what it
raises is then the function's own, and no matter of processes or connections. Rows on which it fails give null.

Not all kinds of functions can be guarded, and none where the columns are gone that say where a row is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from penstock.engine.operators.contract import OFFSET, PARTITION
from penstock.engine.run.tasks import assignment, report

TOPIC = "_topic"
# A worker that has reported so many rows lets the next one fail the job: it is the function, not the rows.
MOST_REPORTED = 200
_ARGUMENT = "_penstock_place"
_ROW_BY_ROW = (PythonEvalType.SQL_BATCHED_UDF, PythonEvalType.SQL_ARROW_BATCHED_UDF)

Function = Callable[..., Any]
_reported: dict[str, int] = {}  # in a worker: rows, by the folder of the attempt


@contextmanager
def guarding() -> Iterator[None]:
    """Guard all functions that become part of a plan meanwhile."""
    plain = UserDefinedFunction.__call__

    def call(self: UserDefinedFunction, *columns: Any, **named: Any) -> Any:
        wrapper = _wrapper(self)
        if wrapper is None:
            return plain(self, *columns, **named)
        guarded = UserDefinedFunction(
            wrapper(self.func), self._returnType, self._name, self.evalType, self.deterministic
        )
        if wrapper in (_by_row, _by_series):
            named[_ARGUMENT] = F.concat_ws("/", F.col(PARTITION), F.col(OFFSET), F.col(TOPIC))
        return plain(guarded, *columns, **named)

    UserDefinedFunction.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        UserDefinedFunction.__call__ = plain  # type: ignore[method-assign]


def _wrapper(function: UserDefinedFunction) -> Callable[[Function], Function] | None:
    if function.evalType in _ROW_BY_ROW:
        return _by_row
    if function.evalType == PythonEvalType.SQL_SCALAR_PANDAS_UDF:
        return None if isinstance(function.returnType, StructType) else _by_series
    maps = (PythonEvalType.SQL_MAP_ARROW_ITER_UDF, PythonEvalType.SQL_MAP_PANDAS_ITER_UDF)
    return _by_batch if function.evalType in maps else None


def _by_row(function: Function) -> Function:
    def guarded(*values: Any, **named: Any) -> Any:
        place = named.pop(_ARGUMENT)
        try:
            return function(*values, **named)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - what it raises the second time counts
            try:
                return function(*values, **named)
            except Exception as error:  # noqa: BLE001 - a function may raise anything
                _report(place, error)
                return None

    return guarded


def _by_series(function: Function) -> Function:
    def guarded(*series: Any, **named: Any) -> Any:
        import pandas as pd  # type: ignore[import-untyped]

        places = named.pop(_ARGUMENT)
        try:
            return function(*series, **named)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - as above
            arguments = [*series, *named.values()]

            def evaluate(start: int, end: int) -> Any:
                taken = [one.iloc[start:end].reset_index(drop=True) for one in arguments]
                return function(*taken[: len(series)], **dict(zip(named, taken[len(series) :], strict=True)))

            pieces = _in_pieces(evaluate, 0, len(places), lambda at: str(places.iloc[at]))
            values = [value for piece in pieces for value in ([None] if piece is None else piece)]
            return pd.Series(values, dtype=object)

    return guarded


def _by_batch(function: Function) -> Function:
    def guarded(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            try:
                yield from list(function(iter([batch])))
            except MemoryError:
                raise
            except Exception:
                if not len(batch) or not {TOPIC, PARTITION, OFFSET} <= set(_names(batch)):
                    raise

                def evaluate(start: int, end: int, batch: Any = batch) -> list[Any]:
                    return list(function(iter([_part(batch, start, end)])))

                def place(at: int, batch: Any = batch) -> str:
                    return _place(batch, at)

                for results in _in_pieces(evaluate, 0, len(batch), place):
                    yield from results or ()

    return guarded


def _in_pieces(evaluate: Callable[[int, int], Any], start: int, end: int, place: Callable[[int], str]) -> Iterator[Any]:
    """The results over rows, halved where that fails; None for a row on which it fails alone."""
    try:
        result = evaluate(start, end)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        if end - start <= 1:
            _report(place(start), error)
            yield None
            return
        middle = (start + end) // 2
        yield from _in_pieces(evaluate, start, middle, place)
        yield from _in_pieces(evaluate, middle, end, place)
    else:
        yield result


def _names(batch: Any) -> list[str]:
    return list(batch.schema.names if isinstance(batch, pa.RecordBatch) else batch.columns)


def _part(batch: Any, start: int, end: int) -> Any:
    if isinstance(batch, pa.RecordBatch):
        return batch.slice(start, end - start)
    return batch.iloc[start:end].reset_index(drop=True)


def _place(batch: Any, at: int) -> str:
    (row,) = _part(batch, at, at + 1).to_pylist() if isinstance(batch, pa.RecordBatch) else [batch.iloc[at]]
    return f"{row[PARTITION]}/{row[OFFSET]}/{row[TOPIC]}"


def _report(place: str, error: Exception) -> None:
    epoch = assignment()
    _reported[epoch.staging] = _reported.get(epoch.staging, 0) + 1
    if isinstance(error, MemoryError) or _reported[epoch.staging] > MOST_REPORTED:
        raise error
    partition, offset, topic = place.split("/", 2)
    said = str(error).partition("\n")[0]
    name = type(error).__name__
    failing = {"_topic": topic, "_partition": int(partition), "_offset": int(offset)}
    report(epoch, {"failing": {**failing, "_error": f"{name}: {said}" if said else name}})
