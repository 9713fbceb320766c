"""Several processes and threads use one log at once: nobody's rows are lost, doubled or out of order."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import ConflictError
from penstock.log import Log, TopicSettings
from tests.faults.looking import problems_of, rows_of
from tests.faults.processes import Nursery, Parent

PROCESSES = 4
THREADS = 2
CALLS = 60
MANY_CALLS = 1500


def create_topics(parent: Parent, root: str) -> None:
    with Log(root) as log:
        settings = TopicSettings(3, ("writer",), segment_bytes=20_000)
        log.create_topic("events", "writer string, number bigint", settings=settings)
        settings = TopicSettings(2, ("account",), versioned=True, segment_bytes=20_000)
        log.create_topic("accounts", "account bigint, writer string, number bigint", settings=settings)


def in_threads(target: Callable[[str], None], names: list[str]) -> None:
    """Run the target once per name, all at once; an error in one of them is raised here."""
    errors: list[BaseException] = []

    def run(name: str) -> None:
        try:
            target(name)
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def write_events(parent: Parent, root: str, process: int, calls: int) -> None:
    """In each thread, append numbered rows, one and three at a time in turn."""
    with Log(root) as log:
        topic = log.topic("events")

        def write(writer: str) -> None:
            number = 0
            for call in range(calls):
                count = 1 if call % 2 else 3
                topic.append([{"writer": writer, "number": number + one} for one in range(count)])
                number += count

        parent.tell("ready")
        parent.wait()
        in_threads(write, [f"{process}-{thread}" for thread in range(THREADS)])


def follow_events(parent: Parent, root: str, rows: int) -> None:
    """Read on as rows come, until all are there; each writer's must come in order."""
    with Log(root) as log:
        reader = log.topic("events").reader()
        parent.tell("ready")
        seen: dict[str, int] = defaultdict(int)
        while sum(seen.values()) < rows:
            batches = reader.poll(30.0)
            assert batches, f"nothing came for half a minute; seen {dict(seen)}"
            for batch in batches:
                for writer, number in zip(*batch.rows.to_pydict().values(), strict=True):
                    assert number == seen[writer], f"{writer}: {number} came instead of {seen[writer]}"
                    seen[writer] += 1
        assert problems_of(log) == []
        parent.tell("followed", seen=seen)


def run_writers(nursery: Nursery, root: Path, *, calls: int) -> None:
    nursery.run(create_topics, root=root)
    per_writer = calls // 2 * 4
    reader = nursery.start(follow_events, root=root, rows=per_writer * PROCESSES * THREADS)
    writers = [nursery.start(write_events, root=root, process=one, calls=calls) for one in range(PROCESSES)]
    for child in (reader, *writers):
        child.hear("ready")
    for writer in writers:
        writer.say()
    for writer in writers:
        writer.finish()
    names = {f"{process}-{thread}" for process in range(PROCESSES) for thread in range(THREADS)}
    assert reader.hear("followed")["seen"] == dict.fromkeys(names, per_writer)


def test_rows_of_many_writers_are_stored_once_and_each_writers_in_its_order(nursery: Nursery, root: Path) -> None:
    run_writers(nursery, root, calls=CALLS)


@pytest.mark.long
def test_many_rows_of_many_writers_are_stored_once_and_each_writers_in_its_order(nursery: Nursery, root: Path) -> None:
    run_writers(nursery, root, calls=MANY_CALLS)


# -- conditional appends ----------------------------------------------------------------------------------------------


def compete(parent: Parent, root: str, process: int, until: int) -> None:
    """In each thread, try to write the next version of an account; read it again after losing. Tell of what was won."""
    with Log(root) as log:
        topic = log.topic("accounts")

        def write(writer: str) -> None:
            for account in (1, 2):
                version = 0
                while version < until:
                    row = {"account": account, "writer": writer, "number": version + 1}
                    try:
                        topic.append([row], expect=version)
                        version += 1
                        parent.tell("won", account=account, version=version, writer=writer)
                    except ConflictError as lost:
                        if lost.actual <= version:
                            raise
                        version = lost.actual

        parent.tell("ready")
        parent.wait()
        in_threads(write, [f"{process}-{thread}" for thread in range(THREADS)])


def tell_accounts(parent: Parent, root: str) -> None:
    with Log(root) as log:
        for rows in rows_of(log.topic("accounts")).values():
            for account in sorted({row[2] for row in rows}):
                writers = [row[3] for row in rows if row[2] == account]
                numbers = [row[4] for row in rows if row[2] == account]
                in_order = numbers == list(range(1, len(numbers) + 1))
                parent.tell("account", account=account, in_order=in_order, writers=writers[:200])
        parent.tell("verified", problems=problems_of(log))


def test_exactly_one_of_several_competing_writers_gets_each_version(nursery: Nursery, root: Path) -> None:
    versions = 60
    nursery.run(create_topics, root=root)
    writers = [nursery.start(compete, root=root, process=one, until=versions) for one in range(PROCESSES)]
    for writer in writers:
        writer.hear("ready")
    for writer in writers:
        writer.say()
    won: dict[tuple[int, int], list[str]] = defaultdict(list)
    for writer in writers:
        for message in writer.finish():
            if message["what"] == "won":
                won[message["account"], message["version"]].append(message["writer"])
    assert sorted(won) == [(account, version + 1) for account in (1, 2) for version in range(versions)]
    assert all(len(names) == 1 for names in won.values()), "two writers were told they won the same version"
    *accounts, verified = nursery.run(tell_accounts, root=root)
    assert verified["problems"] == []
    for one in accounts:
        assert one["in_order"]
        assert one["writers"] == [won[one["account"], version + 1][0] for version in range(versions)]


# -- opening and closing at the same time -----------------------------------------------------------------------------


def open_and_use(parent: Parent, root: str) -> None:
    parent.tell("ready")
    parent.wait()
    for _ in range(3):
        with Log(root) as log:
            parent.tell("opened", topics=log.topics())


def test_processes_that_open_a_new_log_at_the_same_moment_all_succeed(nursery: Nursery, tmp_path: Path) -> None:
    for number in range(8):
        children = [nursery.start(open_and_use, root=tmp_path / str(number)) for _ in range(PROCESSES)]
        for child in children:
            child.hear("ready")
        for child in children:
            child.say()
        for child in children:
            child.finish()


def open_append_close(parent: Parent, root: str, process: int) -> None:
    """What short-lived jobs do: open, append one versioned event, close."""
    for number in range(12):
        with Log(root) as log:
            log.topic("accounts").append([{"account": 7, "writer": str(process), "number": number}])
    parent.tell("done")


def test_processes_that_open_and_close_a_versioned_topic_all_the_time_do_not_disturb_one_another(
    nursery: Nursery, root: Path
) -> None:
    nursery.run(create_topics, root=root)
    children = [nursery.start(open_append_close, root=root, process=one) for one in range(PROCESSES)]
    for child in children:
        child.finish()
    *accounts, verified = nursery.run(tell_accounts, root=root)
    assert verified["problems"] == []
    assert sum(len(one["writers"]) for one in accounts) == 12 * PROCESSES


# -- waiting ----------------------------------------------------------------------------------------------------------


def wait_for_events(parent: Parent, root: str) -> None:
    with Log(root) as log:
        reader = log.topic("events").reader("end")
        parent.tell("ready")
        while batches := reader.poll(None):
            parent.tell("woken", rows=sum(len(batch) for batch in batches), at=time.monotonic())


def wait_as_member(parent: Parent, root: str) -> None:
    with Log(root) as log:
        member = log.group("readers").join(["events"])
        member.poll(0.0)
        parent.tell("ready")
        while deliveries := member.poll(None):
            parent.tell("woken", rows=sum(len(one.batch) for one in deliveries), at=time.monotonic())


def append_one_event(parent: Parent, root: str) -> None:
    with Log(root) as log:
        begun = time.monotonic()
        log.topic("events").append({"writer": "w", "number": 1})
        parent.tell("appended", begun=begun)


@pytest.mark.parametrize(
    ("wait", "most_cpu"),
    [(wait_for_events, 0.01), (wait_as_member, 0.05)],  # a member renews its lease once a second
    ids=["reader", "member"],
)
def test_a_waiting_reader_uses_no_cpu_and_is_woken_by_an_append_in_another_process(
    nursery: Nursery, root: Path, wait: Callable[[Parent, str], None], most_cpu: float
) -> None:
    nursery.run(create_topics, root=root)
    reader = nursery.start(wait, root=root)
    reader.hear("ready")
    time.sleep(0.2)  # until it has settled in its wait
    before = reader.cpu_seconds()
    time.sleep(1.5)
    assert reader.cpu_seconds() - before <= most_cpu
    appended = nursery.run(append_one_event, root=root)[0]
    woken = reader.hear("woken", timeout=5.0)
    assert woken["rows"] == 1
    assert woken["at"] - appended["begun"] < 1.0


def test_a_waiting_reader_makes_no_system_calls(nursery: Nursery, root: Path, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace: apt-get install strace")
    nursery.run(create_topics, root=root)
    reader = nursery.start(wait_for_events, root=root)
    reader.hear("ready")
    calls = tmp_path / "calls"
    tracer = subprocess.Popen(
        [strace, "-f", "-o", str(calls), "-p", str(reader.pid)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert tracer.stderr is not None
        attached = tracer.stderr.readline()
        if "attached" not in attached:
            pytest.skip(f"strace may not look at processes here: {attached.strip()}")
        time.sleep(1.0)
        quiet = calls.read_text().splitlines()
    finally:
        tracer.terminate()
        tracer.communicate(timeout=10)
    assert len(quiet) <= 2, "\n".join(quiet[:20])
    nursery.run(append_one_event, root=root)
    assert reader.hear("woken", timeout=5.0)["rows"] == 1
