"""The queries of Nexmark in SQL become plans, with the columns of their answers."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from benchmarks.nexmark import generator
from benchmarks.nexmark.oracle import QUERIES, TABLES, answer, load
from penstock import App
from penstock.app import load_app
from penstock.flow.plan import AsOfJoin, Changelog, Join, Topic, nodes
from penstock.schema.arrow import parse_schema

NEXMARK = Path(generator.__file__).parent


@pytest.fixture(scope="module")
def columns() -> dict[str, list[str]]:
    """The columns of each answer."""
    with duckdb.connect(config={"threads": 1}) as connection:
        load(connection, generator.batches(50))
        return {query: answer(connection, query).column_names for query in QUERIES}


def app_of(query: str, folder: Path) -> App:
    """The app that a query is run as: the topics, and one view."""
    path = folder / f"{query}.sql"
    path.write_text((NEXMARK / "topics.sql").read_text() + (NEXMARK / "queries" / f"{query}.sql").read_text())
    return load_app(path)


def test_the_topics_have_the_columns_of_the_events(tmp_path: Path) -> None:
    declared = app_of("q0", tmp_path).named
    assert tuple(declared) == (*TABLES, generator.SIDE_INPUT, "q0")
    for table, schema in zip(TABLES, generator.SCHEMAS.values(), strict=True):
        node = declared[table].node
        assert isinstance(node, Topic)
        assert parse_schema(node.schema) == parse_schema(schema)
        assert (node.shape.time, node.partitions) == (generator.TIME, generator.PARTITIONS)
    looked_up = declared[generator.SIDE_INPUT].node
    assert isinstance(looked_up, Changelog)
    assert (looked_up.schema, looked_up.key) == (generator.SIDE_INPUT_SCHEMA, (generator.SIDE_INPUT_KEY,))


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_becomes_a_plan_with_the_columns_of_its_answer(
    query: str, columns: dict[str, list[str]], tmp_path: Path
) -> None:
    (view,) = app_of(query, tmp_path).plan.views
    assert view.name == query
    assert list(view.node.shape.columns or ()) == columns[query]


def test_there_is_a_file_for_each_query_and_no_other() -> None:
    assert {path.name for path in (NEXMARK / "queries").iterdir()} == {f"{query}.sql" for query in QUERIES}


@pytest.mark.parametrize("query", ["q3", "q4", "q6", "q8", "q9", "q20"])
def test_a_join_without_bounds_in_time_is_planned_as_one(query: str, tmp_path: Path) -> None:
    assert sum(isinstance(node, Join) for node in nodes(app_of(query, tmp_path).plan)) == 1


def test_the_side_input_is_looked_up(tmp_path: Path) -> None:
    assert sum(isinstance(node, AsOfJoin) for node in nodes(app_of("q13", tmp_path).plan)) == 1
