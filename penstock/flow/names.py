"""Which names apps, views, sinks and columns may have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from penstock.errors import DeclarationError

WINDOW_COLUMNS = ("window_start", "window_end", "revision")
"""The columns that the result of a window has in addition to its groups and aggregates."""

RANK = "rank"
CHANGE = "change"
EVENT_TIME = "event_time"

_APP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_OUTPUT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_PLAIN_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SQL_WORDS = """
    add all alter analyse analyze and anti any array as asc asof asymmetric at authorization autoincrement between
    binary both by case cast check collate collation column commit concurrently constraint create cross
    current_date current_time current_timestamp default deferrable delete desc describe distinct do drop else end
    escape except exists false fetch for foreign freeze from full glob group having if ilike in index
    initially inner insert intersect into is isnull join lambda lateral leading left like limit natural not
    nothing notnull null offset on only or order outer overlaps pivot pivot_longer pivot_wider placing positional
    primary qualify raise references returning right select semi set show similar some summarize symmetric
    table tablesample then to trailing transaction true union unique unpack unpivot update using values
    variadic verbose when where window with
"""
SQL_WORDS = frozenset(_SQL_WORDS.split())
"""The words that DuckDB or SQLite do not accept as a table name without quotes."""

_EXPRESSION_WORDS = """
    alter and any as between case create cross current_date current_path current_timestamp current_user distinct
    drop else except false fetch for from glob grant having if ilike inner insert intersect into join lateral like
    minus not notnull null on or outer partitioned_by qualify regexp returning revoke rlike rollback select
    serdeproperties session_user tablesample then true uncache union using values when where with xor
"""
EXPRESSION_WORDS = frozenset(_EXPRESSION_WORDS.split())
"""The words that do not mean a column when they are alone in an expression."""


def dead_topic(app: str) -> str:
    """The side topic with the rows that an app could not evaluate."""
    return f"{app}.dead"


def late_topic(topic: str) -> str:
    """The side topic with the rows of a topic that came too late."""
    return f"{topic}.late"


def check_app_name(name: object) -> None:
    if not isinstance(name, str) or not _APP.fullmatch(name):
        raise DeclarationError(
            f"this is not a name for an app; found {name!r}",
            hint="use 1 to 100 letters, digits, '-' and '_', beginning with a letter or a digit",
        )


def check_output_name(name: object, kind: Literal["view", "sink"]) -> None:
    """A view is a table in SQL, and a sink may be a table in SQLite, where some prefixes are reserved."""
    if not isinstance(name, str) or not _OUTPUT.fullmatch(name):
        raise DeclarationError(
            f"this is not a name for a {kind}; found {name!r}",
            hint="use letters, digits and '_', beginning with a letter: it must be an SQL table name without quotes",
        )
    if name.lower() in SQL_WORDS:
        raise DeclarationError(f"{name!r} is an SQL keyword, so it would need quotes in every query")
    if name.lower().startswith(("penstock_", "sqlite_")):
        raise DeclarationError(
            f"names that begin with 'penstock_' or 'sqlite_' are reserved; found {name!r}", hint=f"rename the {kind}"
        )


def check_columns(names: Iterable[object]) -> None:
    """Refuse names that cannot be the columns of one stream or table together."""
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not name:
            raise DeclarationError(f"every column needs a name; found {name!r}")
        if name.startswith("_"):
            raise DeclarationError(
                f"column names that begin with '_' are reserved; found {name!r}", hint="rename the column"
            )
        if name.lower() in seen:
            raise DeclarationError(
                f"two columns would have the same name; found {seen[name.lower()]!r} and {name!r}",
                hint="names must differ in more than upper and lower case, because Spark does not distinguish them",
            )
        seen[name.lower()] = name


def check_free(names: Iterable[str], taken: Sequence[str], why: str) -> None:
    """Refuse names that the verb itself adds."""
    for name in names:
        if name.lower() in taken:
            raise DeclarationError(f"there is a column {name!r} already, and {why}", hint=f"rename {name!r} first")


def quote(name: str) -> str:
    """The name of a column as an expression: in backquotes if it needs them."""
    plain = _PLAIN_COLUMN.fullmatch(name) and name.lower() not in EXPRESSION_WORDS
    return name if plain else "`" + name.replace("`", "``") + "`"


def unquote(expression: str) -> str | None:
    """The name that the expression consists of; None if it is not just a name."""
    if _PLAIN_COLUMN.fullmatch(expression):
        return None if expression.lower() in EXPRESSION_WORDS else expression
    if len(expression) > 2 and expression[0] == expression[-1] == "`":
        name = expression[1:-1].replace("``", "\0")
        return None if "`" in name else name.replace("\0", "`")
    return None
