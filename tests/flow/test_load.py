"""Running a user's program to see what it declares."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import App
from penstock.app import load_app
from penstock.errors import DeclarationError

SHOP = """
from penstock import App
app = App("shop")
orders = app.topic("orders", schema="a bigint")
app.view("all_orders", orders)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a program; what it does to sys.path is undone at the end."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text: str) -> Path:
        path = tmp_path / "shop.py"
        path.write_text(text)
        return path

    return write


def test_the_app_of_a_file_is_found(program: Callable[[str], Path]) -> None:
    app = load_app(program(SHOP + "same = app\n"))
    assert app.name == "shop"
    assert [view.name for view in app.plan.views] == ["all_orders"]
    assert str(app.plan.views[0].location).endswith("shop.py:5")


def test_a_program_may_import_its_neighbours_and_is_not_started(program: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_shop.py").write_text("NAME = 'shop-2'\n")
    text = "from neighbour_of_shop import NAME\nfrom penstock import App\napp = App(NAME)\n"
    assert load_app(program(text + "if __name__ == '__main__':\n    raise SystemExit('started')\n")).name == "shop-2"


def test_functions_of_the_program_can_be_sent_to_workers(program: Callable[[str], Path]) -> None:
    from pyspark import cloudpickle

    app = load_app(program(SHOP + "LIMIT = 3\ndef f(x):\n    return x + LIMIT\napp.f = f\n"))
    sent = cloudpickle.loads(cloudpickle.dumps(app.f))  # type: ignore[attr-defined]
    assert sent(1) == 4


def test_one_of_several_apps_is_chosen_by_its_name(program: Callable[[str], Path]) -> None:
    path = program("from penstock import App\na = App('one')\nb = App('two')\n")
    with pytest.raises(DeclarationError) as refused:
        load_app(path)
    assert refused.value.message == f"{path}: it declares several apps; found one, two"
    assert refused.value.hint == "choose one with --app NAME"
    assert load_app(path, name="two").name == "two"
    assert load_app(path, name="a").name == "one"
    with pytest.raises(DeclarationError, match="there is no app 'three'; found one, two"):
        load_app(path, name="three")


def test_a_file_without_an_app_is_refused(program: Callable[[str], Path]) -> None:
    with pytest.raises(DeclarationError, match="it declares no app"):
        load_app(program("import penstock\n"))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"nowhere\.py: there is no such file"):
        load_app(tmp_path / "nowhere.py")
    with pytest.raises(DeclarationError, match="it cannot be read"):
        load_app(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = nothing\n", "shop.py:2: NameError: name 'nothing' is not defined"),
        ("def f():\n    return 1 / 0\n\nf()\n", "shop.py:2: ZeroDivisionError: division by zero"),
        ("import json\njson.loads('{')\n", "shop.py:2: JSONDecodeError: Expecting property name"),
        ("x = (\n", "shop.py:1: SyntaxError: '(' was never closed"),
        ("raise SystemExit(3)\n", "shop.py:1: the program called exit"),
        ("raise ValueError\n", "shop.py:1: ValueError"),
    ],
)
def test_a_mistake_in_the_program_is_told_with_its_line(
    program: Callable[[str], Path], text: str, message: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        load_app(program(text))
    assert message in refused.value.message


def test_a_function_of_pyspark_in_a_declaration_is_answered_with_what_to_write(program: Callable[[str], Path]) -> None:
    path = program("from pyspark.sql import functions as F\n\nF.when('amount', 1)\n")
    with pytest.raises(DeclarationError, match=r"shop\.py:3: a function of PySpark was called") as raised:
        load_app(path)
    assert "expressions are Spark SQL strings" in str(raised.value.hint)


def test_a_mistake_in_a_declaration_is_told_as_it_is(program: Callable[[str], Path]) -> None:
    with pytest.raises(DeclarationError) as refused:
        load_app(program(SHOP + "orders.where('b > 1')\n"))
    assert refused.value.message.endswith("shop.py:6: where: there is no column 'b'; there are a")


def test_nothing_of_the_program_stays_behind(program: Callable[[str], Path]) -> None:
    before = set(sys.modules)
    assert isinstance(load_app(program(SHOP)), App)
    assert set(sys.modules) - before == set()
