"""The engine: all that runs on Spark. No other part of the package imports pyspark.

`datasource` is `format("penstock")`: the log as a source and a sink for anybody's Spark program.
"""
