"""The options of `format("penstock")`, read once and checked before anything runs.

log                the folder of the log; default: the environment variable PENSTOCK_LOG
view               reads a view instead of a topic: its name; then `path` may name the log, and load() too
app                with `view`: the app whose view it is; default: the only one on the log
topic              the topic, unless it is given to load(), save() or start()
columns            reads: the columns to read, separated by commas; default: all
metadata           reads: 'true' adds _partition, _offset, _append_time, _deleted (and _version on versioned topics),
                   and the rows that delete their key, which are left out otherwise
from, until        reads: 'start', 'end', an offset, an ISO time, or offsets per partition such as {"0": 17, "1": 4};
                   `from` is included, `until` is not; a partition that is not named is read from its start, to its end
maxRowsPerBatch    streams: the most rows in one micro-batch
maxBytesPerBatch   streams: about the most stored bytes in one micro-batch
producer           streams written: the name under which batches are stored once; default: the id of the query, which
                   Spark keeps in the checkpoint
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.contracts import Start
from penstock.errors import DeclarationError
from penstock.logs import log_url
from penstock.suggest import closest

PLACE = frozenset({"log", "topic", "path"})
READ = PLACE | {"columns", "metadata", "from"}
BATCH_READ = READ | {"until"}
VIEW_READ = frozenset({"log", "path", "app", "view", "columns"})
STREAM_READ = READ | {"maxRowsPerBatch", "maxBytesPerBatch"}
BATCH_WRITE = PLACE
STREAM_WRITE = PLACE | {"producer", "checkpointLocation", "queryName"}

LOG_VARIABLE = "PENSTOCK_LOG"
WHERE = "format 'penstock'"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read or write, with their defaults filled in."""

    log: str
    topic: str
    columns: tuple[str, ...] | None = None
    metadata: bool = False
    start: Start = "start"
    until: Start = "end"
    max_rows: int | None = None
    max_bytes: int | None = None
    producer: str | None = None
    checkpoint: str | None = None


def parse_options(given: Mapping[str, str], known: frozenset[str]) -> Options:
    """Check the options of one use, whose names are `known`. Spark gives names in lower case."""
    text = _known_options(given, known)
    return Options(
        log=_log(text),
        topic=_topic(text),
        columns=_columns(text.get("columns")),
        metadata=_switch(text, "metadata"),
        start=_position(text, "from", "start"),
        until=_position(text, "until", "end"),
        max_rows=_count(text, "maxRowsPerBatch"),
        max_bytes=_count(text, "maxBytesPerBatch"),
        producer=text.get("producer"),
        checkpoint=text.get("checkpointLocation"),
    )


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """The options of a read of a view."""

    log: str
    app: str | None
    view: str
    columns: tuple[str, ...] | None


def names_a_view(given: Mapping[str, str]) -> bool:
    return any(name.lower() == "view" for name in given)


def parse_view_options(given: Mapping[str, str]) -> ViewOptions:
    """Check the options of a read that names a view."""
    text = _known_options(given, VIEW_READ)
    log, path = text.get("log"), text.get("path")
    if log and path and log_url(log) != log_url(path):
        raise DeclarationError(f"{WHERE}: two logs are named; found '{log}' and '{path}'")
    place = {"log": log or path or ""}
    return ViewOptions(_log(place), text.get("app"), text["view"], _columns(text.get("columns")))


def _known_options(given: Mapping[str, str], known: frozenset[str]) -> dict[str, str]:
    names = {name.lower(): name for name in known}
    for name in given:
        if name.lower() not in names:
            raise DeclarationError(
                f"{WHERE}: there is no option '{name}' here",
                hint=closest(name, sorted(known)) or f"there is {', '.join(sorted(known))}",
            )
    return {names[name.lower()]: value for name, value in given.items()}


def _log(text: Mapping[str, str]) -> str:
    path = text.get("log") or os.environ.get(LOG_VARIABLE)
    if not path:
        raise DeclarationError(
            f"{WHERE}: it is not said which log",
            hint=f'.option("log", "<folder>"), or {LOG_VARIABLE} before Spark starts',
        )
    return log_url(path)  # tasks may run in another folder


def _topic(text: Mapping[str, str]) -> str:
    topic, path = text.get("topic"), text.get("path")
    if not topic and not path:
        raise DeclarationError(
            f"{WHERE}: it is not said which topic",
            hint='.option("topic", "<name>"), or give the name to load() or save()',
        )
    if topic and path and topic != path:
        raise DeclarationError(f"{WHERE}: two topics are named; found '{topic}' and '{path}'")
    return topic or path or ""


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    columns = tuple(name.strip() for name in text.split(",") if name.strip())
    if not columns:
        raise DeclarationError(f"{WHERE}: option 'columns' names no column")
    return columns


def _switch(text: Mapping[str, str], name: str) -> bool:
    value = text.get(name, "false").strip().lower()
    if value not in ("true", "false"):
        raise DeclarationError(f"{WHERE}: option '{name}' is true or false; found '{text[name]}'")
    return value == "true"


def _count(text: Mapping[str, str], name: str) -> int | None:
    if name not in text:
        return None
    value = text[name].strip()
    if not value.isdecimal() or int(value) == 0:
        raise DeclarationError(f"{WHERE}: option '{name}' is a whole number above 0; found '{text[name]}'")
    return int(value)


def _position(text: Mapping[str, str], name: str, default: str) -> Start:
    """An offset, offsets per partition, or text that the topic understands: 'start', 'end' or a time."""
    value = text.get(name, default).strip()
    if value.isdecimal():
        return int(value)
    if not value.startswith("{"):
        return value
    try:
        return {int(partition): _offset(offset) for partition, offset in json.loads(value).items()}
    except (ValueError, TypeError):
        raise DeclarationError(
            f"{WHERE}: option '{name}' is not a JSON object of offsets; found '{value}'",
            hint='give an offset for each partition, such as {"0": 17, "1": 4}',
        ) from None


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value
