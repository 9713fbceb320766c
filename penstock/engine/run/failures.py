"""Errors of Spark's jobs in the user's words: what a task of ours refused, or what Spark could not evaluate."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from penstock import errors
from penstock.errors import PenstockError, UnavailableError

# What a job can fail with: Spark's errors as PySpark knows them, and those it does not know.
FAILURES = (PySparkException, Py4JError)
_OURS = re.compile(r"penstock\.errors\.(\w+): ([^\n]*)(?:\n  hint: ([^\n]*))?")
_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)): ([^\n]*)", re.MULTILINE)
# What helps somebody else: a code, and settings that an app must not change.
_ASIDE = re.compile(r";?\s+SQLSTATE: \w+$| If necessary set \S+ to \S+ to bypass this error\.")
# Py4J's own line says only that a call has failed; the next one says why.
_NOTHING_SAID = re.compile(r"An error occurred while calling ")
_JAVA_CLASS = re.compile(r"^(?:: )?(?:\w+\.)+(\w+): ")
_HINT = "what Spark says about it is in spark.log, in the folder of the app"


def plain_failure(error: BaseException, where: str) -> PenstockError:
    """The same failure as an error that says what to do next."""
    text = str(error)
    if ours := _OURS.findall(text):
        name, message, hint = ours[-1]
        kind: type[PenstockError] = getattr(errors, name, PenstockError)
        return kind(message, hint=hint or None)
    if "No space left on device" in text:
        return UnavailableError(
            f"{where}: a disk is full; the epoch can be run again",
            hint="make space, also where Spark keeps its own files (SPARK_LOCAL_DIRS, else /tmp)",
        )
    return PenstockError(f"{where}: {reason(error)}", hint=_HINT)


def is_evaluation(failure: PenstockError) -> bool:
    """Whether it may be a row's fault, and not that of a file, a disk or a program that was replaced."""
    return type(failure) is PenstockError


def reason(error: BaseException) -> str:
    """The one line of a failure that says what was wrong."""
    text = str(error)
    if found := _PYTHON.findall(text):
        name, message = found[-1]
        return f"{name}: {message}" if message else name
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not _NOTHING_SAID.match(line)] or lines
    return _ASIDE.sub("", _JAVA_CLASS.sub(r"\1: ", lines[0])) if lines else type(error).__name__
