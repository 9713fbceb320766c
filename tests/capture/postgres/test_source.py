"""What happens around a capture of PostgreSQL: changed tables, lost slots, servers that go away, rights."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from penstock.contracts import Captured, SourceOptions, SourceTable, TableEvent
from penstock.errors import ChangesLostError, DeclarationError, UnavailableError
from tests.capture.database_fold import Fold, Item
from tests.capture.postgres.conftest import database_of
from tests.capture.postgres.reading import catch_up, fold_of, follow
from tests.servers.postgres import PostgresServer
from tests.servers.starting import wait_until


def events(items: list[Item]) -> list[str]:
    return [item.what for item in items if isinstance(item, TableEvent)]


def apply_all(items: Iterator[Item], fold: Fold) -> None:
    """Until reading fails."""
    for item in items:
        fold.add(item)


@pytest.fixture
def orders(server: PostgresServer) -> PostgresServer:
    server.execute("CREATE TABLE orders (id int PRIMARY KEY, country text)")
    server.execute("INSERT INTO orders SELECT n, 'DE' FROM generate_series(1, 450) n")
    return server


def as_dicts(server: PostgresServer, table: str, *columns: str) -> list[dict[str, object]]:
    rows = server.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1")
    return [dict(zip(columns, row, strict=True)) for row in rows]


# -- changed tables


def test_a_new_column_is_followed_without_a_copy(orders: PostgresServer) -> None:
    database = database_of(orders, "orders")
    fold = fold_of(database)
    catch_up(database, fold)
    orders.execute("ALTER TABLE orders ADD amount numeric(10,2)")
    orders.execute("INSERT INTO orders VALUES (1000, 'FR', 1.5)")
    items = catch_up(database, fold)
    assert events(items) == []
    assert [row for row in fold.rows("orders") if row["id"] == 1000] == as_dicts(
        orders, "orders WHERE id = 1000", "id", "country", "amount"
    )


@pytest.mark.parametrize(
    "change",
    ["ADD amount int DEFAULT 7", "ALTER country TYPE varchar(3) USING lower(country)", "ALTER id TYPE text"],
)
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_table_whose_rows_changed_without_changes_is_copied_again(
    orders: PostgresServer, change: str, is_stopped: bool
) -> None:
    database = database_of(orders, "orders")
    fold = fold_of(database)
    catch_up(database, fold)
    columns = ["id", "country"]
    if is_stopped:
        orders.execute(f"ALTER TABLE orders {change}")
        orders.execute("UPDATE orders SET country = 'x' WHERE id::int = 3")
        items = catch_up(database, fold)
    else:
        with closing(database.read(fold.position)) as read:  # type: ignore[type-var]
            items = [next(read)]
            orders.execute(f"ALTER TABLE orders {change}")
            orders.execute("UPDATE orders SET country = 'x' WHERE id::int = 3")
            end = database.end()
            for item in read:
                items.append(item)
                fold.add(item)
                if database.has_reached(fold.position, end):
                    break
    assert events(items) == ["copy begins", "copy ends"]
    if "amount" in change:
        columns.append("amount")
    assert sorted(fold.rows("orders"), key=str) == sorted(as_dicts(orders, "orders", *columns), key=str)


@pytest.mark.parametrize(
    ("change", "said"),
    [("DROP COLUMN country", "dropped"), ("RENAME COLUMN country TO land", "renamed to 'land'")],
)
def test_a_column_that_is_gone_stops_the_capture_until_it_is_accepted(
    orders: PostgresServer, change: str, said: str
) -> None:
    database = database_of(orders, "orders")
    fold = fold_of(database)
    catch_up(database, fold)
    with closing(database.read(fold.position)) as items:  # type: ignore[type-var]
        next(items)
        orders.execute(f"ALTER TABLE orders {change}")
        orders.execute("INSERT INTO orders VALUES (1000)")
        with pytest.raises(DeclarationError, match=f"table orders: the column 'country' was {said}") as error:
            apply_all(items, fold)
    assert error.value.hint is not None
    assert "penstock capture accept shop --dropped orders.country" in error.value.hint
    with pytest.raises(DeclarationError, match=said):
        catch_up(database, fold)
    accepted = database_of(orders, "orders", options=SourceOptions(name="shop", dropped=frozenset({"orders.country"})))
    catch_up(accepted, fold)
    assert (1000,) in fold.copies["orders"].rows


def test_a_changed_key_stops_the_capture(orders: PostgresServer) -> None:
    orders.execute("ALTER TABLE orders ALTER country SET NOT NULL")
    database = database_of(orders, "orders")
    fold = fold_of(database)
    catch_up(database, fold)
    with closing(database.read(fold.position)) as items:  # type: ignore[type-var]
        next(items)
        orders.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, country), ADD extra int")
        orders.execute("INSERT INTO orders VALUES (1000, 'FR')")
        with pytest.raises(DeclarationError, match=r"its key changed from \(id\) to \(id, country\)"):
            apply_all(items, fold)


def test_a_renamed_table_is_followed(orders: PostgresServer) -> None:
    database = database_of(orders, "orders")
    fold = fold_of(database)
    catch_up(database, fold)
    orders.execute("ALTER TABLE orders RENAME TO purchases")
    orders.execute("DELETE FROM purchases WHERE id > 1")
    catch_up(database, fold)
    assert fold.rows("orders") == [{"id": 1, "country": "DE"}]
    again = database_of(orders, "orders")
    assert [table.name for table in again.tables()] == ["orders"]


def test_a_truncate_in_the_middle_of_a_copy_leaves_what_came_after(orders: PostgresServer) -> None:
    database = database_of(orders, "orders")
    fold = fold_of(database)
    has_rows = False

    def is_copying(item: Item) -> bool:
        nonlocal has_rows
        has_rows = has_rows or (isinstance(item, Captured) and len(item.rows) > 0)
        return has_rows

    follow(database, fold, is_copying)
    orders.execute("TRUNCATE orders")
    orders.execute("INSERT INTO orders VALUES (5, 'FR')")
    catch_up(database, fold)
    assert fold.rows("orders") == [{"id": 5, "country": "FR"}]


def test_large_values_that_did_not_change_are_kept_also_when_the_key_changes(server: PostgresServer) -> None:
    server.execute("CREATE TABLE notes (id int PRIMARY KEY, stars int, body text)")
    server.execute("ALTER TABLE notes ALTER body SET STORAGE EXTERNAL")
    server.execute("INSERT INTO notes VALUES (1, 1, repeat('a', 50000)), (2, 1, repeat('b', 50000))")
    database = database_of(server, "notes")
    fold = fold_of(database)
    catch_up(database, fold)
    server.execute("UPDATE notes SET stars = 2")
    server.execute("UPDATE notes SET id = 20 WHERE id = 2")
    catch_up(database, fold)
    assert fold.rows("notes") == as_dicts(server, "notes", "id", "stars", "body")


def test_a_table_without_a_key_is_captured_by_its_whole_rows(server: PostgresServer) -> None:
    server.execute("CREATE TABLE words (word text, n int)")
    with pytest.raises(DeclarationError, match="no primary key") as error:
        database_of(server, "words").tables()
    assert 'ALTER TABLE "public"."words" REPLICA IDENTITY FULL' in (error.value.hint or "")
    server.execute("ALTER TABLE words REPLICA IDENTITY FULL")
    server.execute("INSERT INTO words SELECT 'w' || n, n FROM generate_series(1, 3000) n")
    database = database_of(server, "words")
    fold = fold_of(database)
    catch_up(database, fold)
    server.execute("UPDATE words SET n = -n WHERE n % 2 = 0")
    server.execute("DELETE FROM words WHERE n = 1")
    catch_up(database, fold)
    rows = sorted((row["word"], row["n"]) for row in fold.rows("words"))
    assert rows == sorted(server.execute("SELECT word, n FROM words"))


def test_only_inserted_rows_of_an_outbox_are_given(orders: PostgresServer) -> None:
    database = database_of(orders, SourceTable("orders", inserts_only=True, columns=("id",)))
    fold = fold_of(database)
    catch_up(database, fold)
    orders.execute("INSERT INTO orders VALUES (1000, 'FR')")
    orders.execute("DELETE FROM orders")
    orders.execute("TRUNCATE orders")
    catch_up(database, fold)
    assert fold.rows("orders") == [{"id": n} for n in (*range(1, 451), 1000)]


# -- transactions that are streamed


def test_a_large_transaction_needs_little_memory_and_rolled_back_parts_are_left_out(server: PostgresServer) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database = database_of(server, "t")
    fold = fold_of(database)
    catch_up(database, fold)
    with server.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(1, 200000) n")
        connection.execute("SAVEPOINT s")
        connection.execute("INSERT INTO t SELECT n, 'no' FROM generate_series(200001, 210000) n")
        connection.execute("ROLLBACK TO s")
        connection.execute("UPDATE t SET v = 'changed' WHERE id = 1")
    end = database.end()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count, placed = 0, 0
    with closing(database.read(fold.position)) as items:  # type: ignore[type-var]
        for item in items:
            if isinstance(item, Captured):
                count += len(item.rows)
                placed += item.position is not None and len(item.rows) > 0
            if database.has_reached(item.position, end):
                break
    assert count == 200001
    assert placed == 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 100, f"{grown} MiB for 100 MB"


def test_parts_of_streamed_transactions_that_are_rolled_back_are_left_out_whatever_their_nesting(
    server: PostgresServer,
) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database = database_of(server, "t")
    fold = fold_of(database)
    catch_up(database, fold)
    with server.connect() as one, server.connect() as two, server.connect() as three:
        for number, connection in enumerate((one, two, three)):
            connection.execute("BEGIN")
            insert_parts(connection, number * 100_000)
        three.execute("ROLLBACK")
        two.execute("COMMIT")
        one.execute("COMMIT")
    items = catch_up(database, fold)
    rows = server.execute("SELECT id, v FROM t ORDER BY id")
    assert len(rows) == 2 * 4 * 500
    assert [tuple(row.values()) for row in fold.rows("t")] == rows
    assert given_count(items) == len(rows)


def insert_parts(connection: psycopg.Connection[object], first: int) -> None:
    """Eight parts in nested savepoints, each streamed for its size, of which four are rolled back."""

    def insert(part: int) -> None:
        rows = (
            f"SELECT n, repeat('x', 500) FROM generate_series({first + part * 500 + 1}, {first + part * 500 + 500}) n"
        )
        connection.execute(f"INSERT INTO t {rows}".encode())

    insert(0)
    connection.execute("SAVEPOINT a")
    insert(1)
    connection.execute("SAVEPOINT b")
    insert(2)
    connection.execute("ROLLBACK TO b")  # 2
    insert(3)
    connection.execute("RELEASE b")
    connection.execute("SAVEPOINT c")
    insert(4)
    connection.execute("SAVEPOINT d")
    insert(5)
    connection.execute("RELEASE d")
    connection.execute("ROLLBACK TO c")  # 4, and 5 which had been released into it
    insert(6)
    connection.execute("SAVEPOINT e")
    insert(7)
    connection.execute("ROLLBACK TO e")  # 7
    connection.execute("RELEASE a")


def given_count(items: list[Item]) -> int:
    return sum(len(item.rows) for item in items if isinstance(item, Captured))


# -- slots and servers


def test_a_dropped_slot_stops_the_capture_with_the_command(orders: PostgresServer) -> None:
    database = database_of(orders, "orders")
    fold = fold_of(database)
    catch_up(database, fold)
    wait_until(lambda: not orders.execute("SELECT 1 FROM pg_replication_slots WHERE active"))
    orders.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    with pytest.raises(ChangesLostError, match="no longer exists") as error:
        catch_up(database, fold)
    assert error.value.hint == "copy the tables again: penstock capture snapshot shop"


def test_a_slot_that_somebody_else_moved_on_stops_the_capture(orders: PostgresServer) -> None:
    database = database_of(orders, "orders")
    fold = fold_of(database)
    catch_up(database, fold)
    orders.execute("DELETE FROM orders")
    wait_until(lambda: not orders.execute("SELECT 1 FROM pg_replication_slots WHERE active"))
    orders.execute("SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots")
    with pytest.raises(ChangesLostError, match="ahead of this capture"):
        catch_up(database, fold)


def test_a_position_of_a_moment_ago_is_no_problem_while_somebody_captures(orders: PostgresServer) -> None:
    """Whoever asks has read the position before the server answers, and the capture has moved the slot meanwhile."""
    database = database_of(orders, "orders")
    fold = fold_of(database)
    catch_up(database, fold)
    earlier = fold.position
    orders.execute("DELETE FROM orders")
    asked: list[str | None] = []

    def is_ahead(item: Item) -> bool:
        asked.append(database.health(earlier).problem)
        return bool(orders.execute("SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn > %s", [lsn]))

    lsn = orders.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots")[0][0]
    follow(database, fold, is_ahead)
    assert set(asked) == {None}
    wait_until(lambda: not orders.execute("SELECT 1 FROM pg_replication_slots WHERE active"))
    assert "ahead of this capture" in (database.health(earlier).problem or "")


def test_a_slot_that_retains_too_much_is_dropped(orders: PostgresServer) -> None:
    limited = SourceOptions(name="shop", max_retained_bytes=1_000_000)
    database = database_of(orders, "orders", options=limited)
    fold = fold_of(database)
    catch_up(database, fold)
    orders.execute("CREATE TABLE noise AS SELECT n, repeat('x', 100) FROM generate_series(1, 30000) n")
    with pytest.raises(ChangesLostError, match="max_retained_bytes"):
        catch_up(database, fold)
    assert orders.execute("SELECT 1 FROM pg_replication_slots") == []
    assert database.health(fold.position).problem


def test_an_idle_slot_follows_the_log_of_the_server(orders: PostgresServer) -> None:
    database = database_of(orders, "orders")
    fold = fold_of(database)
    catch_up(database, fold)
    orders.execute("CREATE TABLE noise AS SELECT n FROM generate_series(1, 30000) n")
    ((lsn,),) = orders.execute("SELECT pg_current_wal_lsn()")

    def has_advanced(item: Item) -> object:
        return orders.execute("SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn >= %s", [lsn])

    follow(database, fold, has_advanced)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_server_that_goes_away_is_unavailable_and_then_continued(is_killed: bool) -> None:
    server = PostgresServer().start()
    try:
        server.execute("CREATE TABLE orders (id int PRIMARY KEY, country text)")
        server.execute("INSERT INTO orders SELECT n, 'DE' FROM generate_series(1, 1000) n")
        database = database_of(server, "orders")
        fold = fold_of(database)
        with pytest.raises(UnavailableError):
            _follow_until_it_fails(database.read(None), fold, lambda: server.kill() if is_killed else server.stop())
        fold.forget_open_items()
        with pytest.raises(UnavailableError):
            catch_up(database, fold)
        server.start()
        server.execute("DELETE FROM orders WHERE id % 2 = 0")
        catch_up(database, fold)
        assert fold.rows("orders") == as_dicts(server, "orders", "id", "country")
    finally:
        server.remove()


def _follow_until_it_fails(items: Iterator[Item], fold: Fold, fail: object) -> None:
    with closing(items) as read:  # type: ignore[type-var]
        for item in read:
            fold.add(item)
            if isinstance(item, Captured) and len(item.rows) and callable(fail):
                fail()


def test_a_wrong_password_is_unavailable_and_not_shown(server: PostgresServer) -> None:
    server.execute("DROP ROLE IF EXISTS careful; CREATE ROLE careful LOGIN PASSWORD 'right'")
    rules = server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    try:
        rules.write_text(f"host all careful 127.0.0.1/32 scram-sha-256\n{before}")
        server.execute("SELECT pg_reload_conf()")
        url = server.url_of("careful", "hidden-word")
        wait_until(lambda: "password authentication failed" in _refusal(server, url))
        assert "hidden-word" not in _refusal(server, url)
    finally:
        rules.write_text(before)
        server.execute("SELECT pg_reload_conf()")


def _refusal(server: PostgresServer, url: str) -> str:
    try:
        database_of(server, "orders", url=url).tables()
    except UnavailableError as error:
        return str(error)
    except DeclarationError:
        return "the server has not read its rules again yet"
    raise AssertionError("there is no such table")


def test_two_readers_of_one_slot_are_refused(orders: PostgresServer) -> None:
    first = database_of(orders, "orders")
    fold = fold_of(first)
    catch_up(first, fold)
    with closing(first.read(fold.position)) as items:  # type: ignore[type-var]
        next(items)
        with pytest.raises(UnavailableError, match="is active"):
            next(database_of(orders, "orders").read(fold.position))


# -- rights


def test_replication_and_select_are_enough_with_a_publication_of_the_owner(orders: PostgresServer) -> None:
    orders.execute("DROP ROLE IF EXISTS capture")
    orders.execute("CREATE ROLE capture LOGIN REPLICATION; GRANT SELECT ON orders TO capture")
    database = database_of(orders, "orders", url=orders.url_of("capture"))
    with pytest.raises(DeclarationError, match="only the owner of a table can publish it") as error:
        next(database.read(None))
    statement = (error.value.hint or "").removeprefix("as the owner: ")
    orders.execute(statement)
    fold = fold_of(database)
    catch_up(database, fold)
    orders.execute("DELETE FROM orders WHERE id > 1")
    catch_up(database, fold)
    assert fold.rows("orders") == [{"id": 1, "country": "DE"}]
    assert database.health(fold.position).problem is None
    orders.execute("DROP OWNED BY capture; DROP ROLE capture")
