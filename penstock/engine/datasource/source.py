"""`format("penstock")`: a topic of a log as a Spark source and sink, for batches and for streams; a view as a source.

Spark calls these methods in Python processes of its own beside the driver, and pickles what they return into tasks.
So nothing here holds an open file: everybody opens the log by its path (`source_topic`). A read runs through
`reader` -> `partitions` -> `read`, a write through `writer` -> `write` in tasks -> `commit`.

A DataFrame is a snapshot: Spark plans its splits once, when it is first used. Load again to see what came later.

Filters and columns: Spark pushes filters into a Python source only where the session enables it, and refuses sources
that take them where it does not; it never pushes columns. So both are options here: `from`, `until` and `columns`.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.engine.datasource.options import (
    BATCH_READ,
    BATCH_WRITE,
    STREAM_READ,
    STREAM_WRITE,
    names_a_view,
    parse_options,
    parse_view_options,
)
from penstock.engine.datasource.read import BatchReader, readable_schema
from penstock.engine.datasource.stream import StreamReader
from penstock.engine.datasource.topic import fresh_topic, plain_errors
from penstock.engine.datasource.view import ViewBatchReader, readable_view
from penstock.engine.datasource.write import BatchWriter, StreamWriter


class PenstockSource(DataSource):
    """One `format("penstock")` with its options. See `source_options` for what they are."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        """The columns a read has if the user declares none. A user's own schema is a choice among them."""
        with plain_errors():
            if names_a_view(self.options):
                return from_arrow_schema(readable_view(parse_view_options(self.options)).schema)
            options = parse_options(self.options, BATCH_READ | STREAM_READ)
            with fresh_topic(options) as topic:
                return from_arrow_schema(readable_schema(topic, options))

    def reader(self, schema: StructType) -> BatchReader | ViewBatchReader:
        with plain_errors():
            if names_a_view(self.options):
                return ViewBatchReader(parse_view_options(self.options), schema)
            return BatchReader(parse_options(self.options, BATCH_READ), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        with plain_errors():
            return StreamReader(parse_options(self.options, STREAM_READ), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        with plain_errors():
            return BatchWriter(parse_options(self.options, BATCH_WRITE), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        with plain_errors():
            return StreamWriter(parse_options(self.options, STREAM_WRITE), schema, overwrite=overwrite)
