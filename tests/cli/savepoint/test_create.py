"""`penstock savepoint create`."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from penstock import Log
from tests.cli.savepoint.shop import Shop


def test_a_running_app_is_kept_as_it_is(savepoint: Callable[..., Result], shop: Shop) -> None:
    assert savepoint("create", "friday").stdout == "created savepoint 'friday' of app 'shop' at epoch 3\n"
    shop.run()
    document = json.loads(savepoint("create", "saturday", "--app", "shop", "--json").stdout)
    assert {name: document[name] for name in ("app", "savepoint", "epoch", "files", "views")} == {
        "app": "shop",
        "savepoint": "saturday",
        "epoch": 4,
        "files": 5,
        "views": ["totals"],
    }


def test_a_name_that_is_taken_is_refused(savepoint: Callable[..., Result], shop: Shop) -> None:
    savepoint("create", "friday")
    result = savepoint("create", "friday")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == "error: savepoint 'friday': it exists already"


def test_a_log_on_which_no_app_has_run_is_refused(savepoint: Callable[..., Result], log: Log) -> None:
    result = savepoint("create", "friday")
    assert result.exit_code == 1
    assert "no app has run on this log" in result.stderr


def test_a_misspelt_app_is_refused_with_a_hint(savepoint: Callable[..., Result], shop: Shop) -> None:
    result = savepoint("create", "friday", "--app", "shpo")
    assert result.exit_code == 1
    assert "hint: did you mean 'shop'?" in result.stderr
