"""Errors of Spark's jobs: whose fault they are, and what they are in the user's words.

A job fails because a row cannot be evaluated, or because something was lost that has nothing to do with rows: a
process, a connection, memory. Only what *proves* that evaluating a row has failed counts as the first; everything
else is the second, and the same work is tried again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from penstock import errors
from penstock.errors import PenstockError, UnavailableError

# What a job can fail with: Spark's errors as PySpark knows them, those it does not know, and a Spark that has gone.
FAILURES = (PySparkException, Py4JError, ConnectionError)

# -- what proves that it is the row -----------------------------------------------------------------------------------

# Classes of SQLSTATE for errors in data: of values, of keys in maps, in functions of Java, by a program's raise_error.
_DATA_STATES = ("22", "23", "39", "54000", "P0001")
# What Spark raises while it evaluates an expression, where it gives no SQLSTATE; and what Java's own library does then.
_DATA_CLASSES = re.compile(
    r"org\.apache\.spark\.Spark(Arithmetic|NumberFormat|DateTime|ArrayIndexOutOfBounds|IllegalArgument|Upgrade)Exception"
    r"|java\.lang\.(Arithmetic|NumberFormat|IllegalArgument|(Array|String)?IndexOutOfBounds)Exception"
    r"|java\.time\.(\w+\.)*DateTime\w*Exception|java\.util\.regex\.PatternSyntaxException|java\.util\.\w*Format\w*Exception"
)
_SPARK_RUNTIME = "org.apache.spark.SparkRuntimeException"
_PYTHON_CLASS = "org.apache.spark.api.python.PythonException"
# What Python raises in Spark's own code when a function has returned something that does not fit its type.
_MISFITS = re.compile(
    r"pyspark\.errors\.\S*\.PySpark(Type|Value|Runtime)Error|pyarrow\.lib\.Arrow(Invalid|TypeError|NotImplementedError)"
    r"|(_pickle\.)?PicklingError|TypeError|ValueError|OverflowError|AttributeError|decimal\.\w+|UnicodeEncodeError"
)
# What is raised in a function and is not about the row it was given.
_NEVER_THE_ROW = re.compile(r"KeyboardInterrupt|GeneratorExit|.*MemoryError")
_FRAME = re.compile(r'^  File "([^"]+)", line \d+', re.MULTILINE)
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)
_SPARK_CODE = re.compile(r"/(?:pyspark\.zip|py4j[^/]*\.zip|site-packages|dist-packages|python)/(?:pyspark|py4j)/")
_PENSTOCK_CODE = re.compile(r"/penstock/(?:engine|log|flow|derive)/")
_TRANSPORT = re.compile(r"/socket\.py$")

# -- words ------------------------------------------------------------------------------------------------------------

_OURS = re.compile(r"penstock\.errors\.(\w+): ([^\n]*)(?:\n  hint: ([^\n]*))?")
_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)): ([^\n]*)", re.MULTILINE)
# What helps somebody else: a code, and settings that an app must not change.
_ASIDE = re.compile(
    r";?\s+SQLSTATE: \w+$| If necessary set \S+ to \S+ to bypass this error\.| Consider setting .*faulthandler.*$"
)
# Py4J's own line says only that a call has failed; the next one says why.
_NOTHING_SAID = re.compile(r"An error occurred while calling ")
_ONLY_ABORTED = re.compile(r"Job aborted due to|Exception thrown in awaitResult")
_JAVA_CLASS = re.compile(r"^(?:: )?(?:\w+\.)+(\w+): ")
_HINT = "what Spark says about it is in spark.log, in the folder of the app"
_LOST_HINT = (
    "if it happens again, look whether the machine is short of memory: its kernel ends processes then (dmesg), and "
    "smaller epochs need less: AppSettings(max_rows=...)"
)
_LOST = {
    "SPARK_JOB_CANCELLED": "the work was cancelled in Spark",
    "OutOfMemoryError": "Spark ran out of memory",
    "MemoryError": "a Python process of Spark ran out of memory",
    "Python worker": "a Python process of Spark ended in the middle of its work",
    "Broken pipe": "a Python process of Spark ended in the middle of its work",
    "EOFException": "a process of Spark ended, or the connection to it broke",
    "ExecutorLostFailure": "Spark lost one of its executors",
    "FetchFailed": "Spark lost rows on their way between two steps",
    "SparkContext was shut down": "Spark was shut down",
}


class SparkLostError(UnavailableError):
    """Run it again: Spark lost a process, a connection or memory. No row is to blame; nothing was stored.

    `attempt` says how often that has happened to the same epoch, one after the other.
    """

    def __init__(self, message: str, *, hint: str | None = None, attempt: int = 1) -> None:
        super().__init__(message, hint=hint)
        self.attempt = attempt


@dataclass(frozen=True, slots=True)
class Cause:
    """One of the errors of Java that led to another, as far as it says something: `state` is its SQLSTATE."""

    kind: str
    condition: str
    state: str
    message: str


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
    if is_about_a_row(error):
        return PenstockError(f"{where}: {reason(error)}", hint=_HINT)
    return SparkLostError(f"{where}: {_what_was_lost(error)}", hint=_LOST_HINT)


def is_evaluation(failure: PenstockError) -> bool:
    """Whether it may be a row's fault, and not that of a process, a file, a disk or a program that was replaced."""
    return type(failure) is PenstockError


def is_about_a_row(error: BaseException) -> bool:
    """Whether a failure proves that evaluating some row has failed, in an expression or in a user's function."""
    return any(map(_is_about_data, causes(error)))


def is_raised_by_python(error: BaseException) -> bool:
    return any(cause.kind == _PYTHON_CLASS for cause in causes(error))


def _is_about_data(cause: Cause) -> bool:
    if cause.kind == _PYTHON_CLASS:
        return is_raised_on_a_row(cause.message)
    if cause.state.startswith(_DATA_STATES) or _DATA_CLASSES.fullmatch(cause.kind):
        return True
    return cause.kind == _SPARK_RUNTIME and cause.condition.startswith("_LEGACY_ERROR")


def is_raised_on_a_row(traceback: str) -> bool:
    """Whether a Python task has ended because a function raised something, or returned what does not fit.

    What is called last tells: a function of the user, and whatever that calls, comes after Spark's own code. Where
    only code of Spark has failed, it is the row if a value could not be converted, and not if a connection broke.
    """
    last = traceback.rpartition("Traceback (most recent call last):")[2]
    frames = list(_FRAME.finditer(last))
    raised = _RAISED.search(last, frames[-1].end() if frames else 0)
    if raised is None or _NEVER_THE_ROW.fullmatch(raised[1]):
        return False
    paths = [frame[1] for frame in frames]
    engine = [at for at, path in enumerate(paths) if _SPARK_CODE.search(path) or _PENSTOCK_CODE.search(path)]
    called = paths[engine[-1] + 1 :] if engine else paths
    if called and not _TRANSPORT.search(called[0]):
        return True
    return not any(map(_PENSTOCK_CODE.search, paths)) and _MISFITS.fullmatch(raised[1]) is not None


def causes(error: BaseException) -> Sequence[Cause]:
    """What Java says led to a failure, the outermost first; nothing if Java no longer answers."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found: list[Cause] = []
    try:
        while thrown is not None and len(found) < 20:
            kind = str(thrown.getClass().getName())
            about_spark = kind.startswith("org.apache.spark.")
            condition = _asked(thrown, "getCondition") if about_spark else ""
            state = _asked(thrown, "getSqlState") if about_spark else ""
            found.append(Cause(kind, condition, state, thrown.getMessage() or ""))
            thrown = thrown.getCause()
    except (Py4JError, OSError):
        pass
    return found


def _asked(thrown: object, method: str) -> str:
    try:
        return str(getattr(thrown, method)() or "")
    except Py4JError:  # not every error of Spark has it
        return ""


def reason(error: BaseException) -> str:
    """The one line of a failure that says what was wrong."""
    text = _said_by_java(error) or str(error)
    if found := _PYTHON.findall(text):
        name, message = found[-1]
        return f"{name}: {message}" if message else name
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not _NOTHING_SAID.match(line)] or lines
    return _ASIDE.sub("", _JAVA_CLASS.sub(r"\1: ", lines[0])) if lines else type(error).__name__


def _said_by_java(error: BaseException) -> str:
    """Where PySpark passes on no more than that something failed: the first cause that has a name, or the last one."""
    if not isinstance(error, Py4JJavaError):
        return ""
    found = causes(error)
    named = [cause.message for cause in found if cause.condition and cause.message]
    told = [cause.message for cause in found if cause.message and not _ONLY_ABORTED.match(cause.message)]
    return [*named[:1], *told[-1:], *(cause.kind.rpartition(".")[2] for cause in found[-1:]), ""][0]


def _what_was_lost(error: BaseException) -> str:
    found = causes(error)
    if not found and not isinstance(error, PySparkException):
        return "Spark does not answer"
    text = "\n".join(f"{cause.kind} {cause.condition} {cause.message}" for cause in found)
    said = next((words for sign, words in _LOST.items() if sign in text), None)
    return f"{said} ({reason(error)})" if said else reason(error)
