"""What SQLite as a target adds to the contract, which tests/targets/test_contract.py is about."""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts import Changes, TargetTable
from penstock.derive.sqlite.target import SqliteTarget
from penstock.errors import DamagedError, DeclarationError, FencedError, RowError
from tests.derive.sqlite.queries import query
from tests.targets.changes import Row, additions, changes, removals, target_table
from tests.targets.worlds import SEEN, TOTALS, Rows


def rows_of(path: Path, sql: str) -> Rows:
    with query(path, sql) as answer:
        return sorted(answer, key=repr)


@pytest.fixture
def target(path: Path) -> Iterator[SqliteTarget]:
    with SqliteTarget(path) as opened:
        opened.take_over("shop", 1)
        yield opened


# -- what its users see -----------------------------------------------------------------------------------------------


def test_readers_see_the_epoch_and_a_replaced_instance_learns_by_whom(target: SqliteTarget, path: Path) -> None:
    target.declare([SEEN])
    for epoch in (1, 2):
        target.apply(epoch, {})
        with query(path, "select 1") as answer:
            assert answer.epoch == epoch
    with SqliteTarget(path) as second:
        second.take_over("shop", 4)
        with pytest.raises(FencedError, match="app 'shop': instance 1 was replaced by instance 4"):
            target.apply(3, {})


def test_a_table_that_is_not_declared_is_refused_with_the_name_that_was_meant(target: SqliteTarget) -> None:
    target.declare([SEEN])
    with pytest.raises(DeclarationError, match="view 'sen'") as refused:
        target.apply(1, {"sen": additions(SEEN, {"id": 1})})
    assert refused.value.hint == "did you mean 'seen'?"


# -- against a model --------------------------------------------------------------------------------------------------

VALUES: dict[str, st.SearchStrategy[object]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-128, 127),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    "binary": st.binary(max_size=3),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal(15,4)": st.decimals(-(10**10), 10**10, places=4),
    "decimal(38,0)": st.integers(-(10**37), 10**37).map(Decimal),
    "array<int>": st.lists(st.integers(0, 3) | st.none(), max_size=3),
    "struct<a: int, b: string>": st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.sampled_from("xy")}),
}
KEY_TYPES = st.lists(st.sampled_from(sorted(VALUES)), min_size=0, max_size=3)


@st.composite
def some_view(draw: st.DrawFn, *, keyed: bool) -> TargetTable:
    key = [f"k{number} {type_}" for number, type_ in enumerate(draw(KEY_TYPES))] if keyed else []
    columns = [f"v{number} {type_}" for number, type_ in enumerate(sorted(VALUES))]
    wanted = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=4, unique=True))
    names = tuple(column.split()[0] for column in key)
    return target_table("v", ", ".join([*key, *wanted]), names if keyed else None)


def some_rows(table: TargetTable, count: int) -> st.SearchStrategy[list[Row]]:
    """Few distinct values in the key, so that keys collide."""
    from penstock.schema.ddl import type_ddl

    columns = {field.name: st.none() | VALUES[type_ddl(field.type)] for field in table.schema}
    return st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=count)


def frozen(value: object) -> object:
    """A hashable value. Numbers differ from booleans, and zero has no sign."""
    if isinstance(value, list):
        return ("list", *map(frozen, value))
    if isinstance(value, dict):
        return ("dict", *((name, frozen(value[name])) for name in sorted(value)))
    return (type(value).__name__, value if value != 0 else 0)


def frozen_row(row: Row) -> tuple[object, ...]:
    return tuple(frozen(row[name]) for name in sorted(row))


def in_batches(table: TargetTable, weighted: list[tuple[int, Row]], chance: random.Random) -> list[Changes]:
    chance.shuffle(weighted)
    cut = chance.randint(0, len(weighted))
    return [changes(table, weighted[:cut]), changes(table, weighted[cut:])]


@given(data=st.data(), chance=st.randoms(use_true_random=False))
def test_a_view_with_a_key_is_a_dict(data: st.DataObject, chance: random.Random) -> None:
    table = data.draw(some_view(keyed=True))
    pool = data.draw(some_rows(table, 8))
    model: dict[tuple[object, ...], Row] = {}
    with tempfile.TemporaryDirectory() as folder, SqliteTarget(Path(folder) / "v") as target:
        target.take_over("shop", 1)
        target.declare([table])
        for epoch in range(1, data.draw(st.integers(1, 4)) + 1):
            weighted: list[tuple[int, Row]] = []
            touched = data.draw(st.lists(st.sampled_from(pool), max_size=6, unique_by=lambda row: key_of(table, row)))
            for row in touched:
                key = key_of(table, row)
                if key in model:
                    weighted.append((-1, model.pop(key)))
                    if data.draw(st.booleans()):
                        continue
                model[key] = row
                weighted.append((1, row))
            target.apply(epoch, {"v": in_batches(table, weighted, chance)})
            with query(target.path, "select * from v") as answer:
                found = Counter(frozen_row(row) for row in answer.dicts())
            assert found == Counter(frozen_row(row) for row in model.values())


def key_of(table: TargetTable, row: Row) -> tuple[object, ...]:
    return tuple(frozen(row[column]) for column in table.key or ())


@given(data=st.data(), chance=st.randoms(use_true_random=False))
def test_a_view_without_a_key_is_a_bag(data: st.DataObject, chance: random.Random) -> None:
    table = data.draw(some_view(keyed=False))
    pool = data.draw(some_rows(table, 5))
    model: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as folder, SqliteTarget(Path(folder) / "v") as target:
        target.take_over("shop", 1)
        target.declare([table])
        for epoch in range(1, data.draw(st.integers(1, 4)) + 1):
            weighted: list[tuple[int, Row]] = []
            for number, row in enumerate(pool):
                gone = data.draw(st.integers(-model[number] - 2, 0))
                come = data.draw(st.integers(max(0, -model[number] - gone), 3))
                model[number] += gone + come
                weighted += [(gone, row), (come, row)]
            target.apply(epoch, {"v": in_batches(table, weighted, chance)})
            expected: Counter[tuple[object, ...]] = Counter()
            for number, row in enumerate(pool):
                expected[frozen_row(row)] += model[number]
            with query(target.path, "select * from v") as answer:
                found = Counter(frozen_row(row) for row in answer.dicts())
            assert found == +expected


def test_many_rows_and_wide_rows_are_all_written(target: SqliteTarget) -> None:
    many = pa.table({"k": list(range(200_003)), "v": [str(number) for number in range(200_003)]})
    wide = {f"c{number}": number for number in range(1_500)}
    tables = [
        target_table("many", "k bigint, v string", ("k",)),
        target_table("wide", ", ".join(f"{name} int" for name in wide), ("c0",)),
    ]
    target.declare(tables)
    batches = [Changes(batch, pa.array([1] * len(batch))) for batch in many.to_batches(max_chunksize=70_000)]
    target.apply(1, {"many": batches, "wide": additions(tables[1], *[wide | {"c0": n} for n in range(25)])})
    assert rows_of(target.path, "select count(*), sum(k), sum(v = k || '') from many") == [
        (200_003, sum(range(200_003)), 200_003)
    ]
    assert rows_of(target.path, "select count(*), sum(c1499) from wide") == [(25, 25 * 1499)]


def test_rows_of_as_many_columns_as_sqlite_has_are_written_and_removed(target: SqliteTarget) -> None:
    table = target_table("wide", ", ".join(f"c{number} int" for number in range(1_999)))
    row = {f"c{number}": number if number % 2 else None for number in range(1_999)}
    target.declare([table])
    target.apply(1, {"wide": additions(table, row, row | {"c1998": 7})})
    target.apply(2, {"wide": removals(table, row)})
    assert rows_of(target.path, "select c1, c1998 from wide") == [(1, 7)]


# -- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_column_is_searched_by_its_index_with_and_without_nulls(target: SqliteTarget) -> None:
    table = target_table("t", "at timestamp, country string, n bigint", ("at", "country"))
    target.declare([table])
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    question = "select n from t where at = '2026-01-31 12:00:00' and country = 'DE'"
    for epoch, country in enumerate(["DE", None], start=1):
        target.apply(epoch, {"t": additions(table, {"at": noon, "country": country, "n": epoch})})
        plan = " ".join(str(row[3]) for row in rows_of(target.path, f"explain query plan {question}"))
        assert "SEARCH penstock_rows_1 USING PRIMARY KEY (at=? AND country=?)" in plan
        assert rows_of(target.path, question) == [(1,)]
    assert rows_of(target.path, "select at, country, n from t where country is null") == [(noon, None, 2)]
    assert rows_of(target.path, "select * from t") == sorted([(noon, "DE", 1), (noon, None, 2)], key=repr)


def test_a_key_that_is_not_a_number_is_not_the_null_key(target: SqliteTarget) -> None:
    table = target_table("t", "x double, n int", ("x",))
    target.declare([table])
    nan = float("nan")
    target.apply(1, {"t": additions(table, {"x": nan, "n": 1}, {"x": None, "n": 2}, {"x": -0.0, "n": 3})})
    target.apply(2, {"t": [*removals(table, {"x": 0.0, "n": 3}), *additions(table, {"x": nan, "n": 4})]})
    assert rows_of(target.path, "select * from t") == [("NaN", 4), (None, 2)]


def test_keys_of_more_digits_than_a_double_has_stay_apart(target: SqliteTarget) -> None:
    table = target_table("t", "amount decimal(30,4), n int", ("amount",))
    target.declare([table])
    near = [Decimal("12345678901234567890.0001"), Decimal("12345678901234567890.0002")]
    target.apply(1, {"t": additions(table, *[{"amount": amount, "n": 1} for amount in near])})
    assert rows_of(target.path, "select amount from t") == [(amount,) for amount in near]


def test_an_empty_key_means_one_row_at_most(target: SqliteTarget) -> None:
    table = target_table("total", "n bigint", ())
    target.declare([table])
    target.apply(1, {"total": additions(table, {"n": 1})})
    target.apply(2, {"total": [changes(table, [(1, {"n": 2}), (-1, {"n": 1})])]})
    assert rows_of(target.path, "select * from total") == [(2,)]
    target.apply(3, {"total": removals(table, {"n": 2})})
    assert rows_of(target.path, "select * from total") == []


def test_columns_may_have_any_name(target: SqliteTarget) -> None:
    table = target_table('odd "name"', 'rowid int, `a"b` string, `select` date, `ü ?` int', ("select",))
    target.declare([table, target_table("b", "rowid int, `?` string")])
    row = {"rowid": 7, 'a"b': "x", "select": date(2026, 1, 31), "ü ?": 1}
    target.apply(
        1,
        {'odd "name"': additions(table, row), "b": additions(target_table("b", "rowid int, `?` string"), {"rowid": 1})},
    )
    target.apply(2, {"b": removals(target_table("b", "rowid int, `?` string"), {"rowid": 1})})
    with query(target.path, 'select * from "odd ""name"""') as answer:
        assert list(answer.dicts()) == [row]
    assert rows_of(target.path, "select * from b") == []


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (target_table("penstock_x", "a int"), "view 'penstock_x': this is not a name for a view"),
        (target_table("", "a int"), "view '': this is not a name"),
        (target_table("t", "a int", ("b",)), "view 't': its key has the column 'b', which it has not; it has a"),
        (TargetTable("t", pa.schema([("a", pa.duration("s"))])), "view 't': "),
        (TargetTable("t", pa.schema([("a", pa.int8()), ("A", pa.int8())])), "view 't': "),
        (
            TargetTable("t", pa.schema([(f"c{number}", pa.int8()) for number in range(2_001)]), ("c0",)),
            "view 't': a table of SQLite has at most 2,000 columns here; found 2,001",
        ),
        (
            TargetTable("t", pa.schema([(f"c{number}", pa.int8()) for number in range(2_000)])),
            "view 't': a table of SQLite has at most 1,999 columns here; found 2,000",
        ),
    ],
)
def test_a_view_that_cannot_be_kept_is_refused(target: SqliteTarget, table: TargetTable, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        target.declare([table])


def test_changes_that_do_not_fit_are_refused_as_a_whole(target: SqliteTarget) -> None:
    target.declare([SEEN])
    rows = pa.RecordBatch.from_pylist([{"id": 1, "name": "a"}], schema=SEEN.schema)
    misfits = [
        Changes(rows, pa.array([1, 1])),
        Changes(rows, pa.array([None], pa.int64())),
        Changes(rows.select(["id"]), pa.array([1])),
        Changes(rows.set_column(0, "id", pa.array(["x"])), pa.array([1])),
    ]
    for misfit in misfits:
        with pytest.raises(RowError, match="view 'seen'"):
            target.apply(1, {"seen": [*additions(SEEN, {"id": 5}), misfit]})
    assert rows_of(target.path, "select * from seen") == []


def test_spellings_of_arrow_types_that_mean_the_same_fit(target: SqliteTarget) -> None:
    table = target_table("t", "name string, at timestamp, tags array<string>, amount decimal(10,2)", ("name",))
    target.declare([table])
    berlin = pa.timestamp("us", "Europe/Berlin")
    batch = pa.record_batch(
        {
            "weight": pa.array([1], pa.int64()),
            "amount": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
            "tags": pa.array([["a"]], pa.list_(pa.field("element", pa.large_string()))),
            "at": pa.array([datetime(2026, 1, 31, tzinfo=UTC)], berlin),
            "name": pa.array(["x"]).dictionary_encode(),
        }
    )
    target.apply(1, {"t": [Changes.of(batch, weight="weight")]})
    assert rows_of(target.path, "select * from t") == [("x", datetime(2026, 1, 31, tzinfo=UTC), ["a"], Decimal("1.50"))]


def test_removing_a_row_that_does_not_exist_is_reported_as_damage(target: SqliteTarget) -> None:
    target.declare([SEEN])
    target.apply(1, {"seen": additions(SEEN, {"id": 1})})
    with pytest.raises(DamagedError, match="view 'seen': 2 rows are to be removed, and only 1 of them"):
        target.apply(2, {"seen": removals(SEEN, {"id": 1}, {"id": 2})})
    assert rows_of(target.path, "select id from seen") == [(1,)]


def test_another_app_is_refused(target: SqliteTarget) -> None:
    with (
        SqliteTarget(target.path) as second,
        pytest.raises(DeclarationError, match="views of app 'shop'; found app 'bank'"),
    ):
        second.take_over("bank", 9)


def test_only_the_instance_that_has_taken_over_may_change_anything(target: SqliteTarget) -> None:
    with SqliteTarget(target.path) as second:
        with pytest.raises(DeclarationError, match="has not taken over"):
            second.declare([SEEN])
        with pytest.raises(DeclarationError, match="has not taken over"):
            second.apply(1, {})
        second.take_over("shop", 2)
    for call in (lambda: target.declare([SEEN]), lambda: target.drop(["seen"]), lambda: target.realign(0)):
        with pytest.raises(FencedError, match="instance 1 was replaced by instance 2"):
            call()


def test_a_closed_target_says_so(path: Path) -> None:
    target = SqliteTarget(path)
    target.close()
    with pytest.raises(DeclarationError, match="this target is closed"):
        target.take_over("shop", 1)


# -- other versions ---------------------------------------------------------------------------------------------------


def test_a_new_version_is_built_beside_the_old_one_and_swapped_with_an_epoch(target: SqliteTarget) -> None:
    new = target_table("totals", "country string, total decimal(10,2), orders bigint", ("country",), "new")
    target.declare([TOTALS, SEEN])
    target.apply(1, {"totals": additions(TOTALS, {"country": "DE", "total": 1})})
    target.declare([new, SEEN], hidden=True)
    assert target.status().hidden.keys() == {"totals"}
    assert target.status().tables["totals"] == TOTALS.version

    target.apply(2, {"totals": additions(new, {"country": None, "total": Decimal(2), "orders": 3})})
    assert rows_of(target.path, "select * from totals") == [("DE", 1)]

    target.apply(3, {"totals": additions(new, {"country": "FR", "total": Decimal(4), "orders": 5})}, show=["totals"])
    assert rows_of(target.path, "select * from totals") == [("FR", Decimal("4.00"), 5), (None, Decimal("2.00"), 3)]
    assert target.status().tables == {"totals": "new", "seen": ""}
    assert target.status().hidden == {}
    assert tables_in(target.path) == {"penstock_epochs", "penstock_views", *kept_tables(target)}


def test_what_is_being_built_survives_a_restart_and_goes_when_another_version_is_wanted(target: SqliteTarget) -> None:
    second, third = (target_table("totals", "country string, total bigint", ("country",), version) for version in "23")
    target.declare([TOTALS])
    target.declare([second], hidden=True)
    target.apply(1, {"totals": additions(second, {"country": "DE", "total": 2})})
    target.declare([second], hidden=True)
    target.apply(2, {}, show=["totals"])
    assert rows_of(target.path, "select total from totals") == [(2,)]

    target.declare([TOTALS], hidden=True)
    target.apply(3, {"totals": additions(TOTALS, {"country": "DE", "total": 1})})
    target.declare([third], hidden=True)
    target.apply(4, {}, show=["totals"])
    assert rows_of(target.path, "select total from totals") == []
    assert target.status().tables["totals"] == "3"

    target.declare([TOTALS], hidden=True)
    target.declare([third])
    assert target.status().hidden == {}
    with pytest.raises(DeclarationError, match="no other version of it is being built"):
        target.apply(5, {}, show=["totals"])


def test_dropped_views_leave_nothing_behind(target: SqliteTarget) -> None:
    target.declare([TOTALS, SEEN])
    target.declare([target_table("totals", "a int")], hidden=True)
    target.apply(1, {"seen": additions(SEEN, {"id": 1})})
    target.drop(["totals", "never there"])
    assert target.status().tables == {"seen": ""}
    assert tables_in(target.path) == {"penstock_epochs", "penstock_views", *kept_tables(target)}


def tables_in(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        query = "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
        return {name for (name,) in connection.execute(query)}


def kept_tables(target: SqliteTarget) -> set[str]:
    """The SQL tables behind all stored tables."""
    with closing(sqlite3.connect(target.path)) as connection:
        views = connection.execute("select number, null_keys from penstock_views").fetchall()
    return {f"penstock_rows_{number}" for number, _ in views} | {
        f"penstock_null_keys_{number}" for number, null_keys in views if null_keys
    }


# -- the file ---------------------------------------------------------------------------------------------------------


def test_closing_leaves_one_file(path: Path) -> None:
    with SqliteTarget(path) as target:
        target.take_over("shop", 1)
        assert len(os.listdir(path.parent)) == 3
    assert os.listdir(path.parent) == ["views.sqlite"]


def test_the_wal_is_emptied_when_readers_have_let_it_grow(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.derive.sqlite.target.MOST_WAL_BYTES", 100_000)
    monkeypatch.setattr("penstock.derive.sqlite.target.WAL_PATIENCE_SECONDS", 0.01)
    wal = path.with_name("views.sqlite-wal")
    with SqliteTarget(path) as target:
        target.take_over("shop", 1)
        target.declare([SEEN])
        rows = additions(SEEN, *[{"id": number, "name": "x" * 100} for number in range(1_000)])
        target.apply(1, {"seen": additions(SEEN, {"id": 0})})
        with query(path, "select * from seen") as reader:
            target.apply(2, {"seen": rows})
            target.apply(3, {"seen": rows})
            assert wal.stat().st_size > 200_000
            assert len(list(reader)) == 1
        target.apply(4, {"seen": rows})
        assert wal.stat().st_size == 0
