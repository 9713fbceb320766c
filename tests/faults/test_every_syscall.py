"""A process is killed before each of its calls that change the disk, one after the other: no promise depends on any.

The script below is first run without a fault, to learn what a user can see after each of its steps. Then it is run
again and again, killed at call 1, 2, 3, ...: a later process must see what was there before the step in which the
script died, or after it, and must be able to go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log import Log, TopicSettings
from tests.faults import shim
from tests.faults.looking import orphans, problems_of, rows_of, sight_of
from tests.faults.processes import DeadError, Nursery, Parent

# -- the script -------------------------------------------------------------------------------------------------------

SMALL = 1500  # bytes of a segment: every second append begins a new one
TOPICS = ("orders", "totals", "brief")


def orders(first: int, last: int, text: str) -> list[dict[str, object]]:
    return [{"id": number, "text": text} for number in range(first, last)]


def create_orders(log: Log) -> None:
    log.create_topic("orders", "id bigint, text string", settings=TopicSettings(2, ("id",), segment_bytes=SMALL))


def create_totals(log: Log) -> None:
    settings = TopicSettings(1, ("id",), versioned=True, segment_bytes=SMALL)
    log.create_topic("totals", "id bigint, text string", settings=settings)


def append_first(log: Log) -> None:
    log.topic("orders").append(orders(0, 12, "first"))


def append_more(log: Log) -> None:
    for turn in range(3):
        log.topic("orders").append(orders(0, 12, f"more {turn}"), partition=None)


def append_as_producer(log: Log) -> None:
    log.producer("till").append(log.topic("orders"), orders(3, 9, "by name"), sequence=7)


def append_if_new(log: Log) -> None:
    log.topic("totals").append(orders(1, 2, "one"), expect=0)


def append_in_transaction(log: Log) -> None:
    with log.transaction() as transaction:
        transaction.append(log.topic("orders"), orders(20, 26, "together"))
        transaction.append(log.topic("totals"), orders(1, 2, "two"), expect=1)
        transaction.commit_offsets("readers", "orders", {0: 3, 1: 4})


def delete_some(log: Log) -> None:
    log.topic("orders").delete([{"id": 2}, {"id": 3}, {"id": 20}])


def compact(log: Log) -> None:
    log.topic("orders").compact()


def erase_one(log: Log) -> None:
    log.topic("orders").erase({"id": 5})


def append_in_named_transaction(log: Log) -> None:
    with log.transaction(log.producer("till"), sequence=1) as transaction:
        transaction.append(log.topic("orders"), orders(30, 36, "named"))
        transaction.append(log.topic("totals"), orders(4, 5, "four"))
        transaction.commit_offsets("readers", "totals", {0: 2})


def fill_totals(log: Log) -> None:
    for number in range(6):
        log.topic("totals").append(orders(6, 7, "x" * 300), expect=number)


def compact_totals(log: Log) -> None:
    log.topic("totals").compact()


def evolve(log: Log) -> None:
    log.topic("orders").evolve("id bigint, text string, note string")


def create_brief(log: Log) -> None:
    log.create_topic("brief", "id bigint, text string", key="id")


def use_brief(log: Log) -> None:
    log.topic("brief").append(orders(0, 4, "brief"))
    log.group("readers").commit("brief", {0: 4})


def drop_brief(log: Log) -> None:
    log.drop_topic("brief")


def append_last(log: Log) -> None:
    log.topic("orders").append([{"id": number, "text": "last", "note": "n"} for number in range(40, 46)])


STEPS: list[Callable[[Log], None]] = [
    create_orders,
    create_totals,
    append_first,
    append_more,
    append_as_producer,
    append_if_new,
    append_in_transaction,
    delete_some,
    compact,
    erase_one,
    append_in_named_transaction,
    fill_totals,
    compact_totals,
    evolve,
    create_brief,
    use_brief,
    drop_brief,
    append_last,
]
# Their parts are separate promises: each partition for itself, or one call after the other.
IN_PARTS = {append_first, append_more, append_as_producer, delete_some, compact, fill_totals, use_brief, append_last}


def play(parent: Parent, root: str, sights: str | None = None) -> None:
    """Run the steps, telling of each; write what can be seen after each to the file `sights`, if there is one."""
    seen = [sight_of(Log(root))] if sights else []
    log = Log(root)
    parent.tell("opened")
    for step in STEPS:
        parent.tell("begins", step=step.__name__)
        step(log)
        parent.tell("did", step=step.__name__)
        if sights:
            seen.append(sight_of(log))
    log.close()
    if sights:
        Path(sights).write_text(json.dumps(seen))


# -- what a later process does ----------------------------------------------------------------------------------------


def look(parent: Parent, root: str, sight: str) -> None:
    """Open the log, as a reader and twice as a writer; write what can be seen, and tell what is wrong with it."""
    seen = []
    for only_read in (True, False, False):
        with Log(root) as log:
            for name in [] if only_read else log.topics():
                topic = log.topic(name)
                for number in range(topic.settings.partitions):
                    topic.files.writer(number).mark_of(0)  # takes the lock, and with it cuts what was left unfinished
            seen.append(sight_of(log))
            parent.tell("looked", problems=problems_of(log), same=seen[0] == seen[-1])
    Path(sight).write_text(json.dumps(seen[0]))


def go_on(parent: Parent, root: str) -> None:
    """Create what is missing, append to every partition, compact, and look for what nobody needs any more."""
    with Log(root) as log:
        for name in TOPICS:
            if name not in log.topics():
                log.create_topic(name, "id bigint, text string", key="id")
                committed = log.group("readers").committed(name)
                assert committed == {}, f"the new topic {name} begins with the offsets of an earlier one: {committed}"
            before = rows_of(log.topic(name))
            appended = log.topic(name).append(orders(100, 120, "later"))
            assert {one.partition for one in appended} == {int(number) for number in before}
            after = rows_of(log.topic(name))
            assert all(after[number][: len(rows)] == rows for number, rows in before.items())
            assert sum(map(len, after.values())) == sum(map(len, before.values())) + 20
            log.topic(name).compact()
        parent.tell("went on", problems=problems_of(log))
    parent.tell("left", orphans=list(orphans(Path(root))))


# -- the loop ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sights(_nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What can be seen after opening, and after each step, when nothing goes wrong."""
    folder = tmp_path_factory.mktemp("dry")
    _nursery.run(play, root=folder / "log", sights=folder / "sights")
    return json.loads((folder / "sights").read_text())


def kill_at(nursery: Nursery, folder: Path, call: int, sights: list[dict[str, Any]]) -> bool:
    """One round. False: the script came to its end before this call."""
    root = folder / str(call) / "log"
    report = folder / str(call) / "fault"
    root.parent.mkdir()
    plan = shim.plan("kill", shim.EVERY_CALL, call, f"{root}*") | {shim.REPORT: str(report)}
    child = nursery.start(play, root=root, environment=plan)
    child.wait()
    done = len(child.all_told("did"))
    failed = child.all_told("failed")
    assert not failed, failed[0]["trace"]
    if not report.exists():
        assert done == len(STEPS)
        return False
    step = child.all_told("begins")[-1]["step"] if child.all_told("begins") else "open"
    child.close()
    where = f"call {call}, in step {step} ({report.read_text().strip()})"
    try:
        check_after_kill(nursery, root, sights[done], sights[min(done + 1, len(STEPS))], step)
    except (AssertionError, DeadError) as error:
        raise AssertionError(f"{where}: {error}") from error
    return True


def check_after_kill(nursery: Nursery, root: Path, before: dict[str, Any], after: dict[str, Any], step: str) -> None:
    told = nursery.run(look, root=root, sight=root.with_name("sight"))
    looks = [message for message in told if message["what"] == "looked"]
    cuts = [message["text"] for message in told if message["what"] == "line"]
    assert [one["problems"] for one in looks] == [[], [], []]
    assert all(one["same"] for one in looks), "a later opening changed what can be seen"
    assert len({cut.split(":")[0] for cut in cuts}) == len(cuts), f"more than one cut per partition: {cuts}"
    seen = json.loads(root.with_name("sight").read_text())
    whole = seen in (before, after)
    in_parts = step in {one.__name__ for one in IN_PARTS} and is_between(seen, before, after)
    assert whole or in_parts, f"seen {seen}\nbefore {before}\nafter {after}"
    went_on, left = [one for one in nursery.run(go_on, root=root) if one["what"] in ("went on", "left")]
    assert went_on["problems"] == []
    assert left["orphans"] == []


def is_between(seen: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether each partition is as it was, as it was to become, or on its way there by whole appends."""
    if seen["committed"] not in (before["committed"], after["committed"]):
        return False
    for name, partitions in seen["rows"].items():
        for number, rows in partitions.items():
            old, new = before["rows"][name][number], after["rows"][name][number]
            on_its_way = len(old) < len(rows) < len(new) and rows == new[: len(rows)]
            if rows not in (old, new) and not on_its_way:
                return False
    return True


def run_rounds(nursery: Nursery, folder: Path, sights: list[dict[str, Any]], *, every: int) -> None:
    failures = []
    call = 1
    while True:
        try:
            if not kill_at(nursery, folder, call, sights):
                break
        except AssertionError as error:
            failures.append(str(error)[:1500])
        call += every
        assert call < 5000, "the script never comes to its end"
    assert not failures, f"{len(failures)} of {call // every} rounds failed:\n" + "\n".join(failures[:10])


def test_a_kill_before_a_sample_of_all_calls_leaves_a_log_that_equals_the_model(
    faulty: Nursery, tmp_path: Path, sights: list[dict[str, Any]]
) -> None:
    run_rounds(faulty, tmp_path, sights, every=9)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_kill_before_every_call_leaves_a_log_that_equals_the_model(
    faulty: Nursery, tmp_path: Path, sights: list[dict[str, Any]]
) -> None:
    run_rounds(faulty, tmp_path, sights, every=1)


# -- a process that lives on ------------------------------------------------------------------------------------------


def prepare_stock(parent: Parent, root: str) -> None:
    with Log(root) as log:
        settings = TopicSettings(1, ("id",), segment_bytes=100_000)
        log.create_topic("stock", "id bigint, text string", settings=settings).append(orders(0, 8, "before"))


def tidy(parent: Parent, root: str) -> None:
    """What a nightly job does beside the producers: compact, erase, and append a little itself."""
    with Log(root) as log:
        topic = log.topic("stock")
        parent.tell("compacts")
        log.topic("stock").compact()
        topic.erase({"id": 1})
        with log.transaction() as transaction:
            transaction.append(topic, orders(30, 32, "by the job"))
            transaction.commit_offsets("readers", topic, {0: 5})
        topic.append(orders(32, 34, "by the job"))


def append_when_asked(parent: Parent, root: str) -> None:
    """A producer with its files open: one row for each word it hears, the ids counting up from 1000."""
    with Log(root) as log:
        topic = log.topic("stock")
        topic.append(orders(1000, 1001, "alive"))
        parent.tell("ready")
        number = 1001
        while parent.wait():
            topic.append(orders(number, number + 1, "alive"))
            parent.tell("appended", id=number)
            number += 1


def tell_stock(parent: Parent, root: str) -> None:
    with Log(root) as log:
        rows = rows_of(log.topic("stock"))["0"]
        parent.tell("stock", offsets=[row[0] for row in rows], ids=[row[2] for row in rows])
        assert problems_of(log) == []


def test_a_producer_that_lives_on_loses_nothing_when_another_process_is_killed_at_any_call(
    faulty: Nursery, tmp_path: Path
) -> None:
    failures: list[str] = []
    for call in range(1, 1000):
        root, report = tmp_path / str(call) / "log", tmp_path / str(call) / "fault"
        faulty.run(prepare_stock, root=root)
        alive = faulty.start(append_when_asked, root=root)
        alive.hear("ready")
        plan = shim.plan("kill", shim.EVERY_CALL, call, f"{root}*") | {shim.REPORT: str(report)}
        faulty.start(tidy, root=root, environment=plan).wait()
        for _ in range(2):
            alive.say()
            alive.hear("appended")
        alive.kill()
        seen = next(one for one in faulty.run(tell_stock, root=root) if one["what"] == "stock")
        acknowledged = [1000, *(one["id"] for one in alive.all_told("appended"))]
        if [number for number in seen["ids"] if number >= 1000] != acknowledged:
            failures.append(f"{report.read_text().strip()}: {acknowledged} were acknowledged, seen {seen['ids']}")
        if not report.exists():
            break
    assert not failures, "\n".join(failures)
