"""A trial of Spark: whether it starts, and runs a job in a Python worker."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from penstock.engine.run.failures import FAILURES, reason
from penstock.engine.spark import end_spark, start_spark
from penstock.errors import PenstockError, UnavailableError

_ROWS = 3


def run_trial(master: str | None = None) -> str:
    """Start Spark, run a small job through a Python worker, and end Spark again: its version.

    UnavailableError says what does not work.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        output = Path(folder) / "spark.log"
        try:
            spark = start_spark("doctor", master, output=output)
        except UnavailableError as error:
            hint = None if error.hint is None else error.hint.partition("; what it says itself")[0]
            raise UnavailableError(error.message, hint=hint) from error
        try:
            frame = spark.range(_ROWS).mapInArrow(_pass_on, "id long")
            if frame.count() != _ROWS:
                raise PenstockError("Spark ran a job, and the answer is wrong", hint="check the versions of libraries")
            return str(spark.version)
        except FAILURES as error:
            raise UnavailableError(
                f"Spark started, but a Python worker could not run a job: {reason(error)}",
                hint="Spark's workers need the same Python with the same libraries: PYSPARK_PYTHON names it",
            ) from error
        finally:
            end_spark(spark)


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
