"""Finding the Java that Spark would start: real programs that answer as a Java does, good or bad."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.java import find_java
from penstock.errors import UnavailableError


def make_java(home: Path, version: str, *, modules: str = "java.base@17 jdk.incubator.vector@17") -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\nif [ "$1" = --list-modules ]; then echo "{modules}"; '
        f'else echo "    java.specification.version = {version}" >&2; fi\n'
    )
    java.chmod(0o755)
    return java


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    java = make_java(tmp_path / "new", "21")
    make_java(tmp_path / "old", "17")
    found = find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(tmp_path / "old" / "bin")})
    assert (found.path, found.version, found.found_by) == (java, 21, "JAVA_HOME")


def test_without_java_home_it_is_the_one_on_path(tmp_path: Path) -> None:
    make_java(tmp_path, "17")
    assert find_java({"PATH": str(tmp_path / "bin")}).found_by == "PATH"


def test_no_java_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="there is no Java; Spark needs Java 17 or newer") as refused:
        find_java({"PATH": str(tmp_path)})
    assert "openjdk-17" in str(refused.value.hint)


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=f"JAVA_HOME is '{tmp_path}', and there is no Java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})


@pytest.mark.parametrize(("version", "number"), [("1.8", 8), ("11", 11)])
def test_a_java_that_is_too_old_is_refused(tmp_path: Path, version: str, number: int) -> None:
    make_java(tmp_path, version)
    with pytest.raises(UnavailableError, match=f"Java {number} is too old"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_a_slim_java_without_the_vector_module_is_refused(tmp_path: Path) -> None:
    make_java(tmp_path, "17", modules="java.base@17")
    with pytest.raises(UnavailableError, match=r"lacks the module jdk\.incubator\.vector"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_a_program_that_is_no_java_is_refused(tmp_path: Path) -> None:
    make_java(tmp_path, "none")
    with pytest.raises(UnavailableError, match="this is not a Java that Spark can run"):
        find_java({"JAVA_HOME": str(tmp_path)})
