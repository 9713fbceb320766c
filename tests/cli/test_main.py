"""The program as a whole: help, version, start-up."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

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
    "doctor",
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


def every_command(group: Any = None, *names: str) -> Iterator[tuple[str, Any]]:
    """All commands with their names, also those of groups."""
    from typer.main import get_command

    from penstock.cli import app

    for name, found in (group or get_command(app)).commands.items():
        if hasattr(found, "commands"):
            yield from every_command(found, *names, name)
        else:
            yield " ".join((*names, name)), found


def test_every_command_shows_an_example_that_it_accepts() -> None:
    for name, found in every_command():
        assert (found.epilog or "").startswith(f"Example: penstock {name}"), name
        words = shlex.split(found.epilog.removeprefix("Example: penstock "))
        found.make_context(name, words[len(name.split()) :])


def test_help_groups_the_commands_in_the_order_of_the_journey_and_shows_examples(run: Callable[..., Result]) -> None:
    shown = run("--help").stdout
    panels = ["Get started", "Run apps", "Ask for answers", "Fill and read topics", "Take care of a log", "Examples:"]
    places = [shown.index(panel) for panel in panels]
    assert places == sorted(places)
    assert "─ Commands ─" not in shown
    assert shown.count("penstock ", places[-1]) == 3


def test_ctrl_c_while_the_program_loads_ends_it_quietly() -> None:
    program = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from penstock.__main__ import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_a_mistake_in_usage_ends_with_status_2(run: Callable[..., Result]) -> None:
    for args in (("tail",), ("topic", "crate"), ("produce", "orders", "--format", "xml"), ("stats", "--batch")):
        assert run(*args).exit_code == 2
