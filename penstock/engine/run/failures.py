"""Errors of Spark's jobs: who is to blame, and what to tell the user.

A job fails because a row cannot be evaluated, or because Spark has lost something that has nothing to do with rows: a
process, a connection, memory. Only an error that *proves* that evaluating a row has failed counts as the former. All
others count as the latter, and the same work is tried again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from penstock import errors
from penstock.errors import PenstockError, UnavailableError

# What a job can fail with: Spark's errors that PySpark knows, those it does not know, and a Spark that has ended.
FAILURES = (PySparkException, Py4JError, ConnectionError)

# -- what proves that a row is to blame -------------------------------------------------------------------------------

# Classes of SQLSTATE for errors in data: of values, of keys in maps, in functions of Java, by a program's raise_error.
_DATA_STATES = ("22", "23", "39", "54000", "P0001")
# What Spark raises without a SQLSTATE while it evaluates an expression; and what Java's own library raises then.
_DATA_CLASSES = re.compile(
    r"org\.apache\.spark\.Spark(Arithmetic|NumberFormat|DateTime|ArrayIndexOutOfBounds|IllegalArgument|Upgrade)Exception"
    r"|java\.lang\.(Arithmetic|NumberFormat|IllegalArgument|(Array|String)?IndexOutOfBounds)Exception"
    r"|java\.time\.(\w+\.)*DateTime\w*Exception|java\.util\.regex\.PatternSyntaxException|java\.util\.\w*Format\w*Exception"
)
_SPARK_RUNTIME = "org.apache.spark.SparkRuntimeException"
_PYTHON_CLASS = "org.apache.spark.api.python.PythonException"
# What Spark's own Python code raises when a function has returned something that does not fit its type.
_MISFITS = re.compile(
    r"pyspark\.errors\.\S*\.PySpark(Type|Value|Runtime)Error|pyarrow\.lib\.Arrow(Invalid|TypeError|NotImplementedError)"
    r"|(_pickle\.)?PicklingError|TypeError|ValueError|OverflowError|AttributeError|decimal\.\w+|UnicodeEncodeError"
)
# What a function may raise that is not about its row.
_NEVER_THE_ROW = re.compile(r"KeyboardInterrupt|GeneratorExit|.*MemoryError")
_FRAME = re.compile(r'^  File "([^"]+)", line \d+', re.MULTILINE)
_RAISED_CLASS = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)
_SPARK_CODE = re.compile(r"/(?:pyspark\.zip|py4j[^/]*\.zip|site-packages|dist-packages|python)/(?:pyspark|py4j)/")
_PENSTOCK_CODE = re.compile(r"/penstock/(?:engine|log|flow|derive)/")
_TRANSPORT = re.compile(r"/socket\.py$")

# -- words ------------------------------------------------------------------------------------------------------------

_PENSTOCK_ERROR = re.compile(r"penstock\.errors\.(\w+): ([^\n]*)(?:\n  hint: ([^\n]*))?")
_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)): ([^\n]*)", re.MULTILINE)
# What does not help the user: a code, and settings that an app must not change.
_IRRELEVANT = re.compile(
    r";?\s+SQLSTATE: \w+(; line \d+ pos \d+;?)?$"
    r"| If necessary set \S+ to \S+ to bypass this error\.| Consider setting .*faulthandler.*$"
)
# Py4J's own line only says that a call has failed; the next line says why.
_NO_REASON = re.compile(r"An error occurred while calling ")
_ONLY_ABORTED = re.compile(r"Job aborted due to|Exception thrown in awaitResult")
_JAVA_CLASS = re.compile(r"^(?:: )?(?:\w+\.)+(\w+): ")
_HINT = "what Spark says about it is in spark.log, in the folder of the app"
_LOST_HINT = (
    "if it happens again, check whether the machine is short of memory: its kernel ends processes then (dmesg), and "
    "smaller epochs need less: AppSettings(max_rows=...)"
)
_LOSSES = {
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

    `attempt` says how often in a row that has happened to the same epoch.
    """

    def __init__(self, message: str, *, hint: str | None = None, attempt: int = 1) -> None:
        super().__init__(message, hint=hint)
        self.attempt = attempt


class EpochStoppedError(UnavailableError):
    """Start the app again: it was told to stop, and its epoch failed meanwhile, perhaps for no other reason."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One of a chain of Java exceptions. `state` is its SQLSTATE."""

    kind: str
    condition: str
    state: str
    message: str


def plain_failure(error: BaseException, where: str) -> PenstockError:
    """The failure as an error that says what to do next."""
    text = str(error)
    if own_errors := _PENSTOCK_ERROR.findall(text):
        name, message, hint = own_errors[-1]
        kind: type[PenstockError] = getattr(errors, name, PenstockError)
        return kind(message, hint=hint or None)
    if "No space left on device" in text:
        return UnavailableError(
            f"{where}: a disk is full; the epoch can be run again",
            hint="make space, also where Spark keeps its own files (SPARK_LOCAL_DIRS, else /tmp)",
        )
    if is_about_a_row(error):
        return PenstockError(f"{where}: {reason(error)}", hint=_HINT)
    return SparkLostError(f"{where}: {_describe_loss(error)}", hint=_LOST_HINT)


def is_evaluation(failure: PenstockError) -> bool:
    """Whether a row may be to blame, and not a process, a file, a disk or an instance that was replaced."""
    return type(failure) is PenstockError


def is_about_a_row(error: BaseException) -> bool:
    """Whether a failure proves that evaluating a row has failed, in an expression or in a user's function."""
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
    """Whether a Python task has failed because a function raised an error, or returned a value that does not fit.

    The last calls decide: a user's function, and whatever it calls, comes after Spark's own code. If only Spark's code
    has failed, a row is to blame if a value could not be converted, but not if a connection broke.
    """
    last = traceback.rpartition("Traceback (most recent call last):")[2]
    frames = list(_FRAME.finditer(last))
    raised_class = _RAISED_CLASS.search(last, frames[-1].end() if frames else 0)
    if raised_class is None or _NEVER_THE_ROW.fullmatch(raised_class[1]):
        return False
    paths = [frame[1] for frame in frames]
    own_code = [at for at, path in enumerate(paths) if _SPARK_CODE.search(path) or _PENSTOCK_CODE.search(path)]
    called_paths = paths[own_code[-1] + 1 :] if own_code else paths
    if called_paths and not _TRANSPORT.search(called_paths[0]):
        return True
    return not any(map(_PENSTOCK_CODE.search, paths)) and _MISFITS.fullmatch(raised_class[1]) is not None


def causes(error: BaseException) -> Sequence[Cause]:
    """The chain of Java exceptions of a failure, the outermost first; empty if Java no longer answers."""
    exception = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    chain: list[Cause] = []
    try:
        while exception is not None and len(chain) < 20:
            kind = str(exception.getClass().getName())
            about_spark = kind.startswith("org.apache.spark.")
            condition = _call_method(exception, "getCondition") if about_spark else ""
            state = _call_method(exception, "getSqlState") if about_spark else ""
            chain.append(Cause(kind, condition, state, exception.getMessage() or ""))
            exception = exception.getCause()
    except (Py4JError, OSError):
        pass
    return chain


def _call_method(exception: object, method: str) -> str:
    try:
        return str(getattr(exception, method)() or "")
    except Py4JError:  # not every error of Spark has it
        return ""


def reason(error: BaseException) -> str:
    """The line of a failure that says what went wrong."""
    text = _java_message(error) or str(error)
    if python_errors := _PYTHON.findall(text):
        name, message = python_errors[-1]
        return f"{name}: {message}" if message else name
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not _NO_REASON.match(line)] or lines
    return _IRRELEVANT.sub("", _JAVA_CLASS.sub(r"\1: ", lines[0])) if lines else type(error).__name__


def _java_message(error: BaseException) -> str:
    """For failures of which PySpark only says that they happened: the first cause with a condition, or the last one."""
    if not isinstance(error, Py4JJavaError):
        return ""
    chain = causes(error)
    named_messages = [cause.message for cause in chain if cause.condition and cause.message]
    other_messages = [cause.message for cause in chain if cause.message and not _ONLY_ABORTED.match(cause.message)]
    return [*named_messages[:1], *other_messages[-1:], *(cause.kind.rpartition(".")[2] for cause in chain[-1:]), ""][0]


def _describe_loss(error: BaseException) -> str:
    chain = causes(error)
    if not chain and not isinstance(error, PySparkException):
        return "Spark does not answer"
    text = "\n".join(f"{cause.kind} {cause.condition} {cause.message}" for cause in chain)
    loss = next((description for pattern, description in _LOSSES.items() if pattern in text), None)
    return f"{loss} ({reason(error)})" if loss else reason(error)
