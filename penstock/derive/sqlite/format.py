"""What every file has: how it is recognised, and the two tables that describe its content.

`penstock_epochs` has one row, for the app. `penstock_views` has a row for each version of a table: `number` is part of
the names of its SQL tables, `building` says that it is hidden, and `columns` has the name, declared type and Spark type
of each column, for readers without Arrow.
"""

from __future__ import annotations

APPLICATION_ID = 0x50454E53
FORMAT = 1
# Larger pages gain nothing for bulk writes, and cost 50% more where an epoch touches a few scattered rows.
PAGE_SIZE = 4096

TABLES = (
    """CREATE TABLE penstock_epochs (app TEXT PRIMARY KEY NOT NULL, token INTEGER NOT NULL, epoch INTEGER NOT NULL,
    applied_at TIMESTAMP_TEXT, facts JSON_TEXT NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE penstock_views (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL COLLATE NOCASE,
    building INTEGER NOT NULL, schema TEXT NOT NULL, key TEXT, version TEXT NOT NULL, columns JSON_TEXT NOT NULL,
    null_keys INTEGER NOT NULL, UNIQUE (name, building))""",
)
