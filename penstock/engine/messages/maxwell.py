"""Messages of Maxwell in JSON: `{"database", "table", "type", "data", "old"}`. One topic may have many tables."""

from __future__ import annotations

from collections.abc import Collection

from penstock.engine.messages.change import MessageError, RowChange, mapping, read_json

_ROW_TYPES = ("insert", "update", "delete", "bootstrap-insert")
_PRIMARY_KEY = "pk."


def read_maxwell(
    key: str | None, value: str | None, columns: Collection[str], keys: Collection[str], table: str
) -> list[RowChange]:
    """The changes of one message; none if it is of another table, or not about a row.

    `table` is the name of the table, or that and the database, as in shop.customers. Two changes if a row got another
    key. MessageError: it is no message of Maxwell, or does not have the key.
    """
    if value is None:
        return _tombstone(key, keys, table)
    message = mapping(read_json(value, "value"), "value")
    if not {"database", "table", "type"} <= message.keys():
        raise MessageError("it is no message of Maxwell: it has no 'database', 'table' and 'type'")
    if not _is_of(message, table) or message["type"] not in _ROW_TYPES:
        return []
    row = mapping(message.get("data"), "'data'")
    if message["type"] == "delete":
        return [_delete_of(row, keys)]
    upsert = RowChange({name: row[name] for name in columns if name in row})
    old = message.get("old")
    earlier = {**row, **old} if isinstance(old, dict) else row
    if message["type"] == "update" and any(earlier.get(name) != row.get(name) for name in keys):
        return [_delete_of(earlier, keys), upsert]
    return [upsert]


def _is_of(message: dict[str, object], table: str) -> bool:
    return table in (message["table"], f"{message['database']}.{message['table']}")


def _tombstone(key: str | None, keys: Collection[str], table: str) -> list[RowChange]:
    if key is None:
        raise MessageError("it deletes a row, and has no key that says which")
    parsed = mapping(read_json(key, "key"), "key")
    if not {"database", "table"} <= parsed.keys():
        raise MessageError("its key is none of Maxwell: it has no 'database' and 'table'")
    if not _is_of(parsed, table):
        return []
    primary = {
        name.removeprefix(_PRIMARY_KEY): value for name, value in parsed.items() if name.startswith(_PRIMARY_KEY)
    }
    return [_delete_of(primary, keys)]


def _delete_of(values: dict[str, object], keys: Collection[str]) -> RowChange:
    missing = [name for name in keys if name not in values]
    if missing:
        raise MessageError(f"it deletes a row, and has no '{missing[0]}', which belongs to the key of the table")
    return RowChange({name: values[name] for name in keys}, is_delete=True)
