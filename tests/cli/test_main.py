"""The program as a whole: help, version, start-up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import Result

import penstock

COMMANDS = [
    "topic create",
    "topic list",
    "topic describe",
    "topic evolve",
    "topic drop",
    "produce",
    "tail",
    "groups list",
    "groups lag",
    "groups reset",
    "groups drop",
    "compact",
    "expire",
    "erase",
    "verify",
    "stats",
]

# Prints the top-level modules that the program has loaded when it ends.
SHOW_WHAT_HELP_LOADS = """
import sys
sys.argv = ["penstock", *{args!r}]
from penstock.cli import main
try:
    main()
finally:
    print(*sorted({{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""


@pytest.mark.parametrize("args", [["--help"], ["topic", "create", "--help"], ["--version"]])
def test_help_loads_neither_arrow_nor_spark(args: list[str]) -> None:
    program = [sys.executable, "-c", SHOW_WHAT_HELP_LOADS.format(args=args)]
    shown = subprocess.run(program, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert {"pyarrow", "numpy", "pandas", "pyspark", "sqlite3"} & set(shown.stderr.split()) == set()


def test_the_version_is_that_of_the_package(run: Callable[..., Result]) -> None:
    assert run("--version").stdout == f"penstock {penstock.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_every_command_has_help(run: Callable[..., Result], command: str) -> None:
    from typer.main import get_command

    from penstock.cli import app

    assert run(*command.split(), "--help").exit_code == 0
    found = get_command(app)
    for name in command.split():
        found = found.commands[name]  # type: ignore[attr-defined]
    assert found.help
    assert [option.name for option in found.params if not getattr(option, "help", None)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_knows_the_log_json_and_debug(run: Callable[..., Result], command: str) -> None:
    shown = run(*command.split(), "--help").stdout
    assert all(option in shown for option in ("--log", "--json", "--debug"))


def test_a_mistake_in_usage_ends_with_status_2(run: Callable[..., Result]) -> None:
    for args in (("tail",), ("topic", "crate"), ("produce", "orders", "--format", "xml"), ("stats", "--batch")):
        assert run(*args).exit_code == 2
