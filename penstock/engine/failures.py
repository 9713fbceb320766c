"""Errors of Spark's jobs in the user's words: what a task of ours refused, or what Spark could not evaluate."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock import errors
from penstock.errors import PenstockError

# What a job can fail with: Spark's errors as PySpark knows them, and those it does not know.
FAILURES = (PySparkException, Py4JError)
_OURS = re.compile(r"penstock\.errors\.(\w+): ([^\n]*)(?:\n  hint: ([^\n]*))?")
_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)): ([^\n]*)", re.MULTILINE)


def plain_failure(error: BaseException, where: str) -> PenstockError:
    """The same failure as an error that says what to do next."""
    text = str(error)
    if ours := _OURS.findall(text):
        name, message, hint = ours[-1]
        kind: type[PenstockError] = getattr(errors, name, PenstockError)
        return kind(message, hint=hint or None)
    return PenstockError(f"{where}: {reason(error)}", hint="what Spark says about it is in spark.log, in the folder of the app")


def reason(error: BaseException) -> str:
    """The one line of a failure that says what was wrong."""
    text = str(error)
    if found := _PYTHON.findall(text):
        name, message = found[-1]
        return f"{name}: {message}" if message else name
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"\s+SQLSTATE: \w+$", "", lines[0]) if lines else type(error).__name__
