"""`import penstock` is instant because it loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"pyspark", "py4j", "pyarrow", "numpy", "pandas"}
DRIVERS = {"aio_pika", "confluent_kafka", "duckdb", "nats", "psycopg", "psycopg2", "pymongo", "pymysql", "redis", "zmq"}

# Modules that were there before the import, put there by the interpreter's own start, are not ours.
SHOW_WHAT_IS_LOADED = """
import sys
before = set(sys.modules)
import penstock
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


def test_importing_penstock_loads_neither_spark_nor_arrow_nor_any_driver() -> None:
    shown = subprocess.run([sys.executable, "-c", SHOW_WHAT_IS_LOADED], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    loaded = set(shown.stdout.split())
    assert "penstock" in loaded
    assert loaded & (HEAVY | DRIVERS) == set()
