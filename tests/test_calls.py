"""Wrong arguments are answered in a sentence, and the traceback of an error ends soon after the user's own line."""

from __future__ import annotations

import inspect
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import App, Log, Stream, Table, tumbling
from penstock.calls import answer_call, answer_methods, whole_tracebacks
from penstock.errors import DEBUG, DeclarationError, PenstockError
from penstock.flow.groups import Groups, RankedGroups, WindowedRows


@pytest.fixture
def app() -> App:
    return App("home")


@pytest.fixture
def readings(app: App) -> Stream:
    return app.topic("readings", schema="room string, celsius double, at timestamp", time="at")


def refusal(call: Any) -> DeclarationError:
    with pytest.raises(DeclarationError) as refused:
        call()
    assert "test_calls.py:" in refused.value.message
    return refused.value


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda rows: rows.top(by="celsius"), "top: 'n' is missing", "for example: .top(10, by="),
        (lambda rows: rows.top(3), "top: 'by' is missing", "for example: .top(10, by="),
        (lambda rows: rows.top(3, "celsius"), "'by' is given by its name; found 'celsius'", 'write by="celsius"'),
        (lambda rows: rows.top(3, by="at", desc=True), "there is no parameter 'desc'", 'by="price desc"'),
        (lambda rows: rows.group_by("room").top(3), "top: 'by' is missing", '.group_by("category").top(10, by='),
        (lambda rows: rows.window(), "window: 'window' is missing", '.window(tumbling("1 minute"))'),
        (lambda rows: rows.window(size="1 hour"), "no parameter 'size'", 'write .window(tumbling("1 minute"))'),
        (lambda rows: rows.window(tumbling("1 hour"), lateness="1 s"), "no parameter 'lateness'", "with the topic"),
        (lambda rows: rows.where(), "where: 'condition' is missing", "for example: .where("),
        (lambda rows: rows.where("1 = 1", "2 = 2"), "where: it takes one argument; found 2", "100 and country"),
        (lambda rows: rows.where(room="a"), "no parameter 'room'; there is condition", "for example: .where("),
        (lambda rows: rows.distinct(wihtin="1 hour"), "no parameter 'wihtin'", "did you mean 'within'?"),
        (
            lambda rows: rows.latest(key="room"),
            "'key'; all arguments are given without a name",
            '.latest("customer_id")',
        ),
        (lambda rows: rows.drop(columns=["room"]), "no parameter 'columns'", 'write .drop("note")'),
        (lambda rows: rows.join(), "join: 'other' is missing", "for example: searches.join("),
        (lambda rows: rows.join(rows, "room", "left", "1 h"), "given by name; found '1 h' without one", ".join("),
        (lambda rows: rows.join(rows, left_on="a", right_on="b"), "no parameter 'left_on'", 'on={"customer_id": "id"}'),
        (lambda rows: rows.map(shema="a int"), "no parameter 'shema'", "did you mean 'schema'?"),
        (lambda rows: rows.latest("room").changes(1), "changes: it takes no argument; found 1", ""),
        (lambda rows: tumbling(), "tumbling: 'size' is missing", "for example: tumbling("),
        (lambda rows: tumbling("1 hour", emit="changes"), "no parameter 'emit'", "a parameter of .window"),
        (lambda rows: ps.hopping("1 hour"), "hopping: 'every' is missing", "for example: hopping("),
        (lambda rows: ps.session(), "session: 'gap' is missing", "for example: session("),
        (lambda rows: ps.event_time(), "event_time: 'column' is missing", 'ps.event_time("placed_at"'),
        (lambda rows: ps.AppSettings(max_row=1), "AppSettings: there is no parameter", "did you mean 'max_rows'?"),
        (lambda rows: App(), "App: 'name' is missing", 'for example: App("shop"'),
        (lambda rows: App("shop", "data"), "'log' and 'settings' are given by name", 'App("shop", log='),
        (lambda rows: App("shop", name="x"), "'name' is given twice; found 'shop' and 'x'", ""),
        (lambda rows: App("shop", folder="x"), "no parameter 'folder'", "log="),
        (lambda rows: App("shop", max_rows=1), "no parameter 'max_rows'", "settings=ps.AppSettings(max_rows=...)"),
    ],
)
def test_a_wrong_argument_of_a_verb_is_answered(readings: Stream, call: Any, message: str, hint: str) -> None:
    refused = refusal(lambda: call(readings))
    assert message in refused.message
    assert hint in str(refused.hint)


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda app: app.view("hot"), "view 'hot': 'rows' is missing", 'for example: app.view("revenue", revenue)'),
        (lambda app: app.view(), "view: 'name' and 'rows' are missing", "app.view("),
        (lambda app: app.view("hot", 1, key="room"), "no parameter 'key'", "the key of its rows"),
        (lambda app: app.sink("hot"), "sink 'hot': 'rows' is missing", "app.sink("),
        (lambda app: app.topic("t"), "topic 't': 'schema' is missing", "for example: app.topic("),
        (lambda app: app.topic("t", "x int"), "'schema' is given by its name; found 'x int'", 'write schema="x int"'),
        (lambda app: app.topic("t", schema="x int", idle="1 s"), "no parameter 'idle'", "ps.event_time("),
        (lambda app: app.topic("t", schema="x int", durability="os"), "no parameter 'durability'", "topic create"),
        (lambda app: app.table("t", schema="x int"), "table 't': 'key' is missing", "for example: app.table("),
        (lambda app: app.run(onec=True), "run: there is no parameter 'onec'", "did you mean 'once'?"),
        (lambda app: app.get("hot"), "get: 'key' is missing", "for example: app.get("),
        (lambda app: app.query(), "query: 'sql' is missing", "for example: app.query("),
        (lambda app: app.read("hot", column="x"), "no parameter 'column'", "did you mean 'columns'?"),
    ],
)
def test_a_wrong_argument_of_an_app_is_answered(app: App, call: Any, message: str, hint: str) -> None:
    refused = refusal(lambda: call(app))
    assert message in refused.message
    assert hint in str(refused.hint)


def test_the_log_answers_too(tmp_path: Path) -> None:
    anything: Any = Log
    with pytest.raises(DeclarationError, match="Log: 'path' is missing"):
        anything()
    with Log(tmp_path) as log:
        log.create_topic("readings", "room string")
        topic: Any = log.topic("readings")
        with pytest.raises(DeclarationError, match="append: there is no parameter 'row'") as refused:
            topic.append(row={"room": "a"})
        assert refused.value.hint == "did you mean 'rows'?"
    settings: Any = ps.TopicSettings
    with pytest.raises(DeclarationError, match="there is no parameter 'partition'"):
        settings(partition=2)


@pytest.mark.parametrize("kind", [App, Stream, Table, Groups, RankedGroups, WindowedRows])
def test_no_public_verb_answers_with_a_type_error(kind: type) -> None:
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        takes_any = inspect.Parameter.VAR_KEYWORD in {
            each.kind for each in inspect.signature(method).parameters.values()
        }
        if not name.startswith("_") and not takes_any:
            with pytest.raises(DeclarationError, match="there is no parameter 'no_such_parameter'"):
                method(object.__new__(kind), 1, 2, 3, 4, 5, 6, 7, no_such_parameter=object())


def test_a_type_error_inside_of_a_function_is_left_alone() -> None:
    @answer_call()
    def fail() -> None:
        len(1)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        fail()


# -- tracebacks -------------------------------------------------------------------------------------------------------


@answer_methods()
class Outer:
    def fail(self) -> None:
        self._deeper()

    def _deeper(self) -> None:
        try:
            raise LookupError
        except LookupError:
            raise PenstockError("it failed", hint="try this")  # noqa: B904 - the context is what the test is about


def test_a_traceback_has_one_frame_of_penstock_and_ends_with_the_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEBUG, raising=False)
    with pytest.raises(PenstockError) as raised:
        Outer().fail()
    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)][1:] == ["call"]
    shown = "".join(traceback.format_exception(raised.value))
    assert "LookupError" not in shown
    assert shown.endswith("penstock.errors.PenstockError: it failed\n  hint: try this\n")
    with whole_tracebacks(), pytest.raises(PenstockError) as raised:
        Outer().fail()
    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)][1:] == ["call", "fail", "_deeper"]


def test_a_script_ends_with_the_sentence_and_the_hint_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DEBUG, raising=False)
    program = 'import penstock as ps\napp = ps.App("home")\nrooms = app.topic("r", schema="room string")\n'
    no_app = "error: app 'home': there is no app of this name in this log, or it has not run yet; found no folder"
    start = "hint: start it with app.run(), or with: penstock run FILE"
    endings = {
        'rooms.where("rom = 1")': [
            "error: home.py:4: where: there is no column 'rom'; there are room",
            "hint: did you mean 'room'?",
        ],
        "rooms.where()": ["error: home.py:4: where: 'condition' is missing", "hint: for example: .where("],
        "rooms.rom": ["error: home.py:4: Stream has no 'rom'", "hint: "],
        "rooms[1]": ["error: home.py:4: rows: columns are not taken with brackets; found [1]", "hint: "],
        "ps.apps": ["error: home.py:4: penstock has no 'apps'", "hint: did you mean 'App'?"],
        'app.query("select 1")': [no_app, start, '  at home.py:4: app.query("select 1")'],
        'list(app.changes("r"))': [no_app, start, '  at home.py:4: list(app.changes("r"))'],
        'ps.Log("log").topic("r")': ["error: topic 'r'", "hint: ", '  at home.py:4: ps.Log("log").topic("r")'],
    }
    for line, expected in endings.items():
        (tmp_path / "home.py").write_text(program + line)
        shown = _errors_of(tmp_path, "home.py").splitlines()
        assert len(shown) == len(expected), shown
        assert all(found.startswith(wanted) for found, wanted in zip(shown, expected, strict=True)), shown


def test_a_script_that_asks_for_it_and_an_error_of_another_kind_end_with_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home.py").write_text('import penstock as ps\nps.App("a b")')
    monkeypatch.setenv(DEBUG, "1")
    assert _errors_of(tmp_path, "home.py").startswith("Traceback (most recent call last):")
    monkeypatch.delenv(DEBUG)
    (tmp_path / "home.py").write_text(
        'import penstock as ps\ntry:\n    ps.App("a b")\nexcept ps.PenstockError:\n    pass\n1 / 0'
    )
    assert _errors_of(tmp_path, "home.py").startswith("Traceback (most recent call last):")


def test_a_notebook_shows_the_sentence_and_the_hint_unless_all_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEBUG, raising=False)
    error = PenstockError("the disk is full", hint="make space")
    assert error._render_traceback_() == ["error: the disk is full", "hint: make space"]
    assert PenstockError("the disk is full")._render_traceback_() == ["error: the disk is full"]
    monkeypatch.setenv(DEBUG, "1")
    with pytest.raises(NotImplementedError):  # IPython then shows its own traceback
        error._render_traceback_()


def _errors_of(folder: Path, program: str) -> str:
    command = [sys.executable, program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60).stderr
