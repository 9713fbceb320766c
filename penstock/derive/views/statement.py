"""Reading a question before it is answered: which views it names, and that it does nothing but read them.

DuckDB's own parser says what the question is, as JSON. Only what is known to be harmless passes: one statement that
selects, from views and from a few functions that make rows out of their arguments. So nothing depends on knowing every
function that reads a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.derive.views.snapshot import unknown_view
from penstock.errors import DeclarationError

if TYPE_CHECKING:
    import duckdb

ROW_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"})
"""Functions behind FROM that look at nothing but their arguments."""
# What DuckDB uses inside, and trusts to be called by itself alone; and what writes to its log.
_INTERNAL = re.compile(r"__internal.*|combine|currval|finalize|invoke|nextval|setval|to_aggregate_state|write_log")
_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?", re.IGNORECASE)
_READ_ONLY = "ask with SELECT; views change when the app commits an epoch"

Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Equality:
    """A column of a view must equal a constant, or a parameter of the question."""

    column: str
    constant: int | str | None = None
    parameter: str | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A question that may be answered: the views it names, and what must hold for the only view it is about."""

    views: frozenset[str]
    equalities: Mapping[str, tuple[Equality, ...]] = field(default_factory=dict)


def read_statement(connection: duckdb.DuckDBPyConnection, sql: str, views: Iterable[str]) -> Statement:
    """What a question asks; DeclarationError for one that is wrong, or does anything but ask."""
    names = {name.lower(): name for name in views}
    node = _parsed(connection, sql)
    aliases = {entry["key"].lower() for found in _nodes(node) for entry in _entries(found)}
    named: list[str] = []
    for found in _nodes(node):
        _refuse_unsafe(found)
        if found.get("type") == "BASE_TABLE" or (found.get("type") == "SHOW_REF" and found["query"] is None):
            name = _table_name(found)
            if name.lower() in names:
                named.append(names[name.lower()])
            elif name.lower() not in aliases:
                raise unknown_view(name, list(names.values()), "query: ")
    equalities = _equalities(node)
    alone = {view: conditions for view, conditions in equalities.items() if named.count(names.get(view, "")) == 1}
    return Statement(frozenset(named), {names[view]: conditions for view, conditions in alone.items()})


def _parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """The tree of the one statement in a text."""
    asked = _EXPLAIN.sub("", sql, count=1) if _EXPLAIN.match(sql) else sql
    try:
        rows = connection.execute("SELECT json_serialize_sql(?)", [asked]).fetchall()
        document = json.loads(rows[0][0])
    except RecursionError:
        raise DeclarationError("query: it is nested too deeply") from None
    if document.get("error"):
        if document.get("error_type") == "not implemented":
            raise _refused(f"found '{' '.join(asked.split()[:1]).upper()}'")
        raise DeclarationError(f"query: {document['error_message']}", hint="questions are asked in DuckDB's SQL")
    statements = document["statements"]
    if not statements:
        raise DeclarationError("query: this asks for nothing", hint="begin with SELECT")
    if len(statements) != 1:
        raise DeclarationError(f"query: one statement is needed; found {len(statements)}", hint="ask them one by one")
    tree: Node = statements[0]["node"]
    return tree


def _nodes(tree: object) -> Iterator[Node]:
    """Every object in a tree."""
    left = [tree]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            yield found
            left.extend(found.values())
        elif isinstance(found, list):
            left.extend(found)


def _entries(node: Node) -> list[Node]:
    """The queries of a WITH clause."""
    clause = node.get("cte_map")
    return list(clause["map"]) if isinstance(clause, dict) else []


def _table_name(node: Node) -> str:
    name = str(node["table_name"])
    if node["type"] == "SHOW_REF" and node.get("show_type") == "SHOW_SPECIAL":
        raise DeclarationError(
            "query: it is not said of which view", hint="'penstock views' lists them; DESCRIBE <view>"
        )
    if node["catalog_name"] or node["schema_name"] not in ("", "main"):
        path = ".".join(part for part in (node["catalog_name"], node["schema_name"], name) if part)
        raise DeclarationError(f"query: only views can be asked; found '{path}'", hint="name a view without a schema")
    return name


def _refuse_unsafe(node: Node) -> None:
    if node.get("type") == "TABLE_FUNCTION":
        function = str(node["function"].get("function_name", "")).lower()
        if function not in ROW_FUNCTIONS:
            raise _refused(f"found the function '{function}' behind FROM")
    elif node.get("class") == "FUNCTION":
        function = str(node["function_name"]).lower()
        if _INTERNAL.fullmatch(function):
            raise _refused(f"found the function '{function}'")


def _refused(found: str) -> DeclarationError:
    return DeclarationError(f"query: views can only be read; {found}", hint=_READ_ONLY)


# -- equalities -------------------------------------------------------------------------------------------------------


def _equalities(node: Node) -> dict[str, tuple[Equality, ...]]:
    """By view in lower case: what every row of it that matters equals, if that is plain from the outermost WHERE."""
    table, condition = node.get("from_table"), node.get("where_clause")
    if node.get("type") != "SELECT_NODE" or not isinstance(table, dict) or not isinstance(condition, dict):
        return {}
    if (
        table.get("type") != "BASE_TABLE"
        or table["column_name_alias"]
        or table.get("sample")
        or node.get("sample")
        or _entries(node)
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
    for one, other in ((node["left"], node["right"]), (node["right"], node["left"])):
        path = [str(part).lower() for part in one.get("column_names", ())]
        if one.get("class") != "COLUMN_REF" or path[:-1] not in ([], [table]):
            continue
        if other.get("class") == "PARAMETER":
            return Equality(path[-1], parameter=str(other["identifier"]))
        literal = other.get("literal") if other.get("class") == "CONSTANT" else None
        if isinstance(literal, dict) and literal.get("kind") in ("INTEGER", "STRING"):
            text = str(literal["text"])
            return Equality(path[-1], constant=int(text) if literal["kind"] == "INTEGER" else text)
    return None
