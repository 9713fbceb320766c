"""`penstock doctor --quick`; that Spark starts is checked by the tests that start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from penstock.cli.doctor_checks import check_libraries, check_log, file_system, satisfies


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java of which only the answers are needed."""
    path = tmp_path / "java" / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text('#!/bin/sh\necho "java.specification.version = 17 jdk.incubator.vector"\n')
    path.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return path


def test_where_all_is_well_every_line_says_so(run: Callable[..., Result], folder: Path, java: Path) -> None:
    shown = run("doctor", "--quick")
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert any(line.startswith(f"ok       java             Java 17 ({java}, found by JAVA_HOME)") for line in lines)
    assert any(f"{folder}: it does not exist yet, and can be created" in line for line in lines)
    assert not folder.exists()


def test_a_problem_is_a_line_with_what_to_do_and_status_1(
    run: Callable[..., Result], folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    shown = run("doctor", "--quick", "--spark", "spark://127.0.0.1:1")
    assert shown.exit_code == 1
    assert "problem  java             JAVA_HOME is '/nowhere', and there is no Java" in shown.stdout
    assert "set JAVA_HOME to the folder of a Java runtime" in shown.stdout
    assert "problem  cluster          --spark spark://127.0.0.1:1: no Spark master answers" in shown.stdout
    assert shown.stderr == "2 of 10 checks found a problem\n"


def test_programs_read_the_same_as_json(run: Callable[..., Result], folder: Path, java: Path) -> None:
    document = json.loads(run("doctor", "--quick", "--json").stdout)
    assert document["ok"] is True
    assert {check["name"]: check["state"] for check in document["checks"]}["java"] == "ok"


def test_a_problem_that_spark_would_have_keeps_it_from_being_started(
    run: Callable[..., Result], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "problem  spark            it was not started: see the problems above" in run("doctor").stdout


def test_an_existing_log_is_opened(run: Callable[..., Result], folder: Path, orders: str) -> None:
    answer = check_log(str(folder))
    assert (answer.state, f"{folder}: it has 1 topic;" in answer.found) == ("ok", True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_log_of_another_user_is_a_problem_with_what_to_do(folder: Path, orders: str, tmp_path: Path) -> None:
    folder.chmod(0o700)
    program = (
        "import os, sys; from penstock.cli.doctor_checks import check_log; import penstock.logs, penstock.log.url; "
        "os.setgid(65534); os.setuid(65534); print(check_log(sys.argv[1]))"
    )
    shown = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False)
    assert "state='problem'" in shown.stdout, shown.stderr
    assert "permission" in shown.stdout.lower()


def test_a_url_that_is_no_log_is_a_problem() -> None:
    answer = check_log("carrier-pigeon://loft")
    assert answer.state == "problem"
    assert answer.hint


def test_libraries_are_those_that_the_package_asks_for() -> None:
    answer = check_libraries()
    assert answer.state == "ok", answer.found
    assert "pyspark 4." in answer.found


@pytest.mark.parametrize(
    ("version", "conditions", "fits"),
    [
        ("4.3.0", "==4.3.*", True),
        ("4.30.0", "==4.3.*", False),
        ("2.9.1", ">=2,<3", True),
        ("3.0.0", "<3", False),
        ("3.0.0", "", True),
        ("1.9", ">=1.10", False),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, conditions: str, fits: bool) -> None:
    assert satisfies(version, conditions) is fits


def test_the_file_system_is_that_of_the_longest_mount_point() -> None:
    mounts = "/dev/sda / ext4 rw 0 0\nserver:/x /mnt nfs4 rw 0 0\ntmpfs /mnt/fast tmpfs rw 0 0\n"
    kinds = [file_system(Path(path), mounts) for path in ("/home/ada", "/mnt/log", "/mnt/fast/log")]
    assert kinds == ["ext4", "nfs4", "tmpfs"]
