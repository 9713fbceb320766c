"""Where Spark finds `format("penstock")`: it looks for a DefaultSource in every top-level module called pyspark_*."""

from penstock.engine.datasource.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
