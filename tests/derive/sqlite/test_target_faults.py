"""SQLite as a target under real faults: killed processes, competing instances, readers, locks, full disks, damage."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.contracts import Changes
from penstock.derive.sqlite.target import SqliteTarget
from penstock.errors import DamagedError, DeclarationError, FencedError, UnavailableError
from tests.derive.sqlite.queries import query
from tests.faults.processes import Nursery, Parent
from tests.targets.changes import additions, changes, removals, target_table

STATE = target_table("state", "k bigint, epoch bigint", ("k",))
BAG = target_table("bag", "epoch bigint, token bigint")
KEYS = 3_000
ROUNDS = 20


def changes_of(epoch: int, token: int) -> dict[str, list[Changes]]:
    """Every row of `state` says the epoch; in `bag` there are always the rows of the last two epochs."""
    gone = [changes(BAG, [(-2, {"epoch": epoch - 2, "token": 0})])] if epoch > 2 else []
    come = [changes(BAG, [(2, {"epoch": epoch, "token": 0})])]
    return {"state": additions(STATE, *[{"k": k, "epoch": epoch} for k in range(KEYS)]), "bag": [*come, *gone]}


def open_target(path: Path, token: int) -> SqliteTarget:
    target = SqliteTarget(path)
    target.take_over("shop", token)
    target.declare([STATE, BAG])
    return target


# -- killed -----------------------------------------------------------------------------------------------------------


def write_until_killed(parent: Parent, path: str, token: int) -> None:
    with SqliteTarget(path) as target:
        epoch = target.take_over("shop", token)
        target.declare([STATE, BAG])
        while True:
            epoch += 1
            target.apply(epoch, changes_of(epoch, token))
            parent.tell("applied", epoch=epoch)


def test_whenever_the_writer_is_killed_epoch_and_views_belong_together(nursery: Nursery, path: Path) -> None:
    chance = random.Random(4)
    for token in range(1, ROUNDS + 1):
        child = nursery.start(write_until_killed, path=path, token=token)
        child.hear("applied")
        busy = child.cpu_seconds() + chance.random() * 0.03
        while child.cpu_seconds() < busy:  # a random moment of its work, however busy the machine is
            os.sched_yield()
        child.kill()
        reported = max(message["epoch"] for message in child.all_told("applied"))
        with query(path, "select min(epoch), max(epoch), count(*) from state") as answer:
            epoch = answer.epoch
            assert epoch in (reported, reported + 1)
            assert list(answer) == [(epoch, epoch, KEYS)]
        with query(path, "select epoch, count(*) from bag group by epoch order by epoch") as answer:
            assert list(answer) == [(number, 2) for number in (epoch - 1, epoch) if number > 0]


# -- several processes ------------------------------------------------------------------------------------------------


def fight(parent: Parent, path: str, token: int, until: int) -> None:
    """Take over, apply some epochs, be replaced or take over again."""
    epoch, fenced = 0, 0
    with SqliteTarget(path) as target:
        while epoch < until:
            token += 2
            try:
                epoch = target.take_over("shop", token)
                target.declare([BAG])
                for _ in range(min(random.randint(1, 7), until - epoch)):
                    epoch += 1
                    assert target.apply(epoch, {"bag": additions(BAG, {"epoch": epoch, "token": token})})
            except FencedError:
                fenced += 1
    parent.tell("ended", fenced=fenced)


def test_of_two_instances_that_fight_each_epoch_is_applied_by_one(nursery: Nursery, path: Path) -> None:
    fighters = [nursery.start(fight, path=path, token=token, until=150) for token in (0, 1)]
    for fighter in fighters:
        fighter.finish()
    with query(path, "select epoch, count(*) from bag group by epoch order by epoch") as answer:
        assert list(answer) == [(epoch, 1) for epoch in range(1, 151)]


LOOK = """
select (select epoch from penstock_epochs), (select min(epoch) from state), (select max(epoch) from state),
    (select max(epoch) from bag), (select count(*) from bag where epoch = (select max(epoch) from bag))
"""


def look_until(parent: Parent, path: str, epoch: int) -> None:
    seen, looks = 0, 0
    parent.tell("looking")
    while seen < epoch:
        with query(path, LOOK) as answer:
            ((seen, *epochs, copies),) = answer
            assert {seen, answer.epoch, *epochs} == {seen}, (seen, answer.epoch, epochs)
            assert copies == 2
        looks += 1
    parent.tell("looked", times=looks)


def test_readers_in_other_processes_see_all_views_at_the_same_epoch(nursery: Nursery, path: Path) -> None:
    with open_target(path, 1) as target:
        target.apply(1, changes_of(1, 1))
        readers = [nursery.start(look_until, path=path, epoch=60) for _ in range(2)]
        for reader in readers:
            reader.hear("looking")
        for epoch in range(2, 61):
            target.apply(epoch, changes_of(epoch, 1))
        for reader in readers:
            assert reader.hear("looked")["times"] > 1


def read_slowly(parent: Parent, path: str) -> None:
    with query(path, "select epoch from state") as answer:
        rows = iter(answer)
        parent.tell("began", epoch=next(rows)[0])
        parent.wait()
        parent.tell("ended", epochs=sorted({row[0] for row in rows}))


def test_a_reader_that_takes_long_holds_nobody_up_and_sees_one_moment(nursery: Nursery, path: Path) -> None:
    with open_target(path, 1) as target:
        target.apply(1, changes_of(1, 1))
        reader = nursery.start(read_slowly, path=path)
        assert reader.hear("began")["epoch"] == 1
        for epoch in range(2, 30):
            assert target.apply(epoch, changes_of(epoch, 1)) is True
        reader.say()
        assert reader.hear("ended")["epochs"] == [1]


# -- refused by the machine -------------------------------------------------------------------------------------------


def test_a_locked_file_is_named_and_the_epoch_can_be_tried_again(path: Path) -> None:
    with open_target(path, 1) as first:
        first.apply(1, changes_of(1, 1))
    with SqliteTarget(path, busy_seconds=0.01) as target, closing(sqlite3.connect(path)) as locker:
        locker.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match=r"views\.sqlite: another process holds the file locked"):
            target.take_over("shop", 2)
        locker.execute("ROLLBACK")
        assert target.take_over("shop", 2) == 1
        locker.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match="locked"):
            target.apply(2, changes_of(2, 2))
        locker.execute("ROLLBACK")
        assert target.apply(2, changes_of(2, 2)) is True


def test_a_full_disk_leaves_everything_as_it_was(path: Path) -> None:
    with open_target(path, 1) as target:
        target.apply(1, changes_of(1, 1))
        (pages,) = target._connection.execute("PRAGMA page_count").fetchone()
        target._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        large = additions(STATE, *[{"k": k, "epoch": 2} for k in range(KEYS, 3 * KEYS)])
        with pytest.raises(UnavailableError, match="disk full; nothing was applied"):
            target.apply(2, {"bag": additions(BAG, {"epoch": 2, "token": 1}), "state": large})
        with query(path, "select (select count(*) from state), (select count(*) from bag)") as answer:
            assert (answer.epoch, list(answer)) == (1, [(KEYS, 2)])
        target._connection.execute("PRAGMA max_page_count = 1000000")
        assert target.apply(2, {"state": large}) is True


def write_into_a_small_space(parent: Parent, path: str) -> None:
    """A limit on the size of files refuses the write itself, in the middle of the WAL."""
    with open_target(Path(path), 1) as target:
        target.apply(1, changes_of(1, 1))
        size = sum(file.stat().st_size for file in Path(path).parent.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, resource.RLIM_INFINITY))
        large = additions(STATE, *[{"k": k, "epoch": 2} for k in range(100_000)])
        with pytest.raises(UnavailableError, match="nothing was applied"):
            target.apply(2, {"state": large})
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        with query(path, "select min(epoch), max(epoch), count(*) from state") as answer:
            assert (answer.epoch, list(answer)) == (1, [(1, 1, KEYS)])
        assert target.apply(2, {"state": large}) is True


def test_a_write_that_fails_half_way_can_be_tried_again(nursery: Nursery, path: Path) -> None:
    nursery.run(write_into_a_small_space, path=path)
    with query(path, "select count(*) from state where epoch = 2") as answer:
        assert (answer.epoch, list(answer)) == (2, [(100_000,)])


# -- not what it should be --------------------------------------------------------------------------------------------


@pytest.fixture
def filled_file(path: Path) -> Path:
    with open_target(path, 1) as target:
        target.apply(1, changes_of(1, 1))
    return path


@pytest.mark.parametrize(("start", "length"), [(0, 16), (4_096, 40_000)])
def test_damage_is_reported_with_what_to_do(filled_file: Path, start: int, length: int) -> None:
    with open(filled_file, "r+b") as file:
        file.seek(start)
        file.write(b"\x5a" * length)
    with pytest.raises(DamagedError, match="the file is damaged") as found:
        delete_all_rows(filled_file)
    assert found.value.hint is not None
    assert "remove views.sqlite" in found.value.hint
    with pytest.raises(DamagedError), query(filled_file, "select sum(epoch) from state") as answer:
        list(answer)


def delete_all_rows(path: Path) -> None:
    """Touch every row."""
    with SqliteTarget(path) as target:
        target.take_over("shop", 2)
        target.apply(2, {"state": removals(STATE, *[{"k": k} for k in range(KEYS)])})


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_into_a_file_that_was_removed_or_replaced_meanwhile(path: Path, replaced: bool) -> None:
    with open_target(path, 1) as target:
        target.apply(1, changes_of(1, 1))
        path.rename(path.with_name("moved"))
        if replaced:
            path.touch()
        with pytest.raises(DamagedError, match="removed or replaced while it was in use") as refused:
            target.apply(2, changes_of(2, 1))
        assert "start the app again" in str(refused.value.hint)
        path.with_name("moved").rename(path)
        assert target.apply(2, changes_of(2, 1))


def test_another_database_is_not_taken_for_views(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (a)")
    for opening in (lambda: SqliteTarget(path), lambda: query(path, "select * from mine")):
        with pytest.raises(DeclarationError, match="this is not a file of views"):
            opening()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM mine").fetchall() == []
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_views_of_another_format_are_refused(filled_file: Path) -> None:
    with closing(sqlite3.connect(filled_file)) as connection:
        connection.execute("PRAGMA user_version = 99")
    for opening in (lambda: SqliteTarget(filled_file), lambda: query(filled_file, "select 1")):
        with pytest.raises(DeclarationError, match="the views have format 99; this version of Penstock reads format 1"):
            opening()


def test_a_file_that_a_killed_process_left_empty_can_be_opened(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.touch()
    with query(path, "select 1") as answer:
        assert answer.epoch == 0
    with SqliteTarget(path) as target:
        assert target.take_over("shop", 1) == 0


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="file"):
        SqliteTarget(tmp_path / "file" / "views.sqlite")
    (tmp_path / "views.sqlite").mkdir()
    with pytest.raises(UnavailableError, match=r"views\.sqlite: it cannot be opened or written"):
        SqliteTarget(tmp_path / "views.sqlite")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(filled_file: Path) -> None:
    filled_file.parent.chmod(0o500)
    filled_file.chmod(0o400)
    try:
        with (
            pytest.raises(UnavailableError, match="it cannot be opened or written"),
            SqliteTarget(filled_file) as target,
        ):
            target.take_over("shop", 2)
    finally:
        filled_file.parent.chmod(0o700)
