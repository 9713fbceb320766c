"""`penstock topic evolve`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

import pytest
from typer.testing import Result


@pytest.fixture
def topic(run: Callable[..., Result]) -> str:
    run("topic", "create", "t", "--schema", "id int")
    run("produce", "t", stdin='{"id": 1}')
    return "t"


def test_rows_already_stored_read_as_the_new_schema(run: Callable[..., Result], topic: str) -> None:
    result = run("topic", "evolve", topic, "--schema", "id bigint, note string")
    assert (result.exit_code, result.stdout) == (0, "topic 't' has schema 2 now: id bigint, note string\n")
    assert run("tail", topic).stdout.endswith("id=1 note=null\n")


def test_the_same_schema_changes_nothing(run: Callable[..., Result], topic: str) -> None:
    assert "nothing was changed" in run("topic", "evolve", topic, "--schema", "id int").stdout


def test_as_json(run: Callable[..., Result], topic: str) -> None:
    document = json.loads(run("topic", "evolve", topic, "--schema", "id int, b int", "--json").stdout)
    assert document["schema_versions"] == ["id int", "id int, b int"]


def test_a_change_that_stored_rows_do_not_fit_is_refused(run: Callable[..., Result], topic: str) -> None:
    result = run("topic", "evolve", topic, "--schema", "id string")
    assert result.exit_code == 1
    assert "column 'id' changes from int to string" in result.stderr


def test_whoever_gives_only_what_changes_is_told_the_command_for_the_whole_schema(
    run: Callable[..., Result], topic: str
) -> None:
    result = run("topic", "evolve", topic, "--schema", "note string")
    assert result.exit_code == 1
    assert "column 'id' is gone" in result.stderr
    command = f"penstock topic evolve {topic} --schema 'id int, note string'"
    assert f"hint: give the whole schema: {command}" in result.stderr.replace("id int not null", "id int")
    hint = next(line for line in result.stderr.splitlines() if line.startswith("hint: "))
    assert run(*shlex.split(hint.partition("schema: penstock ")[2])).exit_code == 0
