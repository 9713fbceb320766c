"""What a failure of Spark becomes in the user's words, and what proves that a row is to blame: with real failures."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from py4j import java_gateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.run.failures import (
    FAILURES,
    SparkLostError,
    is_about_a_row,
    is_evaluation,
    is_raised_on_a_row,
    plain_failure,
    reason,
)
from penstock.engine.spark import is_not_of_py4j, session_for
from penstock.errors import DamagedError, FencedError, PenstockError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STACK = "\n\tat org.apache.spark.Thing(Thing.scala:1)\n\tat java.base/java.lang.Thread.run(Thread.java:1)"


def failed(text: str) -> PySparkException:
    return PySparkException(text)


def failure_of(work: Callable[[], Any]) -> BaseException:
    with pytest.raises(FAILURES) as caught:
        work()
    return caught.value


def in_arrow(spark: SparkSession, function: Callable[[Iterator[Any]], Iterator[Any]]) -> BaseException:
    return failure_of(lambda: session_for(spark, 2).range(0, 10, 1, 2).mapInArrow(function, "id long").toArrow())


# -- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1 div (id - 5)", "DIVIDE_BY_ZERO"),
        ("cast(concat('a', id) as int)", "CAST_INVALID_INPUT"),
        ("id + 9223372036854775807", "ARITHMETIC_OVERFLOW"),
        ("element_at(array(1), 5 + cast(id as int))", "INVALID_ARRAY_INDEX"),
        ("raise_error('no')", "USER_RAISED_EXCEPTION"),
        ("cast(id * 1000 as decimal(3, 1))", "NUMERIC_VALUE_OUT_OF_RANGE"),
        ("make_date(2020, cast(id as int), 1)", "DATETIME_FIELD_OUT_OF_BOUNDS"),
        ("map(id, 1, id, 2)", "DUPLICATED_MAP_KEY"),
        ("sequence(1, id, -1)", "Illegal sequence boundaries"),
        ("rlike('x', concat('(', id))", "Unclosed group"),
        ("parse_json(concat('{', id))", "MALFORMED_RECORD_IN_PARSING"),
        ("repeat('aaaaaaaaaaaaaaaaaaaaaaaaaa', cast((id + 1) * 200000000 as int))", "integer overflow"),
    ],
)
def test_an_expression_that_fails_is_about_a_row(spark: SparkSession, expression: str, said: str) -> None:
    error = failure_of(
        lambda: session_for(spark, 2).range(10).select(F.expr(expression).cast("string").alias("x")).toArrow()
    )
    assert is_about_a_row(error)
    told = plain_failure(error, "app 'shop', epoch 3")
    assert is_evaluation(told)
    assert told.message.startswith("app 'shop', epoch 3: ")
    assert said in told.message
    assert "\n" not in told.message


def raising(error: BaseException) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def function(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if 5 in batch.column(0).to_pylist():
                raise error
            yield batch

    return function


@pytest.mark.parametrize("error", [ValueError("five"), KeyError("five"), ConnectionError("five"), SystemExit(5)])
def test_what_a_function_raises_is_about_a_row(spark: SparkSession, error: BaseException) -> None:
    assert is_about_a_row(in_arrow(spark, raising(error)))


def test_a_result_that_does_not_fit_is_about_a_row(spark: SparkSession) -> None:
    @F.pandas_udf("long")  # type: ignore[call-overload,untyped-decorator]
    def text(values: pd.Series) -> pd.Series:
        return values.map(lambda value: "five" if value == 5 else value)

    error = failure_of(lambda: session_for(spark, 2).range(10).select(text("id")).toArrow())
    assert is_about_a_row(error)


# -- everything else --------------------------------------------------------------------------------------------------


def lost(error: BaseException) -> str:
    assert not is_about_a_row(error)
    told = plain_failure(error, "app 'shop', epoch 3")
    assert type(told) is SparkLostError
    assert not is_evaluation(told)
    assert "\n" not in told.message
    return told.message


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
def test_memory_that_is_short_and_an_interrupt_are_about_no_row(spark: SparkSession, error: BaseException) -> None:
    lost(in_arrow(spark, raising(error)))


def test_a_worker_that_is_gone_is_about_no_row(spark: SparkSession) -> None:
    def end(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            os._exit(9)
            yield batch

    message = lost(in_arrow(spark, end))
    assert message.startswith("app 'shop', epoch 3: a Python process of Spark ended in the middle of its work")
    assert "faulthandler" not in message


def test_work_that_is_cancelled_is_about_no_row(spark: SparkSession) -> None:
    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            threading.Event().wait(60)
            yield batch

    tracker = spark.sparkContext.statusTracker()
    done = threading.Event()

    def cancel() -> None:
        while not done.wait(0.1):
            if tracker.getActiveJobsIds():
                spark.sparkContext.cancelAllJobs()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        message = lost(in_arrow(spark, wait))
    finally:
        done.set()
        canceller.join()
    assert "the work was cancelled in Spark" in message


def test_a_module_that_workers_do_not_have_is_about_no_row(spark: SparkSession) -> None:
    class Missing:
        def __reduce__(self) -> Any:
            return __import__, ("no_such_module_anywhere",)

    missing = Missing()

    def use(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays(batch.columns, names=[str(missing)])

    assert "No module named 'no_such_module_anywhere'" in lost(in_arrow(spark, use))


@pytest.mark.parametrize("error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111)])
def test_a_spark_that_does_not_answer_is_about_no_row(error: BaseException) -> None:
    assert lost(error) == "app 'shop', epoch 3: Spark does not answer"


FRAMES = {
    "spark": '  File "/venv/site-packages/pyspark/sql/pandas/serializers.py", line 3, in load_stream\n    read()\n',
    "penstock": '  File "/venv/site-packages/penstock/engine/run/tasks.py", line 3, in run\n    step()\n',
    "socket": '  File "/usr/lib/python3.11/socket.py", line 706, in readinto\n    return self._sock.recv_into(b)\n',
    "user": '  File "/home/me/penstock/shop.py", line 3, in check\n    int(note)\n',
    "library": '  File "/usr/lib/python3.11/json/decoder.py", line 3, in decode\n    scan()\n',
}


@pytest.mark.parametrize(
    ("called", "raised", "about_a_row"),
    [
        (["user"], "ValueError: no number", True),
        (["spark", "user", "library"], "json.decoder.JSONDecodeError: Expecting value: line 1", True),
        (["user", "library", "socket"], "ConnectionRefusedError: [Errno 111] Connection refused", True),
        (["spark", "library"], "ValueError: a function of a library may be given to udf", True),
        (["spark", "penstock", "user"], "ValueError: no number", True),
        (["user", "spark"], "EOFError", False),
        (["spark", "socket"], "ConnectionResetError: [Errno 104] Connection reset by peer", False),
        (["user", "spark", "socket"], "ConnectionResetError: [Errno 104] Connection reset by peer", False),
        (["spark"], "pyarrow.lib.ArrowInvalid: Could not convert 'x' with type str", True),
        (["spark"], "pyspark.errors.exceptions.base.PySparkTypeError: [X] Exception thrown when converting", True),
        (["spark"], "struct.error: unpack requires a buffer of 4 bytes", False),
        (["spark", "penstock"], "OSError: [Errno 5] Input/output error", False),
        (["spark", "penstock"], "pyarrow.lib.ArrowInvalid: a state of ours", False),
        (["user"], "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 GiB", False),
        ([], "Aborted", False),
    ],
)
def test_the_last_code_that_was_called_tells_whose_error_it_is(
    called: list[str], raised: str, about_a_row: bool
) -> None:
    before = "Traceback (most recent call last):\n" + FRAMES["user"] + "KeyError: 'a'\n\nDuring handling of it:\n\n"
    traceback = "Traceback (most recent call last):\n" + "".join(FRAMES[frame] for frame in called) + raised + "\n"
    assert is_raised_on_a_row(before + traceback) == about_a_row


# -- words ------------------------------------------------------------------------------------------------------------


def test_an_error_of_ours_comes_back_as_it_was() -> None:
    told = plain_failure(
        failed(f"Job aborted:\npenstock.errors.DamagedError: state file x: gone\n  hint: rebuild{STACK}"), "app 'shop'"
    )
    assert type(told) is DamagedError
    assert (told.message, told.hint) == ("state file x: gone", "rebuild")
    assert not is_evaluation(told)


def test_what_spark_could_not_evaluate_is_one_line() -> None:
    text = (
        "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate it. If necessary set "
        f'"spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22012\n== SQL =={STACK}'
    )
    assert reason(failed(text)) == "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate it."


def test_a_full_disk_of_spark_is_something_to_wait_for() -> None:
    told = plain_failure(failed(f"java.io.IOException: No space left on device{STACK}"), "app 'shop'")
    assert type(told) is UnavailableError
    assert "SPARK_LOCAL_DIRS" in str(told.hint)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Traceback:\n  File x\nValueError: no number\n", "ValueError: no number"),
        ("KeyError: 'a'\nduring which\nmy.package.OwnError: worse", "my.package.OwnError: worse"),
        (
            "An error occurred while calling o1.x.\n: org.apache.spark.SparkException: Aborted",
            "SparkException: Aborted",
        ),
        ("", "PySparkException"),
    ],
)
def test_the_line_that_says_what_was_wrong_is_found(text: str, said: str) -> None:
    assert reason(failed(text)) == said


def test_who_was_replaced_is_no_matter_of_rows() -> None:
    assert not is_evaluation(FencedError("instance 1 was replaced"))
    assert is_evaluation(PenstockError("it fails"))


def test_what_py4j_says_through_the_logger_of_everybody_is_left_out() -> None:
    def said_in(file: str | None) -> logging.LogRecord:
        return logging.LogRecord("root", logging.ERROR, str(file), 1, "Exception while sending command.", (), None)

    assert not is_not_of_py4j(said_in(java_gateway.__file__))
    assert is_not_of_py4j(said_in(__file__))
