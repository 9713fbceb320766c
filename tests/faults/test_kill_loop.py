"""Producers are killed after a few milliseconds of work, again and again on the same log; what they were told is there.

Every row carries its writer, the number of its call and its place in that call, so that a later process can tell what
is there once, twice, in part or not at all. Acknowledgements go to the test over a pipe, never to the disk under test.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from penstock.log import Log, Producer, Topic, TopicSettings
from tests.faults.looking import problems_of, rows_of
from tests.faults.processes import Child, Message, Nursery, Parent

ROUNDS = 60
MANY_ROUNDS = 400
COLUMNS = "writer string, call bigint, place bigint, account bigint, text string"
PADDING = "x" * 200

# -- what the processes do --------------------------------------------------------------------------------------------


def create(parent: Parent, root: str) -> None:
    with Log(root) as log:
        for name in ("plain", "left", "right"):
            settings = TopicSettings(3, ("account",), segment_bytes=60_000)
            log.create_topic(name, COLUMNS, settings=settings)


def batch(writer: str, call: int, count: int) -> list[dict[str, object]]:
    """The rows of one call; the accounts spread them over all partitions."""
    return [
        {"writer": writer, "call": call, "place": place, "account": place, "text": PADDING} for place in range(count)
    ]


def append_plain(parent: Parent, topic: Topic, writer: str) -> None:
    """Each call to one account, and so to one partition: stored as a whole or not at all."""
    for call in range(100_000):
        parent.tell("tries", writer=writer, call=call, rows=8)
        topic.append([{**row, "account": call % 16} for row in batch(writer, call, 8)])
        parent.tell("stored", writer=writer, call=call)


def append_named(parent: Parent, topic: Topic, producer: Producer) -> None:
    """Each call to all partitions, as a producer with sequences: the last one is sent again by the next process."""
    last = producer.last_sequence(topic)
    parent.tell("continues", writer="named", call=max(0, last))
    for call in range(max(0, last), 1_000_000):
        parent.tell("tries", writer="named", call=call, rows=12)
        producer.append(topic, batch("named", call, 12), sequence=call)
        parent.tell("stored", writer="named", call=call)


def commit_transactions(parent: Parent, log: Log, writer: str) -> None:
    """Each call to all partitions of two topics, and with it a group's offset: how many calls there were before."""
    left, right = log.topic("left"), log.topic("right")
    last = log.group(writer).committed("left").get(0, -1) + 1
    for call in range(last + 1, 1_000_000):
        parent.tell("tries", writer=writer, call=call, rows=6)
        with log.transaction() as transaction:
            transaction.append(left, batch(writer, call, 6))
            transaction.append(right, batch(writer, call, 6))
            transaction.commit_offsets(writer, "left", {0: call - 1})
        parent.tell("stored", writer=writer, call=call)


def work(parent: Parent, root: str, number: int) -> None:
    """Four writers in one process, until it is killed."""
    log = Log(root)
    plain, named = log.topic("plain"), log.producer("named")
    writers = [
        threading.Thread(target=append_plain, args=(parent, plain, f"plain-{number}-1")),
        threading.Thread(target=append_plain, args=(parent, plain, f"plain-{number}-2")),
        threading.Thread(target=append_named, args=(parent, plain, named)),
        threading.Thread(target=commit_transactions, args=(parent, log, "mover")),
    ]
    parent.tell("starts")
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def follow(parent: Parent, root: str) -> None:
    """A reader beside the writers: whoever sees a call of a transaction in one partition must see all of it.

    The topic `left` is read first; what was seen there has to be in `right` when that is read afterwards, and the other
    way around.
    """
    with Log(root) as log:
        topics = [log.topic("left"), log.topic("right")]
        starts = [topic.ends() for topic in topics]
        parent.tell("follows")
        seen: list[Counter[int]] = [Counter(), Counter()]
        looks = 0
        while True:
            for one, other in ((0, 1), (1, 0)):
                read_on(topics[one], starts[one], seen[one])
                before = Counter(seen[one])
                read_on(topics[one], starts[one], seen[one])
                read_on(topics[other], starts[other], seen[other])
                torn = [call for call in before if seen[one][call] != 6 or seen[other][call] != 6]
                assert not torn, f"calls {torn[:5]} are there in part: {seen[one][torn[0]]} and {seen[other][torn[0]]}"
                looks += 1
            parent.tell("looked", looks=looks, calls=len(seen[0]))


def read_on(topic: Topic, positions: dict[int, int], seen: Counter[int]) -> None:
    """Take in what came since `positions`, and move them on."""
    for found in topic.batches(dict(positions)):
        seen.update(found.rows.column("call").to_pylist())
        positions[found.partition] = found.next_offset


def tell_everything(parent: Parent, root: str, path: str) -> None:
    """Open the log as the next writer would, which cuts what was left, and write all of it to a file."""
    with Log(root) as log:
        for name in log.topics():
            topic = log.topic(name)
            for number in range(topic.settings.partitions):
                topic.files.writer(number).mark_of(0)
        lines = []
        for name in ("plain", "left", "right"):
            for number, rows in rows_of(log.topic(name)).items():
                lines += [f"{name} {number} {row[0]} {row[2]} {row[3]} {row[4]} {row[5]}" for row in rows]
        Path(path).write_text("\n".join(lines))
        parent.tell("all", problems=problems_of(log), moved=log.group("mover").committed("left").get(0, -1) + 1)


# -- what must be true afterwards -------------------------------------------------------------------------------------


class History:
    """What the writers tried and what was acknowledged, over all rounds."""

    def __init__(self) -> None:
        self.tried: dict[tuple[str, int], int] = {}  # rows of each call
        self.stored: set[tuple[str, int]] = set()

    def add(self, messages: list[Message]) -> None:
        for one in messages:
            if one["what"] == "tries":
                self.tried[one["writer"], one["call"]] = one["rows"]
            elif one["what"] == "stored":
                self.stored.add((one["writer"], one["call"]))

    def check(self, lines: list[str], moved: int) -> None:
        """`lines`: topic, partition, offset, writer, call, place, account of every row."""
        calls: dict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
        ends: dict[tuple[str, str], int] = defaultdict(int)
        for line in lines:
            topic, partition, offset, writer, call, place, _ = line.split()
            assert int(offset) == ends[topic, partition], f"{topic} {partition}: offset {offset} does not follow"
            ends[topic, partition] += 1
            calls[topic, writer, int(call)].append((int(partition), int(place)))
        for (topic, writer, call), rows in calls.items():
            places = [place for _, place in rows]
            assert (writer, call) in self.tried, f"{writer} never sent call {call}"
            assert len(set(places)) == len(places), f"{topic}: {writer} call {call} is stored twice"
        for writer, call in self.stored:
            for topic in ("left", "right") if writer == "mover" else ("plain",):
                found = len(calls.get((topic, writer, call), ()))
                assert found == self.tried[writer, call], f"{topic}: {writer} call {call} has {found} rows"
        self._check_unknown(calls, moved)

    def _check_unknown(self, calls: dict[tuple[str, str, int], list[tuple[int, int]]], moved: int) -> None:
        for (writer, call), count in self.tried.items():
            if (writer, call) in self.stored:
                continue
            if writer == "mover":
                found = [len(calls.get((topic, writer, call), ())) for topic in ("left", "right")]
                assert found in ([0, 0], [count, count]), f"transaction {call} is there in part: {found}"
            elif writer.startswith("plain"):
                assert len(calls.get(("plain", writer, call), ())) in (0, count), f"{writer} call {call} is torn"
            else:
                whole = {partition for partition, _ in calls.get(("plain", writer, call), ())}
                for partition in whole:
                    here = [place for number, place in calls["plain", writer, call] if number == partition]
                    also = [place for number, place in calls["plain", writer, 0] if number == partition]
                    assert here == also, f"{writer} call {call} is torn in partition {partition}"
        transactions = [call for topic, writer, call in calls if writer == "mover" and topic == "left"]
        assert moved == max(transactions, default=0), "the group's offset is not with its transaction's rows"


def run_rounds(nursery: Nursery, root: Path, rounds: int) -> None:
    seed = 1
    rng = random.Random(seed)
    nursery.run(create, root=root)
    history = History()
    reader = nursery.start(follow, root=root)
    reader.hear("follows")
    for number in range(rounds):
        worker = nursery.start(work, root=root, number=number)
        worker.hear("starts")
        if number % 2:
            worker.hear("stored")
        time.sleep(rng.uniform(0.001, 0.05))
        worker.kill()
        history.add(worker.told)
        fail_if_failed(worker)
        check_cuts(worker.told)
        worker.close()
        fail_if_failed(reader)
        if number % 4 == 3 or number == rounds - 1:
            look_at_everything(nursery, root, history, where=f"seed {seed}, round {number}")
    assert reader.all_told("looked")[-1]["calls"] > 0, "the reader has not seen a single transaction"
    assert len(history.stored) > rounds


def fail_if_failed(child: Child) -> None:
    failed = child.all_told("failed")
    assert not failed, failed[0]["trace"]


def check_cuts(messages: list[Message]) -> None:
    """At most one line per partition, whoever takes its lock first."""
    cuts = [one["text"].split(":")[0] for one in messages if one["what"] == "line"]
    assert len(set(cuts)) == len(cuts), f"more than one cut in a partition: {cuts}"


def look_at_everything(nursery: Nursery, root: Path, history: History, *, where: str) -> None:
    path = root.with_name("everything")
    told: list[dict[str, Any]] = nursery.run(tell_everything, root=root, path=path)
    check_cuts(told)
    everything = told[-1]
    assert everything["problems"] == [], where
    history.check(path.read_text().splitlines(), everything["moved"])


def test_what_was_acknowledged_survives_dozens_of_kills(nursery: Nursery, root: Path) -> None:
    run_rounds(nursery, root, ROUNDS)


@pytest.mark.long
def test_what_was_acknowledged_survives_hundreds_of_kills(nursery: Nursery, root: Path) -> None:
    run_rounds(nursery, root, MANY_ROUNDS)
