"""Erasing a key from a topic and its side topics, and finding what apps of the log may still have of it.

1. Note in every app that has read the topic, also through topics of other apps, that what it has may have the rows.
2. Erase the rows from the topic. This waits for epochs that read them.
3. Note again: what was committed meanwhile may have them too.
4. Erase them from the late rows of the topic, and from the dead rows of the apps.

After that no app can read the rows again, and what apps had derived from them is named by their notes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.ledger.erasure import find_copies, load_erasures, note_erasure, sink_topics_from, topics_read
from penstock.engine.ledger.garbage import Garbage
from penstock.engine.ledger.ledger import APP_NAME, Ledger
from penstock.engine.ledger.upgrade import is_old_folder
from penstock.flow.names import dead_topic, late_topic
from penstock.log import Log, Rewritten, Topic, rows_with
from penstock.units import now_microseconds

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Copy:
    """A place that may have a copy of an erased row, and the command that removes it."""

    where: str
    command: str
    app: str | None = None
    takes_log: bool = True  # the command has the option --log


@dataclass(frozen=True, slots=True)
class _Reader:
    """An app that has read an erased topic, directly or through topics of sinks, and the topics that it has derived."""

    ledger: Ledger
    derived_topics: frozenset[str]


def erase_key(
    log: Log, topic: Topic, key: pa.RecordBatch, *, progress: Progress, wait: float
) -> dict[str, list[Rewritten]]:
    """Erase the rows of a key, in the steps above; what was done to each topic, by its name."""
    _note(log, topic)  # 1
    erased = {topic.name: topic.erase(key.to_pylist()[0], progress=progress, wait=wait)}  # 2
    _note(log, topic)  # 3
    known = set(log.topics())  # 4
    if (late := late_topic(topic.name)) in known:
        erased[late] = log.topic(late).erase_where(lambda batch: rows_with(batch, key), wait=wait)
    for reader in _readers(log, topic):
        if (dead := dead_topic(reader.ledger.app)) in known:
            erased[dead] = log.topic(dead).erase_where(_dead_rows_of(topic.name, key), wait=wait)
    return erased


def find_copies_in_log(log: Log, topic: Topic) -> list[Copy]:
    """Every place in this log that may have rows which were erased from a topic, in the order in which they can go.

    What apps no longer need is removed first. Apps that read topics of others come after these.
    """
    copies: list[Copy] = []
    ledgers = {reader.ledger.app: reader.ledger for reader in _readers(log, topic)}
    # A topic that was dropped no longer leads to the apps that have read it, but these have their note.
    ledgers = ledgers | {ledger.app: ledger for ledger in _ledgers(log) if ledger.app not in ledgers}
    for ledger in ledgers.values():
        if any(erasure.topic_id == topic.id for erasure in load_erasures(ledger)):
            Garbage(ledger).sweep(now_microseconds())
            copies += _copies_of_app(log, topic, ledger)
    for directory in filter(is_old_folder, _app_folders(log)):
        where = f"app '{directory.name}': an earlier version wrote its folder, so it is not known what it has read"
        copies.append(Copy(where, "penstock run FILE --rebuild --once", directory.name))
    return list(dict.fromkeys(copies))


def _note(log: Log, topic: Topic) -> None:
    for reader in _readers(log, topic):
        note_erasure(reader.ledger, topic.name, topic.id, reader.derived_topics, now=now_microseconds())


def _readers(log: Log, topic: Topic) -> list[_Reader]:
    """The apps that have read a topic, or its side topics, or what sinks of such apps have written; those last."""
    ids = {name: log.topic(name).id for name in log.topics()}
    direct = {topic.id, ids.get(late_topic(topic.name), topic.id)}
    derived: set[str] = set()
    ledgers = _ledgers(log)
    readers: list[_Reader] = []
    while new := [ledger for ledger in ledgers if topics_read(ledger) & (direct | derived)]:
        for ledger in new:
            names = {name for name, id_ in ids.items() if id_ in sink_topics_from(ledger, direct | derived)}
            topics = {ids[side] for name in names for side in (name, late_topic(name)) if side in ids}
            dead = {ids[name] for name in (dead_topic(ledger.app),) if name in ids}
            if topics_read(ledger) & derived:
                topics |= dead
            readers.append(_Reader(ledger, frozenset(topics)))
            derived |= topics
            direct |= dead
        ledgers = [ledger for ledger in ledgers if ledger not in new]
    return readers


def _ledgers(log: Log) -> list[Ledger]:
    return [Ledger(directory) for directory in _app_folders(log) if not is_old_folder(directory)]


def _app_folders(log: Log) -> list[Path]:
    return [path.parent for path in sorted(log.apps_folder.glob(f"*/{APP_NAME}"))]


def _copies_of_app(log: Log, topic: Topic, ledger: Ledger) -> list[Copy]:
    found, app = find_copies(ledger, topic.id), ledger.app
    copies = [
        Copy(f"savepoint '{name}' of app '{app}'", f"penstock savepoint drop {name} --app {app} --yes", app)
        for name in found.savepoints
    ]
    for name in log.topics():
        if log.topic(name).id in found.derived_topics:
            where = f"topic '{name}', with rows that were derived; stop the apps that write it first"
            copies.append(Copy(where, f"penstock topic drop {name} --yes"))
    if found.views or found.sinks:
        parts = [("view", found.views), ("sink", found.sinks)]
        outputs = "; ".join(f"{_plural(kind, names)} {', '.join(names)}" for kind, names in parts if names)
        where = f"app '{app}': {outputs}; with their state, and the commits and changes that are kept"
        copies.append(Copy(where, "penstock run FILE --rebuild --once", app))
    if found.old_files is not None:
        copies.append(Copy(f"files of an earlier version of app '{app}'", f"rm -r {found.old_files}", app, False))
    return copies


def _plural(kind: str, names: Sequence[str]) -> str:
    return kind if len(names) == 1 else f"{kind}s"


def _dead_rows_of(topic: str, key: pa.RecordBatch) -> Callable[[pa.RecordBatch], npt.NDArray[np.bool_]]:
    """Which dead rows come from rows of a key: they have the whole row as JSON."""
    wanted = json.loads(json.dumps(key.to_pylist()[0], default=str))

    def matches(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        topics, rows = batch.column("topic").to_pylist(), batch.column("row").to_pylist()
        return np.array([name == topic and _has(row, wanted) for name, row in zip(topics, rows, strict=True)], bool)

    return matches


def _has(row: object, wanted: dict[str, object]) -> bool:
    content = json.loads(row) if isinstance(row, str) else {}
    return all(content.get(name) == value for name, value in wanted.items())
