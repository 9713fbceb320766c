"""Capturing a MariaDB database, beside the programs of MariaDB that read the same: the first copy, and the binary log.

mariadb-binlog reads over the network as a replica does and writes a file: the events as they are, or as text that shows
their rows. The capture decodes them into typed rows and stores them in a log, durably, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.capture import CHANGES, CHANGES_PER_TRANSACTION, PENSTOCK, ROWS, run
from benchmarks.harness import Measurement, compared, seconds, temporary_directory
from penstock.log import Log
from tests.servers.mariadb import PASSWORD, MariaDBServer, binary

TABLES = ("accounts", "tellers", "branches", "history")
SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84))",
    "CREATE TABLE shop.tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84))",
    "CREATE TABLE shop.branches (bid int PRIMARY KEY, bbalance int, filler char(88))",
    "CREATE TABLE shop.history (id serial PRIMARY KEY, tid int, bid int, aid int, delta int, mtime timestamp)",
    "INSERT INTO shop.tellers SELECT seq, seq DIV 10, 0, '' FROM shop_numbers.seq_1_to_200",
    "INSERT INTO shop.branches SELECT seq, 0, '' FROM shop_numbers.seq_0_to_20",
)
LOAD = """
CREATE PROCEDURE shop.load_changes(transactions int)
BEGIN
    DECLARE n int DEFAULT 1;
    DECLARE a int;
    WHILE n <= transactions DO
        SET a = MOD(n * 7919, 100000) + 1;
        START TRANSACTION;
        UPDATE accounts SET abalance = abalance + 1 + MOD(n, 100) WHERE aid = a;
        UPDATE tellers SET tbalance = tbalance + 1 + MOD(n, 100) WHERE tid = MOD(n, 200) + 1;
        UPDATE branches SET bbalance = bbalance + 1 + MOD(n, 100) WHERE bid = MOD(n, 20);
        INSERT INTO history (tid, bid, aid, delta, mtime) VALUES (MOD(n, 200) + 1, MOD(n, 20), a, MOD(n, 100), now());
        COMMIT;
        SET n = n + 1;
    END WHILE;
END
"""


def measurements() -> Iterator[Measurement]:
    with temporary_directory() as directory:
        server = MariaDBServer(sync_binlog="0", innodb_buffer_pool_size="512M").start()
        try:
            for statement in SCHEMA:
                server.execute(statement.replace("shop_numbers.", "shop."))
            server.execute(f"INSERT INTO shop.accounts SELECT seq, seq DIV 100000, 0, '' FROM shop.seq_1_to_{ROWS}")
            server.execute(LOAD)
            yield from first_copy(server, directory)
            yield from stream(server, directory)
        finally:
            server.remove()


def capture_command(server: MariaDBServer, log: Path) -> list[str]:
    tables = [argument for table in TABLES for argument in ("--table", table)]
    return [*PENSTOCK, "capture", "run", server.url, "--name", "bench", "--log", str(log), *tables, "--once"]


def first_copy(server: MariaDBServer, directory: Path) -> Iterator[Measurement]:
    query = "--execute=SELECT * FROM shop.accounts"
    read = seconds(lambda: run([*client("mariadb", server), "--quick", "--batch", query]))
    spent = seconds(lambda: run(capture_command(server, directory / "log")))
    yield compared(
        f"MariaDB: first copy of {ROWS:,} rows, from the start of the process to its end",
        ROWS / spent,
        "rows/s",
        compared_with="SELECT * by the mariadb client, thrown away",
        reference=ROWS / read,
        at_least=0.3,
    )


def stream(server: MariaDBServer, directory: Path) -> Iterator[Measurement]:
    server.execute("FLUSH BINARY LOGS")
    first = server.execute("SHOW MASTER STATUS")[0][0]
    run(capture_command(server, directory / "log"))
    server.execute(f"CALL load_changes({CHANGES // CHANGES_PER_TRANSACTION})", database="shop")
    program = [*client("mariadb-binlog", server), "--read-from-remote-server", "--to-last-log", first]
    as_text = seconds(
        lambda: run([*program, "--verbose", "--base64-output=decode-rows", f"--result-file={directory / 'text'}"])
    )
    raw = seconds(lambda: run([*program, "--raw", f"--result-file={directory / 'raw-'}"]))
    before = stored_rows(directory / "log")
    spent = seconds(lambda: run(capture_command(server, directory / "log")))
    assert stored_rows(directory / "log") == before + CHANGES
    name = f"MariaDB: stream {CHANGES:,} row changes in transactions of {CHANGES_PER_TRANSACTION}"
    for peer, took, least in (
        ("mariadb-binlog to a file that shows the rows", as_text, 0.3),
        ("mariadb-binlog --raw, which only copies bytes", raw, None),
    ):
        yield compared(name, CHANGES / spent, "changes/s", compared_with=peer, reference=CHANGES / took, at_least=least)


def client(program: str, server: MariaDBServer) -> list[str]:
    return [
        binary(program),
        "--no-defaults",
        "--host=127.0.0.1",
        f"--port={server.port}",
        "--user=admin",
        f"--password={PASSWORD}",
    ]


def stored_rows(log: Path) -> int:
    with Log(log) as opened:
        return sum(sum(opened.topic(table).ends().values()) for table in TABLES)
