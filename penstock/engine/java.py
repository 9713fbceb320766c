"""The Java that Spark would start: where it is, which version, and whether it can run Spark. Loads no Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import UnavailableError

OLDEST_VERSION = 17
# Spark asks for it; slim runtimes lack it.
VECTOR_MODULE = "jdk.incubator.vector"
_ANSWER_SECONDS = 30.0
_INSTALL = "install one, such as Debian's openjdk-17-jre-headless, or point JAVA_HOME at one"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark. `found_by` says who named it: 'JAVA_HOME' or 'PATH'."""

    path: Path
    version: int
    found_by: str


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark would start: that of JAVA_HOME, else the one on PATH.

    UnavailableError if there is none, or if it cannot run Spark.
    """
    environment = os.environ if environment is None else environment
    path, found_by = _locate(environment)
    properties = _ask(path, found_by, "-XshowSettings:properties", "-version")
    version = _version(properties)
    if version is None:
        raise UnavailableError(
            f"{path}: this is not a Java that Spark can run; found {properties[:200]!r}", hint=_INSTALL
        )
    if version < OLDEST_VERSION:
        raise UnavailableError(
            f"{path}: Java {version} is too old; Spark needs Java {OLDEST_VERSION} or newer",
            hint=f"{_INSTALL}; this one was found by {found_by}",
        )
    if VECTOR_MODULE not in _ask(path, found_by, "--list-modules"):
        raise UnavailableError(
            f"{path}: this Java {version} lacks the module {VECTOR_MODULE}, which Spark needs",
            hint="install a complete runtime, such as Debian's openjdk-17-jre-headless, or point JAVA_HOME at one",
        )
    return Java(path, version, found_by)


def _locate(environment: Mapping[str, str]) -> tuple[Path, str]:
    if home := environment.get("JAVA_HOME"):
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            raise UnavailableError(
                f"JAVA_HOME is '{home}', and there is no Java: {path} does not exist or is not a program",
                hint="set JAVA_HOME to the folder of a Java runtime, or unset it to use the Java on PATH",
            )
        return path, "JAVA_HOME"
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is None:
        raise UnavailableError(
            f"there is no Java; Spark needs Java {OLDEST_VERSION} or newer, and neither JAVA_HOME nor PATH names one",
            hint=_INSTALL,
        )
    return Path(on_path), "PATH"


def _ask(path: Path, found_by: str, *options: str) -> str:
    try:
        answer = subprocess.run(
            [path, *options],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_ANSWER_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(
            f"{path}: this Java does not start: {error}", hint=f"{_INSTALL}; found by {found_by}"
        ) from error
    return answer.stdout + answer.stderr


def _version(properties: str) -> int | None:
    """The number from `java.specification.version`: 17, or 8 where it is written as 1.8."""
    match = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", properties)
    return int(match[1]) if match else None
