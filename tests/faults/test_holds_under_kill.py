"""Processes that hold rows, and processes that remove rows, are killed before each of their calls that change the disk.

A hold that was acknowledged is there in every later process, and its rows are read as they were, however far the
compaction came that was killed, and after the next one.
"""

from __future__ import annotations

from pathlib import Path

from penstock.log import Log, Topic, TopicSettings
from tests.faults import shim
from tests.faults.processes import Nursery, Parent

START, END = 15, 42


def prepare(parent: Parent, root: str) -> None:
    with Log(root) as log:
        settings = TopicSettings(1, ("id",), segment_bytes=3_000, retention_bytes=1_000_000)
        topic = log.create_topic("stock", "id bigint, text string", settings=settings)
        for turn in range(12):
            topic.append([{"id": number, "text": f"{turn}"} for number in range(6)])


def hold_and_compact(parent: Parent, root: str) -> None:
    """Hold other rows first, move the hold, compact, and expire."""
    with Log(root) as log:
        topic = log.topic("stock")
        for start in (0, 5, 10):
            log.hold("app", {"stock": {0: (start, start + 3)}})
        log.hold("app", {"stock": {0: (START, END)}})
        parent.tell("held")
        topic.compact()
        topic.expire()
        parent.tell("compacted")


def look(parent: Parent, root: str) -> None:
    with Log(root) as log:
        topic = log.topic("stock")
        before = seen(topic)
        ranges = [(held.start, held.end) for hold in log.holds() for held in hold.ranges]
        topic.compact()
        problems = [problem for verified in topic.verify() for problem in verified.problems]
        parent.tell("looked", before=before, after=seen(topic), ranges=ranges, problems=problems)


def seen(topic: Topic) -> list[object]:
    rows = [
        [offset, row["id"], row["text"], batch.append_time]
        for batch in topic.batches({0: START}, until={0: END})
        for offset, row in zip(batch.offsets.tolist(), batch.rows.to_pylist(), strict=True)
    ]
    frames = [list(header.tolist()) for found in topic.files.headers(0, START, END) for header in found]
    return [rows, frames]


def test_held_rows_survive_a_kill_at_any_call_of_their_holder_or_of_a_compaction(
    faulty: Nursery, tmp_path: Path
) -> None:
    held_rounds = 0
    for call in range(1, 1000, 3):
        root, report = tmp_path / str(call) / "log", tmp_path / str(call) / "fault"
        faulty.run(prepare, root=root)
        with Log(root) as log:
            expected = seen(log.topic("stock"))
        plan = shim.plan("kill", shim.EVERY_CALL, call, f"{root}*") | {shim.REPORT: str(report)}
        child = faulty.start(hold_and_compact, root=root, environment=plan)
        child.wait()
        assert child.all_told("failed") == []
        held = bool(child.all_told("held"))
        child.close()
        (told,) = [one for one in faulty.run(look, root=root) if one["what"] == "looked"]
        assert told["problems"] == []
        if held:
            held_rounds += 1
            assert told["ranges"] == [[START, END]], f"call {call}: the hold is lost"
            assert told["before"] == expected, f"call {call}: held rows have changed"
            assert told["after"] == expected, f"call {call}: held rows were changed by the next compaction"
        if not report.exists():
            break
    assert held_rounds > 5
