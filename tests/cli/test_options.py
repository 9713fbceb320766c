"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import Result

from penstock.cli.options import option_parser
from penstock.units import parse_size


def test_the_log_is_where_the_option_says_else_the_environment_else_here(
    run: Callable[..., Result], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ("topic", "create", "t", "--schema", "a int")
    assert run(*create, "--log", str(tmp_path / "given")).exit_code == 0
    assert run(*create).exit_code == 0
    monkeypatch.delenv("PENSTOCK_LOG")
    monkeypatch.chdir(tmp_path)
    assert run(*create).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"given", "log", "penstock-data"}


def test_a_value_that_cannot_be_read_is_a_mistake_in_usage() -> None:
    with pytest.raises(typer.BadParameter, match="'1 XB' is not a size; write a number and a unit"):
        option_parser(parse_size)("1 XB")
