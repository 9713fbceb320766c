"""A plan in which joins store less gives the same answers: random plans over random rows, in DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Stream
from penstock.flow import plan as flow
from penstock.flow.names import quote
from penstock.flow.plan import Plan
from penstock.flow.pushdown import push_down

KINDS = ("inner", "left", "right", "full", "semi", "anti")
NUMBERS = st.one_of(st.none(), st.integers(0, 3))
TABLES = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=5)
TEMPLATES = ("{0} > 0", "{0} = {1}", "{0} is null", "{0} between 1 and 2", "({0} = 1 or {1} = 2)", "1 = 1")


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


# -- random plans -----------------------------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> Plan:
    """Views over joins, unions and aggregates of three topics, with conditions and selects anywhere."""
    app = App("random")
    names = (f"c{number}" for number in range(1_000))
    topics = [app.topic(f"t{number}", schema="k int, a int, b int") for number in range(3)]
    pool: list[Any] = [topic.rename(**{next(names): "a", next(names): "b"}) for topic in topics]
    for _ in range(draw(st.integers(2, 7))):
        pool.append(draw(steps(pool, names)))
    for number, rows in enumerate(draw(st.lists(st.sampled_from(pool[3:]), min_size=1, max_size=2))):
        app.view(f"view_{number}", draw(ends(rows)))
    return app.plan


@st.composite
def steps(draw: st.DrawFn, pool: list[Any], names: Iterator[str]) -> Any:
    """One more verb; the newest rows are chosen more often, so that plans grow deep."""
    rows = draw(st.sampled_from([*pool, *pool[-1:] * 6]))
    match draw(st.sampled_from(["where", "select", "join", "join", "join", "union"])):
        case "where":
            return rows.where(draw(conditions(rows.columns)))
        case "select":
            return draw(selects(rows, names))
        case "union":
            return rows.union(rows.where(draw(conditions(rows.columns))))
        case _:
            return draw(joins(rows, draw(st.sampled_from(pool)), names))


@st.composite
def conditions(draw: st.DrawFn, columns: tuple[str, ...]) -> str:
    """Conditions of one to three parts over some columns."""
    name = st.sampled_from(columns)
    parts = [draw(st.sampled_from(TEMPLATES)).format(draw(name), draw(name)) for _ in range(draw(st.integers(1, 3)))]
    return draw(st.sampled_from([" and ", " and ", " or "])).join(parts)


@st.composite
def selects(draw: st.DrawFn, rows: Any, names: Iterator[str]) -> Any:
    """Some columns, with the names they have or others, and perhaps one that is computed."""
    chosen = draw(st.lists(st.sampled_from(rows.columns), min_size=1, unique=True))
    renames = {next(names): quote(name) for name in chosen if draw(st.booleans())}
    kept = [name for name in rows.columns if name == "k" or (name in chosen and name not in renames.values())]
    made = {next(names): f"{draw(st.sampled_from(rows.columns))} + 1"} if draw(st.booleans()) else {}
    return rows.select(*kept, **renames, **made)


@st.composite
def joins(draw: st.DrawFn, left: Any, right: Any, names: Iterator[str]) -> Any:
    """A join by `k` or by two names; the other columns of the right side get new names."""
    by_name = draw(st.booleans()) and "k" in left.columns and "k" in right.columns
    new = {next(names): name for name in right.columns if not (by_name and name == "k")}
    right = right.rename(**new) if new else right
    on = "k" if by_name else {draw(st.sampled_from(left.columns)): draw(st.sampled_from(right.columns))}
    bound: Any = {"within": "forever"} if isinstance(left, Stream) and isinstance(right, Stream) else {}
    return left.join(right, on=on, how=draw(st.sampled_from(KINDS)), nulls_match=draw(st.booleans()), **bound)


@st.composite
def ends(draw: st.DrawFn, rows: Any) -> Any:
    """Rows as they are, or fewer of them, or fewer of their columns."""
    if draw(st.booleans()):
        rows = rows.where(draw(conditions(rows.columns)))
    match draw(st.sampled_from(["whole", "columns", "groups"])):
        case "columns":
            return rows.select(*draw(st.lists(st.sampled_from(rows.columns), min_size=1, max_size=2, unique=True)))
        case "groups":
            return rows.group_by(draw(st.sampled_from(rows.columns))).agg(rows_in_group="count(*)")
        case _:
            return rows


# -- their answers ----------------------------------------------------------------------------------------------------


def answer(database: duckdb.DuckDBPyConnection, end: flow.Node) -> Counter[tuple[Any, ...]]:
    names: dict[flow.Node, str] = {}
    queries = []
    for node in flow.upstream(end):
        names[node] = f"n{len(names)}"
        queries.append(f"{names[node]} as ({sql(node, [names[input_] for input_ in flow.inputs(node)])})")
    columns = ", ".join(end.shape.columns or ())
    return Counter(database.execute(f"with {', '.join(queries)} select {columns} from {names[end]}").fetchall())


def sql(node: flow.Node, given: list[str]) -> str:
    """A node as a query over its inputs. It fails where a column is missing."""
    columns = ", ".join(node.shape.columns or ())
    match node:
        case flow.Topic():
            return f"select {columns} from {node.name}"
        case flow.Where():
            return f"select {columns} from {given[0]} where {node.condition}"
        case flow.Select():
            return f"select {listed(node.columns)} from {given[0]}"
        case flow.Union():
            return " union all ".join(f"select {columns} from {name}" for name in given)
        case flow.Aggregate():
            return f"select {listed((*node.keys, *node.aggregates))} from {given[0]} group by all"
        case flow.Join():
            return joined_sql(node, *given)
    raise AssertionError(node)


def listed(columns: tuple[flow.Named, ...]) -> str:
    return ", ".join(f"{column.expression} as {column.name}" for column in columns)


def joined_sql(node: flow.Join, left: str, right: str) -> str:
    equal = "is not distinct from" if node.nulls_match else "="
    on = " and ".join(f"l.{key.left} {equal} r.{key.right}" for key in node.on)
    if node.how in ("semi", "anti"):
        found = "exists" if node.how == "semi" else "not exists"
        return f"select l.* from {left} l where {found} (select 1 from {right} r where {on})"
    shared = {key.left for key in node.on if key.left == key.right}
    of_left = {*(node.left.shape.columns or ())}
    columns = [
        f"coalesce(l.{name}, r.{name}) as {name}" if name in shared else f"{'l' if name in of_left else 'r'}.{name}"
        for name in node.shape.columns or ()
    ]
    return f"select {', '.join(columns)} from {left} l {node.how} join {right} r on {on}"


@given(programs(), st.tuples(TABLES, TABLES, TABLES))
@settings(deadline=None)
def test_views_have_the_same_rows_and_columns(
    database: duckdb.DuckDBPyConnection, program: Plan, tables: tuple[list[tuple[int | None, ...]], ...]
) -> None:
    for number, rows in enumerate(tables):
        database.execute(f"create or replace table t{number} (k int, a int, b int)")
        if rows:
            database.executemany(f"insert into t{number} values (?, ?, ?)", rows)
    narrow = push_down(program)
    assert push_down(narrow) == narrow
    for view, narrow_view in zip(program.views, narrow.views, strict=True):
        assert narrow_view.node.shape == view.node.shape
        assert answer(database, narrow_view.node) == answer(database, view.node)
