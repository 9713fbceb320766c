"""A writer is killed before each of its calls that change the disk.

The next process finds a position, and exactly the rows that were written up to it; it repeats the write in doubt and
continues, and every row is stored once and in order.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.contracts import TopicRows
from penstock.log import Log, set_aside
from penstock.log import writer as partition_writer
from tests.faults import shim
from tests.faults.processes import Nursery, Parent

WRITES = 2
ROWS = 6  # of each write, in two topics of two partitions


def prepare(parent: Parent, root: str) -> None:
    with Log(root) as log:
        for name in ("orders", "people"):
            log.create_topic(name, "id bigint", key="id", partitions=2)
        log.writer("capture").write(rows_of(0), {"write": 0})


def rows_of(write: int) -> list[TopicRows]:
    ids = [{"id": number} for number in range(write * ROWS, write * ROWS + ROWS)]
    return [TopicRows("orders", ids[:3]), TopicRows("people", ids[3:])]


def write(parent: Parent, root: str, first: int) -> None:
    with Log(root) as log:
        writer = log.writer("capture")
        for number in range(first, WRITES + 1):
            parent.tell("written", number=number, stored=writer.write(rows_of(number), {"write": number}))


def write_in_parts(parent: Parent, root: str, first: int) -> None:
    """The same, half of the rows staged: each of their frames is written, and synced, by itself."""
    set_aside.MOST_WAITING_BYTES, partition_writer.PIECE_BYTES, partition_writer.SYNC_EVERY_BYTES = 0, 1, 1
    with Log(root) as log:
        writer = log.writer("capture")
        for number in range(first, WRITES + 1):
            orders, people = rows_of(number)
            writer.stage([people])
            writer.stage([TopicRows("orders", orders.rows[:1])])
            rest = [TopicRows("orders", orders.rows[1:])]
            parent.tell("written", number=number, stored=writer.write(rest, {"write": number}))


def look(parent: Parent, root: str) -> None:
    with Log(root) as log:
        position = log.writer("capture").position
        rows = [row["id"] for name in ("orders", "people") for row in log.topic(name).read()]
        problems = [problem for name in log.topics() for part in log.topic(name).verify() for problem in part.problems]
        problems += [f"{path.name} was left behind" for path in Path(root, "staging").glob("*")]
        parent.tell("looked", position=position, rows=sorted(rows), problems=problems + log.verify())


def looked(nursery: Nursery, root: Path) -> tuple[int, list[int]]:
    (told,) = [message for message in nursery.run(look, root=root) if message["what"] == "looked"]
    assert told["problems"] == []
    return told["position"]["write"], told["rows"]


@pytest.mark.parametrize("write", [write, write_in_parts])
@pytest.mark.parametrize("step", [11, pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(1200)])])
def test_after_a_kill_at_any_call_the_rows_are_those_up_to_the_position(
    faulty: Nursery, tmp_path: Path, step: int, write: Callable[[Parent, str, int], None]
) -> None:
    positions = set()
    for call in range(1, 1000, step):
        root, report = tmp_path / str(call) / "log", tmp_path / str(call) / "fault"
        faulty.run(prepare, root=root)
        plan = shim.plan("kill", shim.EVERY_CALL, call, f"{root}*") | {shim.REPORT: str(report)}
        child = faulty.start(write, root=root, first=1, environment=plan)
        child.wait()
        acknowledged = len(child.all_told("written"))
        ended = bool(child.all_told("returned"))
        assert child.all_told("failed") == []
        child.close()
        position, rows = looked(faulty, root)
        assert position in (acknowledged, acknowledged + 1), f"call {call}: an acknowledged write is lost"
        assert rows == list(range((position + 1) * ROWS)), f"call {call}: rows and position disagree"
        faulty.run(write, root=root, first=acknowledged + 1)  # the one in doubt
        assert looked(faulty, root) == (WRITES, list(range((WRITES + 1) * ROWS))), f"call {call}: not once each"
        positions.add(position)
        if ended:
            assert positions == {0, 1, 2}
            return
    raise AssertionError("the writer never ended by itself")
