"""What DuckDB says a view must hold, and whether it does: in rows, and in the books."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import duckdb

from penstock.testing import Rig
from tests.engine.oracle.play import SECOND, Play


@dataclass(frozen=True)
class Answer:
    """A view and the query of DuckDB that it must equal.

    `late` and `filtered` say in SQL which `events` the view's books must show as such; None: they are not looked at.
    `shown` is what is read of the view, `left_out` are columns that depend on the cuts.
    """

    view: str
    query: str
    late: str | None = "false"
    filtered: str = "false"
    shown: str | None = None
    left_out: tuple[str, ...] = ("revision",)
    of_table: bool = False


def check(play: Play, answers: Iterable[Answer]) -> None:
    database = play.database()
    for one in answers:
        wanted = _rows(database.execute(one.query))
        found = play.rig.query(one.shown or f"SELECT * FROM {one.view}")
        assert_same(found, wanted, one)
        check_account(play.rig, database, one)


def assert_same(found: Sequence[dict[str, Any]], wanted: Sequence[dict[str, Any]], one: Answer) -> None:
    names = [name for name in (wanted or found or [{}])[0] if name not in one.left_out]
    ours, theirs = _sorted(found, names), _sorted(wanted, names)
    pairs = zip(ours, theirs, strict=False)
    if len(ours) == len(theirs) and all(_equal(a, b) for a, b in pairs):
        return
    extra = [row for row in ours if not any(_equal(row, other) for other in theirs)]
    missing = [row for row in theirs if not any(_equal(row, other) for other in ours)]
    raise AssertionError(
        f"view '{one.view}' ({', '.join(names)}) has {len(ours)} rows, {len(theirs)} are right\n"
        f"  wrong: {extra[:5]}\n  missing: {missing[:5]}"
    )


def check_account(rig: Rig, database: duckdb.DuckDBPyConnection, one: Answer) -> None:
    account = rig.account(one.view)
    assert account.came == account.counted + account.late + account.dead + account.filtered, (one.view, account)
    if one.late is None:
        return
    if one.of_table:
        came = _number(database, "SELECT count(*) FROM items_log")
        assert (account.came, account.counted) == (came, came), (one.view, account)
        return
    came = _number(database, "SELECT count(*) FROM arrived")
    dead = came - _number(database, "SELECT count(*) FROM events")
    filtered = _number(database, f"SELECT count(*) FROM events WHERE ({one.filtered})")
    late = _number(database, f"SELECT count(*) FROM events WHERE NOT ({one.filtered}) AND ({one.late})")
    books = {"came": came, "dead": dead, "filtered": filtered, "late": late}
    assert books == {name: getattr(account, name) for name in books}, one.view


def _number(database: duckdb.DuckDBPyConnection, query: str) -> int:
    row = database.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _rows(answer: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def _sorted(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[tuple[Any, ...]]:
    plain = [tuple(_plain(row[name]) for name in names) for row in rows]
    return sorted(plain, key=lambda row: [(str(type(value)), _rounded(value)) for value in row])


def _plain(value: Any) -> Any:
    """Values of both sides in one form: moments as microseconds, numbers as numbers, lists without an order."""
    match value:
        case datetime():
            return float(round(value.timestamp() * SECOND))
        case bool() | None | str():
            return value
        case int() | Decimal() | float():
            return None if math.isnan(value) else float(value)  # SQLite has no NaN: it stores null
        case list():
            return sorted((_plain(one) for one in value), key=_rounded)
        case _:
            return value


def _rounded(value: Any) -> str:
    """Text to sort by, the same for numbers that differ by less than rounding."""
    if not isinstance(value, float):
        return str(value)
    return f"{round(value):020d}" if math.isclose(value, round(value), rel_tol=1e-9) else f"{value:.5e}"


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)
