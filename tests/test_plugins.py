"""Modules by URL scheme: built in, or from packages that are really installed in a folder of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import DeclarationError
from penstock.plugins import Plugins
from penstock.sources import SOURCES, check_source
from penstock.targets import TARGETS, check_target

Install = Callable[..., None]


@pytest.fixture
def plugins() -> Plugins:
    return Plugins("source", "penstock.sources", {"file": "penstock.capture.files.url"}, ("check_url",), "file:a.csv")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package with an entry point where Python finds it, as pip would."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install_package(name: str, scheme: str, code: str, *, group: str = "penstock.sources") -> None:
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        dist_info = tmp_path / f"{module}-1.2.dist-info"
        dist_info.mkdir()
        (dist_info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (dist_info / "entry_points.txt").write_text(f"[{group}]\n{scheme} = {module}\n")

    return install_package


def test_what_is_built_in_needs_no_installation(plugins: Plugins) -> None:
    assert plugins.module("file:orders.csv", where="source").__name__ == "penstock.capture.files.url"
    assert plugins.schemes() == ["file"]


def test_a_package_brings_a_scheme_which_is_loaded_when_it_is_first_used(plugins: Plugins, install: Install) -> None:
    install("penstock-echo", "echo", "def check_url(url): return url\n")
    assert plugins.schemes() == ["echo", "file"]
    assert plugins.module("echo://here", where="source").check_url("x") == "x"


def test_a_package_for_another_kind_of_url_is_not_taken(plugins: Plugins, install: Install) -> None:
    install("penstock-echo", "echo", "", group="penstock.targets")
    assert plugins.schemes() == ["file"]


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("fil://a.csv", "source: there is no source for 'fil:'; found 'fil://a.csv'", "did you mean 'file'?"),
        (
            "mysql://db",
            "source: there is no source for 'mysql:'; found 'mysql://db'",
            "there is file:, as in 'file:a.csv'",
        ),
        ("orders.csv", "source: a source is a URL; found 'orders.csv'", "there is file:, as in 'file:a.csv'"),
        (7, "source: a source is a URL; found 7", "there is file:, as in 'file:a.csv'"),
    ],
)
def test_an_unknown_scheme_is_refused_with_those_that_there_are(
    plugins: Plugins, url: object, message: str, hint: str
) -> None:
    with pytest.raises(DeclarationError) as error:
        plugins.module(url, where="source")
    assert error.value.message == message
    assert hint in str(error.value.hint)


def test_a_package_that_cannot_be_imported_is_named(plugins: Plugins, install: Install) -> None:
    install("penstock-broken", "broken", "import a_driver_that_is_missing\n")
    with pytest.raises(DeclarationError) as error:
        plugins.module("broken://x", where="source")
    assert error.value.message == (
        "source: the source 'broken:' of penstock-broken 1.2 cannot be loaded; "
        "ModuleNotFoundError: No module named 'a_driver_that_is_missing'"
    )


def test_a_package_that_lacks_a_function_is_named(plugins: Plugins, install: Install) -> None:
    install("penstock-old", "old", "def open_source(url): ...\n")
    with pytest.raises(DeclarationError, match=r"'old:' of penstock-old 1\.2 does not work .* no function check_url"):
        plugins.module("old://x", where="source")


def test_two_packages_for_one_scheme_are_refused_when_it_is_used(plugins: Plugins, install: Install) -> None:
    install("penstock-one", "echo", "def check_url(url): ...\n")
    install("penstock-two", "echo", "def check_url(url): ...\n")
    with pytest.raises(DeclarationError) as error:
        plugins.module("echo://x", where="source")
    assert "several packages bring the source 'echo:'" in error.value.message
    assert {"penstock-one 1.2", "penstock-two 1.2"} <= set(error.value.message.replace(": ", ", ").split(", "))
    assert plugins.module("file:a.csv", where="source")


def test_a_package_cannot_take_the_place_of_what_is_built_in(plugins: Plugins, install: Install) -> None:
    install("penstock-files", "file", "def check_url(url): ...\n")
    with pytest.raises(DeclarationError, match=r"the source 'file:': penstock itself, penstock-files 1\.2"):
        plugins.module("file:a.csv", where="source")


def test_our_own_sources_and_targets_have_what_they_must() -> None:
    for plugins in (SOURCES, TARGETS):
        for scheme in plugins.built_in:
            assert plugins.module(f"{scheme}:///x", where="x")


def test_unknown_urls_are_refused_where_they_are_declared() -> None:
    with pytest.raises(DeclarationError, match="to: there is no target for 'oracle:'"):
        check_target("oracle://db")
    with pytest.raises(DeclarationError, match="source: there is no source for 'oracle:'"):
        check_source("oracle://db")
