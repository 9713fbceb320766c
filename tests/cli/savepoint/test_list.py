"""`penstock savepoint list`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

from tests.cli.savepoint.shop import Shop


def test_savepoints_are_listed_the_oldest_first(savepoint: Callable[..., Result], shop: Shop) -> None:
    savepoint("create", "zebra")
    shop.run()
    savepoint("create", "ant")
    lines = savepoint("list").stdout.splitlines()
    assert lines[0].split() == ["savepoint", "created", "epoch", "size"]
    assert [(line.split()[0], line.split()[2]) for line in lines[1:]] == [("zebra", "3"), ("ant", "4")]
    document = json.loads(savepoint("list", "--json").stdout)
    assert document["app"] == "shop"
    assert [savepoint["savepoint"] for savepoint in document["savepoints"]] == ["zebra", "ant"]


def test_an_app_without_savepoints_says_so(savepoint: Callable[..., Result], shop: Shop, folder: Path) -> None:
    assert savepoint("list").stdout == f"no savepoints of app 'shop' in {folder}\n"
