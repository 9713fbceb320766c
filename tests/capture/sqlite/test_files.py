"""The file itself: restored backups, other files in its place, several captures, what is left behind, and its size."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.contracts import Captured, SourceOptions, SourceTable
from penstock.databases import check_database, open_database
from penstock.errors import ChangesLostError, DeclarationError, PenstockError, UnavailableError
from tests.capture.database_contract import (
    assert_equal_to_source,
    catch_up,
    is_heartbeat,
    items_until,
    new_fold,
    opened,
)
from tests.capture.database_world import Remove, account
from tests.capture.sqlite.world import SqliteWorld


@pytest.fixture
def world(tmp_path: Path) -> SqliteWorld:
    return SqliteWorld(tmp_path / "shop.db")


def back_up(world: SqliteWorld, path: Path) -> None:
    with closing(world.connect()) as connection, closing(sqlite3.connect(path)) as copy:
        connection.backup(copy)


def restore(world: SqliteWorld, path: Path) -> None:
    with closing(world.connect()) as connection, closing(sqlite3.connect(path)) as copy:
        copy.backup(connection)


def until_lost(world: SqliteWorld, position: object, then: Callable[[], None] = lambda: None) -> ChangesLostError:
    """Read on while something happens to the file, until the capture says that changes are lost."""
    deadline, is_done = time.monotonic() + 30, False
    with opened(world, SourceOptions(name="shop")) as database:
        items = database.read(position)  # type: ignore[arg-type]
        while time.monotonic() < deadline:
            try:
                next(items)
            except ChangesLostError as error:
                return error
            if not is_done:
                then()
                is_done = True
    raise AssertionError("it has not noticed")


@pytest.mark.parametrize("rows_after", [0, 1, 5])
@pytest.mark.parametrize("is_running", [True, False])
def test_a_restored_backup_is_noticed_also_when_its_ids_have_passed_the_position(
    world: SqliteWorld, tmp_path: Path, rows_after: int, *, is_running: bool
) -> None:
    fold, options = new_fold(), SourceOptions(name="shop")
    world.run(account(1))
    catch_up(world, fold, options)
    world.run(account(2))
    back_up(world, tmp_path / "backup.db")
    world.run(account(3), account(4))
    catch_up(world, fold, options)

    def restore_and_go_on() -> None:
        restore(world, tmp_path / "backup.db")
        for number in range(rows_after):
            world.run(account(100 + number))

    if not is_running:
        restore_and_go_on()
    error = until_lost(world, fold.position, restore_and_go_on if is_running else lambda: None)
    assert "another history" in str(error)
    assert "penstock capture snapshot shop" in (error.hint or "")
    with opened(world, options) as database:
        assert "another history" in (database.health(fold.position).problem or "")
        fold.position = database.copy_again(fold.position, ["accounts", "pairs"])
    catch_up(world, fold, options)
    assert_equal_to_source(fold, world)


@pytest.mark.parametrize("is_running", [True, False])
def test_another_file_in_its_place_is_noticed(world: SqliteWorld, tmp_path: Path, *, is_running: bool) -> None:
    fold, options = new_fold(), SourceOptions(name="shop")
    catch_up(world, fold, options)
    new = SqliteWorld(tmp_path / "new.db")
    new.run(account(7))
    catch_up(new, new_fold(), options)

    def replace() -> None:
        new.path.replace(world.path)

    if not is_running:
        replace()
    error = until_lost(world, fold.position, replace if is_running else lambda: None)
    assert "not the file that was captured before" in str(error)


def test_a_file_without_change_tables_has_lost_the_changes(world: SqliteWorld) -> None:
    fold = new_fold()
    catch_up(world, fold, SourceOptions(name="shop"))
    with opened(world, SourceOptions(name="shop")) as database:
        database.remove()
    assert "change tables were removed" in str(until_lost(world, fold.position))


def objects(world: SqliteWorld) -> list[tuple[str]]:
    return world.fetch("SELECT name FROM sqlite_master WHERE name LIKE '%penstock%' ORDER BY name")


def test_nothing_is_left_after_removing_and_writers_go_on(world: SqliteWorld) -> None:
    catch_up(world, new_fold())
    assert objects(world)
    with opened(world) as database:
        database.remove()
    assert objects(world) == []
    world.run(account(1))


def test_captures_of_two_logs_are_independent(world: SqliteWorld) -> None:
    first, second = SourceOptions(identity="one"), SourceOptions(identity="two")
    folds = [new_fold(), new_fold()]
    catch_up(world, folds[0], first)
    catch_up(world, folds[1], second)
    for number in range(1, 4):
        world.run(account(number))
        confirm_all(world, folds[0], first)
    assert waiting(world) >= 3, "the second capture needs them"
    confirm_all(world, folds[1], second)
    assert waiting(world) == 1
    with opened(world, second) as database:
        database.remove()
    world.run(account(9), Remove("accounts", {"id": 1}))
    confirm_all(world, folds[0], first)
    assert_equal_to_source(folds[0], world)
    with opened(world, first) as database:
        database.remove()
    assert objects(world) == []


def waiting(world: SqliteWorld) -> int:
    return int(world.fetch("SELECT count(*) FROM _penstock_changes")[0][0])


def confirm_all(world: SqliteWorld, fold: object, options: SourceOptions | None = None) -> None:
    """Catch up in one capture that confirms, and is closed."""
    with opened(world, options) as database:
        end = database.end()
        for item in database.read(fold.position):  # type: ignore[attr-defined]
            fold.add(item)  # type: ignore[attr-defined]
            if item.position is not None:
                database.confirm(item.position)
            if is_heartbeat(item) and database.has_reached(item.position, end):
                break


def test_confirmed_changes_are_removed_while_it_runs_and_when_it_is_closed(world: SqliteWorld) -> None:
    fold = new_fold()
    confirm_all(world, fold)
    world.execute(*[f"INSERT INTO accounts (id) VALUES ({number})" for number in range(5_000)])
    confirm_all(world, fold)
    assert waiting(world) == 1
    world.run(account(10_000))
    with opened(world) as database:
        for item in database.read(fold.position):
            fold.add(item)
            if item.position is not None:
                database.confirm(item.position)
            if waiting(world) == 1 and len(fold.rows("accounts")) == 5_001:
                break
    assert_equal_to_source(fold, world)


def test_nothing_is_removed_before_it_is_confirmed(world: SqliteWorld) -> None:
    fold = new_fold()
    catch_up(world, fold)
    world.run(account(1), account(2))
    before = waiting(world)
    for _ in range(2):
        catch_up(world, fold)
    assert waiting(world) == before


def test_a_capture_that_is_away_loses_its_place_when_it_retains_too_much(world: SqliteWorld) -> None:
    away = SourceOptions(identity="away", max_retained_bytes=10_000)
    fold, fold_away = new_fold(), new_fold()
    catch_up(world, fold_away, away)
    catch_up(world, fold)
    world.execute("UPDATE _penstock_readers SET seen_at = seen_at - 3600000")
    world.run(account(1, "x" * 100))
    confirm_all(world, fold)
    assert waiting(world) > 1
    world.run(*[account(number, "x" * 100) for number in range(2, 200)])
    confirm_all(world, fold)
    confirm_all(world, fold)
    assert waiting(world) == 1
    with opened(world, away) as database, pytest.raises(ChangesLostError, match="max_retained_bytes"):
        next(database.read(fold_away.position))


def test_health_counts_what_waits(world: SqliteWorld) -> None:
    fold = new_fold()
    catch_up(world, fold)
    world.run(*[account(number, "x" * 1000) for number in range(10)])
    with opened(world, SourceOptions(max_retained_bytes=5_000_000)) as database:
        health = database.health(fold.position)
        assert health.state == "following, 10 changes waiting"
        assert 9_000 <= (health.behind_bytes or 0) <= 20_000
        assert health.limit_bytes == 5_000_000
        assert health.last_commit is not None
        assert abs(health.last_commit.timestamp() - time.time()) < 60
        assert database.health(None).state == "not begun"


def test_the_tables_may_be_installed_before_the_first_run(world: SqliteWorld) -> None:
    with opened(world) as database:
        database.install()  # type: ignore[attr-defined]
        database.install()  # type: ignore[attr-defined]
    world.run(account(1))
    fold = new_fold()
    catch_up(world, fold)
    assert_equal_to_source(fold, world)


def test_sequences_that_are_reset_lose_nothing(world: SqliteWorld) -> None:
    fold = new_fold()
    world.run(account(1), account(2))
    confirm_all(world, fold)
    world.execute("DELETE FROM sqlite_sequence")
    world.run(account(3))
    catch_up(world, fold)
    assert_equal_to_source(fold, world)


def test_a_locked_file_is_unavailable_and_confirming_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.capture.sqlite.connection.WAIT_SECONDS", 0.05)
    world = SqliteWorld(tmp_path / "shop.db", journal_mode="delete")
    fold = new_fold()
    world.run(account(1))
    catch_up(world, fold)
    with closing(world.connect()) as writer, opened(world) as database:
        items = items_until(database, fold.position, is_heartbeat)
        assert items[-1].position is not None
        database.confirm(items[-1].position)
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UnavailableError, match="locked"):
            next(database.read(fold.position))
        with pytest.raises(UnavailableError, match="locked"):
            database.end()


def test_items_are_given_without_a_lock(tmp_path: Path) -> None:
    world = SqliteWorld(tmp_path / "shop.db", journal_mode="delete")
    world.run(*[account(number) for number in range(10)])
    with opened(world, SourceOptions(chunk_rows=2)) as database:
        for step, item in enumerate(database.read(None)):
            with closing(sqlite3.connect(world.path, timeout=0, isolation_level=None)) as writer:
                writer.execute("BEGIN EXCLUSIVE")
                writer.execute(f"INSERT INTO accounts (id) VALUES ({100 + step})")
                writer.execute("COMMIT")
            if isinstance(item, Captured) and step > 20:
                break


@pytest.mark.parametrize(
    "url", ["sqlite:shop.db", "sqlite://shop.db", "sqlite:///", "sqlite:////", "sqlite:///a.db?x=1"]
)
def test_a_url_that_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(DeclarationError, match="does not name a SQLite file"):
        check_database(url)


def test_a_relative_url_is_a_file_of_this_folder(world: SqliteWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.path.parent)
    check_database("sqlite:///shop.db")
    database = open_database("sqlite:///shop.db", [], SourceOptions())
    assert [table.name for table in database.tables()] == ["accounts", "pairs"]
    database.close()


def test_what_is_no_database_is_refused_and_no_file_is_created(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, but long enough to look at " * 10)
    for name, error in (("text.db", DeclarationError), ("away.db", UnavailableError)):
        database = open_database(f"sqlite:///{tmp_path / name}", [SourceTable("t")], SourceOptions())
        with pytest.raises(PenstockError) as raised:
            database.tables()
        assert isinstance(raised.value, error)
        database.close()
    assert not (tmp_path / "away.db").exists()
    shutil.rmtree(tmp_path)
