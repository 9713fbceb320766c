"""What an app may still have of rows that were erased from a topic.

An app does not know which of its rows come from an erased one. So an erasure notes, in the folder of each app that has
read the topic, the versions of all its outputs: whatever was built under these versions may have the row. A rebuild
gives outputs new versions. From then on the older commits and changes are garbage at once, and only savepoints stay
until they are dropped. The note has no key and no value of the erased rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.engine.ledger.codec import UnfitError, decode, encode
from penstock.engine.ledger.ledger import LOCK_NAME, Ledger
from penstock.engine.ledger.records import Commit, EpochPlan, ReplacedOutputs, TrackRecord
from penstock.engine.ledger.registration import cuts_of
from penstock.engine.ledger.savepoints import load_savepoint, savepoint_names
from penstock.engine.ledger.upgrade import OLD_DIRECTORY
from penstock.errors import DamagedError
from penstock.storage.document import load_document, store_document
from penstock.storage.files import disk_errors

ERASURES_NAME = "erasures.json"

OutputVersions = frozenset[tuple[str, str]]
"""Outputs, each with its version."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """The outputs that an app had when rows were erased from a topic, by name with their versions.

    `derived_topics` are the ids of topics with rows that the app had derived from it: those of its sinks, and side
    topics.
    """

    topic: str
    topic_id: str
    erased_at: int
    outputs: Mapping[str, tuple[str, ...]]
    derived_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Erasures:
    erasures: tuple[Erasure, ...] = ()


@dataclass(frozen=True, slots=True)
class AppCopies:
    """Where an app may still have rows that were erased from a topic.

    `views` and `sinks` are outputs as of the last commit; their states, and the commits and changes that are kept, go
    with them. `derived_topics` are ids. `old_files` is what an earlier version of Penstock left.
    """

    app: str
    views: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    savepoints: tuple[str, ...] = ()
    derived_topics: tuple[str, ...] = ()
    old_files: Path | None = None


# -- who has read a topic ---------------------------------------------------------------------------------------------


def topics_read(ledger: Ledger) -> frozenset[str]:
    """The ids of the topics that an app has read, as far as its commits, its plan and its savepoints tell."""
    cuts = [cut for commit in _stored_commits(ledger) for cut in cuts_of(commit)]
    if isinstance(pending := ledger.pending_plan(), EpochPlan):
        cuts.append(pending.cut)
    return frozenset(source.topic_id for cut in cuts for source in cut.sources.values())


def sink_topics_from(ledger: Ledger, topics: Collection[str]) -> tuple[str, ...]:
    """The ids of the topics that sinks of an app have written from one of these topics."""
    last = ledger.last_commit()
    records = [] if last is None else list(last.written.values())
    written = (record.topic for record in records if set(record.inputs.values()) & set(topics))
    return tuple(sorted({topic for topic in written if topic is not None}))


def _stored_commits(ledger: Ledger) -> list[Commit]:
    commits = [commit for epoch in ledger.epochs_with("commit") if (commit := ledger.commit_of(epoch)) is not None]
    return commits + [load_savepoint(ledger, name).commit for name in savepoint_names(ledger)]


# -- the note ---------------------------------------------------------------------------------------------------------


def note_erasure(ledger: Ledger, topic: str, topic_id: str, derived_topics: Iterable[str], *, now: int) -> None:
    """Record that everything the app has now may have rows that were erased from a topic."""
    last = ledger.last_commit()
    with disk_errors(f"app '{ledger.app}'"), closing(ledger.files.lock(ledger.directory / LOCK_NAME)) as lock:
        lock.acquire()
        erasures = {erasure.topic_id: erasure for erasure in load_erasures(ledger)}
        before = erasures.get(topic_id, Erasure(topic, topic_id, now, {}))
        outputs = _add_versions(before.outputs, output_versions(last) if last else frozenset())
        topics = tuple(sorted({*before.derived_topics, *derived_topics}))
        erasures[topic_id] = replace(before, erased_at=now, outputs=outputs, derived_topics=topics)
        store_document(ledger.files, ledger.directory / ERASURES_NAME, encode(_Erasures(tuple(erasures.values()))))


def _add_versions(outputs: Mapping[str, tuple[str, ...]], versions: OutputVersions) -> dict[str, tuple[str, ...]]:
    names = sorted({*outputs, *(name for name, _ in versions)})
    more = {name: {version for output, version in versions if output == name} for name in names}
    return {name: tuple(sorted({*outputs.get(name, ()), *more[name]})) for name in names}


def load_erasures(ledger: Ledger) -> tuple[Erasure, ...]:
    path = ledger.directory / ERASURES_NAME
    if not ledger.files.exists(path):
        return ()
    try:
        return decode(_Erasures, load_document(ledger.files, path, what="note of erasures")).erasures
    except UnfitError as error:
        raise DamagedError(
            f"{path}: this is not the note of erasures; {error}",
            hint="remove the file, erase the keys again, and run the commands that this names",
        ) from None


# -- what is left -----------------------------------------------------------------------------------------------------


def output_versions(commit: Commit) -> OutputVersions:
    """All outputs whose rows a commit has, of the views and states that it names."""
    tracks: list[TrackRecord | ReplacedOutputs] = [commit.live, commit.replaced]
    tracks += [commit.backfill.track] if commit.backfill else []
    outputs = {pair for track in tracks for pair in track.outputs.items()}
    return frozenset(outputs | {(name, view.version) for track in tracks for name, view in track.views.items()})


def erased_versions(erasures: Iterable[Erasure]) -> OutputVersions:
    """The outputs that may have erased rows."""
    return frozenset(
        (name, version) for erasure in erasures for name, versions in erasure.outputs.items() for version in versions
    )


def find_copies(ledger: Ledger, topic_id: str) -> AppCopies:
    """Where an app may still have rows that were erased from this topic. Call it after a sweep of its garbage."""
    erasures = [erasure for erasure in load_erasures(ledger) if erasure.topic_id == topic_id]
    erased, last = erased_versions(erasures), ledger.last_commit()
    names = sorted({name for name, _ in erased & output_versions(last)}) if last else []
    views = {name for name, _ in output_versions(last)} & _views_of(last) if last else set()
    savepoints = [
        name for name in savepoint_names(ledger) if erased & output_versions(load_savepoint(ledger, name).commit)
    ]
    old_files = ledger.directory / OLD_DIRECTORY
    return AppCopies(
        ledger.app,
        tuple(name for name in names if name in views),
        tuple(name for name in names if name not in views),
        tuple(savepoints),
        tuple(sorted({topic for erasure in erasures for topic in erasure.derived_topics})),
        old_files if erasures and ledger.files.exists(old_files) else None,
    )


def _views_of(commit: Commit) -> set[str]:
    return {*commit.views, *(commit.backfill.track.views if commit.backfill else ())}
