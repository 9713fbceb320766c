"""Producers that stood still while others took over, or while they held a lock, and acknowledgements that get lost."""

from __future__ import annotations

import os
import random
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.errors import FencedError, PenstockError, UnavailableError
from penstock.log import Log, TopicSettings, catalog
from penstock.storage.files import DiskLock
from tests.faults import shim
from tests.faults.looking import problems_of, rows_of
from tests.faults.processes import DeadError, Message, Nursery, Parent

ROUNDS = 12
MANY_ROUNDS = 150
SHORT_WAIT = 0.5


def wait_only_shortly_for_locks() -> None:
    """Half a minute is right for users and wrong for tests. Called in a child, before it opens the log."""
    defaults = DiskLock.acquire.__kwdefaults__
    assert defaults is not None
    defaults["timeout"] = SHORT_WAIT
    catalog.BUSY_SECONDS = SHORT_WAIT


def create_payments(parent: Parent, root: str) -> None:
    with Log(root) as log:
        settings = TopicSettings(2, ("account",), segment_bytes=20_000)
        log.create_topic("payments", "account bigint, number bigint, who string", settings=settings)
        log.create_topic("notes", "account bigint, number bigint, who string")


def payments(number: int, who: str) -> list[dict[str, object]]:
    """One call's worth: a row for each of four accounts."""
    return [{"account": account, "number": number, "who": who} for account in range(4)]


def produce(parent: Parent, root: str, who: str, first: int, count: int) -> None:
    """As producer `till`, append and commit transactions in turn, telling of each that was acknowledged.

    It rests after each for as long as that took: whoever is stopped at any moment is inside one about every other time.
    """
    wait_only_shortly_for_locks()
    try:
        log = Log(root)
        producer = log.producer("till")
    except UnavailableError as error:
        parent.tell("unavailable", message=str(error))
        return
    topic, notes = log.topic("payments"), log.topic("notes")
    parent.tell("open")
    for number in range(first, first + count):
        parent.tell("tries", number=number)
        begun = time.monotonic()
        try:
            if number % 3:
                producer.append(topic, payments(number, who), sequence=number)
            else:
                with log.transaction(producer, sequence=number) as transaction:
                    transaction.append(topic, payments(number, who))
                    transaction.append(notes, payments(number, who))
        except FencedError as error:
            parent.tell("fenced", number=number, message=str(error))
            return
        parent.tell("acknowledged", number=number)
        time.sleep(time.monotonic() - begun)


def tell_rows(parent: Parent, root: str) -> None:
    """What is in both topics, as (number, who) with the count of its rows."""
    with Log(root) as log:
        for name in ("payments", "notes"):
            counts: dict[tuple[int, str], int] = {}
            for rows in rows_of(log.topic(name)).values():
                for _, _, _, number, who in rows:
                    counts[number, who] = counts.get((number, who), 0) + 1
            for (number, who), count in counts.items():
                parent.tell(name, number=number, who=who, count=count)
        parent.tell("verified", problems=problems_of(log))


def told(messages: list[Message], what: str) -> list[Message]:
    return [message for message in messages if message["what"] == what]


def stop_and_take_over(nursery: Nursery, root: Path, rng: random.Random) -> str:
    """One round; returns how it went: the second producer waits in vain when the first stands inside an append."""
    nursery.run(create_payments, root=root)
    zombie = nursery.start(produce, root=root, who="A", first=0, count=100_000)
    zombie.hear("open")
    time.sleep(rng.uniform(0.0, 0.05))
    zombie.stop()
    heir = nursery.start(produce, root=root, who="B", first=200_000, count=20)
    first = heir.hear()
    while first["what"] == "line":
        first = heir.hear()
    if first["what"] == "unavailable":
        # SQLite does not know who holds its lock; ours name the process.
        assert str(zombie.pid) in first["message"] or "catalog.db: database is locked" in first["message"]
        zombie.resume()
        zombie.hear("acknowledged")
        zombie.close()
        return "waited"
    heir.finish()
    before = nursery.run(tell_rows, root=root)
    zombie.resume()
    fenced = zombie.hear("fenced")
    assert "replaced" in fenced["message"]
    zombie.finish()
    after = nursery.run(tell_rows, root=root)
    assert after == before, "a late write of the first producer is visible"
    check_rows(after, zombie.all_told("acknowledged"), heir.all_told("acknowledged"))
    return "fenced"


def check_rows(seen: list[Message], of_zombie: list[Message], of_heir: list[Message]) -> None:
    assert told(seen, "verified")[0]["problems"] == []
    for who, acknowledged in (("A", of_zombie), ("B", of_heir)):
        numbers = [message["number"] for message in acknowledged]
        stored = {one["number"]: one["count"] for one in told(seen, "payments") if one["who"] == who}
        noted = {one["number"]: one["count"] for one in told(seen, "notes") if one["who"] == who}
        assert all(stored.get(number) == 4 for number in numbers), f"not every row of {who} is there once"
        assert all(noted.get(number) == 4 for number in numbers if number % 3 == 0)
        # What was under way when the process stood still: in whole partitions, or as a whole transaction.
        unknown = set(stored) - set(numbers)
        assert len(unknown) <= (1 if who == "A" else 0), unknown
        assert all(stored[number] == noted[number] == 4 for number in unknown if number % 3 == 0)


def run_take_overs(nursery: Nursery, tmp_path: Path, rounds: int) -> None:
    rng = random.Random(11)
    outcomes = [stop_and_take_over(nursery, tmp_path / str(number), rng) for number in range(rounds)]
    assert outcomes.count("fenced") >= rounds // 10, outcomes


def test_a_producer_stopped_anywhere_and_replaced_is_fenced_and_adds_nothing(nursery: Nursery, tmp_path: Path) -> None:
    run_take_overs(nursery, tmp_path, ROUNDS)


@pytest.mark.long
def test_many_producers_stopped_anywhere_and_replaced_are_fenced(nursery: Nursery, tmp_path: Path) -> None:
    run_take_overs(nursery, tmp_path, MANY_ROUNDS)


# -- stopped exactly there --------------------------------------------------------------------------------------------


def stop_before_commit(parent: Parent, root: str) -> None:
    """Fill a transaction, stand still, and commit it when continued."""
    with Log(root) as log:
        producer = log.producer("till")
        transaction = log.transaction(producer, sequence=1)
        transaction.append(log.topic("payments"), payments(1, "A"))
        transaction.append(log.topic("notes"), payments(1, "A"))
        transaction.commit_offsets("readers", "payments", {0: 0})
        parent.tell("filled")
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            transaction.commit()
            parent.tell("committed")
        except PenstockError as error:
            parent.tell("refused", error=type(error).__name__)


def test_a_transaction_of_a_replaced_producer_does_not_commit(nursery: Nursery, root: Path) -> None:
    nursery.run(create_payments, root=root)
    zombie = nursery.start(stop_before_commit, root=root)
    zombie.hear("filled")
    zombie.wait_until_stopped()
    heir = nursery.run(produce, root=root, who="B", first=3, count=10)
    zombie.resume()
    assert zombie.hear()["error"] == "FencedError"
    zombie.wait()
    seen = nursery.run(tell_rows, root=root)
    assert {message["who"] for message in told(seen, "payments")} == {"B"}
    check_rows(seen, [], told(heir, "acknowledged"))


def append_one(parent: Parent, root: str, who: str) -> None:
    """One row, so that all who do this want the same partition."""
    wait_only_shortly_for_locks()
    with Log(root) as log:
        topic = log.topic("payments")
        try:
            topic.append(payments(1, who)[:1])
            parent.tell("appended")
        except UnavailableError as error:
            parent.tell("unavailable", message=str(error))


def test_a_process_that_stands_still_with_the_lock_is_named_to_the_one_that_waits(faulty: Nursery, root: Path) -> None:
    faulty.run(create_payments, root=root)
    plan = shim.plan("stop", "fdatasync", 1, f"{root}/topics/*")
    holder = faulty.start(append_one, root=root, who="A", environment=plan)
    holder.wait_until_stopped()
    begun = time.monotonic()
    waiting = faulty.start(append_one, root=root, who="B")
    refused = waiting.hear("unavailable")
    assert str(holder.pid) in refused["message"]
    assert SHORT_WAIT <= time.monotonic() - begun < 10 * SHORT_WAIT
    holder.resume()
    holder.hear("appended")
    assert told(faulty.run(append_one, root=root, who="C"), "appended")
    seen = faulty.run(tell_rows, root=root)
    assert {one["who"]: one["count"] for one in told(seen, "payments")} == {"A": 1, "C": 1}


def commit_one(parent: Parent, root: str, who: str) -> None:
    with Log(root) as log, log.transaction() as transaction:
        transaction.append(log.topic("payments"), payments(1, who))
        transaction.append(log.topic("notes"), payments(1, who))
    parent.tell("committed")


def wait_for_rows(parent: Parent, root: str) -> None:
    """Read to the end, say so, and wait for rows with nothing but the log to wake us."""
    with Log(root) as log:
        reader = log.topic("payments").reader()
        assert reader.poll(0.0) == []
        parent.tell("waits")
        while batches := reader.poll(10.0):
            parent.tell("woken", rows=sum(len(batch) for batch in batches))
        parent.tell("gave up")


@pytest.mark.parametrize("tail_write", [3, 4, 5, 6])
def test_a_waiting_reader_gets_a_transaction_whose_process_died_right_after_the_commit(
    faulty: Nursery, root: Path, tail_write: int
) -> None:
    faulty.run(create_payments, root=root)
    reader = faulty.start(wait_for_rows, root=root)
    reader.hear("waits")
    # Three partitions: writes 1 to 3 announce the ends as pending, then the catalogue commits, then 4 to 6 follow.
    plan = shim.plan("kill", "pwritev", tail_write, f"{root}/*/tail")
    faulty.start(commit_one, root=root, who="A", environment=plan).wait()
    seen = [one for one in faulty.run(tell_rows, root=root) if one["what"] == "payments"]
    if tail_write == 3:
        assert seen == []
        return
    assert seen[0]["count"] == 4
    rows = 0
    while rows < 4:
        rows += reader.hear("woken", timeout=5.0)["rows"]


def create_measures(parent: Parent, root: str) -> None:
    with Log(root) as log:
        settings = TopicSettings(1, (), "taken", segment_bytes=600)
        log.create_topic("measures", "taken timestamp, who string", settings=settings)


def measure_in_transaction(parent: Parent, root: str) -> None:
    with Log(root) as log, log.transaction() as transaction:
        transaction.append(log.topic("measures"), [{"taken": datetime(2026, 5, 1, tzinfo=UTC), "who": "A"}] * 8)


def measure_earlier(parent: Parent, root: str) -> None:
    with Log(root) as log:
        for _ in range(3):
            log.topic("measures").append([{"taken": datetime(2026, 1, 1, tzinfo=UTC), "who": "B"}] * 8)


def tell_measures_of_may(parent: Parent, root: str) -> None:
    with Log(root) as log:
        rows = log.topic("measures").read("2026-05-01T00:00:00Z").to_arrow()
        parent.tell("measures", of_a=rows.column("who").to_pylist().count("A"))


def test_a_transaction_whose_process_died_right_after_the_commit_is_found_by_its_event_time(
    faulty: Nursery, root: Path
) -> None:
    faulty.run(create_measures, root=root)
    # One partition: the first write of the tail announces the end as pending, the second publishes it.
    plan = shim.plan("kill", "pwritev", 2, f"{root}/*/tail")
    faulty.start(measure_in_transaction, root=root, environment=plan).wait()
    faulty.run(measure_earlier, root=root)
    assert told(faulty.run(tell_measures_of_may, root=root), "measures")[0]["of_a"] == 8


# -- acknowledgements that get lost -----------------------------------------------------------------------------------


def append_what_is_asked(parent: Parent, root: str) -> None:
    """A service in front of the log: appends each batch it is sent under the sender's sequence, and answers."""
    with Log(root) as log:
        producer, topic = log.producer("remote"), log.topic("payments")
        parent.tell("open", last=producer.last_sequence(topic))
        while word := parent.wait():
            sequence = int(word)
            producer.append(topic, payments(sequence, "A"), sequence=sequence)
            parent.tell("acknowledged", sequence=sequence)


def send_all(nursery: Nursery, root: Path, *, batches: int, rng: random.Random) -> int:
    """Send every batch until an answer to it has arrived, over a line that loses 3 of 10 answers; count the repeats."""
    service = nursery.start(append_what_is_asked, root=root)
    service.hear("open")
    repeats = 0
    for sequence in range(batches):
        while True:
            try:
                if rng.random() < 0.005:
                    service.say(str(sequence))
                    time.sleep(rng.uniform(0.0, 0.005))
                    service.kill()
                service.say(str(sequence))
                service.hear("acknowledged")
                if rng.random() >= 0.3:
                    break
            except (DeadError, BrokenPipeError):
                service.close()
                service = nursery.start(append_what_is_asked, root=root)
                assert service.hear("open")["last"] <= sequence
            repeats += 1
    service.close()
    return repeats


def tell_order(parent: Parent, root: str) -> None:
    """The numbers of each account, as runs of numbers that follow one another."""
    with Log(root) as log:
        for rows in rows_of(log.topic("payments")).values():
            for account in {row[2] for row in rows}:
                numbers = [row[3] for row in rows if row[2] == account]
                parent.tell(
                    "account", account=account, count=len(numbers), in_order=numbers == list(range(len(numbers)))
                )


def check_lost_answers(nursery: Nursery, root: Path, *, batches: int) -> None:
    nursery.run(create_payments, root=root)
    repeats = send_all(nursery, root, batches=batches, rng=random.Random(5))
    assert repeats > batches // 5
    accounts = nursery.run(tell_order, root=root)
    assert sorted(one["account"] for one in accounts) == [0, 1, 2, 3]
    assert all(one["in_order"] and one["count"] == batches for one in accounts), accounts


def test_batches_sent_again_after_lost_answers_are_stored_once_and_in_order(nursery: Nursery, root: Path) -> None:
    check_lost_answers(nursery, root, batches=1000)


@pytest.mark.long
def test_fifty_thousand_events_survive_lost_answers(nursery: Nursery, root: Path) -> None:
    check_lost_answers(nursery, root, batches=12_500)
