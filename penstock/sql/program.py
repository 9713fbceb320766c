"""Programs in SQL: one statement given to `app.sql`, or a file of statements that declares an app."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from penstock.errors import DeclarationError
from penstock.flow.explain import explain
from penstock.flow.location import display_path
from penstock.flow.names import check_app_name
from penstock.flow.plan import Location, Plan, View
from penstock.flow.settings import RENAMED_SETTINGS, AppSettings
from penstock.sql.create import Declarations, create, read_value
from penstock.sql.parse import parse_query
from penstock.sql.reader import TokenReader
from penstock.sql.scope import Rows, require_rows
from penstock.sql.select import translate
from penstock.sql.text import Span, Text
from penstock.sql.unsupported import statement_refusal
from penstock.suggest import closest

AnyApp = TypeVar("AnyApp", bound=Declarations)


def run_statement(app: Declarations, content: object, location: Location) -> Rows:
    """Run one statement: it returns the rows that it declares or selects."""
    if not isinstance(content, str):
        raise DeclarationError(f"{location}: sql: a text is needed; found {content!r}")
    text = Text(content, location, in_python=True)
    statements = _split_statements(text)
    if len(statements) != 1:
        start = statements[1].start if statements else 0
        message = f"one statement is needed; found {len(statements)}"
        raise text.refusal(start, "sql", message, "call app.sql(...) for each")
    statement = statements[0]
    match statement.keywords[0]:
        case "create":
            return create(statement, app)
        case "select" | "with" | "(":
            return require_rows(translate(parse_query(statement), app.named))
        case "explain":
            described = str(statement.cut(1)).replace('"', "'")
            raise statement.refusal("sql", "EXPLAIN gives text, not rows", f'app.explain("{described}")')
        case "set":
            raise statement.refusal("set", "SET is for files", "App(name, settings=AppSettings(max_rows=...))")
    raise statement_refusal(statement)


def declare_app(content: str, file: str, make: Callable[[AppSettings], AnyApp]) -> AnyApp:
    """The app that a file declares; `make` returns an empty one, with the settings at the beginning of the file."""
    text = Text(content, Location(display_path(file), 1))
    statements = _split_statements(text)
    settings: dict[str, Any] = {}
    while statements and statements[0].keywords[0] == "set":
        _read_setting(statements.pop(0), settings)
    with text.declaring_at(0):
        app = make(AppSettings(**settings))
    for statement in statements:
        _declare(statement, app)
    return app


def app_name(file: str, stem: str) -> str:
    """The name of the app that a file declares: that of the file, without the extension."""
    try:
        check_app_name(stem)
    except DeclarationError as error:
        raise DeclarationError(
            f"{file}: an app in SQL has the name of its file, and {stem!r} cannot be one",
            hint=f"rename the file: {error.hint}",
        ) from None
    return stem


def _split_statements(text: Text) -> list[Span]:
    """The statements of a text, which end with semicolons; empty ones are left out."""
    statements: list[Span] = []
    start = 0
    tokens = text.tokens
    for number, token in enumerate([*tokens, None]):
        if token is None or token.raw == ";":
            if number > start:
                statements.append(Span(text, tokens[start:number], tokens[start].start))
            start = number + 1
    return statements


def _declare(statement: Span, app: Declarations) -> None:
    match statement.keywords[0]:
        case "create":
            create(statement, app)
        case "select" | "with" | "(":
            raise statement.refusal(
                "sql",
                "a SELECT alone declares nothing",
                "keep its rows, CREATE VIEW name AS SELECT ...; or ask a view: penstock query",
            )
        case "explain":
            file = statement.text.location.file
            raise statement.refusal("sql", "EXPLAIN declares nothing", f"penstock explain {file}")
        case "set":
            raise statement.refusal("set", "SET belongs at the beginning of the file, before all declarations")
        case _:
            raise statement_refusal(statement)


def _read_setting(statement: Span, settings: dict[str, Any]) -> None:
    """Add the setting of a SET statement to the others."""
    reader = TokenReader(statement, "set")
    reader.take()
    known = [field.name for field in fields(AppSettings)]
    name = reader.name("a setting").lower()
    if name not in known:
        hint = RENAMED_SETTINGS.get(name) or closest(name, known)
        raise statement.refusal("set", f"there is no setting '{name}'; there are {', '.join(known)}", hint)
    if name in settings:
        raise statement.refusal("set", f"'{name}' is set twice")
    reader.expect("=", hint="SET max_rows = 100000")
    settings[name] = read_value(reader.rest, "set")
    with statement.reading("set"):
        AppSettings(**{name: settings[name]})


# -- explaining -------------------------------------------------------------------------------------------------------


def explain_statement(app: Declarations, content: object, location: Location) -> str:
    """What `penstock explain` prints, for the view, sink, topic or table of a name, or for a query."""
    if not isinstance(content, str):
        raise DeclarationError(
            f"{location}: explain: the text of a query or a name is needed; found {content!r}",
            hint='app.explain() for the whole app, app.explain("SELECT ...") for a query',
        )
    text = Text(content, location, in_python=True)
    statements = _split_statements(text)
    if len(statements) != 1:
        raise text.refusal(0, "explain", f"one name or one query is needed; found {len(statements)}")
    statement = statements[0]
    return _explain(statement.cut(1) if statement.keywords[0] == "explain" else statement, app)


def _explain(span: Span, app: Declarations) -> str:
    if span.keywords[:1] and span.keywords[0] in ("select", "with", "("):
        rows, name = require_rows(translate(parse_query(span), app.named)), "select"
    else:
        reader = TokenReader(span, "explain")
        name = reader.dotted_name("a name or a query")
        reader.expect_end("app.explain() explains all that was declared")
        sinks = {sink.name: sink for sink in app.plan.all_sinks}
        if name in sinks:
            return explain(Plan(app.plan.app, (sinks[name],)))
        if name not in app.named:
            known = [*app.named, *sinks]
            message = f"there is no '{name}'; there are {', '.join(known) or 'none'}"
            raise span.refusal("explain", message, closest(name, known))
        rows = app.named[name]
    locations = {view.name: view.location for view in app.plan.views}
    view = View(name, rows.node, locations.get(name, span.text.location))
    return explain(Plan(app.plan.app, (view,)))
