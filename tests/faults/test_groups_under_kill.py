"""Members of a group are killed, stopped and added while a producer appends: nothing is skipped, nothing goes back.

Every member tells the test what it was delivered, and what it committed once the commit was acknowledged. The offsets
in a partition are 0, 1, 2, ...: whatever nobody was delivered shows as a gap.
"""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import pytest

from penstock.errors import FencedError, UnavailableError
from penstock.log import Log
from penstock.log.groups import Member
from tests.faults.processes import Child, Message, Nursery, Parent

PARTITIONS = 6
LEASE = 0.6
MEMBERS = 3
SECONDS = 12.0
MANY_SECONDS = 75.0

# -- the processes ----------------------------------------------------------------------------------------------------


def create_topic(parent: Parent, root: str) -> None:
    with Log(root) as log:
        log.create_topic("events", "id bigint", partitions=PARTITIONS)


def append_until_told(parent: Parent, root: str) -> None:
    """A row to every partition in turn, some hundred a second, until the test has a word; then tell the ends."""
    enough = threading.Event()
    threading.Thread(target=lambda: (parent.wait(), enough.set()), daemon=True).start()
    with Log(root) as log:
        topic = log.topic("events")
        parent.tell("appends")
        number = 0
        while not enough.wait(0.004):
            topic.append([{"id": number + one} for one in range(3)])
            number += 3
        parent.tell("ends", ends=topic.ends())


def consume(parent: Parent, root: str) -> None:
    """Poll, tell, work a little, commit, tell; for ever."""
    with Log(root) as log:

        def commit(member: Member) -> None:
            offsets = member.positions().get("events", {})
            asked = time.monotonic()
            try:
                member.commit()
            except FencedError:
                parent.tell("refused", offsets=offsets)
            else:
                parent.tell("committed", offsets=offsets, asked=asked, at=time.monotonic())

        member = log.group("readers").join(["events"], lease=LEASE, on_release=commit)
        parent.tell("joined", member=member.id)
        while True:
            began = time.monotonic()
            try:
                deliveries = member.poll(0.5)
            except UnavailableError as error:
                # Somebody was stopped inside the catalogue. The lease may be lost, the member is not.
                parent.tell("unavailable", message=str(error))
                continue
            for one in deliveries:
                first, end = int(one.batch.offsets[0]), one.batch.next_offset
                parent.tell(
                    "delivered", partition=one.batch.partition, first=first, end=end, began=began, at=time.monotonic()
                )
            if deliveries:
                time.sleep(0.002)
                commit(member)


def tell_committed(parent: Parent, root: str) -> None:
    with Log(root) as log:
        group = log.group("readers")
        parent.tell("committed", offsets=group.committed("events"), members=len(group.members()))


# -- the checks -------------------------------------------------------------------------------------------------------


@dataclass
class Event:
    """A stretch of a partition that one member was delivered, or the offset it committed."""

    member: int
    began: float
    at: float
    first: int
    end: int


class Progress:
    """The largest offset that events had reached by a time."""

    def __init__(self, events: list[Event]) -> None:
        ordered = sorted(events, key=lambda event: event.at)
        self._times = [event.at for event in ordered]
        self._ends = list(accumulate((event.end for event in ordered), max))

    def reached(self, moment: float) -> int:
        count = bisect_right(self._times, moment)
        return self._ends[count - 1] if count else 0


@dataclass
class History:
    """What all members told, per partition."""

    delivered: dict[int, list[Event]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[int, list[Event]] = field(default_factory=lambda: defaultdict(list))
    stopped: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, member: int, messages: list[Message]) -> None:
        for one in messages:
            if one["what"] == "failed":
                raise AssertionError(one["trace"])
            if one["what"] == "delivered":
                event = Event(member, one["began"], one["at"], one["first"], one["end"])
                self.delivered[one["partition"]].append(event)
            if one["what"] == "committed":
                for partition, offset in one["offsets"].items():
                    self.committed[int(partition)].append(Event(member, one["asked"], one["at"], 0, offset))

    def check(self, ends: dict[str, int]) -> None:
        for partition, end in ((int(number), end) for number, end in ends.items()):
            delivered = sorted(self.delivered[partition], key=lambda event: event.at)
            self.check_gaps(partition, delivered, end)
            self.check_commits(partition, delivered)
            self.check_duplicates(partition, delivered)
            self.check_owners(partition, delivered)

    def check_gaps(self, partition: int, delivered: list[Event], end: int) -> None:
        reached = 0
        for event in sorted(delivered, key=lambda event: event.first):
            assert event.first <= reached, f"partition {partition}: offsets {reached} to {event.first - 1} were skipped"
            reached = max(reached, event.end)
        assert reached == end, f"partition {partition}: offsets {reached} to {end - 1} were never delivered"

    def check_commits(self, partition: int, delivered: list[Event]) -> None:
        """In the order in which they took effect, commits never go back; none is beyond what somebody was given."""
        commits = Progress(self.committed[partition])
        given = Progress(delivered)
        for one in self.committed[partition]:
            # A commit that ended before this one was asked for is certainly earlier.
            before = commits.reached(one.began)
            assert one.end >= before, f"partition {partition}: the offset went back from {before} to {one.end}"
            most = max(before, given.reached(one.began))
            assert one.end <= most, f"partition {partition}: {one.end} was committed, {most} delivered"

    def check_duplicates(self, partition: int, delivered: list[Event]) -> None:
        """Who is given a partition starts at the offset that was committed by then: rows below it do not come again."""
        commits = Progress(self.committed[partition])
        own_end: dict[int, int] = {}
        for event in delivered:
            known = commits.reached(event.began - self.pause(event))
            continues = own_end.get(event.member) == event.first
            own_end[event.member] = event.end
            assert continues or event.first >= known, (
                f"partition {partition}: {event.first} was delivered again although {known} had been committed"
            )

    def check_owners(self, partition: int, delivered: list[Event]) -> None:
        """While one member goes on and on within its lease, nobody else gets any."""
        last: dict[int, Event] = {}
        times = [event.at for event in delivered]
        for event in delivered:
            before = last.get(event.member)
            last[event.member] = event
            goes_on = before is not None and before.end == event.first and event.began - before.at < LEASE / 2
            if before is None or not goes_on or self.was_stopped(before) or self.was_stopped(event):
                continue
            for other in delivered[bisect_right(times, before.at) : bisect_left(times, event.began)]:
                alone = other.member == event.member or other.began <= before.at or self.was_stopped(other)
                assert alone, f"partition {partition}: members {event.member} and {other.member} both own it"

    def pause(self, event: Event) -> float:
        """How long ago a member may have looked at the group's offsets, which it does when it takes a partition."""
        return LEASE + sum(until - since for since, until in self.stopped[event.member])

    def was_stopped(self, event: Event) -> bool:
        return any(since <= event.at and event.began <= until for since, until in self.stopped[event.member])


class Chaos:
    """Keeps some members alive, and does something bad to one of them every now and then."""

    def __init__(self, nursery: Nursery, root: Path, seed: int) -> None:
        self.nursery = nursery
        self.root = root
        self.rng = random.Random(seed)
        self.members: dict[int, Child] = {}
        self.stopped: dict[int, float] = {}
        self.history = History()
        self.deeds: list[str] = []
        self._next = 0

    def add(self) -> None:
        self.members[self._next] = self.nursery.start(consume, root=self.root)
        self.deeds.append(f"add {self._next}")
        self._next += 1

    def act(self) -> None:
        running = [number for number in self.members if number not in self.stopped]
        deed = self.rng.choice(["kill", "stop", "stop", "resume", "add"])
        if deed == "kill" and len(running) > 1:
            self.end(self.rng.choice(running))
        elif deed == "stop" and len(running) > 1:
            number = self.rng.choice(running)
            self.members[number].stop()
            self.stopped[number] = time.monotonic()
            self.deeds.append(f"stop {number}")
        elif deed == "resume" and self.stopped:
            self.resume(self.rng.choice(sorted(self.stopped)))
        if len(self.members) < MEMBERS or (deed == "add" and len(self.members) < MEMBERS + 2):
            self.add()
        # Nobody stands still for so long that the others, waiting for the catalogue, would give up.
        for number, since in list(self.stopped.items()):
            if time.monotonic() - since > 4 * LEASE:
                self.resume(number)

    def resume(self, number: int) -> None:
        self.members[number].resume()
        self.history.stopped[number].append((self.stopped.pop(number), time.monotonic() + LEASE))
        self.deeds.append(f"resume {number}")

    def end(self, number: int) -> None:
        member = self.members.pop(number)
        member.kill()
        self.history.add(number, member.told)
        member.close()
        self.deeds.append(f"kill {number}")


def run_chaos(nursery: Nursery, root: Path, *, seconds: float, seed: int) -> None:
    nursery.run(create_topic, root=root)
    producer = nursery.start(append_until_told, root=root)
    producer.hear("appends")
    chaos = Chaos(nursery, root, seed)
    for _ in range(MEMBERS):
        chaos.add()
    finish = time.monotonic() + seconds
    while time.monotonic() < finish:
        time.sleep(chaos.rng.uniform(0.1, 0.5))
        chaos.act()
        for member in chaos.members.values():
            member.all_told("delivered")  # take in what it told, or it stands still when the pipe is full
    producer.say()
    ends = producer.hear("ends")["ends"]
    for number in list(chaos.stopped):
        chaos.resume(number)
    wait_until_committed(nursery, root, chaos, ends)
    for number in list(chaos.members):
        chaos.end(number)
    try:
        chaos.history.check(ends)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n{', '.join(chaos.deeds)}") from error
    assert min(ends.values()) > 20


def wait_until_committed(nursery: Nursery, root: Path, chaos: Chaos, ends: dict[str, int]) -> None:
    deadline = time.monotonic() + 30.0
    while True:
        for number, member in chaos.members.items():
            failed = member.all_told("failed")
            assert not failed, f"member {number}: {failed[0]['trace']}"
        committed = nursery.run(tell_committed, root=root)[-1]
        if committed["offsets"] == ends:
            return
        assert time.monotonic() < deadline, f"the group stands at {committed}; the ends are {ends}\n{chaos.deeds}"
        time.sleep(0.05)


def test_a_group_whose_members_come_and_go_skips_nothing(nursery: Nursery, root: Path) -> None:
    run_chaos(nursery, root, seconds=SECONDS, seed=3)


@pytest.mark.long
@pytest.mark.parametrize("seed", [101, 102, 103])
def test_a_group_whose_members_come_and_go_for_long_skips_nothing(nursery: Nursery, root: Path, seed: int) -> None:
    run_chaos(nursery, root, seconds=MANY_SECONDS, seed=seed)


# -- stopped exactly there --------------------------------------------------------------------------------------------


def append_thirty(parent: Parent, root: str) -> None:
    with Log(root) as log:
        for number in range(5 * PARTITIONS):
            log.topic("events").append({"id": number})


def deliver_and_wait(parent: Parent, root: str) -> None:
    """Take everything, and commit only when the test says so."""
    with Log(root) as log:
        member = log.group("readers").join(["events"], lease=LEASE)
        rows = 0
        while rows < 5 * PARTITIONS:
            rows += sum(len(one.batch) for one in member.poll(1.0))
        parent.tell("delivered")
        parent.wait()
        try:
            member.commit()
            parent.tell("committed")
        except FencedError as error:
            parent.tell("refused", message=str(error))


def test_a_member_that_was_stopped_past_its_lease_cannot_commit_what_another_has_taken_over(
    nursery: Nursery, root: Path
) -> None:
    nursery.run(create_topic, root=root)
    nursery.run(append_thirty, root=root)
    late = nursery.start(deliver_and_wait, root=root)
    late.hear("delivered")
    late.stop()
    heir = nursery.start(deliver_and_wait, root=root)
    heir.hear("delivered")
    late.say()
    late.resume()
    assert "belongs to" in late.hear("refused")["message"]
    heir.say()
    heir.hear("committed")


def hand_over_slowly(parent: Parent, root: str) -> None:
    """Own everything; when asked to share, tell, and take as long over it as the test wants."""
    with Log(root) as log:

        def release(member: Member) -> None:
            parent.tell("releases")
            parent.wait()

        member = log.group("readers").join(["events"], lease=LEASE, on_release=release)
        while True:
            deliveries = member.poll(0.05)
            rows = sum(len(one.batch) for one in deliveries)
            parent.tell("polled", rows=rows, owned=sorted(number for _, number in member.owned))


def take_all_and_leave(parent: Parent, root: str) -> None:
    """Wait until everything is ours, consume and commit all of it, and leave the group in good order."""
    with Log(root) as log:
        member = log.group("readers").join(["events"], lease=LEASE)
        rows = 0
        while rows < 5 * PARTITIONS:
            rows += sum(len(one.batch) for one in member.poll(1.0))
        member.commit()
        member.close()
        parent.tell("left")


def tell_owned(parent: Parent, root: str) -> None:
    with Log(root) as log:
        member = log.group("readers").join(["events"], lease=LEASE)
        while True:
            member.poll(0.05)
            parent.tell("polled", owned=sorted(number for _, number in member.owned))


def hand_over_too_late(nursery: Nursery, root: Path) -> Child:
    """A member whose lease ran out while it handed over, and whose heir has consumed everything and left again."""
    nursery.run(create_topic, root=root)
    slow = nursery.start(hand_over_slowly, root=root)
    while len(slow.hear("polled")["owned"]) < PARTITIONS:
        pass
    heir = nursery.start(take_all_and_leave, root=root)
    slow.hear("releases")
    nursery.run(append_thirty, root=root)
    heir.hear("left")
    slow.say()
    return slow


def test_a_member_that_handed_over_too_late_does_not_read_again_what_its_heir_has_committed(
    nursery: Nursery, root: Path
) -> None:
    slow = hand_over_too_late(nursery, root)
    while len((polled := slow.hear("polled"))["owned"]) < PARTITIONS:
        assert polled["rows"] == 0, "what the group had committed was delivered again"
    assert slow.hear("polled")["rows"] == 0, "what the group had committed was delivered again"


def test_no_partition_stays_with_a_member_that_died_after_it_handed_over_too_late(nursery: Nursery, root: Path) -> None:
    slow = hand_over_too_late(nursery, root)
    slow.hear("polled")
    slow.kill()
    fresh = nursery.start(tell_owned, root=root)
    deadline = time.monotonic() + 10.0
    while len((polled := fresh.hear("polled"))["owned"]) < PARTITIONS:
        assert time.monotonic() < deadline, f"only {polled['owned']} can be had; the rest belongs to nobody alive"
