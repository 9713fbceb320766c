"""The fingerprint of a function changes when what it does changes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from penstock.flow.code import code_fingerprint
from penstock.flow.load import MODULE

LIMIT = 3


def from_source(text: str, **names: object) -> Callable[..., Any]:
    """The function `f` of a program, as another process would have it."""
    space: dict[str, Any] = {"__name__": "program", **names}
    exec(compile(text, "program.py", "exec"), space)
    found: Callable[..., Any] = space["f"]
    return found


def of(text: str, **names: object) -> str:
    return code_fingerprint(from_source(text, **names))


def test_the_same_code_on_another_line_has_the_same_fingerprint() -> None:
    assert of("def f(x):\n    return x + 1") == of("\n\n# comment\ndef f(x):\n\n    return x + 1  # more")


def test_code_constants_names_and_defaults_matter() -> None:
    texts = [
        "def f(x): return x + 1",
        "def f(x): return x + 2",
        "def f(x): return x + True",
        "def f(x): return x - 1",
        "def f(x): return x.a",
        "def f(x): return x.b",
        "def f(x, y=1): return x",
        "def f(x, y=2): return x",
        "def f(x, *, y=2): return x",
        "def f(x): return [i + 1 for i in x]",
        "def f(x): return [i + 2 for i in x]",
        "def f(x): return (lambda: 1)",
        "def f(x): return (lambda: 2)",
        "def f(x): return x in {'a', 'b'}",
        "def f(x): return x in {'a', 'c'}",
    ]
    assert len({of(text) for text in texts}) == len(texts)


def test_values_of_a_closure_matter() -> None:
    def adding(number: object) -> Callable[[Any], Any]:
        return lambda rows: rows + number

    assert code_fingerprint(adding(1)) == code_fingerprint(adding(1))
    assert code_fingerprint(adding(1)) != code_fingerprint(adding(2))
    assert code_fingerprint(adding({"a": [1]})) != code_fingerprint(adding({"a": [2]}))


def test_functions_that_are_called_matter() -> None:
    text = "def g(x): return x + {0}\ndef f(x): return g(x)"
    assert of(text.format(1)) == of(text.format(1))
    assert of(text.format(1)) != of(text.format(2))


def test_values_of_the_module_matter_only_if_they_are_used() -> None:
    assert of("def f(x): return x + LIMIT", LIMIT=1) != of("def f(x): return x + LIMIT", LIMIT=2)
    assert of("def f(x): return x", LIMIT=1) == of("def f(x): return x", LIMIT=2)


def test_functions_that_call_each_other_come_to_an_end() -> None:
    assert len(of("def g(x): return f(x)\ndef f(x): return g(x)")) == 16


def test_what_surrounds_a_function_is_looked_through() -> None:
    def scaled(rows: Any, factor: int) -> Any:
        return rows * factor

    class Scaled:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def __call__(self, rows: Any) -> Any:
            return rows * self.factor

        def apply(self, rows: Any) -> Any:
            return rows * self.factor

    for make in (lambda n: functools.partial(scaled, factor=n), Scaled, lambda n: Scaled(n).apply):
        assert code_fingerprint(make(1)) == code_fingerprint(make(1))
        assert code_fingerprint(make(1)) != code_fingerprint(make(2))


def test_a_script_and_a_loaded_program_have_the_same_fingerprints() -> None:
    """`python shop.py` and `penstock run shop.py`: neither builds again what the other one has built."""
    text = "class Step: pass\ndef g(x: int): return lambda: x\ndef f(x): return g(x), Step, [Step() for _ in x]"
    inherited = compile(f"from __future__ import annotations\n{text}", "program.py", "exec")  # as they once were
    space: dict[str, Any] = {"__name__": MODULE}
    exec(inherited, space)
    stored = code_fingerprint(space["f"])
    assert of(text, __name__="__main__") == of(text, __name__=MODULE) == stored
    assert of(text, __name__="helpers") != stored


def test_what_cannot_be_looked_into_has_the_fingerprint_of_its_name() -> None:
    assert code_fingerprint(len) == code_fingerprint(len)
    assert code_fingerprint(len) != code_fingerprint(print)
    assert of("def f(x): return thing", thing=object()) == of("def f(x): return thing", thing=object())
