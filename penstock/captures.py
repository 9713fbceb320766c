"""What `app.capture` declares: which tables of which databases become topics, and what their rows look like.

Tables of one URL belong to one capture: they share a connection and the order of their commits. The columns of a table
are what the program says, else those of the topic in the log, else those of the database, which is asked only then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa

from penstock.capture.declaration import CaptureDeclaration, CapturedTable
from penstock.contracts import COMMIT_TIME, SourceOptions
from penstock.databases import check_database, open_database
from penstock.errors import DeclarationError, UnavailableError
from penstock.flow.event_time import check_clock_columns, timing_of
from penstock.flow.names import EVENT_TIME
from penstock.flow.plan import CapturedFrom, Changelog, Location, Shape, Source, Timing, Topic
from penstock.logs import log_exists, open_log
from penstock.names import NAME_PATTERN, NAME_RULE
from penstock.schema.arrow import parse_schema, to_ddl
from penstock.schema.declared import AnySchema
from penstock.secrets import masked_url
from penstock.suggest import closest

OUTBOX_COLUMNS = ("id", "aggregatetype", "aggregateid", "type", "payload")
OUTBOX_KEY = "aggregateid"
OUTBOX_LATENESS = "5 seconds"
"""Transactions that commit at the same moment may come in either order, and clocks of servers are set back a little."""

Names = str | Sequence[str]
_DEFAULT_SCHEMAS = ("public", "main")
_SCHEMA_HINT = 'schema="id bigint not null, name string"'


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """The arguments of `app.capture`, each checked by itself."""

    url: str
    table: str
    topic: str
    is_outbox: bool
    schema: AnySchema | None
    key: tuple[str, ...]
    columns: tuple[str, ...] | None
    as_text: tuple[str, ...]
    partitions: int
    capture: str | None

    @property
    def shown_url(self) -> str:
        return masked_url(self.url)

    def captured_table(self) -> CapturedTable:
        return CapturedTable(
            self.table,
            self.topic,
            columns=self.columns,
            as_text=self.as_text,
            inserts_only=self.is_outbox,
            partitions=self.partitions,
        )


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a captured table, with `COMMIT_TIME`, and its key."""

    schema: pa.Schema
    key: tuple[str, ...]


def check_request(
    url: object,
    table: object,
    outbox: object,
    name: object,
    *,
    schema: AnySchema | None = None,
    key: Names = (),
    columns: Names | None = None,
    as_text: Names = (),
    partitions: int = 1,
    capture: str | None = None,
) -> CaptureRequest:
    """The request that the arguments make; DeclarationError for one that is wrong in itself."""
    check_database(url)
    chosen = _chosen_table(table, outbox)
    if outbox is not None and key:
        raise DeclarationError(
            f"the events of an outbox have the key {OUTBOX_KEY}; found key={key!r}", hint="leave out key"
        )
    for what, value in (("name", name), ("capture", capture)):
        if value is not None and (not isinstance(value, str) or not NAME_PATTERN.fullmatch(value)):
            raise DeclarationError(f"{what}: this is not a name; found {value!r}", hint=NAME_RULE)
    return CaptureRequest(
        str(url),
        chosen,
        str(name) if name is not None else default_topic(chosen),
        outbox is not None,
        schema,
        _names("key", key),
        None if columns is None else _names("columns", columns),
        _names("as_text", as_text),
        partitions,
        capture,
    )


def _chosen_table(table: object, outbox: object) -> str:
    hint = 'app.capture("postgresql://localhost/shop", table="customers"), or outbox="events"'
    if (table is None) == (outbox is None):
        found = "found neither" if table is None else f"found table={table!r} and outbox={outbox!r}"
        raise DeclarationError(f"what is captured is a table or an outbox; {found}", hint=hint)
    chosen = outbox if table is None else table
    if not isinstance(chosen, str) or not chosen:
        raise DeclarationError(f"a table is named by a text; found {chosen!r}", hint=hint)
    return chosen


def _names(what: str, value: object) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name for name in names):
        raise DeclarationError(f"{what} is the name of a column or a list of names; found {value!r}")
    return tuple(names)


def default_topic(table: str) -> str:
    """The topic of a table without a name of its own: the table, without the schema that databases take as given."""
    schema, dot, bare = table.partition(".")
    return bare if dot and schema in _DEFAULT_SCHEMAS else table


def default_capture(url: str) -> str:
    """The name of a capture that is given none: that of the database."""
    parts = urlsplit(url)
    database = Path(parts.path).stem or parts.hostname or parts.scheme
    return re.sub(r"[^A-Za-z0-9._-]", "_", database).lstrip("._-") or parts.scheme


# -- columns ----------------------------------------------------------------------------------------------------------


def find_columns(request: CaptureRequest, log: str | Path) -> TableColumns:
    """The columns and the key of a table: from the program, else from the log, else from the database."""
    found = _declared_columns(request) or _stored_columns(request, log) or _source_columns(request)
    known = found.schema.names
    if request.is_outbox:
        _check_outbox(known)
    for what, names in (("columns", request.columns or ()), ("as_text", request.as_text), ("key", found.key)):
        for name in names:
            if name not in known:
                raise DeclarationError(
                    f"{what}: there is no column '{name}'; there are {', '.join(known)}", hint=closest(name, known)
                )
    return found


def _declared_columns(request: CaptureRequest) -> TableColumns | None:
    if request.schema is None:
        return None
    schema = parse_schema(request.schema)
    if COMMIT_TIME not in schema.names:
        schema = schema.append(pa.field(COMMIT_TIME, pa.timestamp("us", "UTC")))
    key = request.key or tuple(column.name for column in schema if not column.nullable)
    if request.is_outbox:
        key = (OUTBOX_KEY,)
    if not key:
        raise DeclarationError(
            "a captured table has a key, which are its columns that cannot be null; found none",
            hint=f'{_SCHEMA_HINT}, or name it: key="id"',
        )
    return TableColumns(schema, key)


def _stored_columns(request: CaptureRequest, log: str | Path) -> TableColumns | None:
    """The columns of the topic. None if there is none yet, or if it lacks columns that are to be captured."""
    if not log_exists(log):
        return None
    with closing(open_log(log)) as opened:
        if request.topic not in opened.topics():
            return None
        topic = opened.topic(request.topic)
        schema, key = topic.schema, tuple(topic.settings.key)
    if COMMIT_TIME not in schema.names or not {*(request.columns or ()), *key} <= {*schema.names}:
        return None
    return TableColumns(_narrowed(schema, request.columns, key), request.key or key)


def _narrowed(schema: pa.Schema, columns: tuple[str, ...] | None, key: tuple[str, ...]) -> pa.Schema:
    wanted = schema.names if columns is None else {*columns, *key, COMMIT_TIME}
    return pa.schema([column for column in schema if column.name in wanted])


def _source_columns(request: CaptureRequest) -> TableColumns:
    """What the database says of the table."""
    hint = f"start the database, or say what the table has: {_SCHEMA_HINT}"
    try:
        database = open_database(
            request.url, [request.captured_table().source_table()], SourceOptions(name=default_capture(request.url))
        )
        try:
            (found,) = database.tables()
        finally:
            database.close()
    except UnavailableError as error:
        raise DeclarationError(
            f"the columns of table '{request.table}' are not known, and {request.shown_url} cannot be asked: "
            f"{error.message}",
            hint=hint,
        ) from error
    if found.schema is None:
        raise DeclarationError(
            f"{request.shown_url} does not say what columns table '{request.table}' has", hint=_SCHEMA_HINT
        )
    key = (OUTBOX_KEY,) if request.is_outbox else request.key or found.key
    return TableColumns(parse_schema(found.schema), key)


def _check_outbox(known: Sequence[str]) -> None:
    missing = [name for name in OUTBOX_COLUMNS if name not in known]
    if missing:
        raise DeclarationError(
            f"an outbox has the columns {', '.join(OUTBOX_COLUMNS)}; {', '.join(missing)} not found among "
            f"{', '.join(known)}",
            hint='capture any other table with table="..."',
        )


def source_node(
    request: CaptureRequest, found: TableColumns, capture: str, timing: Timing | None, at: Location
) -> Source:
    """The node of a captured table: a table by its key, or a stream of the events of an outbox."""
    captured = CapturedFrom(request.shown_url, request.table, capture)
    names, schema = tuple(found.schema.names), to_ddl(found.schema)
    if not request.is_outbox:
        shape = Shape(names, COMMIT_TIME, found.key, retracts=True)
        return Changelog(
            request.topic, schema, found.key, request.partitions, COMMIT_TIME, shape, at, captured=captured
        )
    timing = timing or timing_of(COMMIT_TIME, OUTBOX_LATENESS)
    assert timing is not None
    check_clock_columns(timing, found.schema)
    corrected = timing.sent is not None
    shape = Shape((*names, EVENT_TIME) if corrected else names, EVENT_TIME if corrected else timing.column)
    return Topic(request.topic, schema, found.key, request.partitions, timing, shape, at, captured=captured)


# -- the captures of an app -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Captures:
    """The captures that an app has declared so far, by name."""

    _declared: dict[str, CaptureDeclaration] = field(default_factory=dict)

    def __iter__(self) -> Iterator[CaptureDeclaration]:
        return iter(self._declared.values())

    def name_for(self, request: CaptureRequest) -> str:
        """The name of the capture that a table belongs to: as given, else that of its URL, else of its database."""
        of_url = (declared.name for declared in self if declared.url == request.url)
        name = request.capture or next(of_url, default_capture(request.url))
        declared = self._declared.get(name)
        if declared is not None and declared.url != request.url:
            raise DeclarationError(
                f"capture '{name}' captures from {masked_url(declared.url)}; found {request.shown_url}",
                hint='give this one another name: capture="..."',
            )
        if declared is not None:
            _refuse_second_topic(declared, request)
        return name

    def add(self, name: str, url: str, table: CapturedTable) -> None:
        """Add a table to the capture of a name, unless it is there."""
        declared = self._declared.get(name, CaptureDeclaration(name, url, ()))
        if table in declared.tables:
            return
        if any(known.table == table.table for known in declared.tables):
            raise DeclarationError(
                f"capture '{name}' already captures table '{table.table}' differently",
                hint="declare it once and use the result twice",
            )
        self._declared[name] = replace(declared, tables=(*declared.tables, table))


def _refuse_second_topic(declared: CaptureDeclaration, request: CaptureRequest) -> None:
    for known in declared.tables:
        if (known.table == request.table) != (known.topic == request.topic):
            raise DeclarationError(
                f"capture '{declared.name}' writes table '{known.table}' to topic '{known.topic}'; found table "
                f"'{request.table}' and topic '{request.topic}'",
                hint='a table has one topic, and a topic one table; give the topic a name of its own: name="..."',
            )
