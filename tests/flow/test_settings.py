"""The settings of an app."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import AppSettings
from penstock.errors import DeclarationError


def test_the_settings_have_defaults_that_bound_an_epoch() -> None:
    settings = AppSettings()
    assert (settings.state_partitions, settings.max_rows, settings.max_bytes) == (None, 5_000_000, 512_000_000)
    assert settings.dead == "set aside"


@pytest.mark.parametrize(
    "settings",
    [
        {"state_partitions": 0},
        {"max_rows": 0},
        {"max_rows": None},
        {"max_rows": True},
        {"max_bytes": "256 MB"},
        {"dead": "ignore"},
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=f"settings: {next(iter(settings))}"):
        AppSettings(**settings)
