"""The description of a topic: what is stored about it, how it is checked, and how its files are laid out."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from penstock.contracts import TopicSettings
from penstock.errors import DamagedError, DeclarationError
from penstock.log.partition import create_partition
from penstock.names import NAME_PATTERN, NAME_RULE
from penstock.schema.ddl import to_ddl, type_ddl
from penstock.schema.hashing import KEY_TYPES, MAX_PARTITIONS, can_be_key
from penstock.storage.document import load_document, store_document
from penstock.storage.files import Files
from penstock.suggest import closest

DESCRIPTION_NAME = "topic.json"
MOST_BATCH_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Description:
    """Everything stored about a topic. Schemas are numbered from 1; frames tell which one they were written with."""

    name: str
    id: str
    settings: TopicSettings
    schemas: tuple[str, ...]
    created: str


def partition_directory(number: int) -> str:
    return f"{number:05d}"


def check_topic(name: str, schema: pa.Schema, settings: TopicSettings) -> None:
    """Everything that can be wrong with a topic, before anything of it exists."""
    where = f"topic '{name}'"
    if not isinstance(settings.key, tuple):
        raise DeclarationError(f"{where}: the key is a tuple of columns; found {settings.key!r}", hint='key=("id",)')
    if not NAME_PATTERN.fullmatch(name):
        raise DeclarationError(
            f"{where}: this is not a name for a topic",
            hint=NAME_RULE,
        )
    if type(settings.partitions) is not int:
        raise DeclarationError(f"{where}: partitions is a whole number; found {settings.partitions!r}")
    if not 1 <= settings.partitions <= MAX_PARTITIONS:
        raise DeclarationError(
            f"{where}: it cannot have {settings.partitions} partitions; 1 to {MAX_PARTITIONS} are possible"
        )
    for name, least in (("retention_seconds", 0), ("retention_bytes", 0), ("segment_bytes", 1)):
        value = getattr(settings, name)
        if value is not None and (not isinstance(value, int | float) or value < least):
            raise DeclarationError(f"{where}: {name} must be a number of at least {least}; found {value!r}")
    if not 1 <= settings.max_batch_bytes <= MOST_BATCH_BYTES:
        raise DeclarationError(f"{where}: batches can have at most {MOST_BATCH_BYTES} bytes")
    if settings.durability not in ("fsync", "os"):
        raise DeclarationError(f"{where}: durability '{settings.durability}' does not exist; there is 'fsync' and 'os'")
    for column in (*settings.key, *([settings.time] if settings.time else [])):
        if column not in schema.names:
            raise DeclarationError(
                f"{where}: there is no column '{column}'; it has {', '.join(schema.names)}",
                hint=closest(column, schema.names),
            )
    for column in settings.key:
        if not can_be_key(schema.field(column).type):
            raise DeclarationError(
                f"{where}: column '{column}' of type {type_ddl(schema.field(column).type)} cannot be a key",
                hint=f"a key is one of: {KEY_TYPES}",
            )
    if settings.time and not pa.types.is_timestamp(schema.field(settings.time).type):
        found = type_ddl(schema.field(settings.time).type)
        raise DeclarationError(
            f"{where}: the event time '{settings.time}' must be a timestamp; found {found}",
            hint=f"declare it as '{settings.time} timestamp': text such as 2026-01-31T12:00:00Z is read as one",
        )
    if settings.versioned and not settings.key:
        raise DeclarationError(f"{where}: versions are counted per key, and the topic has none")
    if settings.versioned and (settings.retention_seconds is not None or settings.retention_bytes is not None):
        raise DeclarationError(
            f"{where}: a versioned topic cannot have retention: versions would be forgotten with their events",
            hint="remove single keys with erase, or keep only each key's last event with compact",
        )


def create_topic_files(files: Files, directory: Path, name: str, schema: pa.Schema, settings: TopicSettings) -> None:
    """Lay out a topic. It exists once its description is stored, which is the last step."""
    topic_id = uuid.uuid4()
    files.make_directory(directory)
    for number in range(settings.partitions):
        create_partition(files, directory / partition_directory(number), topic_id=topic_id.bytes, number=number)
    files.sync_directory(directory.parent)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    description = Description(name, topic_id.hex, settings, (to_ddl(schema),), created)
    store_description(files, directory, description)


def store_description(files: Files, directory: Path, description: Description) -> None:
    store_document(files, directory / DESCRIPTION_NAME, asdict(description))


def load_description(files: Files, directory: Path) -> Description:
    path = directory / DESCRIPTION_NAME
    content = load_document(files, path, what="topic")
    try:
        settings = content.pop("settings")
        settings["key"] = tuple(settings["key"])
        content |= {"settings": TopicSettings(**settings), "schemas": tuple(content["schemas"])}
        description = Description(**content)
    except (KeyError, TypeError, AttributeError):
        raise DamagedError(
            f"{path}: this is not the description of a topic", hint="restore the file from a copy"
        ) from None
    if description.name != directory.name:
        raise DamagedError(
            f"{path}: this is the description of topic '{description.name}'", hint="restore the file from a copy"
        )
    return description
