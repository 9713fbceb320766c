"""Users' functions, guarded: a row on which a function fails is reported, and the other rows are evaluated as usual.

PySpark puts a Python function into a plan by calling a `UserDefinedFunction`. While functions are guarded, that call
wraps the function. In Spark's tasks the wrapper evaluates rows again on which it failed, in smaller and smaller pieces,
down to single rows. A row is reported only if the function fails on it alone, and for the second time: then the error
is the function's own, and not one of a process or a connection. The result for such a row is null.

Not all kinds of functions can be guarded, and none if the columns with the origin of rows are missing.
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
from penstock.engine.run.halving import Span, halves
from penstock.engine.run.tasks import assignment, write_report

TOPIC = "_topic"
# After this many reported rows a worker lets the job fail: the function is to blame, not the rows.
MOST_REPORTED = 200
_ORIGIN_ARGUMENT = "_penstock_origin"
_ROW_BY_ROW = (PythonEvalType.SQL_BATCHED_UDF, PythonEvalType.SQL_ARROW_BATCHED_UDF)

Function = Callable[..., Any]
_reported_rows: dict[str, int] = {}  # in a worker: how many, by the folder of the attempt


@contextmanager
def guard_functions() -> Iterator[None]:
    """Guard all functions that become part of a plan in this block."""
    original_call = UserDefinedFunction.__call__

    def call(self: UserDefinedFunction, *columns: Any, **keywords: Any) -> Any:
        wrapper = _wrapper(self)
        if wrapper is None:
            return original_call(self, *columns, **keywords)
        guarded_function = UserDefinedFunction(
            wrapper(self.func), self._returnType, self._name, self.evalType, self.deterministic
        )
        if wrapper in (_guard_rows, _guard_series):
            keywords[_ORIGIN_ARGUMENT] = F.concat_ws("/", F.col(PARTITION), F.col(OFFSET), F.col(TOPIC))
        return original_call(guarded_function, *columns, **keywords)

    UserDefinedFunction.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        UserDefinedFunction.__call__ = original_call  # type: ignore[method-assign]


def _wrapper(function: UserDefinedFunction) -> Callable[[Function], Function] | None:
    if function.evalType in _ROW_BY_ROW:
        return _guard_rows
    if function.evalType == PythonEvalType.SQL_SCALAR_PANDAS_UDF:
        return None if isinstance(function.returnType, StructType) else _guard_series
    maps = (PythonEvalType.SQL_MAP_ARROW_ITER_UDF, PythonEvalType.SQL_MAP_PANDAS_ITER_UDF)
    return _guard_batches if function.evalType in maps else None


def _guard_rows(function: Function) -> Function:
    def guarded(*values: Any, **keywords: Any) -> Any:
        origin = keywords.pop(_ORIGIN_ARGUMENT)
        try:
            return function(*values, **keywords)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - what it raises the second time counts
            try:
                return function(*values, **keywords)
            except Exception as error:  # noqa: BLE001 - a function may raise anything
                _report(origin, error)
                return None

    return guarded


def _guard_series(function: Function) -> Function:
    def guarded(*series: Any, **keywords: Any) -> Any:
        import pandas as pd  # type: ignore[import-untyped]

        origins = keywords.pop(_ORIGIN_ARGUMENT)
        try:
            return function(*series, **keywords)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - as above
            arguments = [*series, *keywords.values()]

            def evaluate(start: int, end: int) -> Any:
                parts = [argument.iloc[start:end].reset_index(drop=True) for argument in arguments]
                return function(*parts[: len(series)], **dict(zip(keywords, parts[len(series) :], strict=True)))

            pieces = _evaluate_halving(evaluate, (0, len(origins)), lambda at: str(origins.iloc[at]))
            values = [value for piece in pieces for value in ([None] if piece is None else piece)]
            return pd.Series(values, dtype=object)

    return guarded


def _guard_batches(function: Function) -> Function:
    def guarded(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            try:
                yield from list(function(iter([batch])))
            except MemoryError:
                raise
            except Exception:
                if not len(batch) or not {TOPIC, PARTITION, OFFSET} <= set(_column_names(batch)):
                    raise

                def evaluate(start: int, end: int, batch: Any = batch) -> list[Any]:
                    return list(function(iter([_slice_batch(batch, start, end)])))

                def origin_at(at: int, batch: Any = batch) -> str:
                    return _origin_of_row(batch, at)

                for results in _evaluate_halving(evaluate, (0, len(batch)), origin_at):
                    yield from results or ()

    return guarded


def _evaluate_halving(
    evaluate: Callable[[int, int], Any], span: Span, origin_at: Callable[[int], str]
) -> Iterator[Any]:
    """The results over a range of rows, in halves where it fails; None for a row on which it fails alone."""
    try:
        result = evaluate(*span)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        if span[1] - span[0] <= 1:
            _report(origin_at(span[0]), error)
            yield None
            return
        for half in halves(span):
            yield from _evaluate_halving(evaluate, half, origin_at)
    else:
        yield result


def _column_names(batch: Any) -> list[str]:
    return list(batch.schema.names if isinstance(batch, pa.RecordBatch) else batch.columns)


def _slice_batch(batch: Any, start: int, end: int) -> Any:
    if isinstance(batch, pa.RecordBatch):
        return batch.slice(start, end - start)
    return batch.iloc[start:end].reset_index(drop=True)


def _origin_of_row(batch: Any, at: int) -> str:
    (row,) = _slice_batch(batch, at, at + 1).to_pylist() if isinstance(batch, pa.RecordBatch) else [batch.iloc[at]]
    return f"{row[PARTITION]}/{row[OFFSET]}/{row[TOPIC]}"


def _report(origin: str, error: Exception) -> None:
    epoch = assignment()
    _reported_rows[epoch.staging] = _reported_rows.get(epoch.staging, 0) + 1
    if isinstance(error, MemoryError) or _reported_rows[epoch.staging] > MOST_REPORTED:
        raise error
    partition, offset, topic = origin.split("/", 2)
    first_line = str(error).partition("\n")[0]
    name = type(error).__name__
    row = {"_topic": topic, "_partition": int(partition), "_offset": int(offset)}
    write_report(epoch, {"failing": {**row, "_error": f"{name}: {first_line}" if first_line else name}})
