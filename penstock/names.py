"""What the names of topics, apps and savepoints look like, and how SQL quotes a name."""

from __future__ import annotations

import re

NAME_RULE = "use 1 to 200 letters, digits, dots, dashes and underscores, beginning with a letter or a digit"
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def quoted_name(name: str) -> str:
    """A name in double quotes, as standard SQL, SQLite and DuckDB write it."""
    return '"' + name.replace('"', '""') + '"'
