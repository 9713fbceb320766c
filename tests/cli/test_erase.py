"""`penstock erase`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

from penstock import Log


def test_the_rows_of_a_key_are_gone_and_their_bytes_too(run: Callable[..., Result], log: Log, folder: Path) -> None:
    topic = log.create_topic("t", "email string, note string", key="email")
    topic.append([{"email": "ann@example.org", "note": "secret of ann"}, {"email": "bob@example.org", "note": "b"}])
    result = run("erase", "t", "--key", "ann@example.org", "--yes")
    assert result.exit_code == 0
    assert "erased email=ann@example.org from 't': 1 row removed" in result.stdout
    assert topic.read().to_arrow()["email"].to_pylist() == ["bob@example.org"]
    assert not any(b"secret of ann" in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_key_without_rows_is_reported_as_such(run: Callable[..., Result], log: Log) -> None:
    topic = log.create_topic("t", "email string", key="email")
    topic.append({"email": "ann"})
    result = run("erase", "t", "--key", "bob", "--yes")
    assert (result.exit_code, result.stdout) == (
        0,
        "no row of this key was stored: email=bob in 't'\nno app of this log has a copy of an erased row\n",
    )
    assert json.loads(run("erase", "t", "--key", "bob", "--yes", "--json").stdout)["rows_removed"] == 0
    assert len(topic.read()) == 1


def test_it_asks_first_and_no_changes_nothing(run: Callable[..., Result], log: Log) -> None:
    topic = log.create_topic("t", "id int", key="id")
    topic.append({"id": 1})
    result = run("erase", "t", "--key", "1", stdin="n\n")
    assert result.exit_code == 1
    assert "Erase all rows of id=1 from 't'? They cannot be restored." in result.output
    assert len(topic.read()) == 1
    assert run("erase", "t", "--key", "1", stdin="y\n").exit_code == 0
    assert len(topic.read()) == 0


def test_a_key_of_several_columns_names_each(run: Callable[..., Result], log: Log) -> None:
    topic = log.create_topic("t", "shop string, id int", key=("shop", "id"), partitions=4)
    topic.append([{"shop": shop, "id": number} for shop in "ab" for number in (1, 2)])
    result = run("erase", "t", "--key", "shop=a", "--key", "id=1", "--yes", "--json")
    assert json.loads(result.stdout)["rows_removed"] == 1
    assert len(topic.read()) == 3
    assert run("erase", "t", "--key", "shop=a", "--yes").exit_code == 1
