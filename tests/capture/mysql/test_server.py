"""Servers that go away, lose their log, are set wrongly or do not let us in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from penstock.contracts import Captured, SourceOptions, SourceTable, TableEvent
from penstock.databases import open_database
from penstock.errors import ChangesLostError, DeclarationError, UnavailableError
from tests.capture.database_contract import assert_equal_to_source, catch_up, items_to_end, new_fold, opened
from tests.capture.database_world import TABLES, account
from tests.capture.mysql.world import MariaDBWorld
from tests.servers.mariadb import PASSWORD, MariaDBServer


@pytest.fixture
def own_server() -> Iterator[MariaDBServer]:
    server = MariaDBServer()
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_that_was_restarted_is_followed_from_the_same_place(own_server: MariaDBServer, end: str) -> None:
    world, fold = MariaDBWorld(own_server), new_fold()
    world.run(account(1))
    catch_up(world, fold)
    world.run(account(2))
    with opened(world) as database, closing(database.read(fold.position)) as items:  # type: ignore[type-var]
        while len(fold.rows("accounts")) < 2:
            fold.add(next(items))
        getattr(own_server, end)()
        with pytest.raises(UnavailableError):
            list(map(fold.add, items))
    fold.forget_open_items()
    own_server.start()
    world.connection = own_server.connect(world.database, autocommit=False)
    world.run(account(3))
    catch_up(world, fold)
    assert_equal_to_source(fold, world)


def test_an_idle_server_that_was_restarted_is_copied_to_the_end(own_server: MariaDBServer) -> None:
    world, fold = MariaDBWorld(own_server), new_fold()
    world.run(*[account(number) for number in range(5)])
    own_server.stop()
    own_server.start()
    catch_up(world, fold, SourceOptions(chunk_rows=2))
    own_server.execute("FLUSH BINARY LOGS")
    with opened(world) as database:
        fold.position = database.copy_again(fold.position, ["accounts"])
    catch_up(world, fold, SourceOptions(chunk_rows=2))
    own_server.kill()
    own_server.start()
    with opened(world) as database:
        fold.position = database.copy_again(fold.position, ["accounts"])
    items = catch_up(world, fold)
    assert [item.what for item in items if isinstance(item, TableEvent)] == ["copy begins", "copy ends"]


def test_a_log_that_was_reset_is_not_taken_for_the_one_before(own_server: MariaDBServer) -> None:
    world, fold = MariaDBWorld(own_server), new_fold()
    world.run(account(1))
    catch_up(world, fold)
    first = int(own_server.execute("SELECT UNIX_TIMESTAMP()")[0][0])
    while int(own_server.execute("SELECT UNIX_TIMESTAMP()")[0][0]) == first:
        own_server.execute("DO SLEEP(0.05)")  # files are distinguished by the second in which they were begun
    own_server.execute("RESET MASTER")
    for number in range(2, 40):
        world.run(account(number, "x" * 100))
    with opened(world) as database:
        with pytest.raises(ChangesLostError, match=r"other|another") as error:
            items_to_end(database, fold.position)
        assert "penstock capture snapshot capture" in (error.value.hint or "")
        fold.position = database.copy_again(fold.position, list(TABLES))
    catch_up(world, fold)
    assert_equal_to_source(fold, world)


def test_another_server_is_not_taken_for_the_one_before(own_server: MariaDBServer) -> None:
    world, fold = MariaDBWorld(own_server), new_fold()
    catch_up(world, fold)
    own_server.execute("SET GLOBAL server_id = 77")
    with opened(world) as database:
        with pytest.raises(ChangesLostError, match="another server"):
            items_to_end(database, fold.position)
        assert "another server" in (database.health(fold.position).problem or "")


@pytest.mark.parametrize("name", ["binlog_format", "binlog_row_image", "binlog_row_metadata"])
def test_a_wrong_setting_is_refused_with_the_statement_that_mends_it(own_server: MariaDBServer, name: str) -> None:
    world = MariaDBWorld(own_server)
    own_server.execute(f"SET GLOBAL {name} = {'STATEMENT' if name == 'binlog_format' else 'MINIMAL'}")
    with opened(world) as database:
        for ask in (database.tables, lambda: next(iter(database.read(None)))):
            with pytest.raises(DeclarationError, match=name) as error:
                ask()
    own_server.execute((error.value.hint or "").split(";")[0])
    with opened(world) as database:
        assert len(database.tables()) == 2


def test_a_server_without_a_binary_log_is_refused() -> None:
    server = MariaDBServer(skip_log_bin="1")
    try:
        server.start()
        server.execute("CREATE DATABASE shop")
        database = open_database(server.url, [SourceTable("t")], SourceOptions())
        with pytest.raises(DeclarationError, match="no binary log") as error:
            database.tables()
        assert "log_bin" in (error.value.hint or "")
    finally:
        server.remove()


@pytest.mark.parametrize(
    ("revoked", "what"),
    [("REPLICATION SLAVE ON *.*", "read"), ("BINLOG MONITOR ON *.*", "read"), ("SELECT ON `shop%`.*", "tables")],
)
def test_a_missing_right_is_named_by_the_grant_that_gives_it(
    own_server: MariaDBServer, revoked: str, what: str
) -> None:
    world = MariaDBWorld(own_server)
    own_server.execute(f"REVOKE {revoked} FROM capture@'%'")
    with opened(world) as database, pytest.raises(DeclarationError) as error:
        database.tables() if what == "tables" else items_to_end_without_end(database)
    assert "GRANT" in (error.value.hint or "")
    assert "'capture'@'%'" in (error.value.hint or "")
    if what == "read":
        own_server.execute(error.value.hint or "")
        catch_up(world, new_fold())


def items_to_end_without_end(database: object) -> None:
    for item in database.read(None):  # type: ignore[attr-defined]
        assert isinstance(item, Captured | TableEvent)


def test_a_wrong_password_and_too_many_connections_are_unavailable(
    own_server: MariaDBServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = MariaDBWorld(own_server)
    url = f"mariadb://capture@127.0.0.1:{own_server.port}/{world.database}"
    tables = [SourceTable("accounts")]
    monkeypatch.setenv("MYSQL_PWD", "wrong")
    with pytest.raises(UnavailableError, match="refuses this user or password") as error:
        open_database(url, tables, SourceOptions()).tables()
    assert "MYSQL_PWD" in (error.value.hint or "")
    monkeypatch.setenv("MYSQL_PWD", PASSWORD)
    assert open_database(url, tables, SourceOptions()).tables()
    monkeypatch.setenv("SHOP", PASSWORD)
    variable = url.replace("capture@", "capture:${SHOP}@")
    assert open_database(variable, tables, SourceOptions()).tables()
    own_server.execute("ALTER USER capture@'%' WITH MAX_USER_CONNECTIONS 1")
    with own_server.connect(user="capture"), pytest.raises(UnavailableError, match=r"too many connections|used up"):
        open_database(url, tables, SourceOptions()).tables()


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ("CREATE TABLE t (a int)", "no primary key"),
        ("CREATE TABLE t (a int, UNIQUE (a))", "no primary key"),
        ("CREATE TABLE t (id int PRIMARY KEY) ENGINE = Aria", "InnoDB"),
        ("CREATE VIEW t AS SELECT 1 AS a", "only plain tables"),
        ("CREATE TABLE t (id int PRIMARY KEY, committed_at int)", "committed_at"),
        ("CREATE TABLE t (id int PRIMARY KEY, c char(3) CHARACTER SET gbk)", "character set"),
        ("CREATE TABLE u (id int PRIMARY KEY)", "does not exist"),
    ],
)
def test_a_table_that_cannot_be_captured_is_refused(world: MariaDBWorld, table: str, match: str) -> None:
    world.execute(table)
    with opened(world, None, [SourceTable("t")]) as database, pytest.raises(DeclarationError, match=match):
        database.tables()


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("mariadb://h", "does not name a database"),
        ("mariadb:///shop", "does not name a server"),
        ("mariadb://h/shop?nonsense=1", "nonsense"),
        ("mysql://u:pw@h:nope/shop", "cannot be read"),
        ("mysql://h/shop?connect_timeout=x", "connect_timeout"),
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url: str, match: str) -> None:
    with pytest.raises(DeclarationError, match=match) as error:
        open_database(url, [SourceTable("t")], SourceOptions())
    assert "pw" not in str(error.value)


def test_nothing_is_left_in_the_server(own_server: MariaDBServer) -> None:
    world = MariaDBWorld(own_server)
    catch_up(world, new_fold())
    before = own_server.execute("SHOW MASTER STATUS")
    with opened(world) as database:
        database.remove()
        health = database.health(None)
    assert health.problem is None
    assert own_server.execute("SHOW MASTER STATUS") == before
