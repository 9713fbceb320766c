"""Questions to views, and what is said to those that cannot be answered."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from penstock.derive.query import query
from penstock.derive.store import ViewStore
from penstock.errors import DeclarationError
from tests.derive.changes import added, view

EVERYTHING = view(
    "everything",
    "id bigint, ok boolean, amount decimal(10,2), big decimal(38,0), day date, at timestamp, wall timestamp_ntz, "
    "tags array<string>, place struct<zip: int, at: timestamp>, counts map<string,bigint>, raw binary, x double",
    ("id",),
)
ROW = {
    "id": 1,
    "ok": True,
    "amount": Decimal("12.50"),
    "big": Decimal(2**64),
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 12, 0, 0, 500, tzinfo=UTC),
    "wall": datetime(2026, 1, 31, 12, tzinfo=UTC).replace(tzinfo=None),
    "tags": ["a", None],
    "place": {"zip": 10115, "at": datetime(2026, 1, 31, tzinfo=UTC)},
    "counts": {"a": 1},
    "raw": b"\x00\xff",
    "x": 0.1,
}
SHOWN = ROW | {"place": {"zip": 10115, "at": "2026-01-31 00:00:00"}}


@pytest.fixture
def store(path: Path) -> Iterator[ViewStore]:
    with ViewStore(path) as opened:
        opened.take_over("shop", 1)
        opened.declare([EVERYTHING, view("countries", "country string, n bigint", ("country",))])
        rows = [ROW, dict.fromkeys(ROW) | {"id": 2}]
        opened.apply(1, 1, {"everything": [pair for row in rows for pair in added(EVERYTHING, row)]})
        yield opened


def first(store: ViewStore, sql: str, *parameters: object) -> object:
    with query(store.path, sql, parameters) as answer:
        rows = list(answer)
    return rows[0][0] if rows else None


def test_columns_have_the_values_of_their_types(store: ViewStore) -> None:
    with query(store.path, "select * from everything order by id") as answer:
        assert answer.columns == tuple(ROW)
        assert list(answer.dicts()) == [SHOWN, dict.fromkeys(ROW) | {"id": 2}]


def test_what_is_computed_is_what_sqlite_makes_of_it(store: ViewStore) -> None:
    assert first(store, "select max(at) from everything") == "2026-01-31 12:00:00.000500"
    assert first(store, "select sum(amount) from everything") == 12.5
    assert first(store, "select tags ->> 0 from everything") == "a"
    assert first(store, "select strftime('%H:%M', wall) from everything") == "12:00"


def test_an_answer_says_its_epoch_and_when_it_was_applied(path: Path) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    with ViewStore(path, clock=lambda: noon) as store:
        store.take_over("shop", 1)
        with query(path, "select 1") as answer:
            assert (answer.moment.app, answer.epoch, answer.moment.applied_at) == ("shop", 0, None)
        store.apply(1, 1, {}, facts={"views": {}})
        with query(path, "select 1 as one") as answer:
            assert (answer.epoch, answer.moment.applied_at, answer.moment.facts) == (1, noon, {"views": {}})


def test_values_of_python_can_be_parameters(store: ViewStore) -> None:
    plus_one = ROW["at"].astimezone(timezone(timedelta(hours=1)))  # type: ignore[attr-defined]
    for column, value in {
        **{name: ROW[name] for name in ("amount", "big", "day", "wall", "ok")},
        "at": plus_one,
    }.items():
        assert first(store, f"select id from everything where {column} = ?", value) == 1
    with query(store.path, "select id from everything where amount > :least", {"least": Decimal("12.49")}) as answer:
        assert list(answer) == [(1,)]


def test_a_year_is_compared_as_text_and_not_as_a_number(store: ViewStore) -> None:
    assert first(store, "select count(*) from everything where day >= '2027'") == 0
    assert first(store, "select count(*) from everything where at >= '2026' and at < '2026-02'") == 1


def test_an_answer_is_read_as_its_rows_are_taken_and_sees_one_moment(store: ViewStore) -> None:
    endless = "with recursive n (i) as (select 1 union all select i + 1 from n) "
    endless += "select i, (select count(*) from countries) from n"
    with query(store.path, endless) as answer:
        rows = iter(answer)
        assert next(rows) == (1, 0)
        store.apply(2, 1, {"countries": added(view("c", "country string, n bigint"), {"country": "DE"})})
        assert next(rows) == (2, 0)
        assert answer.epoch == 1


def test_columns_of_one_name_are_told_apart_in_dicts(store: ViewStore) -> None:
    with query(store.path, "select 1 as a, 2 as a, 3 as a_2") as answer:
        assert answer.columns == ("a", "a", "a_2")
        assert list(answer.dicts()) == [{"a": 1, "a_2": 2, "a_2_2": 3}]


@pytest.mark.parametrize(
    "sql",
    [
        "delete from countries",
        "insert into penstock_epochs values ('x', 1, 1, null, '')",
        "create table t (a)",
        "drop view everything",
        "create temp table t (a)",
        "pragma journal_mode = delete",
        "attach 'other' as other",
        "vacuum",
        "commit",
        "with n as (select 1) update penstock_epochs set epoch = 9",
    ],
)
def test_nothing_can_be_changed(store: ViewStore, sql: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        query(store.path, sql)
    assert refused.value.message == f"query: views can only be read; found '{sql.split()[0].upper()}'"
    assert first(store, "select count(*) from everything") == 2


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        (
            "select * from everythin",
            "query: there is no view 'everythin'; there is countries, everything",
            "everything",
        ),
        ("select * from zzz", "query: there is no view 'zzz'; there is countries, everything", "penstock views"),
        ("select contry from countries", "query: there is no column 'contry'", "did you mean 'country'?"),
        ("select c.contry from countries c", "query: there is no column 'contry'", "did you mean 'country'?"),
        ("selec 1", 'query: near "selec": syntax error', "SQLite's SQL"),
        ("select 1; select 2", "query: You can only execute one statement at a time.", "SQLite's SQL"),
        ("select ?", "query: Incorrect number of bindings", "SQLite's SQL"),
        ("", "query: this asks for nothing; found ''", "select"),
    ],
)
def test_what_is_wrong_with_a_question_is_said(store: ViewStore, sql: str, message: str, hint: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        query(store.path, sql)
    assert refused.value.message.startswith(message)
    assert refused.value.hint is not None
    assert hint in refused.value.hint


def test_a_question_that_fails_on_a_row_is_refused_there(store: ViewStore) -> None:
    question = "select json_extract(case id when 1 then '{}' else 'no json' end, '$') from everything order by id"
    with query(store.path, question) as answer, pytest.raises(DeclarationError, match="query: malformed JSON"):
        list(answer)


def test_there_must_be_a_file(path: Path) -> None:
    with pytest.raises(DeclarationError, match="there are no views here"):
        query(path, "select 1")
    assert not path.parent.exists()


def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    path = tmp_path / "a?b#c%20 d" / "views.sqlite"
    with ViewStore(path) as store:
        store.take_over("shop", 1)
        with query(path, "select app from penstock_epochs") as answer:
            assert list(answer) == [("shop",)]


def test_asking_loads_neither_arrow_nor_numpy() -> None:
    code = "import sys, penstock.derive.query, penstock.derive.status; print(*{'pyarrow', 'numpy'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == ""
