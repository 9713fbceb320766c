"""`penstock savepoint restore`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import Result

from penstock import Log
from penstock.derive.views import query
from penstock.errors import FencedError
from penstock.paths import app_directory
from tests.cli.savepoint.shop import Shop


def totals(log: Log) -> list[int]:
    answer = query(app_directory(log.path, "shop"), "select orders from totals order by orders")
    return [row["orders"] for row in answer.rows()]


def test_the_app_goes_back_and_continues_under_the_next_epoch(
    savepoint: Callable[..., Result],
    shop: Shop,
    log: Log,
) -> None:
    savepoint("create", "friday")
    shop.run(2)
    result = savepoint("restore", "friday", "--yes")
    assert result.stdout == "restored savepoint 'friday' of app 'shop' as epoch 6; start the app to continue\n"
    assert totals(log) == [1, 2, 3]
    with pytest.raises(FencedError, match="instance 1 was replaced by instance 2"):
        shop.run()
    again = Shop(log)
    last = again.ledger.last_commit()
    assert last is not None
    assert (last.epoch, last.live.cut.epoch, last.restored_from) == (6, 3, "friday")
    again.run()
    assert totals(log) == [1, 2, 3, 7]


def test_it_asks_first(savepoint: Callable[..., Result], shop: Shop) -> None:
    savepoint("create", "friday")
    assert savepoint("restore", "friday", stdin="n\n").exit_code == 1
    shop.run()
    result = savepoint("restore", "friday", stdin="y\n")
    assert "Take app 'shop' back to savepoint 'friday', made at " in result.stderr
    assert "after epoch 3?" in result.stderr
    assert shop.ledger.last_epoch() == 5


def test_as_json(savepoint: Callable[..., Result], shop: Shop) -> None:
    savepoint("create", "friday")
    document = json.loads(savepoint("restore", "friday", "--yes", "--json").stdout)
    assert document == {"app": "shop", "savepoint": "friday", "of_epoch": 3, "epoch": 4}


def test_an_unknown_savepoint_stops_nobody(savepoint: Callable[..., Result], shop: Shop) -> None:
    savepoint("create", "friday")
    result = savepoint("restore", "fridy", "--yes")
    assert result.exit_code == 1
    assert "hint: did you mean 'friday'?" in result.stderr
    shop.run()


def test_a_damaged_savepoint_stops_nobody(savepoint: Callable[..., Result], shop: Shop) -> None:
    savepoint("create", "friday")
    copy = min((shop.ledger.directory / "views" / "totals" / "0").iterdir())
    copy.write_bytes(copy.read_bytes()[:-1] + b"?")
    result = savepoint("restore", "friday", "--yes")
    assert result.exit_code == 1
    assert f"error: savepoint 'friday': {copy} is damaged, and nothing was restored" in result.stderr
    shop.run()
