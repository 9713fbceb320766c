"""Reading a view with Spark: the driver names a commit, and each task reads some runs of one partition of the view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.derive.views.open_view import OpenView
from penstock.derive.views.reader import ViewReader
from penstock.derive.views.runs import OpenPartition
from penstock.derive.views.snapshot import declared_name, open_view_run
from penstock.engine.datasource.options import ViewOptions
from penstock.engine.datasource.read import even_batches
from penstock.engine.datasource.topic import plain_errors
from penstock.engine.ledger.records import StoredView
from penstock.engine.state.run import RunFile
from penstock.errors import DeclarationError
from penstock.logs import apps_folder
from penstock.paths import app_directory, chosen_app
from penstock.schema.arrow import parse_schema
from penstock.suggest import closest

# Runs are read by one task up to about this size together; each run alone may be larger.
SPLIT_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class PinnedView:
    """A view as one commit names it: what all tasks of a read agree on."""

    directory: str
    epoch: int
    name: str
    stored: StoredView
    schema: pa.Schema


@dataclass
class ViewSplit(InputPartition):
    """Some runs of one partition: the work of one task. Which of their rows count, the other runs say."""

    partition: int
    files: tuple[RunFile, ...]


def readable_view(options: ViewOptions) -> PinnedView:
    """The view of the newest commit, with the columns that the options ask for. All are nullable."""
    folder = apps_folder(options.log).parent
    app = chosen_app(folder, options.app)
    directory = app_directory(folder, app)
    snapshot = ViewReader(directory).refresh()
    views = snapshot.stored_views
    name = declared_name(options.view, views, f"app '{app}': ")
    fields = {field.name: field.with_nullable(True) for field in parse_schema(views[name].columns)}
    for column in options.columns or ():
        if column not in fields:
            raise DeclarationError(
                f"view '{name}': there is no column '{column}'; it has {', '.join(fields)}",
                hint=closest(column, list(fields)),
            )
    schema = pa.schema([fields[column] for column in options.columns or fields])
    return PinnedView(str(directory), snapshot.epoch, name, views[name], schema)


class ViewBatchReader(DataSourceReader):
    """Reads a view as of the commit that is newest when the read is planned. Made on the driver, used in tasks."""

    def __init__(self, options: ViewOptions, schema: StructType) -> None:
        pinned = readable_view(options)
        self._pinned = PinnedView(
            pinned.directory, pinned.epoch, pinned.name, pinned.stored, _chosen_schema(pinned, schema)
        )

    def partitions(self) -> list[InputPartition]:
        splits = [
            ViewSplit(partition, group)
            for partition, files in self._pinned.stored.runs.items()
            for group in _groups(files)
        ]
        # Spark takes no splits for one split of None; an empty one says what is meant.
        return [*splits] or [ViewSplit(0, ())]

    def read(self, split: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(split, ViewSplit)
        with plain_errors():
            yield from even_batches(_rows(self._pinned, split))


def _chosen_schema(pinned: PinnedView, schema: StructType) -> pa.Schema:
    """What Spark wants to read, as Arrow: columns of the view, by their names and with their types."""
    chosen = to_arrow_schema(schema, timezone="UTC")
    for field in chosen:
        found = pinned.schema.field(field.name) if field.name in pinned.schema.names else None
        if found is None or found.type != field.type:
            has = "no such column" if found is None else f"type {from_arrow_type(found.type).simpleString()}"
            raise DeclarationError(
                f"view '{pinned.name}': column '{field.name}' of the schema of this read does not fit; it has {has}",
                hint="leave the schema out; cast the column after reading it",
            )
    return pa.schema([pinned.schema.field(name) for name in chosen.names])


def _groups(files: tuple[RunFile, ...]) -> list[tuple[RunFile, ...]]:
    """The runs of a partition, neighbours together as long as they are small."""
    groups: list[tuple[RunFile, ...]] = []
    for file in files:
        if groups and sum(run.bytes for run in groups[-1]) + file.bytes <= SPLIT_BYTES:
            groups[-1] = (*groups[-1], file)
        else:
            groups.append((file,))
    return groups


def _rows(pinned: PinnedView, split: ViewSplit) -> Iterator[pa.RecordBatch]:
    """The rows of a split that count. An older run needs the newer ones, and a counted view all of them."""
    opener = partial(open_view_run, Path(pinned.directory), pinned.epoch, pinned.name)
    files = pinned.stored.runs.get(split.partition, ())
    if pinned.stored.growth == "appended":
        files = split.files
    elif pinned.stored.growth == "keyed" and split.files:
        files = files[files.index(split.files[0]) :]
    partition = OpenPartition(pinned.stored.growth).follow(files, opener)
    wanted = [run for file in split.files for run in partition.runs[file]]
    view = OpenView(pinned.name, pinned.stored, {split.partition: partition})
    for batch in view.batches(wanted):
        yield pa.RecordBatch.from_arrays([batch.column(name) for name in pinned.schema.names], schema=pinned.schema)
