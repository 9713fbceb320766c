"""Writes penstock/flow/spark_functions.py and spark_arguments.py from the function registry of the installed Spark.

    .venv/bin/python tools/spark_functions.py

Apps are declared without a JVM, so the names are stored. A test compares them with the installed Spark.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET = Path(__file__).resolve().parent.parent / "penstock" / "flow" / "spark_functions.py"
ARGUMENTS_TARGET = TARGET.with_name("spark_arguments.py")
EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"

# The groups of the registry are made for documentation and miss some functions; their classes know better, except
# where a class only builds the expression.
GROUPS = {
    "agg_funcs": "AGGREGATE",
    "window_funcs": "WINDOW",
    "generator_funcs": "GENERATOR",
    "table_funcs": "GENERATOR",
}
CLASSES = {
    f"{EXPRESSIONS}.aggregate.AggregateFunction": "AGGREGATE",
    f"{EXPRESSIONS}.RuntimeReplaceableAggregate": "AGGREGATE",
    f"{EXPRESSIONS}.WindowFunction": "WINDOW",
    f"{EXPRESSIONS}.Generator": "GENERATOR",
    f"{EXPRESSIONS}.Nondeterministic": "NONDETERMINISTIC",
}
HEAD = '''"""The names of Spark's functions, by kind. Written by tools/spark_functions.py; not to be edited."""

from __future__ import annotations
'''

ARGUMENTS_HEAD = '''"""How many arguments Spark's functions take. Written by tools/spark_functions.py; not to be edited.

`2 3` are two or three, `2 ...` two or more. Functions that take any number are left out.
"""

from __future__ import annotations

ARGUMENTS = {
'''
# More arguments than this are not tried.
MOST = 8
# Spark's grammar calls some functions in other ways, such as `dateadd(day, 1, at)` and `substring(name from 2)`; and
# `decimal(10, 2)` is a type in `cast(amount as decimal(10, 2))`.
CALLED_OTHERWISE = frozenset(
    re.findall(
        r"\w+",
        """
        bigint binary boolean cast char date date_add date_diff dateadd datediff decimal double extract float int mode
        overlay position smallint string substr substring time timestamp tinyint trim when
        """,
    )
)


def kinds(spark: SparkSession) -> dict[str, str]:
    """The kind of each function of the registry that is called by a name, not by a sign."""
    jvm: Any = spark._jvm
    parents = {jvm.java.lang.Class.forName(name): kind for name, kind in CLASSES.items()}
    found = {}
    for info in jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos():
        if re.fullmatch(r"\w+", info.getName()):
            found[info.getName()] = GROUPS.get(info.getGroup()) or _kind_of_class(jvm, info.getClassName(), parents)
    return found


def _kind_of_class(jvm: Any, name: str, parents: dict[Any, str]) -> str:
    made = jvm.java.lang.Class.forName(name)
    return next((kind for parent, kind in parents.items() if parent.isAssignableFrom(made)), "SCALAR")


def arguments(spark: SparkSession, names: Iterable[str]) -> dict[str, str]:
    """By function: the numbers of arguments with which it can be called, as text; a minute for all functions."""
    return {
        name: " ".join(map(str, counts)) + (" ..." if counts[-1] == MOST else "")
        for name in names
        if name not in CALLED_OTHERWISE
        and (counts := [count for count in range(MOST + 1) if _takes(spark, name, count)])
        and len(counts) <= MOST
    }


def _takes(spark: SparkSession, name: str, count: int) -> bool:
    """Whether Spark does not refuse this number of arguments; it may refuse the values, which are all null."""
    jvm: Any = spark._jvm
    catalyst, some = jvm.org.apache.spark.sql.catalyst, jvm.scala.Some
    void = jvm.org.apache.spark.sql.types.DataType.fromDDL("x void").apply("x").dataType()
    null = catalyst.expressions.Literal.create(None, void)
    identifier = catalyst.FunctionIdentifier(name, some("builtin"), some("system"))
    values = jvm.org.apache.spark.api.python.PythonUtils.toSeq([null] * count)
    try:
        spark._jsparkSession.sessionState().functionRegistry().lookupFunction(identifier, values)
    except (PySparkException, Py4JError) as error:
        return "WRONG_NUM_ARGS" not in str(getattr(error, "getCondition", str)())
    return True


def arguments_module(counts: dict[str, str]) -> str:
    """The text of the module with the numbers of arguments."""
    parts = [ARGUMENTS_HEAD]
    for count in sorted(set(counts.values())):
        names = " ".join(sorted(name for name, each in counts.items() if each == count))
        lines = textwrap.fill(names, width=112, initial_indent="        ", subsequent_indent="        ")
        parts.append(f'    "{count}": """\n{lines}\n    """,\n')
    return "".join([*parts, "}\n"])


def module(found: dict[str, str]) -> str:
    """The text of the module."""
    parts = [HEAD]
    for kind in sorted(set(found.values())):
        names = " ".join(sorted(name for name, each in found.items() if each == kind))
        lines = textwrap.fill(names, width=116, initial_indent="    ", subsequent_indent="    ")
        parts.append(f'{kind} = """\n{lines}\n"""\n')
    return "\n".join(parts)


def main() -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        found = kinds(spark)
        TARGET.write_text(module(found), encoding="utf-8")
        called = [name for name, kind in found.items() if kind in ("AGGREGATE", "SCALAR")]
        ARGUMENTS_TARGET.write_text(arguments_module(arguments(spark, called)), encoding="utf-8")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
