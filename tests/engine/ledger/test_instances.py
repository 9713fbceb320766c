"""Which instances of an app are running."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.engine.ledger.instances import InstanceMark, RunningInstance, running_instances

# Shows that it runs, says so, and waits for its end.
PROGRAM = """
import sys
from pathlib import Path
from penstock.engine.ledger.instances import InstanceMark
mark = InstanceMark(Path(sys.argv[1]), "shop", 3, since=9)
print("running", flush=True)
sys.stdin.read()
"""


def test_an_instance_shows_from_its_start_to_its_end(tmp_path: Path) -> None:
    assert running_instances(tmp_path) == []
    mark = InstanceMark(tmp_path, "shop", 2, since=5)
    (found,) = running_instances(tmp_path)
    assert (found.token, found.process, found.since) == (2, os.getpid(), 5)
    assert str(found) == f"process {os.getpid()}"
    mark.close()
    mark.close()
    assert running_instances(tmp_path) == []


def test_a_killed_process_does_not_run_though_its_file_is_there(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"running\n"
    (found,) = running_instances(tmp_path)
    assert (found.token, found.process) == (3, process.pid)
    process.kill()
    process.communicate()
    assert (tmp_path / "instances" / "3.json").exists()
    assert running_instances(tmp_path) == []
    InstanceMark(tmp_path, "shop", 4, since=5).close()
    assert list((tmp_path / "instances").iterdir()) == []  # the next start cleans up


def test_an_instance_that_was_replaced_shows_before_the_newest_until_it_ends(tmp_path: Path) -> None:
    marks = [InstanceMark(tmp_path, "shop", token, since=token) for token in (9, 10)]
    assert [instance.token for instance in running_instances(tmp_path)] == [9, 10]
    marks[0].close()
    assert [instance.token for instance in running_instances(tmp_path)] == [10]
    marks[1].close()


def test_an_instance_on_another_machine_is_named_with_it() -> None:
    assert str(RunningInstance(1, "elsewhere.example", 12, 0)) == "process 12 on elsewhere.example"
