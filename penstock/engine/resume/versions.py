"""A plan beside the one that ran before: which outputs stay as they are, and which are built again. Plain data.

The version of a view or sink is the fingerprint of what it says, and the epoch after which it was begun: so the same
view, built a second time, is never taken for the first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.code import digest
from penstock.flow.fingerprint import fingerprint

Fingerprints = Mapping[str, str]
Versions = Mapping[str, str]
Written = Mapping[str, Any]
"""Of each sink that has written all that the app has read: what it says, where, and of what."""


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids of the topics that are there: of those that are read, by their names, and of those that sinks write."""

    inputs: Mapping[str, str]
    sinks: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """Views and sinks by what becomes of them. `rebuilt` ones were there in another form, `new` ones were not there."""

    kept: tuple[str, ...]
    rebuilt: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]

    @property
    def built(self) -> tuple[str, ...]:
        """Those that are to be built from the log."""
        return (*self.rebuilt, *self.new)


def fingerprints(plan: flow.Plan) -> dict[str, str]:
    """Of each view and sink, what tells it from other forms of it."""
    return {
        one.name: digest(f"{one.topic} {fingerprint(one.node)}")
        if isinstance(one, flow.Sink)
        else fingerprint(one.node)
        for one in plan.outputs
    }


def version(fingerprint_: str, epoch: int) -> str:
    return f"{fingerprint_}.{epoch}"


def fingerprint_of(version_: str | None) -> str | None:
    return None if version_ is None else version_.partition(".")[0]


def difference(declared: Fingerprints, stored: Versions, *, rebuild: bool = False) -> Difference:
    kept = () if rebuild else tuple(name for name in declared if fingerprint_of(stored.get(name)) == declared[name])
    return Difference(
        kept=kept,
        rebuilt=tuple(name for name in declared if name in stored and name not in kept),
        new=tuple(name for name in declared if name not in stored),
        dropped=tuple(name for name in stored if name not in declared),
    )


def goes_on(
    half_built: Mapping[str, Any] | None, declared: Fingerprints, built: tuple[str, ...], ids: Ids, complete: set[str]
) -> bool:
    """Whether what an earlier instance has begun to build is what this program wants built, into the same topics.

    `complete` are the sinks whose topics hold everything up to where the app stands: those that were built silently
    because of that must still be among them.
    """
    if half_built is None or not same_topics(half_built, built, ids) or not set(half_built["silent"]) <= complete:
        return False
    outputs: Versions = half_built["outputs"]
    return set(outputs) == set(built) and all(fingerprint_of(one) == declared[name] for name, one in outputs.items())


def can_run(planned: Mapping[str, Any], versions: Versions, ids: Ids, *, building: bool) -> bool:
    """Whether a plan's document is about a line of these outputs, no more and no fewer, and about these topics."""
    same = planned["outputs"] == versions and planned["building"] == building
    return same and same_topics(planned, versions, ids) and not others(planned, ids)


def others(planned: Mapping[str, Any], ids: Ids) -> set[str]:
    """The inputs of which a plan has read what are other topics now, under the same names."""
    read = {name: one["topic_id"] for name, one in planned["cut"]["sources"].items()}
    return {name for name, id_ in read.items() if ids.inputs.get(name, id_) != id_}


def same_topics(stored: Mapping[str, Any], outputs: Collection[str], ids: Ids) -> bool:
    """Whether sinks among these outputs still have the topics that a stored document names."""
    return all(ids.sinks.get(name) == id_ for name, id_ in stored["topics"].items() if name in outputs)


def known_outputs(document: Mapping[str, Any], planned: Mapping[str, Any] | None) -> tuple[Versions, Written]:
    """The outputs that a commit knows, and its sinks, as far as they have the epoch after it.

    `planned` is that epoch, if somebody may have seen some of it: a program without some of the outputs may have run
    it, and then those never will. Sinks have it if they were part of it when it was first run.
    """
    outputs: Versions = document["outputs"]
    written: Written = document["written"]
    if planned is None or planned["building"]:
        return outputs, written
    known = {name: one for name, one in outputs.items() if planned["outputs"].get(name) == one}
    return known, {name: one for name, one in written.items() if name in planned["topics"]}


def complete_sinks(written: Written, records: Written) -> set[str]:
    """The sinks that have written all that the app has read, as they are declared now."""
    return {name for name, one in records.items() if written.get(name) == one}


def record_of(sink: flow.Sink, topic_id: str | None, ids: Mapping[str, str]) -> Mapping[str, Any]:
    """What is remembered of a sink that has written all that the app has read; `ids` are those of topics.

    What it says is as it was declared: other views may change how its answer is worked out, and not the answer.
    """
    inputs = sorted(source_names(flow.Plan("", (sink,))))
    return {"topic": topic_id, "says": fingerprint(sink.node), "inputs": {name: ids.get(name) for name in inputs}}


def part_of(plan: flow.Plan, outputs: tuple[str, ...]) -> flow.Plan:
    return flow.Plan(plan.app, tuple(one for one in plan.outputs if one.name in outputs))


def source_names(plan: flow.Plan) -> set[str]:
    return {node.name for node in flow.nodes(plan) if isinstance(node, flow.Topic | flow.Changelog)}


def check_reach(app: str, origins: Mapping[str, Mapping[str, int]], starts: Mapping[str, Mapping[int, int]]) -> None:
    """Refuse to build anew what the log no longer holds: `origins` is where the app began, `starts` what is kept."""
    for topic, partitions in starts.items():
        for number, start in partitions.items():
            began = origins.get(topic, {}).get(str(number), start)
            if start > began:
                raise DeclarationError(
                    f"app '{app}': views are to be built again, but topic '{topic}' no longer has the rows: "
                    f"partition {number} begins at offset {start}, and the app had begun at {began}",
                    hint="run the program as it was, or start the changed one as a new app under another name",
                )


def check_topics(app: str, document: Mapping[str, Any], ids: Mapping[str, str]) -> None:
    """Refuse to go on with topics that are others than those the app has read: `ids` are those that are there."""
    for topic, id_ in _read_topics(document).items():
        if ids.get(topic, id_) != id_:
            raise DeclarationError(
                f"app '{app}': topic '{topic}' is not the one it has read: it was dropped and created again",
                hint="build all views again from the new one: penstock run --rebuild",
            )


def known_origins(document: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    """Where the app began to read each topic, as far as it is still the same topic."""
    read = _read_topics(document)
    return {topic: one for topic, one in document["origins"].items() if ids.get(topic) in (None, read.get(topic))}


def _read_topics(document: Mapping[str, Any]) -> dict[str, str]:
    """The ids of the topics that the app has read, by the document of its last commit."""
    cuts = [document["cut"], *([document["building"]["cut"]] if document["building"] else [])]
    return {name: one["topic_id"] for cut in reversed(cuts) for name, one in cut["sources"].items()}


def origins_document(starts: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
    return {topic: {str(number): start for number, start in parts.items()} for topic, parts in starts.items()}
