"""What the catalogue of a database says about the tables to capture: their columns, their keys, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.capture.postgres.connection import Connection
from penstock.capture.postgres.position import ColumnIds
from penstock.capture.postgres.types import (
    ROW_ID,
    TYPES_QUERY,
    CatalogType,
    ColumnLayout,
    TableLayout,
    catalog_types,
    column_layout,
    resolve_type,
    table_layout,
)
from penstock.contracts import SourceTable
from penstock.errors import DeclarationError
from penstock.suggest import closest

_TABLES = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relreplident::text, c.relpersistence::text,
       files.rows, files.bytes, c.relhassubclass,
       array(SELECT a.relid::oid::bigint FROM pg_catalog.pg_partition_ancestors(c.oid) a WHERE a.relid <> c.oid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
    SELECT coalesce(sum(greatest(f.reltuples, 0)), 0)::bigint AS rows,
           coalesce(sum(f.relpages + coalesce(t.relpages, 0)), 0)::bigint
             * current_setting('block_size')::bigint AS bytes
    FROM pg_catalog.pg_class f LEFT JOIN pg_catalog.pg_class t ON t.oid = f.reltoastrelid
    WHERE f.oid = c.oid AND c.relkind <> 'p'
       OR f.oid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(c.oid) p WHERE p.isleaf)
) files
WHERE (n.nspname || '.' || c.relname = ANY(%(names)s) OR c.relname = ANY(%(names)s) OR c.oid = ANY(%(oids)s))
  AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY n.nspname <> 'public', n.nspname
"""
_COLUMNS = """
SELECT a.attrelid::bigint, a.attname, a.attnum::int, a.atttypid::bigint, a.atttypmod, a.atthasmissing,
       a.attgenerated <> '', a.attnotnull
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY(%(oids)s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
_KEYS = """
SELECT i.indrelid::bigint, i.indisprimary, i.indisreplident,
       array(SELECT a.attname FROM unnest(i.indkey) WITH ORDINALITY k(number, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
             WHERE k.place <= i.indnkeyatts ORDER BY k.place)::text[]
FROM pg_catalog.pg_index i
WHERE i.indrelid = ANY(%(oids)s) AND (i.indisprimary OR i.indisreplident) AND i.indisvalid
"""
_NAMES = """
SELECT CASE n.nspname WHEN 'public' THEN c.relname ELSE n.nspname || '.' || c.relname END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table as the catalogue describes it now. `name` is the one under which it is captured."""

    name: str
    oid: int
    namespace: str
    relation: str
    layout: TableLayout
    columns: ColumnIds
    with_default: frozenset[str]  # columns whose default older rows have without having been written again
    estimated_rows: int
    row_bytes: int  # about, on the disk of the server; 0: not known
    is_partitioned: bool
    has_children: bool  # partitions, or tables that inherit from it
    ancestors: tuple[int, ...]  # the partitioned tables of which it is a part, by their oids
    inserts_only: bool

    @property
    def quoted(self) -> str:
        """Its name in statements."""
        return f"{quoted(self.namespace)}.{quoted(self.relation)}"

    @property
    def own_rows(self) -> str:
        """Its name where its rows are meant: with those of partitions, without those of tables that inherit from it.

        The stream has the rows of these under their own names, and they may have equal keys.
        """
        return self.quoted if self.is_partitioned else f"ONLY {self.quoted}"


@dataclass(frozen=True, slots=True)
class _Relation:
    oid: int
    namespace: str
    name: str
    kind: str
    identity: str
    persistence: str
    estimated_rows: int
    estimated_bytes: int
    has_children: bool
    ancestors: list[int]

    @property
    def quoted(self) -> str:
        return f"{quoted(self.namespace)}.{quoted(self.name)}"


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    number: int
    type_oid: int
    modifier: int
    has_missing: bool
    is_generated: bool
    not_null: bool


def quoted(name: str) -> str:
    """An identifier for a statement."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string for a statement, whatever the server thinks of backslashes."""
    escaped = text.replace("'", "''").replace("\\", "\\\\")
    return f" E'{escaped}'" if "\\" in text else f"'{escaped}'"


def describe_tables(
    connection: Connection,
    tables: Sequence[SourceTable],
    *,
    oids: Mapping[str, int] | None = None,
    dropped: frozenset[str] = frozenset(),
) -> list[CapturedTable]:
    """Each table as it is now, in this order. A table in `oids` was captured before and may have another name by now.

    DeclarationError: a table does not exist, has no usable key, or does not have a column that was asked for.
    """
    known = dict(oids or {})
    rows = connection.execute(_TABLES, {"names": [table.name for table in tables], "oids": list(known.values())})
    relations = [_Relation(*row) for row in rows.fetchall()]  # type: ignore[arg-type]
    found = [_find_relation(connection, table, relations, known.get(table.name)) for table in tables]
    numbers = {"oids": [relation.oid for relation in found]}
    columns: dict[int, list[_Column]] = {relation.oid: [] for relation in found}
    for oid, *column in connection.execute(_COLUMNS, numbers).fetchall():
        columns[int(str(oid))].append(_Column(*column))  # type: ignore[arg-type]
    keys = connection.execute(_KEYS, numbers).fetchall()
    types = catalog_types(connection.execute(TYPES_QUERY).fetchall())  # type: ignore[arg-type]
    described = []
    for table, relation in zip(tables, found, strict=True):
        key = _usable_key(relation, columns[relation.oid], [row[1:] for row in keys if row[0] == relation.oid])
        described.append(_describe(table, relation, columns[relation.oid], key, types, dropped))
    return described


def _find_relation(
    connection: Connection, table: SourceTable, relations: Sequence[_Relation], oid: int | None
) -> _Relation:
    def is_named(relation: _Relation) -> bool:
        return table.name in (f"{relation.namespace}.{relation.name}", relation.name)

    matches = [relation for relation in relations if relation.oid == oid] or [
        relation for relation in relations if is_named(relation)
    ]
    if not matches:
        names = [str(row[0]) for row in connection.execute(_NAMES).fetchall()]
        raise DeclarationError(
            f"table {table.name}: it does not exist in this database", hint=closest(table.name, names)
        )
    first, *rest = matches
    if rest and first.namespace != "public":
        raise DeclarationError(
            f"table {table.name}: several schemas have one; found {', '.join(match.namespace for match in matches)}",
            hint=f"name it with its schema, as in {first.namespace}.{first.name}",
        )
    if first.kind not in ("r", "p") or first.persistence != "p":
        what = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}.get(first.kind, "not logged")
        raise DeclarationError(
            f"table {table.name}: it is {what}, whose changes PostgreSQL does not log",
            hint=f"ALTER TABLE {first.quoted} SET LOGGED" if first.kind in ("r", "p") else "capture its tables",
        )
    return first


def _usable_key(
    relation: _Relation, columns: Sequence[_Column], keys: Sequence[tuple[object, ...]]
) -> tuple[str, ...] | None:
    """The columns by which PostgreSQL identifies rows in the stream; None if only the whole row does."""
    primary = next((key[2] for key in keys if key[0]), None)
    identity = next((key[2] for key in keys if key[1]), None)
    chosen = identity if relation.identity == "i" else primary
    if chosen is None and relation.identity == "f" and relation.kind == "r":
        return None
    if chosen is None or relation.identity == "n":
        raise _no_key_error(relation, has_primary_key=primary is not None)
    names = {column.name for column in columns if column.not_null}
    assert isinstance(chosen, list)
    assert set(chosen) <= names, f"{relation.name}: PostgreSQL lets no nulls into {chosen}"
    return tuple(chosen)


def _no_key_error(relation: _Relation, *, has_primary_key: bool) -> DeclarationError:
    if relation.identity == "n" and has_primary_key:
        return DeclarationError(
            f"table {relation.name}: its replica identity is NOTHING, so PostgreSQL does not log which rows change",
            hint=f"ALTER TABLE {relation.quoted} REPLICA IDENTITY DEFAULT",
        )
    whole_row = "" if relation.kind == "p" else f", or: ALTER TABLE {relation.quoted} REPLICA IDENTITY FULL"
    return DeclarationError(
        f"table {relation.name}: it has no primary key, so PostgreSQL does not log which rows change",
        hint=f"ALTER TABLE {relation.quoted} ADD PRIMARY KEY (...){whole_row}",
    )


def _describe(
    table: SourceTable,
    relation: _Relation,
    columns: Sequence[_Column],
    key: tuple[str, ...] | None,
    types: Mapping[int, CatalogType],
    dropped: frozenset[str],
) -> CapturedTable:
    # Before version 18, generated columns are not in the stream.
    stored = {column.name: column for column in columns if not column.is_generated}
    names = _captured_columns(table, stored, key or (), dropped)
    layouts = [
        column_layout(
            name,
            resolve_type(types, stored[name].type_oid, stored[name].modifier),
            is_key=key is not None and name in key,
            as_text=name in table.as_text,
        )
        for name in names
    ]
    return CapturedTable(
        name=table.name,
        oid=relation.oid,
        namespace=relation.namespace,
        relation=relation.name,
        layout=_layout(table.name, layouts, key),
        columns={name: (stored[name].number, stored[name].type_oid) for name in names},
        with_default=frozenset(name for name in names if stored[name].has_missing),
        estimated_rows=relation.estimated_rows,
        row_bytes=relation.estimated_bytes // max(1, relation.estimated_rows) if relation.estimated_rows else 0,
        is_partitioned=relation.kind == "p",
        has_children=relation.has_children,
        ancestors=tuple(relation.ancestors),
        inserts_only=table.inserts_only,
    )


def _layout(name: str, columns: Sequence[ColumnLayout], key: tuple[str, ...] | None) -> TableLayout:
    layout = table_layout(name, columns)
    return layout if key is None else replace(layout, key=key)  # in the order of the index


def _captured_columns(
    table: SourceTable, stored: Mapping[str, _Column], key: tuple[str, ...], dropped: frozenset[str]
) -> list[str]:
    wanted = list(stored) if table.columns is None else [name for name in table.columns if name != ROW_ID]
    wanted = [name for name in wanted if name in stored or f"{table.name}.{name}" not in dropped]
    for name in (*wanted, *table.as_text):
        if name not in stored and f"{table.name}.{name}" not in dropped:
            raise DeclarationError(
                f"table {table.name}: it has no column '{name}'; it has {', '.join(stored)}",
                hint=closest(name, list(stored)),
            )
    missing = [name for name in key if name not in wanted]
    if missing:
        raise DeclarationError(
            f"table {table.name}: its key ({', '.join(key)}) is not among the captured columns; "
            f"missing: {', '.join(missing)}",
            hint=f"capture {', '.join(missing)} too",
        )
    return wanted
