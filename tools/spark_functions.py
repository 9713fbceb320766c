"""Writes penstock/flow/spark_functions.py from the function registry of the installed Spark.

    .venv/bin/python tools/spark_functions.py

Apps are declared without a JVM, so the names are stored. A test compares them with the installed Spark.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET = Path(__file__).resolve().parent.parent / "penstock" / "flow" / "spark_functions.py"
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
        TARGET.write_text(module(kinds(spark)), encoding="utf-8")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
