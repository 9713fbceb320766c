"""The public API: everything is documented and typed, type checkers are told so, and the examples use nothing else."""

from __future__ import annotations

import ast
import inspect
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import penstock
import penstock.testing

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PUBLIC_MODULES = {"penstock", "penstock.testing"}


def public_objects() -> Iterator[tuple[str, Any]]:
    for module in (penstock, penstock.testing):
        for name in module.__all__:
            if name != "__version__":
                yield f"{module.__name__}.{name}", getattr(module, name)


def functions() -> Iterator[tuple[str, Any]]:
    """The public functions, and the public methods and properties of the public classes."""
    for name, thing in public_objects():
        if not inspect.isclass(thing):
            yield name, thing
            continue
        for attribute, value in inspect.getmembers_static(thing):
            function = inspect.unwrap(value.fget if isinstance(value, property) else value)
            if isinstance(function, staticmethod | classmethod):
                function = function.__func__
            if inspect.isfunction(function) and not attribute.startswith("_"):
                yield f"{name}.{attribute}", function


def test_every_public_name_has_a_docstring() -> None:
    documented = [*public_objects(), *functions()]
    assert len(documented) > 60
    assert [name for name, thing in documented if not (thing.__doc__ or "").strip()] == []


def test_every_public_function_is_typed() -> None:
    untyped = [
        f"{name}({parameter.name})"
        for name, function in functions()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.annotation is inspect.Parameter.empty and parameter.name not in ("self", "cls")
    ]
    no_result = [
        name
        for name, function in functions()
        if inspect.signature(function).return_annotation is inspect.Signature.empty
    ]
    assert (untyped, no_result) == ([], [])


def test_names_are_exported_for_type_checkers_as_they_are_at_run_time() -> None:
    tree = ast.parse(Path(penstock.__file__).read_text())
    checked = {
        alias.name
        for block in tree.body
        if isinstance(block, ast.If)
        for statement in ast.walk(block)
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert checked | {"__version__"} == set(penstock.__all__)


def test_type_checkers_are_told_that_the_package_is_typed() -> None:
    """The wheel has every file of its packages that git does not ignore; nothing is included or left out by hand."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"] == {"packages": ["penstock", "pyspark_penstock"]}
    assert set(build) == {"targets", "dev-mode-dirs"}
    assert (ROOT / "penstock" / "py.typed").is_file()
    ignored = subprocess.run(["git", "check-ignore", "-q", "penstock/py.typed"], cwd=ROOT, check=False)
    assert ignored.returncode != 0


def test_the_version_of_spark_that_is_tested_is_the_one_that_is_asked_for() -> None:
    (asked_for,) = (need for need in map(Requirement, requires("penstock") or []) if need.name == "pyspark")
    assert str(asked_for.specifier) == "==4.3.*"
    assert asked_for.specifier.contains(version("pyspark"), prereleases=True)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_use_the_public_api_only(example: Path) -> None:
    tree = ast.parse(example.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name.partition(".")[0] == "penstock"} <= PUBLIC_MODULES
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "penstock"
        for alias in node.names
    }
    assert names <= set(penstock.__all__)
