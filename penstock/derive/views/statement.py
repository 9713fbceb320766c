"""Checks a query before it runs: which views it names, and that it only reads them.

DuckDB's own parser returns the query as JSON. Only what is known to be harmless passes: one statement that selects from
views and from a few functions that make rows out of their arguments. So it is not necessary to know every function that
reads a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.derive.views.snapshot import unknown_view_error
from penstock.errors import DeclarationError

if TYPE_CHECKING:
    import duckdb

ROW_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"})
"""Functions allowed in FROM: they read nothing but their arguments."""
# Functions that DuckDB trusts only itself to call, and the one that writes to its log.
_INTERNAL = re.compile(r"__internal.*|combine|currval|finalize|invoke|nextval|setval|to_aggregate_state|write_log")
_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?", re.IGNORECASE)
_READ_ONLY = "ask with SELECT; views change when the app commits an epoch"

Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Equality:
    """A column of a view must equal a constant or a parameter of the query."""

    column: str
    constant: int | str | None = None
    parameter: str | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A query that may run: the views it names, and by view the equalities that every row in the answer meets."""

    views: frozenset[str]
    equalities: Mapping[str, tuple[Equality, ...]] = field(default_factory=dict)


def read_statement(connection: duckdb.DuckDBPyConnection, sql: str, views: Iterable[str]) -> Statement:
    """Parse a query. DeclarationError if it is wrong, or does anything but read views."""
    names = {name.lower(): name for name in views}
    node = _parse(connection, sql)
    aliases = {entry["key"].lower() for found in _walk(node) for entry in _cte_entries(found)}
    named: list[str] = []
    for found in _walk(node):
        _refuse_unsafe(found)
        if found.get("type") == "BASE_TABLE" or (found.get("type") == "SHOW_REF" and found["query"] is None):
            name = _table_name(found)
            if name.lower() in names:
                named.append(names[name.lower()])
            elif name.lower() not in aliases:
                raise unknown_view_error(name, list(names.values()), "query: ")
    equalities = _equalities(node)
    alone = {view: conditions for view, conditions in equalities.items() if named.count(names.get(view, "")) == 1}
    return Statement(frozenset(named), {names[view]: conditions for view, conditions in alone.items()})


def _parse(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """The syntax tree of the single statement in a text."""
    text = _EXPLAIN.sub("", sql, count=1) if _EXPLAIN.match(sql) else sql
    try:
        rows = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
        document = json.loads(rows[0][0])
    except RecursionError:
        raise DeclarationError("query: it is nested too deeply") from None
    if document.get("error"):
        if document.get("error_type") == "not implemented":
            raise _read_only_error(f"found '{' '.join(text.split()[:1]).upper()}'")
        raise DeclarationError(f"query: {document['error_message']}", hint="queries are written in DuckDB's SQL")
    statements = document["statements"]
    if not statements:
        raise DeclarationError("query: it is empty", hint="begin with SELECT")
    if len(statements) != 1:
        raise DeclarationError(f"query: one statement is needed; found {len(statements)}", hint="ask them one by one")
    tree: Node = statements[0]["node"]
    return tree


def _walk(tree: object) -> Iterator[Node]:
    """Every object in a tree."""
    pending = [tree]
    while pending:
        found = pending.pop()
        if isinstance(found, dict):
            yield found
            pending.extend(found.values())
        elif isinstance(found, list):
            pending.extend(found)


def _cte_entries(node: Node) -> list[Node]:
    """The queries of a WITH clause."""
    clause = node.get("cte_map")
    return list(clause["map"]) if isinstance(clause, dict) else []


def _table_name(node: Node) -> str:
    name = str(node["table_name"])
    if node["type"] == "SHOW_REF" and node.get("show_type") == "SHOW_SPECIAL":
        raise DeclarationError(
            "query: it does not say of which view", hint="'penstock views' lists them; DESCRIBE <view>"
        )
    if node["catalog_name"] or node["schema_name"] not in ("", "main"):
        path = ".".join(part for part in (node["catalog_name"], node["schema_name"], name) if part)
        raise DeclarationError(f"query: only views can be queried; found '{path}'", hint="name a view without a schema")
    return name


def _refuse_unsafe(node: Node) -> None:
    if node.get("type") == "TABLE_FUNCTION":
        function = str(node["function"].get("function_name", "")).lower()
        if function not in ROW_FUNCTIONS:
            raise _read_only_error(f"found the function '{function}' after FROM")
    elif node.get("class") == "FUNCTION":
        function = str(node["function_name"]).lower()
        if _INTERNAL.fullmatch(function):
            raise _read_only_error(f"found the function '{function}'")


def _read_only_error(found: str) -> DeclarationError:
    return DeclarationError(f"query: views can only be read; {found}", hint=_READ_ONLY)


# -- equalities -------------------------------------------------------------------------------------------------------


def _equalities(node: Node) -> dict[str, tuple[Equality, ...]]:
    """By view in lower case: the equalities that all rows in the answer meet, as far as the outermost WHERE shows."""
    table, condition = node.get("from_table"), node.get("where_clause")
    if node.get("type") != "SELECT_NODE" or not isinstance(table, dict) or not isinstance(condition, dict):
        return {}
    if (
        table.get("type") != "BASE_TABLE"
        or table["column_name_alias"]
        or table.get("sample")
        or node.get("sample")
        or _cte_entries(node)
    ):
        return {}
    view = str(table["table_name"]).lower()
    name = str(table["alias"]).lower() or view
    is_and = condition.get("type") == "CONJUNCTION_AND"
    parts = condition["children"] if is_and else [condition]
    found = [_equality(part, name) for part in parts]
    return {view: tuple(equality for equality in found if equality is not None)}


def _equality(node: Node, table: str) -> Equality | None:
    if node.get("type") != "COMPARE_EQUAL":
        return None
    for column, value in ((node["left"], node["right"]), (node["right"], node["left"])):
        path = [str(part).lower() for part in column.get("column_names", ())]
        if column.get("class") != "COLUMN_REF" or path[:-1] not in ([], [table]):
            continue
        if value.get("class") == "PARAMETER":
            return Equality(path[-1], parameter=str(value["identifier"]))
        literal = value.get("literal") if value.get("class") == "CONSTANT" else None
        if isinstance(literal, dict) and literal.get("kind") in ("INTEGER", "STRING"):
            text = str(literal["text"])
            return Equality(path[-1], constant=int(text) if literal["kind"] == "INTEGER" else text)
    return None
