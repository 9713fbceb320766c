"""CREATE TOPIC, TABLE, VIEW and SINK as `app.topic`, `app.table`, `app.capture`, `app.view` and `app.sink`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from penstock.flow.event_time import event_time, make_timing
from penstock.flow.plan import Plan
from penstock.flow.sinks import SinkTopic, topic
from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.sql.parse import parse_query
from penstock.sql.reader import TokenReader
from penstock.sql.scope import Rows, require_rows
from penstock.sql.select import translate
from penstock.sql.text import Span, is_literal, literal_value, name_of, split_at_commas
from penstock.suggest import closest

_EVENT_TIME_OPTIONS = [name for name in inspect.signature(event_time).parameters if name != "column"]
_CAPTURE_OPTIONS = ["table", "outbox", "columns", "as_text", "capture"]
_LISTS = ("key", "columns", "as_text")
_TOPIC_DESTINATION = "WITH (to = topic('name', partitions = 2)), or WITH (to = 'sqlite:///reports.db')"
_KINDS = ["topic", "table", "view", "sink"]
_UNSUPPORTED_KINDS = {
    "function": ("functions are not made in SQL", "use .map(...) in Python, or an expression of Spark"),
    "stream": ("a stream is a topic", "CREATE TOPIC name (...) WITH (...)"),
    "materialized": ("all views are kept", "CREATE VIEW name AS SELECT ..."),
    "temporary": ("what has a name stays", "WITH name AS (SELECT ...) is for one query"),
    "temp": ("what has a name stays", "WITH name AS (SELECT ...) is for one query"),
    "global": ("what has a name stays", "WITH name AS (SELECT ...) is for one query"),
    "external": (
        "a table is a topic of the log, or captured from a database",
        "CREATE TABLE name (...) WITH (key = ...), or CREATE TABLE name WITH (url = 'postgresql://...')",
    ),
    "source": ("a source is a topic of the log", "CREATE TOPIC name (...) WITH (...)"),
    "index": ("a view is found by its key", "leave it out"),
    "or": ("what changed is built again at the next start", "CREATE without OR REPLACE"),
}
_UNSUPPORTED_IN_COLUMNS = {
    ("primary", "key"): ("PRIMARY KEY", "WITH (key = 'id')"),
    ("watermark", "for"): ("WATERMARK FOR", "WITH (time = 'at', lateness = '5 seconds')"),
    ("constraint",): ("CONSTRAINT", "only NOT NULL is checked"),
    ("foreign", "key"): ("FOREIGN KEY", "only NOT NULL is checked"),
}
_UNSUPPORTED_AFTER_COLUMNS = {
    "partitioned": ("PARTITIONED BY", "WITH (key = 'id', partitions = 4)"),
    "using": ("USING", "the log keeps it: leave it out; options go into WITH (...)"),
    "clustered": ("CLUSTERED BY", "WITH (key = 'id', partitions = 4)"),
    "tblproperties": ("TBLPROPERTIES", "options go into WITH (...)"),
    "options": ("OPTIONS", "options go into WITH (...)"),
    "location": ("LOCATION", "it is in the log: penstock run --log PATH"),
    "comment": ("COMMENT", "write a comment: -- ..."),
    "as": ("CREATE TABLE ... AS SELECT", "CREATE VIEW name AS SELECT ... keeps what a query gives"),
    "like": ("LIKE", "write the columns"),
}


class Declarations(Protocol):
    """What SQL needs of an app: to declare in it, and to find what was declared, also in Python.

    The methods are the Python verbs, with their checks; `named` has every topic, table and view.
    """

    @property
    def plan(self) -> Plan: ...

    @property
    def named(self) -> Mapping[str, Stream | Table]: ...

    @property
    def topic(self) -> Callable[..., Stream]: ...

    @property
    def table(self) -> Callable[..., Table]: ...

    @property
    def capture(self) -> Callable[..., Stream | Table]: ...

    def view(self, name: str, rows: Stream | Table) -> None: ...

    @property
    def sink(self) -> Callable[..., None]: ...


def create(span: Span, app: Declarations) -> Rows:
    """Declare what the statement says, and return it."""
    reader = TokenReader(span, "create")
    reader.expect("create")
    kind = reader.peek()
    if kind in _UNSUPPORTED_KINDS:
        why, hint = _UNSUPPORTED_KINDS[kind]
        words = "CREATE OR REPLACE" if kind == "or" else f"CREATE {kind.upper()}"
        raise span.refusal("create", f"{words} is not supported: {why}", hint)
    if kind not in _KINDS:
        raise reader.unexpected("TOPIC, TABLE, VIEW or SINK", closest(kind, _KINDS))
    reader.take()
    if reader.follows("if", "not", "exists"):
        raise reader.refusal(
            "IF NOT EXISTS is not needed: declaring a topic again in the same way gives the same one", "leave it out"
        )
    reader.what = f"create {kind}"
    match kind:
        case "view":
            return _create_view(reader, span, app)
        case "sink":
            return _create_sink(reader, span, app)
    return _create_source(reader, span, app, kind)


def _create_view(reader: TokenReader, span: Span, app: Declarations) -> Rows:
    name = reader.name("the name of the view")
    if reader.peek() == "(":
        raise reader.refusal("the columns of a view are named in its query", "CREATE VIEW v AS SELECT a AS b ...")
    reader.expect("as", hint="CREATE VIEW name AS SELECT ...")
    if name in app.named and name.lower() not in {view.name.lower() for view in app.plan.views}:
        raise span.refusal(
            f"view '{name}'", "there is a topic or a table of this name, and FROM must know which is meant"
        )
    rows = require_rows(translate(parse_query(reader.rest), app.named))
    with span.declaring_here():
        app.view(name, rows)
    return rows


def _create_sink(reader: TokenReader, span: Span, app: Declarations) -> Rows:
    name = reader.name("the name of the sink")
    destination = _read_destination(reader) if reader.accept("with") else None
    reader.expect("as", hint="CREATE SINK name WITH (to = topic('name')) AS SELECT ...")
    rows = require_rows(translate(parse_query(reader.rest), app.named))
    with span.declaring_here():
        app.sink(name, rows, to=destination)
    return rows


def _create_source(reader: TokenReader, span: Span, app: Declarations, kind: str) -> Rows:
    declare: Callable[..., Rows] = app.topic if kind == "topic" else app.table
    name = reader.dotted_name(f"the name of the {kind}")
    _refuse_after_columns(reader)
    columns = None if reader.peek() == "with" else reader.in_parentheses()
    if columns is not None:
        _refuse_in_columns(columns, reader.what)
    _refuse_after_columns(reader)
    options = _read_options(reader, _source_options(declare, kind)) if reader.accept("with") else {}
    _refuse_after_columns(reader)
    reader.expect_end()
    if name in {view.name for view in app.plan.views}:
        raise span.refusal(f"{kind} '{name}'", "there is a view of this name, and FROM must know which is meant")
    if kind == "topic":
        options = _with_event_time(options, span, f"topic '{name}'")
    if "url" in options:
        with span.declaring_here():
            return _capture(app, kind, name, columns, options)
    _refuse_source_options(options, columns, span, f"{kind} '{name}'")
    with span.declaring_here():
        return declare(name, schema=str(columns), **options)


def _capture(app: Declarations, kind: str, name: str, columns: Span | None, options: dict[str, Any]) -> Rows:
    """A source with a `url`: a TABLE is a table of the database, of its own name unless `table` says which."""
    if kind == "table":
        options.setdefault("table", name)
    schema = None if columns is None else str(columns)
    return app.capture(name=name, schema=schema, **options)


def _refuse_source_options(options: Mapping[str, object], columns: Span | None, span: Span, what: str) -> None:
    """Refuse what a source of the log cannot have, or lacks."""
    for option in _CAPTURE_OPTIONS:
        if option in options:
            hint = f"WITH (url = 'postgresql://localhost/shop', {option} = '...')"
            raise span.refusal(what, f"{option} is for what is captured, and there is no url", hint)
    if columns is None:
        hint = "CREATE TABLE name (id BIGINT) WITH (...); only with url = '...' they may be those of a database"
        raise span.refusal(what, "its columns are missing", hint)
    if what.startswith("table") and "key" not in options:
        raise span.refusal(what, "a table needs a key; found none", "WITH (key = 'id')")


def _with_event_time(options: dict[str, Any], span: Span, what: str) -> dict[str, Any]:
    """The options of a topic, with all that speak of its time as one: `ps.event_time(...)`."""
    about_time = {name: options.pop(name) for name in _EVENT_TIME_OPTIONS if name in options}
    if not about_time:
        return options
    if "time" not in options:
        option = next(iter(about_time))
        raise span.refusal(what, f"{option} needs events with a time", f"WITH (time = 'at', {option} = '...')")
    with span.reading(what):
        return {**options, "time": make_timing(str(options["time"]), **about_time)}


def _refuse_in_columns(columns: Span, what: str) -> None:
    for number in range(len(columns)):
        for words, (name, hint) in _UNSUPPORTED_IN_COLUMNS.items():
            if columns.keywords[number : number + len(words)] == words:
                raise columns.cut(number).refusal(what, f"{name} is not supported", hint)


def _refuse_after_columns(reader: TokenReader) -> None:
    if reader.peek() in _UNSUPPORTED_AFTER_COLUMNS:
        name, hint = _UNSUPPORTED_AFTER_COLUMNS[reader.peek()]
        raise reader.refusal(f"{name} is not supported", hint)


# -- options ----------------------------------------------------------------------------------------------------------


def _source_options(declare: Callable[..., object], kind: str) -> list[str]:
    """The options of WITH, which are the parameters of the methods that declare and of `ps.event_time`."""
    known = [name for name in inspect.signature(declare).parameters if name not in ("name", "schema", "lateness")]
    of_kind = _EVENT_TIME_OPTIONS if kind == "topic" else []
    other = "table" if kind == "topic" else "outbox"
    captured = [name for name in _CAPTURE_OPTIONS if name != other]
    return [*known, *of_kind, "url", *captured]


def _read_options(reader: TokenReader, known: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in split_at_commas(reader.in_parentheses()):
        name, span = _split_option(part, reader.what)
        _check_option(name, known, options, part, reader.what)
        value = read_value(span, reader.what)
        _check_value(name, value, part, reader.what)
        options[name] = _split_columns(str(value)) if name in _LISTS else value
    return options


def _check_option(name: str, known: list[str], options: Mapping[str, object], span: Span, what: str) -> None:
    if name not in known:
        hint = closest(name, known)
        raise span.refusal(what, f"there is no option '{name}'; there are {', '.join(known)}", hint)
    if name in options:
        raise span.refusal(what, f"option '{name}' is given twice")


def _check_value(name: str, value: object, span: Span, what: str) -> None:
    if name == "partitions" and not isinstance(value, int):
        hint = "whole numbers are written without quotes: partitions = 4"
        raise span.refusal(what, f"option 'partitions' is a whole number; found the text '{value}'", hint)
    if name != "partitions" and not isinstance(value, str):
        hint = f"texts are written in quotes: {name} = '...'"
        raise span.refusal(what, f"option '{name}' is a text; found the number {value}", hint)


def _split_option(span: Span, what: str) -> tuple[str, Span]:
    """The name of an option, and its value."""
    if len(span) < 3 or span.keywords[1] != "=":
        raise span.refusal(
            what, f"an option is written name = value; found '{span}'", "WITH (key = 'id', partitions = 4)"
        )
    first = span.tokens[0]
    name = literal_value(first) if is_literal(first) else name_of(first)
    return name.lower(), span.cut(2)


def read_value(span: Span, what: str) -> object:
    """A value of WITH or SET: a text or a whole number."""
    token = span.tokens[0] if len(span) == 1 else None
    if token is not None and is_literal(token):
        return literal_value(token)
    if token is not None and token.raw.isdecimal():
        return int(token.raw)
    raise span.refusal(what, f"a value is a text in quotes or a whole number; found '{span}'")


def _split_columns(text: str) -> str | list[str]:
    names = [name.strip() for name in text.split(",")]
    return names[0] if len(names) == 1 else names


# -- destinations of sinks --------------------------------------------------------------------------------------------


def _read_destination(reader: TokenReader) -> str | SinkTopic:
    """What WITH says of a sink: `to` a URL, or `to` a topic, as `ps.topic` in Python."""
    options: dict[str, str | SinkTopic] = {}
    for part in split_at_commas(reader.in_parentheses()):
        name, value = _split_option(part, reader.what)
        if name in ("topic", "partitions"):
            raise part.refusal(reader.what, f"there is no option '{name}'; there is to", _TOPIC_DESTINATION)
        _check_option(name, ["to"], options, part, reader.what)
        options[name] = _read_topic(value, reader.what) or _read_url(value, reader.what)
    return options["to"]


def _read_topic(span: Span, what: str) -> SinkTopic | None:
    """`topic('alerts', partitions = 2)`. None: it is something else."""
    reader = TokenReader(span, what)
    if not reader.accept("topic"):
        return None
    name, *parts = split_at_commas(reader.in_parentheses())
    reader.expect_end(_TOPIC_DESTINATION)
    options: dict[str, Any] = {}
    for part in parts:
        option, value = _split_option(part, what)
        _check_option(option, ["partitions"], options, part, what)
        options[option] = read_value(value, what)
        _check_value(option, options[option], part, what)
    if len(name) != 1 or not is_literal(name.tokens[0]):
        raise span.refusal(what, f"the name of a topic is a text in quotes; found '{name}'", _TOPIC_DESTINATION)
    with span.declaring_here():
        return topic(literal_value(name.tokens[0]), **options)


def _read_url(span: Span, what: str) -> str:
    if len(span) != 1 or not is_literal(span.tokens[0]):
        raise span.refusal(what, f"to is a topic or the URL of a target; found '{span}'", _TOPIC_DESTINATION)
    url = literal_value(span.tokens[0])
    if ":" not in url:
        hint = f"for a topic of the log: WITH (to = topic('{url}')); a URL: WITH (to = 'sqlite:///{url}.db')"
        raise span.refusal(what, f"to: a target is a URL; found '{url}'", hint)
    return url
