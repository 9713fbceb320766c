"""Records messages of a real server: `python -m tests.capture.postgres.record_messages > .../recorded_15.txt`.

Each line is a message in hexadecimal, a tab, and what it means; a leading `~` says that it lies in a streamed block.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.capture.postgres.pgoutput import decode
from tests.servers.postgres import PostgresServer

STATEMENTS = (
    "CREATE TYPE mood AS ENUM ('sad', 'happy')",
    "CREATE TABLE plain (id int PRIMARY KEY, name varchar(10), mood mood, big text)",
    "ALTER TABLE plain ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE whole (a int, b text)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "CREATE PUBLICATION p FOR ALL TABLES",
    "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
    "INSERT INTO plain VALUES (1, 'one', 'happy', repeat('x', 2100)), (2, NULL, NULL, '')",
    "UPDATE plain SET name = 'uno' WHERE id = 1",
    "UPDATE plain SET id = 3 WHERE id = 2",
    "DELETE FROM plain WHERE id = 3",
    "INSERT INTO whole VALUES (1, NULL)",
    "UPDATE whole SET b = 'ü'",
    "DELETE FROM whole",
    "TRUNCATE plain, whole RESTART IDENTITY CASCADE",
    "SELECT pg_logical_emit_message(true, 'prefix', 'content')",
    "SELECT pg_logical_emit_message(false, 'prefix', 'at once')",
    (
        "BEGIN; INSERT INTO whole VALUES (2, 'kept'); SAVEPOINT a; "
        "INSERT INTO whole SELECT i, md5(i::text) FROM generate_series(1, 1000) AS i; ROLLBACK TO a; "
        "UPDATE whole SET b = 'ü'; INSERT INTO whole SELECT i, md5(i::text) FROM generate_series(1, 1000) AS i; "
        "SELECT pg_logical_emit_message(true, '', 'w'); COMMIT"
    ),
)
MOST_ALIKE = 2  # of a kind in a row: more say nothing more


def record() -> Iterator[tuple[bytes, bool]]:
    """Messages of a server, and whether each lies within a streamed block."""
    server = PostgresServer(logical_decoding_work_mem="64kB").start()
    try:
        for statement in STATEMENTS:
            server.execute(statement)
        options = "'proto_version', '2', 'publication_names', 'p', 'messages', 'true', 'streaming', 'true'"
        rows = server.execute(f"SELECT data FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, {options})")
    finally:
        server.remove()
    streaming = False
    for (message,) in rows:
        streaming = streaming and message[:1] != b"E"
        yield message, streaming
        streaming = streaming or message[:1] == b"S"


if __name__ == "__main__":
    alike: list[bytes] = []
    for message, streaming in record():
        alike = [*alike, message] if alike and alike[0][:1] == message[:1] else [message]
        if len(alike) <= MOST_ALIKE:
            print(f"{'~' if streaming else ''}{message.hex()}\t{decode(message, streaming=streaming)}")
