"""A running app between two epochs: where its lines are, and what of the program before is still there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.derive.store import ViewStore
from penstock.derive.topic_sinks import TopicSinks
from penstock.engine.ledger.ledger import Ledger
from penstock.engine.ledger.records import States
from penstock.engine.plan.cut import Cut
from penstock.engine.publish.accounts import Account
from penstock.engine.resume.track import Line
from penstock.engine.resume.versions import Ids, Versions, Written, complete_sinks
from penstock.log.producer import Producer

# How the states of views that are being built stand beside those of the others in a commit.
BUILDING = "+"


@dataclass(frozen=True, slots=True)
class Carried:
    """What readers still see of the program before, and what it needs to go on, should that program come back."""

    outputs: Versions = field(default_factory=dict)
    states: States = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Started:
    """A running app between two epochs. `building` is the line of outputs that are built again, if there are such."""

    ledger: Ledger
    store: ViewStore
    producer: Producer
    sinks: TopicSinks
    records: Written  # of all sinks, should they have written everything
    whole: Line  # what the app is when nothing is being built; its cut and states count only then
    main: Line
    building: Line | None
    carried: Carried
    versions: Versions
    origins: Mapping[str, Any]
    epoch: int  # the last that is committed
    published: int  # the last that the views hold: this one or the next
    written: Written = field(default_factory=dict)  # beside what the sinks of the main line have written

    @property
    def token(self) -> int:
        return self.producer.epoch

    @property
    def seen(self) -> int:
        """The last epoch of which anybody can have seen something, in the views or in the topics of sinks."""
        return max(self.published, self.sinks.last_epoch())

    @property
    def built(self) -> tuple[str, ...]:
        """The views and sinks that are being built."""
        return () if self.building is None else tuple(one.name for one in self.building.plan.outputs)

    @property
    def silent(self) -> frozenset[str]:
        """Sinks that are being built only to have their state: their topics hold what they would write."""
        return frozenset(complete_sinks(self.written, self.records) & set(self.built))

    @property
    def ids(self) -> Ids:
        inputs = {name: one.topic.description.id for name, one in self.whole.inputs.items()}
        return Ids(inputs, {name: one["topic"] for name, one in self.records.items()})

    def topics_of(self, line: Line) -> Mapping[str, str]:
        """The ids of the topics that the sinks of a line write."""
        return {sink.name: self.records[sink.name]["topic"] for sink in line.plan.sinks}

    def versions_of(self, line: Line) -> Versions:
        return {one.name: self.versions[one.name] for one in line.plan.outputs}

    def moved(self, line: Line, *, building: bool) -> Started:
        """The app after an epoch of one of its lines. What has been built up to the main line becomes part of it."""
        after = replace(self, epoch=line.cut.epoch, published=line.cut.epoch)
        if self.building is None:
            return replace(after, main=line, whole=line, carried=Carried(), written={})
        if not building:  # the others have moved on, so what is carried is of no use any more
            silent = {name: self.written[name] for name in self.silent}
            return replace(after, main=line, carried=Carried(), written=silent)
        if not has_arrived(line.cut, self.main.cut):
            return replace(after, building=line)
        sources = {**self.main.cut.sources, **line.cut.sources}
        joined = replace(
            self.whole,
            cut=replace(line.cut, sources={name: sources[name] for name in self.whole.inputs}),
            times={**line.times, **self.main.times},
            states={**line.states, **self.main.states},
            accounts={**line.accounts, **self.main.accounts},
        )
        return replace(after, main=joined, whole=joined, building=None, carried=Carried(), written={})

    def states(self) -> dict[str, Mapping[int, Any]]:
        """All states that a commit names."""
        states = {**self.carried.states, **self.main.states}
        if self.building is not None:
            states |= {f"{BUILDING}{name}": parts for name, parts in self.building.states.items()}
        return states

    def to_document(self) -> dict[str, Any]:
        document = self.main.to_document()
        document["accounts"] |= {name: one.to_document() for name, one in self.carried.accounts.items()}
        return {
            **document,
            "outputs": {**self.carried.outputs, **self.versions_of(self.main)},
            "written": {**self.written, **{sink.name: self.records[sink.name] for sink in self.main.plan.sinks}},
            "origins": self.origins,
            "building": None
            if self.building is None
            else {
                **self.building.to_document(),
                "outputs": self.versions_of(self.building),
                "topics": self.topics_of(self.building),
                "silent": sorted(self.silent),
            },
        }


def has_arrived(cut: Cut, main: Cut) -> bool:
    """Whether what is being built is where the others stand. A topic may have got its event time only now."""
    return all(
        one.ends == there.ends and there.time in (None, one.time)
        for name, one in cut.sources.items()
        if (there := main.sources.get(name)) is not None
    )
