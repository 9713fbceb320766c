"""The settings of an app."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import AppSettings
from penstock.errors import DeclarationError


def test_the_settings_have_defaults_that_bound_an_epoch() -> None:
    settings = AppSettings()
    assert (settings.state_partitions, settings.max_rows, settings.max_bytes) == (None, 5_000_000, 512_000_000)
    assert settings.on_bad_row == "set_aside"


def test_a_setting_that_does_not_exist_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(
        DeclarationError, match=r"test_settings.py:\d+: AppSettings: there is no parameter 'dead'"
    ) as error:
        AppSettings(dead="stop")  # type: ignore[call-arg]
    assert error.value.hint == "its name is on_bad_row: 'set_aside' or 'stop'"
    with pytest.raises(DeclarationError) as error:
        AppSettings(max_row=3)  # type: ignore[call-arg]
    assert error.value.hint == "did you mean 'max_rows'?"


@pytest.mark.parametrize(
    "settings",
    [
        {"state_partitions": 0},
        {"max_rows": 0},
        {"max_rows": None},
        {"max_rows": True},
        {"max_bytes": "256 MB"},
        {"on_bad_row": "ignore"},
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=f"settings: {next(iter(settings))}"):
        AppSettings(**settings)
