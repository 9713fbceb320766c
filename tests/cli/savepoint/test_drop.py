"""`penstock savepoint drop`."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from tests.cli.savepoint.shop import Shop


def test_what_only_the_savepoint_needed_goes_with_it(savepoint: Callable[..., Result], shop: Shop) -> None:
    savepoint("create", "friday")
    shop.run(12)
    assert savepoint("drop", "friday", stdin="n\n").exit_code == 1
    document = json.loads(savepoint("drop", "friday", "--yes", "--json").stdout)
    assert document == {"app": "shop", "savepoint": "friday", "dropped": True, "files_removed": 7}
    assert [path.name for path in (shop.ledger.directory / "savepoints").iterdir()] == ["lock"]
    assert len(list((shop.ledger.directory / "state" / "count" / "0").iterdir())) == 8


def test_an_unknown_savepoint_is_refused(savepoint: Callable[..., Result], shop: Shop) -> None:
    result = savepoint("drop", "friday", "--yes")
    assert result.exit_code == 1
    assert "hint: this app has no savepoints yet" in result.stderr
