"""`penstock repair`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

Run = Callable[..., Result]


def test_an_intact_catalogue_is_reported_as_such(run: Run, orders: str) -> None:
    assert run("repair").stdout == "the catalogue is as it was written\n"


def test_it_shows_the_plan_and_executes_it_on_request(run: Run, orders: str, folder: Path) -> None:
    (folder / "catalog.db").unlink()
    refused = run("topic", "list")
    assert refused.exit_code == 1
    assert "the catalogue is missing" in refused.stderr
    assert "penstock repair" in refused.stderr
    shown = run("repair")
    assert "problem: " in shown.stdout
    assert "lost: all groups" in shown.stdout
    assert "nothing was changed; add --execute to do this" in shown.stderr
    assert not (folder / "catalog.db").exists()
    assert run("repair", "--execute").exit_code == 0
    assert run("topic", "list").exit_code == 0
    assert json.loads(run("repair", "--json").stdout)["problem"] is None


def test_verify_names_a_damaged_catalogue_and_a_damaged_hold(run: Run, orders: str, folder: Path) -> None:
    content = bytearray((folder / "catalog.db").read_bytes())
    content[-200:] = bytes(200)
    (folder / "catalog.db").write_bytes(content)
    (folder / "catalog.mark").write_bytes(b"?")
    (folder / "holds").mkdir()
    (folder / "holds" / "app.json").write_bytes(b"?")
    shown = run("verify")
    assert shown.exit_code == 1
    assert "catalog.db: the catalogue is damaged" in shown.stderr
    assert "holds/app.json: the hold is damaged" in shown.stderr
