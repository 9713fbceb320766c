"""SQL on views: correct answers, of one epoch, in Python's types; and nothing but reading."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from penstock.derive.views import QueryLimits, ViewReader, query
from penstock.derive.views.open_view import MOST_COPIES, SMALL_ROWS
from penstock.derive.views.sql import _database
from penstock.errors import DeclarationError, LimitError
from tests.derive.views.written_app import GONE, WrittenApp, WrittenView

EVERY_TYPE = """id bigint, flag boolean, tiny tinyint, small smallint, whole int, real float, wide double,
    amount decimal(10,2), huge decimal(38,6), name string, raw binary, day date, moment timestamp, local timestamp_ntz,
    tags array<string>, scores map<string,double>, place struct<city:string,at:struct<lat:double,lon:double>>,
    visits array<struct<page:string,seen:timestamp>>"""
EVERY_VALUE: dict[str, object] = {
    "id": 1,
    "flag": True,
    "tiny": -128,
    "small": 32767,
    "whole": -5,
    "real": 0.5,
    "wide": 1e300,
    "amount": Decimal("12345678.90"),
    "huge": Decimal("-12345678901234567890123456789012.345678"),
    "name": "Zoë",
    "raw": b"\x00\xff",
    "day": date(1969, 12, 31),
    "moment": datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC),
    "local": datetime(2026, 1, 31, 12, 0, 0, 1),  # noqa: DTZ001 - the column is one without a zone
    "tags": ["a", None, ""],
    "scores": {"x": 1.5, "y": None},
    "place": {"city": "Graz", "at": {"lat": 47.07, "lon": None}},
    "visits": [{"page": "/", "seen": datetime(2026, 1, 1, tzinfo=UTC)}, None],
}


def typed_reader(app: WrittenApp, rows: list[dict[str, object]]) -> ViewReader:
    """A reader of the view `typed`, which has a column of every type."""
    app.declare(WrittenView("typed", EVERY_TYPE, ("id",), "keyed"))
    entries = [{**row, "scores": list(row["scores"].items())} if row.get("scores") else row for row in rows]  # type: ignore[attr-defined]
    app.upsert("typed", entries)
    app.commit()
    return ViewReader(app.directory)


# -- answers ----------------------------------------------------------------------------------------------------------


def test_an_answer_says_of_which_epoch_it_is(shop: WrittenApp) -> None:
    with query(shop.directory, "select country, n from totals order by n") as answer:
        assert (answer.app, answer.epoch, answer.columns) == ("shop", 2, ("country", "n"))
        assert answer.committed_at == datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)
        assert list(answer) == [(None, 3), ("DE", 10)]


def test_all_views_in_a_question_are_of_one_epoch(shop: WrittenApp) -> None:
    reader = ViewReader(shop.directory)
    snapshot = reader.refresh()
    shop.upsert("totals", [{"country": "AT", "n": 1}])
    shop.append("seen", [{"id": 3}])
    shop.commit()
    sql = "select (select count(*) from totals) as totals, (select count(*) from seen) as seen"
    assert snapshot.query(sql).rows() == [{"totals": 2, "seen": 2}]
    assert reader.query(sql).rows() == [{"totals": 3, "seen": 3}]
    assert snapshot.query(sql).epoch == 2


def test_every_type_comes_back_exactly(app: WrittenApp) -> None:
    reader = typed_reader(app, [EVERY_VALUE, {"id": 2}])
    rows = reader.query("select * from typed order by id").rows()
    assert rows == [EVERY_VALUE, {**dict.fromkeys(EVERY_VALUE), "id": 2}]
    assert reader.get("typed", 1) == EVERY_VALUE
    assert reader.query("select * from typed where id = 1").rows() == [EVERY_VALUE]


def test_arrow_has_the_types_of_the_view(app: WrittenApp) -> None:
    reader = typed_reader(app, [EVERY_VALUE])
    table = reader.query("select * from typed").rows().to_arrow()
    expected = reader.refresh().open("typed").schema
    assert [field.type for field in table.schema] == [field.type for field in expected]
    frame = reader.query("select amount, moment from typed").rows().to_pandas()
    assert frame.to_dict("records")[0]["amount"] == Decimal("12345678.90")


def test_a_whole_view_is_read_without_sql(shop: WrittenApp) -> None:
    reader = ViewReader(shop.directory)
    for view in ("totals", "bag", "seen"):
        rows = reader.read(view)
        assert sorted(map(str, rows)) == sorted(map(str, reader.query(f"select * from {view}").rows()))
        assert rows.epoch == 2
    assert reader.read("TOTALS", columns=["n"]).columns == ("n",)
    assert reader.read("totals")[:0].to_polars().columns == ["country", "n", "amount"]
    with pytest.raises(DeclarationError, match="view 'totals': there is no column 'm'"):
        reader.read("totals", columns=["m"])
    with pytest.raises(DeclarationError, match="there is no view 'total'"):
        reader.read("total")


def test_sums_of_whole_numbers_are_whole_numbers(shop: WrittenApp) -> None:
    (row,) = query(shop.directory, "select sum(n) as total, count(*) as rows, avg(n) as mean from totals").rows()
    assert row == {"total": 13, "rows": 2, "mean": 6.5}
    assert type(row["total"]) is int


def test_nan_is_greater_than_every_number_and_not_null(app: WrittenApp) -> None:
    reader = typed_reader(
        app, [{"id": 1, "wide": math.nan}, {"id": 2, "wide": 5.0}, {"id": 3}, {"id": 4, "wide": math.inf}]
    )
    assert list(reader.query("select id from typed where wide > 4 order by id")) == [(1,), (2,), (4,)]
    assert list(reader.query("select id from typed where wide = 'nan'::double")) == [(1,)]
    assert list(reader.query("select id from typed where wide is null")) == [(3,)]


def test_times_are_in_utc_whatever_the_machine_says(app: WrittenApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    reader = typed_reader(app, [EVERY_VALUE])
    (row,) = reader.query("select date_trunc('day', moment) as day, moment::varchar as text from typed").rows()
    assert row == {"day": datetime(2026, 1, 31, tzinfo=UTC), "text": "2026-01-31 12:00:00.123456+00"}


def test_times_that_python_cannot_hold_are_text(app: WrittenApp) -> None:
    app.declare(WrittenView("far", "id bigint, at timestamp", ("id",), "keyed"))
    batch = pa.record_batch({"id": [1], "at": pa.array([2**62], pa.timestamp("us", "UTC"))})
    app.add_batch("far", batch, {GONE: pa.array([False])})
    app.commit()
    (row,) = query(app.directory, "select * from far").rows()
    assert row["at"] == "148108-07-06T14:00:27.387904Z"
    assert ViewReader(app.directory).get("far", 1) == row


def test_columns_of_one_name_get_numbers(shop: WrittenApp) -> None:
    answer = query(shop.directory, "select 1 as a, 2 as b, 3 as a")
    assert answer.rows() == [{"a": 1, "b": 2, "a_2": 3}]


def test_parameters_are_given_by_place_or_by_name(shop: WrittenApp) -> None:
    reader = ViewReader(shop.directory)
    assert list(reader.query("select n from totals where n > ? and n < ?", [3, 11])) == [(10,)]
    assert list(reader.query("select n from totals where country = $c", {"c": "DE"})) == [(10,)]
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    values = [moment, date(2026, 1, 1), Decimal("1.10"), True, b"\x00", None, "x", 2**63 - 1]
    row = next(iter(reader.query("select " + ", ".join("?" * len(values)), values)))
    assert list(row) == values


def test_wrong_parameters_are_refused(shop: WrittenApp) -> None:
    with pytest.raises(DeclarationError, match="query: "):
        query(shop.directory, "select n from totals where n > ?")


def test_a_row_that_counts_many_times_is_returned_that_often(app: WrittenApp) -> None:
    often = 3 * MOST_COPIES + 5
    app.count("bag", [{"x": 1, "tag": "a"}, {"x": 2, "tag": "b"}, {"x": 3, "tag": None}], [often, 1, 2])
    app.commit()
    reader = ViewReader(app.directory)
    counted = dict(reader.query("select x, count(*) from bag group by x"))
    assert counted == {1: often, 2: 1, 3: 2}
    assert len(reader.query("select * from bag").rows().to_arrow()) == often + 3


def test_large_runs_are_scanned_where_they_lie_and_hidden_rows_left_out(app: WrittenApp) -> None:
    rows = 4 * SMALL_ROWS
    names = pa.array([str(number) for number in range(rows)])
    base = pa.record_batch(
        {"country": names, "n": pa.array(range(rows)), "amount": pa.nulls(rows, pa.decimal128(38, 2))}
    )
    app.add_batch("totals", base, {GONE: pa.array([False] * rows)})
    app.commit()
    app.upsert("totals", [{"country": "7", "n": -1}], [{"country": "8"}])
    app.commit()
    reader = ViewReader(app.directory)
    expected = sum(range(rows)) - 7 - 8 - 1
    assert list(reader.query("select count(*), sum(n) from totals")) == [(rows - 1, expected)]
    assert list(reader.query("select n from totals where n < 1 order by n")) == [(-1,), (0,)]


QUESTIONS = [
    "select * from v where id = $1 and tag = $2",
    "select n + 1, tag from v as t where t.tag = $2 and n < 9 and $1 = t.id order by n limit 5",
    "select count(*), max(n) from v where v.id = $1 and v.tag = $2 and n is not null",
    "select count(*) from v where id = $1 and tag = $2 or n = 0",
    "select count(*) from v a join v b on a.n = b.n where a.id = $1 and b.tag = $2",
    "select count(*), $1 from v where id = 1 and tag = $2",
    "select count(*), $1, $2 from v where id = 2 and tag = 'b'''",
    "select count(*), $1, $2 from v where id = '2' and tag = 'a'",
    "select count(*), $1, $2 from v where id = 1.5 and tag = 'a'",
    "select count(*), $1, $2 from v where id = 99999999999 and tag = 'a'",
    "select n from v where id = $1 and tag = $2 union all select n from v",
    "select $1 as id, $2 as tag, n from v where id = 1 and tag = 'a' group by all",
    "with v as (select 1 as id, 'a' as tag, 77 as n) select n from v where id = $1 and tag = $2",
    "select n, (select count(*) from v where n = 1) from v where id = $1 and tag = $2",
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_equality_on_the_key_gives_what_a_scan_gives(tmp_path: Path, question: str) -> None:
    app = WrittenApp(tmp_path / "shop")
    rows = [{"id": number, "tag": tag, "n": number} for number in range(3) for tag in ("a", "b'")]
    app.declare(WrittenView("v", "id int, tag string, n int", ("id", "tag"), "keyed"))
    app.upsert("v", rows)
    app.commit()
    keyed = ViewReader(app.directory).refresh()
    app.declare(WrittenView("v", "id int, tag string, n int", None, "counted"))  # the same rows, never looked up
    app.count("v", rows, [1] * 6)
    app.commit()
    scanned = ViewReader(app.directory).refresh()
    for number in range(4):
        for tag in ("a", "b'", "", None):
            sought, found = (sorted(snapshot.query(question, [number, tag]), key=str) for snapshot in (keyed, scanned))
            assert sought == found, (number, tag)


def test_a_key_is_looked_up_and_not_scanned(shop: WrittenApp) -> None:
    snapshot = ViewReader(shop.directory).refresh()
    assert snapshot.query("select n from totals where country = ?", ["DE"]).rows() == [{"n": 10}]
    assert "rows" not in vars(snapshot.open("totals"))  # the table of all rows was never built
    assert snapshot.query("select n from totals where country > ?", ["D"]).rows() == [{"n": 10}]
    assert "rows" in vars(snapshot.open("totals"))


# -- questions that are wrong -----------------------------------------------------------------------------------------


def refusal(app: WrittenApp, sql: str) -> DeclarationError:
    with pytest.raises(DeclarationError) as caught:
        query(app.directory, sql).rows()
    return caught.value


def test_a_wrong_name_has_the_closest_as_a_hint(shop: WrittenApp) -> None:
    error = refusal(shop, "select * from totls")
    assert error.message == "query: there is no view 'totls'; there is bag, seen, totals"
    assert error.hint == "did you mean 'totals'?"
    error = refusal(shop, "select contry from totals")
    assert (error.message, error.hint) == ("query: there is no column 'contry'", "did you mean 'country'?")
    error = refusal(shop, "select t.contry from totals t")
    assert error.hint == "did you mean 'country'?"


def test_one_statement_is_asked_at_a_time(shop: WrittenApp) -> None:
    assert "found 2" in refusal(shop, "select 1; select 2").message
    assert "it is empty" in refusal(shop, " -- nothing").message
    assert "syntax error" in refusal(shop, "selec 1").message
    assert query(shop.directory, "select 1 as a;").rows() == [{"a": 1}]


def test_more_than_select_is_understood(shop: WrittenApp) -> None:
    reader = ViewReader(shop.directory)
    assert list(reader.query("values (1), (2)")) == [(1,), (2,)]
    assert list(reader.query("from totals select n order by n")) == [(3,), (10,)]
    assert list(reader.query("with t as (select n from totals) select max(n) from T")) == [(10,)]
    assert [row[0] for row in reader.query("describe totals")] == ["country", "n", "amount"]
    assert [row[0] for row in reader.query("show totals")] == ["country", "n", "amount"]
    assert "Scan" in str(reader.query("explain select * from totals").rows()[0]["explain_value"])
    assert list(reader.query("select count(*) from TOTALS, range(3)")) == [(6,)]
    assert list(
        reader.query("select DE from (select n, country from totals) pivot (sum(n) for country in ('DE'))")
    ) == [(10,)]


def test_an_error_inside_the_question_is_plain(shop: WrittenApp) -> None:
    error = refusal(shop, "select cast(country as int) from totals where country = 'DE'")
    assert error.message.startswith("query: Could not convert string 'DE' to INT32")


WAYS_OUT = [
    "select * from read_csv('{file}')",
    "select * from read_csv_auto('{file}')",
    "select * from read_text('{file}')",
    "select * from read_blob('{file}')",
    "select * from read_json('{file}')",
    "select * from read_parquet('{file}')",
    "select * from parquet_metadata('{file}')",
    "select * from sniff_csv('{file}')",
    "select * from glob('{folder}/*')",
    "select * from '{file}'",
    "from '{file}'",
    "select (select count(*) from '{file}')",
    "with t as (from read_text('{file}')) select * from t",
    "select * from totals where country in (select content from read_text('{file}'))",
    "explain analyze select * from read_text('{file}')",
    "describe select * from read_text('{file}')",
    "summarize '{file}'",
    "copy totals to '{folder}/out.csv'",
    "copy (select 1) to '{folder}/out.csv'",
    "copy totals from '{file}'",
    "export database '{folder}/out'",
    "import database '{folder}/out'",
    "attach '{folder}/other.db'",
    "attach '{folder}/other.db' as other (read_only)",
    "use memory",
    "install httpfs",
    "load httpfs",
    "load '{file}'",
    "set threads = 1",
    "set enable_external_access = true",
    "reset threads",
    "set variable x = 1",
    "pragma database_list",
    "pragma enable_object_cache",
    "call pragma_version()",
    "call duckdb_settings()",
    "select * from duckdb_settings()",
    "select * from duckdb_secrets()",
    "select * from duckdb_secrets",
    "select * from sqlite_master",
    "select * from information_schema.tables",
    "select * from pg_catalog.pg_tables",
    "select * from system.information_schema.tables",
    "select * from query('select 1')",
    "select * from query_table('totals')",
    "select * from json_execute_serialized_sql(json_serialize_sql('select 1'))",
    "select * from arrow_scan(1, 2, 3)",
    "select * from python_arrow_scan(1, 2, 3)",
    "select * from pandas_scan(1)",
    "select * from python_map_function(1)",
    "select * from seq_scan('totals')",
    "select * from checkpoint()",
    "select * from enable_logging()",
    "select getenv('HOME')",
    "select write_log('x')",
    "select nextval('x')",
    "create table t as select 1",
    "create temp table t (x int)",
    "create view v as select 1",
    "create macro f() as 1",
    "create secret s (type s3)",
    "insert into totals values ('x', 1, 1)",
    "update totals set n = 1",
    "delete from totals",
    "truncate totals",
    "drop view totals",
    "alter view totals rename to other",
    "merge into totals using bag on n = x when matched then delete",
    "vacuum",
    "checkpoint",
    "begin",
    "prepare p as select 1",
    "execute p",
    "explain delete from totals",
    "explain copy totals to '{folder}/out.csv'",
    "select 1; drop view totals",
    "show tables",
    "show databases",
    "show all tables",
    "select * from some_python_variable",
]


@pytest.mark.parametrize("sql", WAYS_OUT)
def test_there_is_no_way_out(shop: WrittenApp, tmp_path: Path, sql: str) -> None:
    some_python_variable = pa.table({"secret": [1]})
    (tmp_path / "secret.csv").write_text("secret\nvalue\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DeclarationError):
        query(shop.directory, sql.format(file=tmp_path / "secret.csv", folder=tmp_path)).rows()
    assert sorted(tmp_path.rglob("*")) == before
    assert len(some_python_variable) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_text('/etc/hostname')",
        "select * from '/etc/hostname'",
        "copy (select 1) to '/tmp/penstock-out.csv'",
        "attach '/tmp/penstock-out.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "set lock_configuration = false",
        "set temp_directory = '/tmp'",
    ],
)
def test_duckdb_itself_is_locked_should_a_statement_slip_through(sql: str) -> None:
    connection = _database(None).cursor()
    with closing(connection), pytest.raises(duckdb.Error):
        connection.execute(sql).fetchall()


# -- limits -----------------------------------------------------------------------------------------------------------


def test_a_question_that_takes_too_long_is_stopped(shop: WrittenApp) -> None:
    sql = "select count(*) from range(100000000) a, range(100000000) b where a.range % 7 = b.range % 5"
    with pytest.raises(LimitError, match=r"took more than 0\.2 seconds"):
        query(shop.directory, sql, limits=QueryLimits(seconds=0.2)).rows()
    assert query(shop.directory, "select 1 as a", limits=QueryLimits(seconds=60)).rows() == [{"a": 1}]


def test_an_answer_with_too_many_rows_is_refused_and_not_cut(shop: WrittenApp) -> None:
    limits = QueryLimits(rows=3)
    assert len(query(shop.directory, "select * from range(3)", limits=limits).rows()) == 3
    with pytest.raises(LimitError, match="more than 3 rows"):
        query(shop.directory, "select * from range(4)", limits=limits).rows()


def test_a_question_that_needs_too_much_memory_is_refused(shop: WrittenApp) -> None:
    limits = QueryLimits(memory=30_000_000)
    with pytest.raises(LimitError, match="more memory than 30,000,000 bytes"):
        query(shop.directory, "select range, random() from range(50000000) order by 2", limits=limits).rows()
    assert query(shop.directory, "select count(*) as n from totals", limits=limits).rows() == [{"n": 2}]


def test_an_answer_that_is_not_read_to_the_end_can_be_closed(shop: WrittenApp) -> None:
    reader = ViewReader(shop.directory)
    with reader.query("select * from range(10000000)") as answer:
        assert next(iter(answer)) == (0,)
    assert list(answer) == []
    assert reader.query("select count(*) as n from totals").rows() == [{"n": 2}]


def test_many_threads_ask_at_once(shop: WrittenApp) -> None:
    reader = ViewReader(shop.directory)
    answers: list[object] = []

    def ask() -> None:
        for _ in range(10):
            answers.append(reader.query("select sum(n) as n from totals").rows()[0]["n"])
            answers.append(reader.get("totals", "DE"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, answers)) == sorted(map(str, [13, {"country": "DE", "n": 10, "amount": None}] * 40))


COLD = """
import sys
from penstock.derive.views import query
assert "duckdb" not in sys.modules
print(list(query(sys.argv[1], "select n from totals where n > 3").rows()))
heavy = {name.partition(".")[0] for name in sys.modules} & {"pandas", "pyspark", "py4j", "sqlglot"}
assert not heavy, heavy
"""


def test_asking_loads_neither_spark_nor_pandas(shop: WrittenApp) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", COLD, str(shop.directory)], capture_output=True, text=True, check=False
    )
    assert (shown.stdout, shown.stderr) == ("[{'n': 10}]\n", "")


def test_importing_the_package_loads_nothing_heavy() -> None:
    check = "import sys, penstock.derive.views; print({'duckdb', 'pyarrow', 'numpy', 'pandas'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"
