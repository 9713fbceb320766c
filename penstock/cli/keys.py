"""The key of a row, as users write it: `--key 17`, or `--key shop=a --key number=17` where the key has two columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import DeclarationError

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.log import Topic

KEY_HELP = "A key: its value, or column=value, once for each column of the key."


def parse_key(topic: Topic, given: list[str]) -> dict[str, object]:
    """The columns of the topic's key with the values that the texts mean."""
    from penstock.cli.values import text_reader

    where, names = f"topic '{topic.name}'", topic.settings.key
    if not names:
        raise DeclarationError(f"{where}: it has no key")
    texts: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and name in names):
            name, value = names[0], text
        if name in texts or (len(names) > 1 and value is text):
            raise _not_the_key(where, names, given)
        texts[name] = value
    if set(texts) != set(names):
        raise _not_the_key(where, names, given)
    try:
        return {name: text_reader(topic.schema.field(name).type)(texts[name]) for name in names}
    except ValueError as error:
        raise DeclarationError(f"{where}: {', '.join(given)} is not a key", hint=str(error)) from None


def key_batch(topic: Topic, key: dict[str, object]) -> pa.RecordBatch:
    """The key as a batch of one row, checked by the topic's schema."""
    import pyarrow as pa

    from penstock.log.rows import rows_to_batch

    schema = pa.schema([topic.schema.field(name) for name in topic.settings.key])
    return rows_to_batch([key], schema, where=f"topic '{topic.name}'")


def partition_of_key(topic: Topic, key: pa.RecordBatch) -> int:
    """The partition in which all rows of this key are."""
    from penstock.log.hashing import hash_keys, partition_of

    return int(partition_of(hash_keys(key.columns), topic.settings.partitions)[0])


def _not_the_key(where: str, names: tuple[str, ...], given: list[str]) -> DeclarationError:
    return DeclarationError(
        f"{where}: the key is {', '.join(names)}; found {', '.join(given)}",
        hint="give " + " ".join(f"--key {name}=..." for name in names),
    )
