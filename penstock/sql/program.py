"""Programs in SQL: one statement given to `app.sql`, or a file of statements that declares an app."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from penstock.errors import DeclarationError
from penstock.flow.explain import explain
from penstock.flow.names import check_app_name
from penstock.flow.place import shown
from penstock.flow.plan import Place, Plan, View
from penstock.flow.settings import AppSettings
from penstock.log.ddl import closest
from penstock.sql.create import create, setting
from penstock.sql.declarations import Declarations
from penstock.sql.queries import read_query
from penstock.sql.reader import Reader
from penstock.sql.scope import Rows, complete
from penstock.sql.select import translated
from penstock.sql.statements import statements, unknown
from penstock.sql.text import Span, Text

AnyApp = TypeVar("AnyApp", bound=Declarations)


def declare(app: Declarations, content: object, place: Place) -> Rows | str:
    """What one statement gives: the rows that it declares or selects, or the text of an EXPLAIN."""
    if not isinstance(content, str):
        raise DeclarationError(f"{place}: sql: a text is needed; found {content!r}")
    text = Text(content, place, in_python=True)
    found = statements(text)
    if len(found) != 1:
        at = found[1].at if found else 0
        raise text.refusal(at, "sql", f"one statement is needed; found {len(found)}", "call app.sql(...) for each")
    statement = found[0]
    match statement.keywords[0]:
        case "create":
            return create(statement, app)
        case "select" | "with" | "(":
            return complete(translated(read_query(statement), app.named))
        case "explain":
            return _explained(statement, app)
        case "set":
            raise statement.refusal("set", "SET is for files", "App(name, settings=AppSettings(max_rows=...))")
    raise unknown(statement)


def program(content: str, file: str, make: Callable[[AppSettings], AnyApp]) -> AnyApp:
    """The app that a file declares; `make` gives the empty one, with the settings that the file begins with."""
    text = Text(content, Place(shown(file), 1))
    found = statements(text)
    settings: dict[str, Any] = {}
    while found and found[0].keywords[0] == "set":
        _set(found.pop(0), settings)
    with text.at(0):
        app = make(AppSettings(**settings))
    for statement in found:
        _declare(statement, app)
    return app


def app_name(file: str, stem: str) -> str:
    """The name of the app that a file declares: its own, without the ending."""
    try:
        check_app_name(stem)
    except DeclarationError as error:
        raise DeclarationError(
            f"{file}: an app in SQL has the name of its file, and {stem!r} cannot be one",
            hint=f"rename the file: {error.hint}",
        ) from None
    return stem


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
            file = statement.text.place.file
            raise statement.refusal("sql", "EXPLAIN declares nothing", f"penstock explain {file}")
        case "set":
            raise statement.refusal("set", "SET stands at the beginning of the file, before all declarations")
        case _:
            raise unknown(statement)


def _set(statement: Span, settings: dict[str, Any]) -> None:
    reader = Reader(statement, "set")
    reader.take()
    known = [field.name for field in fields(AppSettings)]
    name = reader.name("a setting").lower()
    if name not in known:
        raise statement.refusal(
            "set", f"there is no setting '{name}'; there are {', '.join(known)}", closest(name, known)
        )
    if name in settings:
        raise statement.refusal("set", f"'{name}' is set twice")
    reader.expect("=", hint="SET max_rows = 100000")
    settings[name] = setting(reader.here, "set")
    with statement.declaring("set"):
        AppSettings(**{name: settings[name]})


def _explained(statement: Span, app: Declarations) -> str:
    """What `penstock explain` prints, of one view, sink or query."""
    what = statement.cut(1)
    if what.keywords[:1] and what.keywords[0] in ("select", "with", "("):
        rows, name = complete(translated(read_query(what), app.named)), "select"
    else:
        reader = Reader(what, "explain")
        name = str(reader.dotted("a name or a query")).replace("`", "").replace(" ", "")
        reader.end()
        sinks = {sink.name: sink for sink in app.plan.sinks}
        if name in sinks:
            return explain(Plan(app.plan.app, (sinks[name],)))
        if name not in app.named:
            known = [*app.named, *sinks]
            found = f"there is no '{name}'; there are {', '.join(known) or 'none'}"
            raise what.refusal("explain", found, closest(name, known))
        rows = app.named[name]
    declared = {view.name: view.place for view in app.plan.views}
    place = declared.get(name, statement.text.place)
    return explain(Plan(app.plan.app, (View(name, rows.node, place),)))
