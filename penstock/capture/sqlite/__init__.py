"""SQLite as a source: triggers write each change to a table of the same file, in the transaction that makes it.

The main path: SqliteDatabase.read -> Stream.next_cycle (one short read transaction) -> pages of changes, then a chunk.
"""
