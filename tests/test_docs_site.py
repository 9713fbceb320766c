"""The docs site is built from docs/ with nothing from the network, and what it generates is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

import penstock
from penstock import errors

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "--quiet",
            "--fail-on-warning",
            "-d",
            folder / "doctrees",
            ROOT / "docs",
            folder,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = spec_from_file_location("docs_reference", ROOT / "tools" / "docs_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Loaded(HTMLParser):
    """Collects what a browser would load for a page: scripts, styles, images and fonts, not links to follow."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.urls.append(attributes.get("src") or "")
        elif tag == "link" and attributes.get("rel") != "canonical":
            self.urls.append(attributes.get("href") or "")


def test_a_page_loads_nothing_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = _Loaded()
        loaded.feed(page.read_text("utf-8"))
        assert [url for url in loaded.urls if re.match(r"(https?:)?//", url)] == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(\s*['\"]?(https?:)?//", style.read_text("utf-8")), style


def test_the_search_finds_a_command_an_error_and_a_method(site: Path) -> None:
    index = (site / "searchindex.js").read_text("utf-8")
    assert all(word in index for word in ("deduplicate", "savepoint restore", "ConflictError", "tumbling"))


def test_the_reference_has_every_command_with_its_options(site: Path, reference: ModuleType) -> None:
    page = (site / "reference" / "commands.html").read_text("utf-8")
    assert len(reference.commands()) > 20
    for name, command in reference.commands().items():
        assert f"penstock {name}" in page
        assert all(option in page for parameter in command.params for option in parameter.opts if "--" in option)


def test_the_reference_has_an_entry_for_every_error(site: Path, reference: ModuleType) -> None:
    page = (site / "reference" / "errors.html").read_text("utf-8")
    assert errors.DamagedError in reference.error_classes()
    for error in reference.error_classes():
        assert f'id="{error.__name__.lower()}"' in page
        if error is not errors.PenstockError:
            assert "Raised" in (error.__doc__ or ""), f"{error.__name__} does not say when it is raised"


def test_the_reference_has_every_public_name(site: Path) -> None:
    pages = "".join((site / "reference" / f"{name}.html").read_text("utf-8") for name in ("api", "log-api", "errors"))
    for name in set(penstock.__all__) - {"__version__"}:
        assert re.search(rf'id="(penstock\.[a-z.]*)?{name}"|id="{name.lower()}"', pages), f"{name} has no entry"


def test_a_docstring_with_code_lists_and_stars_becomes_restructured_text(reference: ModuleType) -> None:
    lines = [
        "Take `a*b` of *all*, **kwargs, and the rest_.",
        "",
        "    code = `x`",
        "",
        "Then:",
        "- `one`: 1",
        "- two",
    ]
    assert reference.to_restructured_text(lines) == [
        r"Take ``a*b`` of *all*, \*\*kwargs, and the rest\_.",
        "",
        ".. code-block:: python",
        "",
        "    code = `x`",
        "",
        "Then:",
        "",
        "- ``one``: 1",
        "- two",
    ]


def test_a_page_that_asks_for_what_does_not_exist_fails_the_build(reference: ModuleType) -> None:
    with pytest.raises(ValueError, match="'penstock fly', which does not exist"):
        reference.generate("command", "fly")
