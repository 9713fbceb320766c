"""Where apps are in the folder of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import DeclarationError
from penstock.paths import app_directory, app_names, chosen_app


def make(log: Path, *apps: str) -> None:
    for app in apps:
        app_directory(log, app).mkdir(parents=True)


def test_the_only_app_need_not_be_named(tmp_path: Path) -> None:
    make(tmp_path, "shop")
    assert app_directory(tmp_path, "shop") == tmp_path / "apps" / "shop"
    assert chosen_app(tmp_path, None) == chosen_app(tmp_path, "shop") == "shop"


def test_of_several_apps_one_must_be_chosen(tmp_path: Path) -> None:
    make(tmp_path, "shop", "bank")
    assert app_names(tmp_path) == ["bank", "shop"]
    with pytest.raises(DeclarationError, match="more than one app has run on this log: bank, shop"):
        chosen_app(tmp_path, None)


def test_an_unknown_app_is_refused_with_a_hint(tmp_path: Path) -> None:
    make(tmp_path, "shop")
    with pytest.raises(DeclarationError, match="app 'shpo': it has not run on the log") as refused:
        chosen_app(tmp_path, "shpo")
    assert refused.value.hint == "did you mean 'shop'?"


def test_without_any_app_the_error_says_so(tmp_path: Path) -> None:
    for log in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DeclarationError, match="no app has run on this log"):
            chosen_app(log, "shop")
