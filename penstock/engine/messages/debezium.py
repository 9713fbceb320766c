"""Change events of Debezium in JSON, with or without their schema: of relational databases and of MongoDB.

https://debezium.io describes them: `before` and `after` are the row, `op` is c(reate), u(pdate), d(elete), r(ead by a
snapshot), t(runcate) or m(essage). A delete is followed by a tombstone, a message without a value.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping

from penstock.engine.messages.change import FieldType, MessageError, RowChange, Types, Values, mapping, read_json

UNAVAILABLE = "__debezium_unavailable_value"
"""Stands for a large value that an update did not touch, and which the database therefore did not send."""

_UNAVAILABLE_FORMS: tuple[object, ...] = (
    UNAVAILABLE,
    base64.b64encode(UNAVAILABLE.encode()).decode(),
    [UNAVAILABLE],
    {UNAVAILABLE: UNAVAILABLE},
)


def read_debezium(
    key: str | None, value: str | None, columns: Collection[str], keys: Collection[str]
) -> list[RowChange]:
    """The changes of one message; of the columns, only these count, and `keys` are those of the table's key.

    Two changes if a row got another key, none for messages that are not about rows. MessageError: it is no change
    event, or not one that says what the row is now.
    """
    if value is None:
        return [_tombstone(key, keys)]
    event, types = _unwrap(read_json(value, "value"))
    if event is None:
        return [_tombstone(key, keys)]
    match event.get("op"):
        case "c" | "r" | "u":
            return _upsert(event, types, columns, keys)
        case "d":
            return [_deletion(key, event, types, keys)]
        case "m":
            return []
        case "t":
            raise MessageError("it truncates the table, which is not supported: delete the rows with DELETE instead")
    raise MessageError("it is no change event of Debezium: it has no 'op' of c, r, u, d, t or m")


def _unwrap(message: object) -> tuple[dict[str, object] | None, Mapping[str, Types]]:
    """What is in the envelope of a schema, if there is one, and the types of `before` and `after`."""
    event = mapping(message, "value")
    if event.keys() != {"schema", "payload"}:
        return event, {}
    payload, schema = event["payload"], event["schema"]
    types = {name: _field_types(part) for name, part in _fields(schema) if name in ("before", "after")}
    return None if payload is None else mapping(payload, "payload"), types


def _unwrap_key(key: str | None) -> tuple[dict[str, object], Types]:
    if key is None:
        raise MessageError("it deletes a row, and has no key that says which")
    parsed = mapping(read_json(key, "key"), "key")
    if parsed.keys() == {"schema", "payload"}:
        return mapping(parsed["payload"], "key"), _field_types(parsed["schema"])
    return parsed, {}


def _fields(schema: object) -> list[tuple[str, dict[str, object]]]:
    if not isinstance(schema, dict) or not isinstance(schema.get("fields"), list):
        return []
    return [(str(part.get("field")), part) for part in schema["fields"] if isinstance(part, dict)]


def _field_types(schema: object) -> Types:
    types = {}
    for name, part in _fields(schema):
        parameters = part.get("parameters")
        scale = parameters.get("scale", 0) if isinstance(parameters, dict) else 0
        try:
            types[name] = FieldType(str(part.get("name") or part.get("type") or ""), int(str(scale)))
        except ValueError:
            raise MessageError(f"its schema has a field '{name}' with a scale of {scale!r}") from None
    return types


def _tombstone(key: str | None, keys: Collection[str]) -> RowChange:
    values, types = _unwrap_key(key)
    return _delete_of(_key_values(values), types, keys)


def _deletion(key: str | None, event: Values, types: Mapping[str, Types], keys: Collection[str]) -> RowChange:
    before = event.get("before")
    if isinstance(before, str):
        before = read_json(before, "'before'")
    if isinstance(before, dict) and set(keys) <= before.keys():
        return _delete_of(before, types.get("before", {}), keys)
    return _tombstone(key, keys)


def _delete_of(values: Values, types: Types, keys: Collection[str]) -> RowChange:
    missing = [name for name in keys if name not in values]
    if missing:
        raise MessageError(
            f"it deletes a row, and its key has no '{missing[0]}', which belongs to the key of the table; "
            f"it has {', '.join(values) or 'nothing'}"
        )
    return RowChange({name: values[name] for name in keys}, types, is_delete=True)


def _key_values(key: dict[str, object]) -> dict[str, object]:
    """Keys of MongoDB are an object with the text of the JSON of `_id`."""
    if key.keys() == {"id"} and isinstance(key["id"], str):
        try:
            return {"_id": read_json(key["id"], "key"), **key}
        except MessageError:
            return key
    return key


def _upsert(
    event: Values, types: Mapping[str, Types], columns: Collection[str], keys: Collection[str]
) -> list[RowChange]:
    after, before = event.get("after"), event.get("before")
    if isinstance(after, str):
        after = read_json(after, "'after'")
    if after is None:
        partial = [name for name in ("patch", "updateDescription") if event.get(name) is not None]
        because = f"only '{partial[0]}'" if partial else "nothing"
        raise MessageError(
            f"it does not have the row as it is now in 'after', but {because}; with MongoDB, set the connector's "
            "capture.mode to change_streams_update_full"
        )
    row = mapping(after, "'after'")
    earlier = before if isinstance(before, dict) else {}
    values = {name: _available(name, row[name], earlier) for name in columns if name in row}
    upsert = RowChange(values, types.get("after", {}))
    moved = set(keys) <= earlier.keys() and any(earlier[name] != row.get(name) for name in keys)
    if event.get("op") == "u" and moved:
        return [_delete_of(earlier, types.get("before", {}), keys), upsert]
    return [upsert]


def _available(name: str, value: object, before: Values) -> object:
    """The value, or where it was not sent, that of the row before."""
    if value not in _UNAVAILABLE_FORMS:
        return value
    if before.get(name, UNAVAILABLE) in _UNAVAILABLE_FORMS:
        raise MessageError(
            f"column '{name}' is as before and was not sent by the database; with PostgreSQL, set REPLICA IDENTITY FULL"
        )
    return before[name]
