"""Which functions an expression may call, and what kind each is."""

from __future__ import annotations

from typing import Literal

from penstock.flow import spark_functions as spark
from penstock.flow.spark_arguments import ARGUMENTS
from penstock.suggest import closest

Kind = Literal["scalar", "aggregate", "window", "generator", "unrepeatable", "time window", "grouping"]

# Part of Spark's grammar, and not in its registry.
_GRAMMAR = frozenset({"timediff", "timestampadd", "timestampdiff", "try_cast"})

_CURRENT_VALUES = """
    curdate current_catalog current_database current_date current_path current_schema current_time current_timestamp
    current_timezone current_user localtime localtimestamp now session_user user version
"""
# Spark does not mark these as nondeterministic: the first uses a random start unless it is given one, the others are
# random or call arbitrary Java.
_UNMARKED = frozenset({"aes_encrypt", "uniform", "try_reflect", "java_method", "reflect"})

WITHOUT_PARENTHESES = frozenset(
    {"current_date", "current_time", "current_timestamp", "current_user", "localtimestamp", "session_user", "user"}
)
"""Functions that Spark calls without parentheses, unless a column has that name."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KINDS: tuple[tuple[Kind, frozenset[str]], ...] = (
    ("time window", frozenset({"session_window", "window", "window_time"})),
    ("grouping", frozenset({"grouping", "grouping_id", "measure"})),
    ("unrepeatable", _words(spark.NONDETERMINISTIC) | _words(_CURRENT_VALUES) | _UNMARKED),
    ("generator", _words(spark.GENERATOR) | {"variant_explode", "variant_explode_outer"}),
    ("aggregate", _words(spark.AGGREGATE)),
    ("window", _words(spark.WINDOW)),
    ("scalar", _words(spark.SCALAR) | _GRAMMAR),
)


_COUNTS = tuple((counts, _words(names)) for counts, names in ARGUMENTS.items())


def kind_of(function: str) -> Kind | None:
    """The kind of a function, given in lower case; None if Spark has no such function."""
    return next((kind for kind, names in _KINDS if function in names), None)


def wrong_number(function: str, given: int) -> str | None:
    """What is wrong with calling a function with so many arguments: `it takes 2 or 3 arguments`; None if nothing."""
    allowed = next((counts for counts, names in _COUNTS if function in names), None)
    if allowed is None:
        return None
    *counts, last = allowed.split()
    if last == "...":
        return None if given >= int(counts[0]) else f"it takes at least {_arguments(counts[0])}"
    if str(given) in (*counts, last):
        return None
    if last == "0":
        return "it takes no arguments"
    fewer = f"{', '.join(counts)} or " if counts else ""
    return f"it takes {fewer}{_arguments(last)}"


def _arguments(count: str) -> str:
    return "1 argument" if count == "1" else f"{count} arguments"


def closest_function(name: str) -> str | None:
    """A hint with the function that was probably meant, if it is one that is allowed."""
    known = sorted(function for kind, names in _KINDS if kind in ("aggregate", "scalar") for function in names)
    return closest(name, [function for function in known if kind_of(function) in ("aggregate", "scalar")])
