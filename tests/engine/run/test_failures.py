"""What a failure of Spark becomes in the user's words."""

from __future__ import annotations

import logging

import pytest
from py4j import java_gateway  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from penstock.engine.run.failures import is_evaluation, plain_failure, reason
from penstock.engine.spark import is_not_of_py4j
from penstock.errors import DamagedError, FencedError, PenstockError, UnavailableError

STACK = "\n\tat org.apache.spark.Thing(Thing.scala:1)\n\tat java.base/java.lang.Thread.run(Thread.java:1)"


def failed(text: str) -> PySparkException:
    return PySparkException(text)


def test_an_error_of_ours_comes_back_as_it_was() -> None:
    told = plain_failure(
        failed(f"Job aborted:\npenstock.errors.DamagedError: state file x: gone\n  hint: rebuild{STACK}"), "app 'shop'"
    )
    assert type(told) is DamagedError
    assert (told.message, told.hint) == ("state file x: gone", "rebuild")
    assert not is_evaluation(told)


def test_what_spark_could_not_evaluate_is_one_line_with_the_place() -> None:
    text = (
        "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate it. If necessary set "
        f'"spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22012\n== SQL =={STACK}'
    )
    told = plain_failure(failed(text), "app 'shop', epoch 3")
    assert told.message == "app 'shop', epoch 3: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate it."
    assert is_evaluation(told)


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
