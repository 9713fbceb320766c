"""A disk that fails a sync, is full, takes half a write, or does not let us in: clear errors, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import UnavailableError
from penstock.log import Log, TopicSettings
from tests.faults import shim
from tests.faults.looking import problems_of, rows_of
from tests.faults.processes import Message, Nursery, Parent

SMALL = 4000  # bytes of a segment: a few appends fill one
NOBODY = 65534


def rows(first: int, count: int = 1, text: str = "") -> list[dict[str, object]]:
    return [{"id": number, "text": text} for number in range(first, first + count)]


def outcome_of(action: Callable[[], object]) -> dict[str, str]:
    """What became of an attempt, in words."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the test decides which errors are right
        return {"error": type(error).__name__, "message": str(error)[:1500]}
    return {"error": "", "message": ""}


def create_stock(parent: Parent, root: str) -> None:
    """A topic `stock` with one row, id 0, and a versioned topic `totals`."""
    with Log(root) as log:
        settings = TopicSettings(1, ("id",), segment_bytes=SMALL)
        log.create_topic("stock", "id bigint, text string", settings=settings).append(rows(0))
        settings = TopicSettings(1, ("id",), segment_bytes=SMALL, versioned=True)
        log.create_topic("totals", "id bigint, text string", settings=settings).append(rows(0))


def tell_stock(parent: Parent, root: str) -> None:
    with Log(root) as log:
        ids = {name: [row[2] for row in rows_of(log.topic(name))["0"]] for name in log.topics()}
        parent.tell("stock", problems=problems_of(log), committed=log.group("readers").committed("stock"), **ids)


def stock(nursery: Nursery, root: Path) -> Message:
    """What a fresh process sees."""
    seen = next(message for message in nursery.run(tell_stock, root=root) if message["what"] == "stock")
    assert seen["problems"] == []
    return seen


# -- a sync that fails ------------------------------------------------------------------------------------------------


def append_while_a_sync_fails(parent: Parent, root: str) -> None:
    with Log(root) as log:
        topic = log.topic("stock")
        topic.append(rows(1))
        with shim.armed("eio", "fsync,fdatasync", 1, f"{root}/topics/*"):
            parent.tell("failing", **outcome_of(lambda: topic.append(rows(2))))
        parent.tell("after", **outcome_of(lambda: topic.append(rows(3))))
        transaction = log.transaction()
        transaction.append(topic, rows(4))
        parent.tell("after", **outcome_of(transaction.commit))
    with Log(root) as log:
        log.topic("stock").append(rows(5))


def test_after_a_failed_sync_the_outcome_is_unknown_and_appends_are_refused_until_the_log_is_opened_again(
    faulty: Nursery, root: Path
) -> None:
    faulty.run(create_stock, root=root)
    failing, *after = [one for one in faulty.run(append_while_a_sync_fails, root=root) if one["what"] != "line"]
    assert failing["error"] == "UnknownOutcomeError"
    assert "may or may not be stored" in failing["message"]
    assert [one["error"] for one in after] == ["UnavailableError"] * 2
    assert "open it again" in after[0]["message"]
    seen = stock(faulty, root)["stock"]
    assert [number for number in seen if number != 2] == [0, 1, 5]
    assert seen.count(2) <= 1


def commit_while_a_sync_fails(parent: Parent, root: str, pattern: str, nth: int) -> None:
    """Commit rows with an offset while the n-th sync fails; then wait to be killed."""
    log = Log(root)
    transaction = log.transaction()
    transaction.append(log.topic("stock"), rows(10, 3))
    transaction.append(log.topic("totals"), rows(10, 3))
    transaction.commit_offsets("readers", "stock", {0: 1})
    with shim.armed("eio", "fsync,fdatasync", nth, pattern):
        parent.tell("failing", **outcome_of(transaction.commit))
    parent.wait()


def test_a_transaction_whose_sync_failed_is_whole_or_absent_even_when_the_process_then_dies(
    faulty: Nursery, tmp_path: Path
) -> None:
    failures: list[str] = []
    for pattern in ("topics/stock/*", "topics/totals/*", "catalog.db*", ""):
        for nth in range(1, 4):
            root = tmp_path / f"{nth}{pattern.strip('*').replace('/', '-')}"
            faulty.run(create_stock, root=root)
            report = {shim.REPORT: f"{root}.fault"}
            child = faulty.start(
                commit_while_a_sync_fails, root=root, pattern=f"{root}/{pattern}", nth=nth, environment=report
            )
            failing = child.hear("failing")
            child.kill()
            seen = stock(faulty, root)
            absent = seen["stock"] == [0] and seen["totals"] == [0] and not seen["committed"]
            whole = seen["stock"] == seen["totals"] == [0, 10, 11, 12] and seen["committed"] == {"0": 1}
            fault = Path(f"{root}.fault").read_text().strip() if Path(f"{root}.fault").exists() else "no fault"
            if not (absent or whole):
                failures.append(f"{fault}: told {failing}, seen {seen}")
            elif not failing["error"] and not whole:
                failures.append(f"{fault}: acknowledged and lost")
            elif failing["error"] == "UnavailableError" and not absent:
                failures.append(f"{fault}: refused and stored, {failing}")
    assert not failures, "\n".join(failures)


def tidy(parent: Parent, root: str) -> None:
    with Log(root) as log:
        parent.tell("compacted", **outcome_of(lambda: log.topic("stock").compact()))
        parent.tell("erased", **outcome_of(lambda: log.topic("stock").erase({"id": 0})))


def append_when_asked(parent: Parent, root: str) -> None:
    """A producer with its files open: one row for each word it hears, the ids counting up from 100."""
    with Log(root) as log:
        number = 100
        log.topic("stock").append(rows(number))
        parent.tell("appended", id=number)
        while parent.wait():
            number += 1
            log.topic("stock").append(rows(number))
            parent.tell("appended", id=number)


def test_a_producer_that_lives_on_loses_nothing_when_any_sync_of_another_process_fails(
    faulty: Nursery, tmp_path: Path
) -> None:
    failures = []
    for nth in range(1, 100):
        root = tmp_path / str(nth)
        report = Path(f"{root}.fault")
        faulty.run(create_stock, root=root)
        alive = faulty.start(append_when_asked, root=root)
        alive.hear("appended")
        plan = shim.plan("eio", "fsync,fdatasync", nth, f"{root}/topics/*") | {shim.REPORT: str(report)}
        outcomes = faulty.run(tidy, root=root, environment=plan)
        for _ in range(2):
            alive.say()
            alive.hear("appended")
        alive.kill()
        acknowledged = [one["id"] for one in alive.all_told("appended")]
        seen = stock(faulty, root)["stock"]
        fault = report.read_text().strip() if report.exists() else "no fault"
        if [number for number in seen if number >= 100] != acknowledged:
            failures.append(f"{fault}: {acknowledged} were acknowledged, seen {seen}")
        raw = [one for one in outcomes if one.get("error") not in ("", "UnknownOutcomeError", "UnavailableError", None)]
        if raw:
            failures.append(f"{fault}: {raw[0]['error']} {raw[0]['message']}")
        if not report.exists():
            break
    assert not failures, "\n".join(failures)


# -- a full disk, by the shim -----------------------------------------------------------------------------------------


def do_append(log: Log) -> None:
    log.topic("stock").append(rows(1, 5, "x" * 50))


def do_append_and_roll(log: Log) -> None:
    for turn in range(4):
        log.topic("stock").append(rows(10 * turn, 5, "x" * 300))


def do_append_versions(log: Log) -> None:
    for turn in range(4):
        log.topic("totals").append(rows(10 * turn, 5, "x" * 300))


def do_commit_transaction(log: Log) -> None:
    with log.transaction(log.producer("till")) as transaction:
        transaction.append(log.topic("stock"), rows(1, 5))
        transaction.append(log.topic("totals"), rows(1, 5))
        transaction.commit_offsets("readers", "stock", {0: 1})


def do_compact(log: Log) -> None:
    log.topic("stock").compact()
    log.topic("totals").compact()


def do_erase(log: Log) -> None:
    log.topic("stock").erase({"id": 0})


def do_create(log: Log) -> None:
    log.create_topic("another", "id bigint, text string", partitions=2)


def do_evolve(log: Log) -> None:
    log.topic("stock").evolve("id bigint, text string, note string")


def do_commit_group(log: Log) -> None:
    log.group("readers").commit("stock", {0: 1})


ACTIONS: list[Callable[[Log], None]] = [
    do_append,
    do_append_and_roll,
    do_append_versions,
    do_commit_transaction,
    do_compact,
    do_erase,
    do_create,
    do_evolve,
    do_commit_group,
]


def act_on_a_full_disk(parent: Parent, root: str, action: str, nth: int) -> None:
    """Do something while the disk is full from the n-th write on; then again, with space, in the same process."""
    run = next(one for one in ACTIONS if one.__name__ == action)
    with Log(root) as log:
        log.topic("stock").append(rows(1, 5, "y" * 300))
        log.topic("totals").append(rows(1, 5, "y" * 300))
        with shim.armed("full", "pwritev,pwrite,mkdir", nth, f"{root}/*"):
            parent.tell("full", **outcome_of(lambda: run(log)))
        drafts = [str(path.relative_to(root)) for path in Path(root).rglob("*.draft")]
        parent.tell("left", drafts=drafts)
        parent.tell("space", **outcome_of(lambda: run(log)))
        parent.tell("append", **outcome_of(lambda: log.topic("stock").append(rows(99))))


@pytest.mark.parametrize("action", [one.__name__ for one in ACTIONS])
def test_a_full_disk_is_told_clearly_and_work_goes_on_when_there_is_space(
    faulty: Nursery, tmp_path: Path, action: str
) -> None:
    failures = []
    for nth in range(1, 200):
        root = tmp_path / str(nth)
        report = Path(f"{root}.fault")
        faulty.run(create_stock, root=root)
        environment = {shim.REPORT: str(report)}
        told = faulty.run(act_on_a_full_disk, root=root, action=action, nth=nth, environment=environment)
        full, left, space, append = [one for one in told if one["what"] != "line"]
        if not report.exists():
            assert full["error"] == ""
            break
        fault = report.read_text().strip().replace(str(root), "")
        if full["error"] not in ("", "UnavailableError"):
            failures.append(f"{fault}: {full['error']} {full['message'][:200]}")
        if full["error"] == "UnavailableError" and ("full" not in full["message"] or "hint" not in full["message"]):
            failures.append(f"{fault}: not clear: {full['message']}")
        if space["error"] or append["error"]:
            failures.append(f"{fault}: did not go on: {space} {append}")
        if left["drafts"]:
            failures.append(f"{fault}: {left['drafts']} keep space that is missing")
        seen = stock(faulty, root)["stock"]
        if 99 not in seen:
            failures.append(f"{fault}: seen {seen}")
    assert not failures, f"{len(failures)}:\n" + "\n".join(failures)


# -- half a write -----------------------------------------------------------------------------------------------------


def append_with_half_writes(parent: Parent, root: str, nth: int) -> None:
    with Log(root) as log:
        with shim.armed("short", "pwritev", nth, f"{root}/*"):
            log.topic("stock").append(rows(1, 50, "x" * 100))
            log.topic("stock").append(rows(51, 10, "x" * 100))
            log.topic("stock").compact()
        parent.tell("appended")


def test_a_write_that_took_only_some_bytes_is_completed(faulty: Nursery, tmp_path: Path) -> None:
    for nth in range(1, 60):
        root = tmp_path / str(nth)
        report = Path(f"{root}.fault")
        faulty.run(create_stock, root=root)
        faulty.run(append_with_half_writes, root=root, nth=nth, environment={shim.REPORT: str(report)})
        assert stock(faulty, root)["stock"] == list(range(61)), report.read_text()
        if not report.exists():
            assert nth > 5
            break


# -- a full disk, really ----------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "penstock-test", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("needs root and the right to mount a tmpfs: run as root, outside of restricted containers")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path, *, but: int) -> None:
    """Use up the space of the disk, all but so many bytes."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with (disk / "ballast").open("ab") as ballast:
        ballast.write(b"\1" * max(0, free - but))


def live_on_a_small_disk(parent: Parent, disk: str) -> None:
    """Append until the disk is full, hear that there is space again, and go on."""
    root = f"{disk}/log"
    log = Log(root)
    settings = TopicSettings(1, ("id",), segment_bytes=400_000)
    topic = log.create_topic("stock", "id bigint, text string", settings=settings)
    stored = 0
    for _ in range(10_000):
        more = rows(stored, 10, "x" * 4000)
        outcome = outcome_of(lambda more=more: topic.append(more))
        if outcome["error"]:
            break
        stored += 10
    parent.tell("full", stored=stored, **outcome)
    parent.tell("again", **outcome_of(lambda: topic.append(rows(stored, 10, "x" * 4000))))
    parent.tell("compact", **outcome_of(lambda: log.topic("stock").compact()))
    transaction = log.transaction()
    transaction.append(topic, rows(stored, 10, "x" * 4000))
    transaction.commit_offsets("readers", "stock", {0: 1})
    parent.tell("transaction", **outcome_of(transaction.commit))
    parent.tell("create", **outcome_of(lambda: log.create_topic("another", "id bigint", partitions=100)))
    parent.wait()
    topic.append(rows(stored, 10, "x" * 4000))
    log.topic("stock").compact()
    with log.transaction() as transaction:
        transaction.append(topic, rows(stored + 10, 10, "x" * 4000))
        transaction.commit_offsets("readers", "stock", {0: 1})
    parent.tell("went on", same=[row[2] for row in rows_of(topic)["0"]] == list(range(stored + 20)))
    parent.tell("verified", problems=problems_of(log), committed=log.group("readers").committed("stock"))


def test_a_really_full_disk_refuses_and_loses_nothing_and_takes_rows_again_when_there_is_space(
    nursery: Nursery, small_disk: Path
) -> None:
    fill(small_disk, but=6_000_000)
    child = nursery.start(live_on_a_small_disk, disk=small_disk)
    full = child.hear("full")
    assert full["error"] == "UnavailableError", full
    assert "the disk is full" in full["message"]
    assert "bytes were needed" in full["message"] or "new segment" in full["message"]
    assert full["stored"] > 100
    for what in ("again", "compact", "transaction", "create"):
        refused = child.hear(what)
        assert refused["error"] == "UnavailableError", refused
        assert "full" in refused["message"], refused
    (small_disk / "ballast").unlink()
    child.say()
    assert child.hear("went on")["same"]
    assert child.hear("verified") == {"what": "verified", "problems": [], "committed": {"0": 1}}


def open_on_a_full_disk(parent: Parent, root: str) -> None:
    """A new process, without a byte to be had: it reads, and it is told clearly that it cannot write."""
    try:
        log = Log(root)
    except UnavailableError as error:
        parent.tell("opened", error="UnavailableError", message=str(error))
        return
    parent.tell("opened", error="", message="")
    parent.tell("read", rows=len(rows_of(log.topic("stock"))["0"]))
    for name in ("stock", "untouched"):
        parent.tell("append", **outcome_of(lambda name=name: log.topic(name).append(rows(1, 1000, "x" * 1000))))
    parent.tell("commit", **outcome_of(lambda: log.group("readers").commit("stock", {0: 1})))
    parent.tell("producer", **outcome_of(lambda: log.producer("till")))


def create_untouched(parent: Parent, root: str) -> None:
    with Log(root) as log:
        log.create_topic("untouched", "id bigint, text string")


def test_a_new_process_on_a_full_disk_reads_or_is_told_that_it_is_full(nursery: Nursery, small_disk: Path) -> None:
    root = small_disk / "log"
    nursery.run(create_stock, root=root)
    nursery.run(create_untouched, root=root)
    fill(small_disk, but=0)
    told = nursery.run(open_on_a_full_disk, root=root)
    if told[0]["error"]:
        assert "full" in told[0]["message"], told[0]
        return
    assert next(one for one in told if one["what"] == "read")["rows"] == 1
    refused = [one for one in told if one["what"] in ("append", "commit", "producer")]
    assert all(one["error"] == "UnavailableError" and "full" in one["message"] for one in refused), refused


# -- a directory without permission -----------------------------------------------------------------------------------


def use_as_nobody(parent: Parent, root: str) -> None:
    """Everything a user may try in a log that belongs to somebody else."""
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    opened: list[Log] = []
    parent.tell("open", **outcome_of(lambda: opened.append(Log(root))))
    for log in opened:
        parent.tell("read", **outcome_of(lambda log=log: rows_of(log.topic("stock"))))
        parent.tell("append", **outcome_of(lambda log=log: log.topic("stock").append(rows(1))))
        parent.tell("create", **outcome_of(lambda log=log: log.create_topic("mine", "id bigint")))
        parent.tell("producer", **outcome_of(lambda log=log: log.producer("till")))
        parent.tell("compact", **outcome_of(lambda log=log: log.topic("stock").compact()))


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that every user can reach. (pytest's own are closed to others.)"""
    for folder in (tmp_path, *tmp_path.parents):
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)
    return tmp_path


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize(
    ("path", "mode"),
    [
        (".", 0o000),
        (".", 0o555),
        ("catalog.db", 0o000),
        ("penstock.json", 0o000),
        ("topics", 0o000),
        ("topics/stock", 0o000),
        ("topics/stock/topic.json", 0o000),
        ("topics/stock/00000", 0o000),
        ("topics/stock/00000", 0o555),
        ("topics/stock/00000/lock", 0o444),
        ("topics/stock/00000/tail", 0o000),
        ("topics/stock/00000/manifest.json", 0o000),
        ("topics/stock/00000/tail", 0o444),
    ],
)
def test_a_missing_permission_is_told_as_one(nursery: Nursery, open_folder: Path, path: str, mode: int) -> None:
    root = open_folder / "log"
    nursery.run(create_stock, root=root)
    for one in root.rglob("*"):
        one.chmod(0o777 if one.is_dir() else 0o666)
    root.chmod(0o777)
    (root / path).chmod(mode)
    told = nursery.run(use_as_nobody, root=root)
    refused = [one for one in told if one.get("error")]
    assert refused
    assert {one["error"] for one in refused} == {"UnavailableError"}, refused
    assert all("permission" in one["message"].lower() or "may not" in one["message"] for one in refused), refused


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize("name", ["*.segment", "tail"])
def test_a_file_that_may_only_be_read_is_named_before_anything_is_written(
    nursery: Nursery, open_folder: Path, name: str
) -> None:
    root = open_folder / "log"
    nursery.run(create_stock, root=root)
    for path in root.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    root.chmod(0o777)
    (read_only,) = (root / "topics/stock/00000").glob(name)
    read_only.chmod(0o444)
    told = {one["what"]: one for one in nursery.run(use_as_nobody, root=root)}
    assert not told["read"].get("error")
    assert told["append"]["error"] == "UnavailableError"
    told_what, told_hint = told["append"]["message"].splitlines()
    assert told_what == f"topic 'stock' partition 0: this process may not write {read_only}"
    assert f"chmod u+w {read_only}" in told_hint
    read_only.chmod(0o666)
    told = {one["what"]: one for one in nursery.run(use_as_nobody, root=root)}
    assert not told["append"].get("error")
