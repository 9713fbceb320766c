"""The conformance suite of `Database`: every database inherits its tests."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from penstock.contracts import COMMIT_TIME, Captured, Database, Position, SourceOptions, SourceTable, TableEvent
from penstock.errors import ChangesLostError, DeclarationError, PenstockError, UnavailableError
from tests.capture.contract import pairs
from tests.capture.database_fold import Fold, Item
from tests.capture.database_world import TABLES, DatabaseWorld, Remove, Update, account, pair

DEADLINE_SECONDS = 60
COPIED = datetime(1970, 1, 1, tzinfo=UTC)
SMALL_CHUNKS = SourceOptions(chunk_rows=2)


def items_until(database: Database, after: Position | None, is_done: Callable[[Item], bool]) -> list[Item]:
    """What `read` gives, up to and with the item that is asked for."""
    deadline, taken = time.monotonic() + DEADLINE_SECONDS, list[Item]()
    with closing(database.read(after)) as items:  # type: ignore[type-var]  # databases read in generators
        for item in items:
            taken.append(item)
            if is_done(item):
                return taken
            assert time.monotonic() < deadline, f"it did not come; the last of {len(taken)} items is {item}"
    raise AssertionError("a database never ends")


def items_to_end(database: Database, after: Position | None) -> list[Item]:
    """What comes after a position, up to the present: all that is committed now, and the copies of all tables."""
    end = database.end()
    return items_until(
        database,
        after,
        lambda item: is_heartbeat(item) and database.has_reached(item.position, end),
    )


def catch_up(world: DatabaseWorld, fold: Fold, options: SourceOptions | None = None) -> list[Item]:
    """Apply all that is committed now, through a connection of its own. Returns the items."""
    with opened(world, options) as database:
        items = items_to_end(database, fold.position)
    for item in items:
        fold.add(item)
    return items


@contextmanager
def opened(
    world: DatabaseWorld, options: SourceOptions | None = None, tables: Sequence[SourceTable] | None = None
) -> Iterator[Database]:
    database = world.open(options, tables)
    try:
        yield database
    finally:
        database.close()


def is_heartbeat(item: Item) -> bool:
    return isinstance(item, Captured) and not len(item.rows)


def new_fold() -> Fold:
    return Fold(TABLES)


def contents(items: Sequence[Item]) -> list[tuple[str, object]]:
    """What items mean, however they are divided."""
    rows: list[tuple[str, object]] = []
    for item in items:
        if isinstance(item, TableEvent):
            rows.append((item.table, item.what))
        else:
            rows += [(item.table, pair) for pair in pairs(item)]
    return rows


def assert_equal_to_source(fold: Fold, world: DatabaseWorld) -> None:
    for table in TABLES:
        assert fold.rows(table) == world.rows(table)


class DatabaseContract:
    """A subclass has a fixture `world`: a `DatabaseWorld` whose tables are empty, closed after the test."""

    # -- what there is

    def test_its_tables_have_keys_and_the_time_of_the_commit_and_only_keys_are_not_null(
        self, world: DatabaseWorld
    ) -> None:
        with opened(world) as database:
            tables = {table.name: table for table in database.tables()}
        assert {name: table.key for name, table in tables.items()} == TABLES
        for table in tables.values():
            assert table.schema is not None
            assert table.schema.field(COMMIT_TIME).type == pa.timestamp("us", "UTC")
            columns = {field.name for field in table.schema if not field.nullable}
            assert columns <= {*table.key, COMMIT_TIME}
            assert set(table.key) <= columns

    def test_rows_come_as_arrow_with_the_schema_of_their_table(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(account(1, "Ada", 10), pair(1, "x"))
        items = catch_up(world, fold)
        world.run(account(2, "Bob", 20), Remove("accounts", {"id": 1}))
        items += catch_up(world, fold)
        with opened(world) as database:
            schemas = {table.name: table.schema for table in database.tables()}
        for item in items:
            if isinstance(item, Captured) and len(item.rows):
                assert isinstance(item.rows, pa.RecordBatch)
                expected = schemas[item.table]
                assert expected is not None
                assert item.rows.schema.names == expected.names
                assert item.rows.schema.types == expected.types

    # -- reading

    def test_from_the_beginning_it_copies_the_tables_and_then_follows_them(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(account(1, "Ada", 10), account(2, None, 20), pair(1, "x", "o'clock"))
        items = catch_up(world, fold)
        assert_equal_to_source(fold, world)
        for table in TABLES:
            events = [item.what for item in items if isinstance(item, TableEvent) and item.table == table]
            assert events == ["copy begins", "copy ends"]
        world.run(account(3, "Cid", 30), Update("accounts", {"id": 1}, {"amount": 11}))
        world.run(Remove("accounts", {"id": 2}), Update("pairs", {"a": 1, "b": "x"}, {"note": None}))
        items = catch_up(world, fold)
        assert_equal_to_source(fold, world)
        assert not [item for item in items if isinstance(item, TableEvent)]

    def test_empty_tables_are_copied_too(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        items = catch_up(world, fold)
        assert {item.table for item in items if isinstance(item, TableEvent) and item.what == "copy ends"} == set(
            TABLES
        )
        assert_equal_to_source(fold, world)

    def test_from_every_position_behind_the_copy_it_gives_exactly_what_follows(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(account(1))
        catch_up(world, fold)
        for number in range(2, 6):
            world.run(account(number, "new"), pair(number, "x"), Update("accounts", {"id": 1}, {"amount": number}))
        world.run(Remove("accounts", {"id": 3}))
        with opened(world) as database:
            items = items_to_end(database, fold.position)
        places = [(index + 1, item.position) for index, item in enumerate(items) if item.position is not None]
        for index, position in [(0, fold.position), *places]:
            with opened(world) as database:
                assert contents(items_to_end(database, position)) == contents(items[index:])

    def test_an_item_with_rows_has_another_position_than_the_one_before(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(*[account(number) for number in range(5)])
        items = catch_up(world, fold, SMALL_CHUNKS)
        world.run(account(7))
        world.run(account(8))
        items += catch_up(world, fold, SMALL_CHUNKS)
        placed = [item for item in items if item.position is not None]
        for before, item in pairwise(placed):
            assert before.position != item.position or is_heartbeat(item)

    def test_positions_are_json(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(*[account(number) for number in range(5)], pair(1, "ä'\"\\"), pair(2, ""), pair(2, "z"))
        for item in catch_up(world, fold, SMALL_CHUNKS):
            assert json.loads(json.dumps(item.position)) == item.position

    def test_transactions_are_whole(self, world: DatabaseWorld) -> None:
        """Each one moves money between accounts, and notes the sum in another table."""
        fold = new_fold()
        world.run(*[account(number, "", 100) for number in range(4)], pair(0, "sum", "400"))
        catch_up(world, fold)
        for step in range(8):
            world.run(
                Update("accounts", {"id": step % 4}, {"amount": 100 - step}),
                Update("accounts", {"id": (step + 1) % 4}, {"amount": 100 + step}),
                Update("accounts", {"id": (step + 2) % 4}, {"amount": 100}),
                Update("accounts", {"id": (step + 3) % 4}, {"amount": 100}),
                Update("pairs", {"a": 0, "b": "sum"}, {"note": f"400 at {step}"}),
            )
        with opened(world) as database:
            for item in items_to_end(database, fold.position):
                fold.add(item)
                assert sum(row["amount"] for row in fold.rows("accounts")) == 400
        assert_equal_to_source(fold, world)

    def test_a_change_of_a_key_is_a_delete_and_a_row(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(account(1, "Ada", 10), pair(1, "x", "n"))
        catch_up(world, fold)
        world.run(Update("accounts", {"id": 1}, {"id": 5}), Update("pairs", {"a": 1, "b": "x"}, {"b": "y"}))
        items = catch_up(world, fold)
        marks = [
            (item.table, row["id" if item.table == "accounts" else "b"], deleted)
            for item in items
            if isinstance(item, Captured)
            for row, deleted in pairs(item)
        ]
        assert set(marks) == {
            ("accounts", 1, True),
            ("accounts", 5, False),
            ("pairs", "x", True),
            ("pairs", "y", False),
        }
        assert_equal_to_source(fold, world)

    def test_keys_that_are_exchanged_and_rows_that_come_back_are_right(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(account(1, "Ada"), account(2, "Bob"))
        catch_up(world, fold)
        world.run(
            Update("accounts", {"id": 1}, {"id": 9}),
            Update("accounts", {"id": 2}, {"id": 1}),
            Update("accounts", {"id": 9}, {"id": 2}),
            Remove("accounts", {"id": 1}),
            account(1, "Cid"),
        )
        catch_up(world, fold)
        assert_equal_to_source(fold, world)

    def test_a_truncated_table_is_empty(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(account(1), account(2), pair(1, "x"))
        catch_up(world, fold)
        world.truncate("accounts")
        world.run(account(3))
        catch_up(world, fold)
        assert [row["id"] for row in fold.rows("accounts")] == [3]
        assert_equal_to_source(fold, world)

    def test_copied_rows_hold_since_ever_and_changes_since_their_commit(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(account(1))
        copied = catch_up(world, fold)
        world.run(account(2))
        followed = catch_up(world, fold)
        times = [
            {row[COMMIT_TIME] for item in items if isinstance(item, Captured) for row, _ in pairs(item)}
            for items in (copied, followed)
        ]
        assert times[0] == {COPIED}
        assert times[1]
        assert min(times[1]) > COPIED + timedelta(days=365)

    # -- copies

    def test_a_copy_continues_at_every_position_whatever_has_changed_meanwhile(self, world: DatabaseWorld) -> None:
        world.run(*[account(number, "old") for number in range(1, 8)], *[pair(number, "x") for number in range(1, 4)])
        with opened(world, SMALL_CHUNKS) as database:
            items = items_to_end(database, None)
        places = [index for index, item in enumerate(items) if item.position is not None]
        for step, index in enumerate(places):
            world.run(
                account(100 + step, "new"),
                Update("accounts", {"id": 1}, {"amount": step}),
                Update("accounts", {"id": 6}, {"amount": step}),
                account(-step - 1, "before all"),
                *([Remove("accounts", {"id": 3})] if step == 1 else []),
                *([Remove("accounts", {"id": 7})] if step == 2 else []),
            )
            fold = new_fold()
            for item in items[: index + 1]:
                fold.add(item)
            catch_up(world, fold, SMALL_CHUNKS)
            assert_equal_to_source(fold, world)

    def test_changes_during_a_copy_win(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(*[account(number, "old") for number in range(1, 9)])
        with opened(world, SMALL_CHUNKS) as database, closing(database.read(None)) as items:  # type: ignore[type-var]
            step = 0
            deadline = time.monotonic() + DEADLINE_SECONDS
            for item in items:
                fold.add(item)
                if isinstance(item, TableEvent) and (item.table, item.what) == ("accounts", "copy ends"):
                    break
                if step < 12:
                    step += 1
                    world.run(
                        Update("accounts", {"id": 1}, {"name": f"new {step}"}),
                        Update("accounts", {"id": 8}, {"name": f"new {step}"}),
                        Update("accounts", {"id": 4}, {"id": 40}) if step == 1 else account(100 + step),
                        *([Remove("accounts", {"id": 2}), Remove("accounts", {"id": 7})] if step == 3 else []),
                    )
                assert time.monotonic() < deadline
        catch_up(world, fold)
        assert_equal_to_source(fold, world)

    def test_copies_say_how_far_they_have_come(self, world: DatabaseWorld) -> None:
        world.run(*[account(number) for number in range(1, 6)])
        with opened(world, SMALL_CHUNKS) as database:
            assert {copy.table: copy.state for copy in database.copies(None)} == dict.fromkeys(TABLES, "waiting")
            rows = [0]
            for item in items_to_end(database, None):
                copies = {copy.table: copy for copy in database.copies(item.position)} if item.position else {}
                if "accounts" in copies and copies["accounts"].state == "copying":
                    rows.append(copies["accounts"].rows)
        assert rows == sorted(rows)
        assert rows[-1] >= 4
        assert {copy.table: (copy.state, copy.rows) for copy in copies.values()} == {
            "accounts": ("complete", 5),
            "pairs": ("complete", 0),
        }

    def test_a_table_is_copied_again_and_the_others_are_not(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(*[account(number, "row") for number in range(1, 6)], pair(1, "x"))
        catch_up(world, fold)
        world.run(account(6), Remove("accounts", {"id": 2}))
        fold.copies["accounts"].rows = {(99,): {"id": 99, "name": "wrong", "amount": 0}}
        with opened(world) as database:
            fold.position = database.copy_again(fold.position, ["accounts"])
            states = {copy.table: copy.state for copy in database.copies(fold.position)}
        assert states == {"accounts": "waiting", "pairs": "complete"}
        items = catch_up(world, fold, SMALL_CHUNKS)
        assert {item.table for item in items if len(contents([item]))} == {"accounts"}
        assert_equal_to_source(fold, world)

    def test_all_tables_are_copied_again_with_a_new_stream(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(account(1), account(2), pair(1, "x"))
        catch_up(world, fold)
        world.run(Remove("accounts", {"id": 2}), account(3))
        with opened(world) as database:
            fold.position = database.copy_again(fold.position, list(TABLES))
            assert {copy.state for copy in database.copies(fold.position)} == {"waiting"}
        catch_up(world, fold)
        assert_equal_to_source(fold, world)

    def test_an_unknown_table_is_not_copied_again(self, world: DatabaseWorld) -> None:
        with opened(world) as database, pytest.raises(DeclarationError, match="nothing_like_it"):
            database.copy_again(None, ["nothing_like_it"])

    # -- ends, heartbeats, confirming

    def test_an_end_is_reached_when_everything_before_it_was_given(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(account(1))
        with opened(world) as database:
            before = database.end()
            assert not database.has_reached(None, before)
        catch_up(world, fold)
        with opened(world) as database:
            assert database.has_reached(fold.position, before)
            world.run(account(2))
            after = database.end()
            assert json.loads(json.dumps(after)) == after
            assert database.has_reached(fold.position, before)
            assert not database.has_reached(fold.position, after)
        catch_up(world, fold)
        with opened(world) as database:
            assert database.has_reached(fold.position, after)

    def test_an_end_is_not_reached_in_the_middle_of_a_copy(self, world: DatabaseWorld) -> None:
        world.run(*[account(number) for number in range(5)])
        with opened(world, SMALL_CHUNKS) as database:
            end = database.end()
            items = items_until(database, None, lambda item: isinstance(item, Captured) and len(item.rows) > 0)
            assert not database.has_reached(items[-1].position, end)

    def test_heartbeats_come_while_nothing_happens(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        catch_up(world, fold)
        beats = []
        with opened(world) as database:
            items_until(
                database, fold.position, lambda item: is_heartbeat(item) and not beats.append(1) and len(beats) > 2
            )

    def test_changes_come_while_it_is_read(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        catch_up(world, fold)
        with opened(world) as database, closing(database.read(fold.position)) as items:  # type: ignore[type-var]
            for number in range(1, 4):
                world.run(account(number))
                deadline = time.monotonic() + DEADLINE_SECONDS
                while len(fold.rows("accounts")) < number:
                    fold.add(next(items))
                    assert time.monotonic() < deadline
        assert_equal_to_source(fold, world)

    def test_what_is_confirmed_is_not_needed_again(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        for number in range(1, 5):
            world.run(account(number))
            with opened(world) as database:
                end = database.end()
                with closing(database.read(fold.position)) as items:  # type: ignore[type-var]
                    deadline = time.monotonic() + DEADLINE_SECONDS
                    for item in items:
                        fold.add(item)
                        if item.position is not None:
                            database.confirm(item.position)
                            if database.has_reached(item.position, end):
                                break
                        assert time.monotonic() < deadline
        assert_equal_to_source(fold, world)

    def test_what_is_not_confirmed_is_given_again(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        catch_up(world, fold)
        world.run(account(1))
        with opened(world) as database:
            given = contents(items_to_end(database, fold.position))
        with opened(world) as database:
            assert contents(items_to_end(database, fold.position)) == given

    # -- errors and ends

    def test_closing_in_the_middle_and_twice_is_allowed(self, world: DatabaseWorld) -> None:
        world.run(*[account(number) for number in range(5)])
        database = world.open(SMALL_CHUNKS)
        items = database.read(None)
        next(items)
        database.close()
        database.close()

    def test_it_may_be_closed_before_it_was_used(self, world: DatabaseWorld) -> None:
        world.open().close()

    @pytest.mark.parametrize("position", ["nonsense", [1], {"nonsense": 1}, {}, 7, True])
    def test_a_position_that_it_never_gave_is_refused(self, world: DatabaseWorld, position: Position) -> None:
        with opened(world) as database:
            for refused in (
                lambda: next(database.read(position)),
                lambda: database.copies(position),
                lambda: database.copy_again(position, ["accounts"]),
                lambda: database.has_reached(position, database.end()),
                lambda: database.confirm(position),
            ):
                with pytest.raises(DeclarationError, match="position"):
                    refused()

    def test_lost_changes_are_reported_until_everything_is_copied_again(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        options = SourceOptions(name="shop")
        world.run(account(1))
        catch_up(world, fold, options)
        world.run(account(2), Remove("accounts", {"id": 1}))
        if not world.lose_changes():
            pytest.skip("this database loses no changes")
        with opened(world, options) as database:
            with pytest.raises(ChangesLostError) as error:
                items_to_end(database, fold.position)
            assert "penstock capture snapshot shop" in (error.value.hint or "")
            assert database.health(fold.position).problem
            fold.position = database.copy_again(fold.position, list(TABLES))
        catch_up(world, fold, options)
        assert_equal_to_source(fold, world)

    def test_a_server_that_cannot_be_reached_is_unavailable(self, world: DatabaseWorld) -> None:
        database = world.open_unreachable()
        if database is None:
            pytest.skip("this database is always there")
        for ask in (database.tables, lambda: next(database.read(None)), database.end):
            with pytest.raises(UnavailableError):
                ask()
        database.close()

    def test_the_password_is_in_no_repr_position_or_message(self, world: DatabaseWorld) -> None:
        shown: list[Any] = []
        world.run(account(1))
        with opened(world) as database:
            shown += [database, database.tables(), database.end(), database.health(None)]
            shown += items_to_end(database, None)
        database_away = world.open_unreachable()
        if database_away is not None:
            with pytest.raises(PenstockError) as error:
                database_away.tables()
            shown += [database_away, error.value, str(error.value.__cause__)]
            database_away.close()
        if world.secret is not None:
            assert world.secret not in repr(shown)

    # -- beside the stream

    def test_a_snapshot_has_all_rows_of_a_table(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(*[account(number, f"n{number}", number) for number in range(7)])
        catch_up(world, fold)
        world.run(account(7), Remove("accounts", {"id": 0}))
        with opened(world, SMALL_CHUNKS) as database:
            snapshot = database.snapshot("accounts")
            rows = [row for batch in snapshot.batches for row in batch.to_pylist()]
            for row in rows:
                del row[COMMIT_TIME]
            assert sorted(rows, key=lambda row: row["id"]) == world.rows("accounts")
            assert not database.has_reached(fold.position, snapshot.end)
        items = catch_up(world, fold)
        with opened(world) as database:
            assert database.has_reached(items[-1].position, snapshot.end)

    def test_health_has_no_problem_while_all_is_well(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        with opened(world) as database:
            assert database.health(None).problem is None
        world.run(account(1))
        catch_up(world, fold)
        with opened(world) as database:
            health = database.health(fold.position)
        assert health.problem is None
        assert health.state

    def test_what_capturing_left_is_removed_and_a_new_capture_begins_anew(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(account(1))
        catch_up(world, fold)
        with opened(world) as database:
            database.remove()
            database.remove()
        world.run(account(2))
        fold = new_fold()
        catch_up(world, fold)
        assert_equal_to_source(fold, world)
