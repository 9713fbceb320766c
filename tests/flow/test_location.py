"""Where something was declared."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from penstock import Stream
from penstock.errors import DeclarationError
from penstock.flow.location import Declaring, caller_location, display_path, override_location
from penstock.flow.plan import Location


def line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_the_location_is_the_users_line(orders: Stream) -> None:
    node = orders.where("amount > 1").node
    assert node.location.line == line() - 1
    assert Path(node.location.file).name == "test_location.py"


def test_each_verb_of_a_chain_has_its_own_line(orders: Stream) -> None:
    last = (
        orders
        .where("amount > 1")
        .drop("tags")
    ).node  # fmt: skip
    assert last.location.line == line() - 2
    assert last.input.location.line == line() - 4  # type: ignore[union-attr]


def test_a_file_below_the_current_folder_is_shown_as_one_would_type_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent)
    assert caller_location().file == "flow/test_location.py"
    monkeypatch.chdir("/")
    monkeypatch.chdir(Path(__file__).parent.parent / "cli")
    assert Path(caller_location().file).is_absolute()


def test_a_refusal_says_location_and_verb_once() -> None:
    with pytest.raises(DeclarationError) as refused, Declaring("where"):
        raise DeclarationError("where: that is wrong", hint="do it right")
    assert refused.value.message.endswith(": where: that is wrong")
    assert refused.value.message.count("where") == 1
    assert refused.value.hint == "do it right"


def test_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), Declaring("where"):
        raise ZeroDivisionError


def test_an_overridden_location_takes_the_place_of_the_callers_line(orders: Stream) -> None:
    given = Location("shop.sql", 7)
    with override_location(given, "line 3"):
        assert orders.where("amount > 1").node.location == given
        with pytest.raises(DeclarationError, match=r"^shop\.sql:7: line 3: where: there is no column 'amonut'"):
            orders.where("amonut > 1")
    with override_location(given), pytest.raises(DeclarationError, match=r"^shop\.sql:7: where: there is no column"):
        orders.where("amonut > 1")
    assert Path(orders.where("amount > 1").node.location.file).name == "test_location.py"


def test_a_cell_of_a_notebook_is_called_so() -> None:
    assert display_path("/tmp/ipykernel_4711/1234567.py") == "notebook cell"
    assert display_path("<ipython-input-3-0a1b>") == "notebook cell"
