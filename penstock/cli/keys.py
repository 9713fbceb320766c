"""The key of a row, as users write it: `--key 17`, or `--key shop=a --key number=17` if the key has two columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import DeclarationError, RowError

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.log import Topic
    from penstock.schema.ddl import Field

KEY_HELP = "A key: its value, or column=value, once for each column of the key."


def parse_key(topic: Topic, given: list[str]) -> dict[str, object]:
    """The values of the topic's key columns, read from the given texts."""
    where, names = f"topic '{topic.name}'", topic.settings.key
    if not names:
        raise DeclarationError(f"{where}: it has no key")
    texts: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and name in names):
            if equals and len(names) == 1:
                _refuse_near_miss(where, names[0], name, value)
            name, value = names[0], text
        if name in texts or (len(names) > 1 and value is text):
            raise _wrong_key_error(where, names, given)
        texts[name] = value
    if set(texts) != set(names):
        raise _wrong_key_error(where, names, given)
    return {name: _parse_value(where, topic.schema.field(name), texts[name]) for name in names}


def key_batch(topic: Topic, key: dict[str, object]) -> pa.RecordBatch:
    """The key as a batch of one row."""
    import pyarrow as pa

    from penstock.schema.rows import rows_to_batch

    schema = pa.schema([topic.schema.field(name) for name in topic.settings.key])
    return rows_to_batch([key], schema, where=f"topic '{topic.name}'")


def partition_of_key(topic: Topic, key: pa.RecordBatch) -> int:
    """The partition that has all rows of this key."""
    from penstock.schema.hashing import hash_keys, partition_of

    return int(partition_of(hash_keys(key.columns), topic.settings.partitions)[0])


def _parse_value(where: str, column: Field, text: str) -> object:
    """Read the value of a key column. Errors show the text as it was given, not the Python value."""
    import pyarrow as pa

    from penstock.capture.files.value_readers import text_reader
    from penstock.schema.ddl import type_ddl
    from penstock.schema.rows import rows_to_batch

    try:
        value = text_reader(column.type)(text)
        rows_to_batch([{column.name: value}], pa.schema([column]), where=where)
    except (ValueError, RowError) as error:
        hint = error.hint if isinstance(error, RowError) else str(error)
        message = f"{where}: the key column '{column.name}' takes {type_ddl(column.type)}; found '{text}'"
        raise DeclarationError(message, hint=hint) from None
    return value


def _refuse_near_miss(where: str, column: str, name: str, value: str) -> None:
    """Raise DeclarationError for a probable typo. If the key has one column, `lst=home` may be its value, but hardly if
    that column is called `list`."""
    from penstock.suggest import closest

    if closest(name, [column]):
        raise DeclarationError(
            f"{where}: the key column is '{column}'; found '{name}={value}'",
            hint=f"give --key {column}={value}, or --key {column}={name}={value} if the value itself has the =",
        )


def _wrong_key_error(where: str, names: tuple[str, ...], given: list[str]) -> DeclarationError:
    return DeclarationError(
        f"{where}: the key is {', '.join(names)}; found {', '.join(given)}",
        hint="give " + " ".join(f"--key {name}=..." for name in names),
    )
