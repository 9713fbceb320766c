"""Which functions an expression may call, and what kind each is."""

from __future__ import annotations

from typing import Literal

from penstock.flow import spark_functions as spark
from penstock.log.ddl import closest

Kind = Literal["scalar", "aggregate", "window", "generator", "unrepeatable", "time window", "grouping"]

# Not in the registry: Spark's grammar knows them.
_GRAMMAR = frozenset({"timediff", "timestampadd", "timestampdiff", "try_cast"})

_ASKS_AROUND = """
    curdate current_catalog current_database current_date current_path current_schema current_time current_timestamp
    current_timezone current_user localtime localtimestamp now session_user user version
"""
# Spark does not mark these in their classes: the first takes a random start unless it is given, the rest are random or
# call arbitrary Java.
_RANDOM_UNMARKED = frozenset({"aes_encrypt", "uniform", "try_reflect", "java_method", "reflect"})

WITHOUT_PARENTHESES = frozenset(
    {"current_date", "current_time", "current_timestamp", "current_user", "localtimestamp", "session_user", "user"}
)
"""Functions that Spark calls when they stand there as a word, unless a column has that name."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KINDS: tuple[tuple[Kind, frozenset[str]], ...] = (
    ("time window", frozenset({"session_window", "window", "window_time"})),
    ("grouping", frozenset({"grouping", "grouping_id", "measure"})),
    ("unrepeatable", _words(spark.NONDETERMINISTIC) | _words(_ASKS_AROUND) | _RANDOM_UNMARKED),
    ("generator", _words(spark.GENERATOR) | {"variant_explode", "variant_explode_outer"}),
    ("aggregate", _words(spark.AGGREGATE)),
    ("window", _words(spark.WINDOW)),
    ("scalar", _words(spark.SCALAR) | _GRAMMAR),
)


def kind_of(function: str) -> Kind | None:
    """The kind of a function, given in lower case; None if Spark has no such function."""
    return next((kind for kind, names in _KINDS if function in names), None)


def closest_function(name: str) -> str | None:
    """A hint with the function that was probably meant; those that would be refused are not offered."""
    known = sorted(each for kind, names in _KINDS if kind in ("aggregate", "scalar") for each in names)
    return closest(name, [each for each in known if kind_of(each) in ("aggregate", "scalar")])
