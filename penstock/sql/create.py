"""CREATE TOPIC, TABLE, VIEW and SINK as `app.topic`, `app.table`, `app.view` and `app.sink`."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from penstock.log.ddl import closest
from penstock.sql.declarations import Declarations
from penstock.sql.queries import read_query
from penstock.sql.reader import Reader
from penstock.sql.scope import Rows, complete
from penstock.sql.select import translated
from penstock.sql.text import Span, is_literal, literal, name_of, parts

_KINDS = ["topic", "table", "view", "sink"]
_OTHERS = {
    "function": ("functions are not made in SQL", "use .map(...) in Python, or an expression of Spark"),
    "stream": ("a stream is a topic", "CREATE TOPIC name (...) WITH (...)"),
    "materialized": ("all views are kept", "CREATE VIEW name AS SELECT ..."),
    "temporary": ("what has a name stays", "WITH name AS (SELECT ...) is for one query"),
    "temp": ("what has a name stays", "WITH name AS (SELECT ...) is for one query"),
    "global": ("what has a name stays", "WITH name AS (SELECT ...) is for one query"),
    "external": ("a table is a topic of the log", "CREATE TABLE name (...) WITH (key = ...)"),
    "source": ("a source is a topic of the log", "CREATE TOPIC name (...) WITH (...)"),
    "index": ("a view is found by its key", "leave it out"),
    "or": ("what changed is built again at the next start", "CREATE without OR REPLACE"),
}
_IN_COLUMNS = {
    ("primary", "key"): ("PRIMARY KEY", "WITH (key = 'id')"),
    ("watermark", "for"): ("WATERMARK FOR", "WITH (time = 'at', lateness = '5 seconds')"),
    ("constraint",): ("CONSTRAINT", "only NOT NULL is checked"),
    ("foreign", "key"): ("FOREIGN KEY", "only NOT NULL is checked"),
}
_BEHIND_COLUMNS = {
    "partitioned": ("PARTITIONED BY", "WITH (key = 'id', partitions = 4)"),
    "using": ("USING", "the log keeps it: leave it out; options stand in WITH (...)"),
    "clustered": ("CLUSTERED BY", "WITH (key = 'id', partitions = 4)"),
    "tblproperties": ("TBLPROPERTIES", "options stand in WITH (...)"),
    "options": ("OPTIONS", "options stand in WITH (...)"),
    "location": ("LOCATION", "it is in the log: penstock run --log PATH"),
    "comment": ("COMMENT", "write a comment: -- ..."),
    "as": ("CREATE TABLE ... AS SELECT", "CREATE VIEW name AS SELECT ... keeps what a query gives"),
    "like": ("LIKE", "write the columns"),
}


def create(span: Span, app: Declarations) -> Rows:
    """Declare what a statement says, and return it."""
    reader = Reader(span, "create")
    reader.expect("create")
    kind = reader.peek()
    if kind in _OTHERS:
        why, hint = _OTHERS[kind]
        shown = "CREATE OR REPLACE" if kind == "or" else f"CREATE {kind.upper()}"
        raise span.refusal("create", f"{shown} is not there: {why}", hint)
    if kind not in _KINDS:
        raise reader.unexpected("TOPIC, TABLE, VIEW or SINK", closest(kind, _KINDS))
    reader.take()
    if reader.follows("if", "not", "exists"):
        raise reader.refusal(
            "IF NOT EXISTS is not there: to declare a topic again in the same way gives the same", "leave it out"
        )
    reader.what = f"create {kind}"
    match kind:
        case "view":
            return _view(reader, span, app)
        case "sink":
            return _sink(reader, span, app)
    return _source(reader, span, app, kind)


def _view(reader: Reader, span: Span, app: Declarations) -> Rows:
    name = reader.name("the name of the view")
    if reader.peek() == "(":
        raise reader.refusal("the columns of a view are named in its query", "CREATE VIEW v AS SELECT a AS b ...")
    reader.expect("as", hint="CREATE VIEW name AS SELECT ...")
    if name in app.named and name.lower() not in {view.name.lower() for view in app.plan.views}:
        raise span.refusal(
            f"view '{name}'", "there is a topic or a table of this name, and FROM must know which is meant"
        )
    rows = complete(translated(read_query(reader.here), app.named))
    with span.text.at(span.at):
        app.view(name, rows)
    return rows


def _sink(reader: Reader, span: Span, app: Declarations) -> Rows:
    name = reader.name("the name of the sink")
    options = _options(reader, app.sink) if reader.accept("with") else {}
    reader.expect("as", hint="CREATE SINK name WITH (topic = 'name') AS SELECT ...")
    rows = complete(translated(read_query(reader.here), app.named))
    with span.text.at(span.at):
        app.sink(name, rows, **options)
    return rows


def _source(reader: Reader, span: Span, app: Declarations, kind: str) -> Rows:
    declare: Callable[..., Rows] = app.topic if kind == "topic" else app.table
    name = str(reader.dotted(f"the name of the {kind}")).replace("`", "").replace(" ", "")
    if reader.peek() in _BEHIND_COLUMNS:
        _refuse_behind(reader)
    columns = reader.enclosed()
    _refuse_in_columns(columns, reader.what)
    if reader.peek() in _BEHIND_COLUMNS:
        _refuse_behind(reader)
    options = _options(reader, declare) if reader.accept("with") else {}
    if not reader.at_end and reader.peek() in _BEHIND_COLUMNS:
        _refuse_behind(reader)
    reader.end()
    if kind == "table" and "key" not in options:
        raise span.refusal(f"table '{name}'", "a table needs a key; found none", "WITH (key = 'id')")
    if name in {view.name for view in app.plan.views}:
        raise span.refusal(f"{kind} '{name}'", "there is a view of this name, and FROM must know which is meant")
    with span.text.at(span.at):
        return declare(name, schema=str(columns), **options)


def _refuse_in_columns(columns: Span, what: str) -> None:
    for number in range(len(columns)):
        for words, (name, hint) in _IN_COLUMNS.items():
            if columns.keywords[number : number + len(words)] == words:
                raise columns.cut(number).refusal(what, f"{name} is not there", hint)


def _refuse_behind(reader: Reader) -> None:
    name, hint = _BEHIND_COLUMNS[reader.peek()]
    raise reader.refusal(f"{name} is not there", hint)


# -- options ----------------------------------------------------------------------------------------------------------


def _options(reader: Reader, declare: Callable[..., object]) -> dict[str, object]:
    """The options of WITH: the parameters of the method that declares."""
    known = [name for name in inspect.signature(declare).parameters if name not in ("name", "schema", "rows")]
    options: dict[str, object] = {}
    for part in parts(reader.enclosed()):
        name, value = _option(part, reader.what)
        if name not in known:
            hint = closest(name, known)
            raise part.refusal(reader.what, f"there is no option '{name}'; there are {', '.join(known)}", hint)
        if name in options:
            raise part.refusal(reader.what, f"option '{name}' is said twice")
        _check_value(name, value, part, reader.what)
        options[name] = _columns(str(value)) if name == "key" else value
    return options


def _check_value(name: str, value: object, span: Span, what: str) -> None:
    if name == "partitions" and not isinstance(value, int):
        hint = "whole numbers are written without quotes: partitions = 4"
        raise span.refusal(what, f"option 'partitions' is a whole number; found the text '{value}'", hint)
    if name != "partitions" and not isinstance(value, str):
        hint = f"texts are written in quotes: {name} = '...'"
        raise span.refusal(what, f"option '{name}' is a text; found the number {value}", hint)


def _option(span: Span, what: str) -> tuple[str, object]:
    if len(span) != 3 or span.keywords[1] != "=":
        raise span.refusal(
            what, f"an option is written name = value; found '{span}'", "WITH (key = 'id', partitions = 4)"
        )
    first = span.tokens[0]
    name = literal(first) if is_literal(first) else name_of(first)
    return name.lower(), setting(span.cut(2), what)


def setting(span: Span, what: str) -> object:
    """A value of WITH or SET: a text or a whole number."""
    token = span.tokens[0] if len(span) == 1 else None
    if token is not None and is_literal(token):
        return literal(token)
    if token is not None and token.raw.isdecimal():
        return int(token.raw)
    raise span.refusal(what, f"a value is a text in quotes or a whole number; found '{span}'")


def _columns(text: str) -> str | list[str]:
    names = [name.strip() for name in text.split(",")]
    return names[0] if len(names) == 1 else names
