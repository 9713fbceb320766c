"""What happens at a start: one decision over what a program declares and what the last one left. Pure functions.

The same decision is shown by `penstock plan`, carried out by the start, and asked for by an epoch that finds a plan
without a commit. An output is a view or a sink. Its version is the fingerprint of what it says and the epoch after
which it was begun: so the same output, built a second time, is never taken for the first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.contracts import Destination, TargetStatus
from penstock.engine.ledger.gaps import add_gaps, find_unread_gaps, gaps_error, gaps_text, skip_gaps, unknown_gaps
from penstock.engine.ledger.records import (
    BackfillRecord,
    Commit,
    EpochPlan,
    Gap,
    SinkRecord,
    TrackName,
    Versions,
)
from penstock.engine.plan.cut import Cut
from penstock.errors import DeclarationError, PenstockError

Written = Mapping[str, SinkRecord]
"""The sinks that have written everything the app has read, as they were declared then."""
Offsets = Mapping[int, int]

Action = Literal["none", "run", "finish", "replan", "use up", "skip"]
"""What becomes of a plan without a commit:

- *run*: it is about exactly these outputs, and is run as it is.
- *finish*: sinks have written its epoch; the outputs that are live now finish it, and it is about no others.
- *replan*: nobody has seen anything of it, so that another plan takes its place.
- *use up*: sinks that are gone have written it, and nothing was committed before: only its number is used.
- *skip*: sinks have written it during a backfill that is not wanted any more: its number is used, and nothing else.
"""


@dataclass(frozen=True, slots=True)
class DeclaredSink:
    """A sink whose target cannot take back what it wrote, as declared, and what is to be recorded of it.

    `destination` and `empty_hint` are for errors: what it writes, and what to do if there is something in it.
    `replaces_rows`: it writes newer rows, or deletes, for what it wrote before.
    """

    name: str
    place: str
    target: str
    destination: str
    empty_hint: str
    record: SinkRecord
    replaces_rows: bool = False


@dataclass(frozen=True, slots=True)
class Declared:
    """What a program declares: the fingerprints of its outputs, the topics that each of them reads, and its sinks.

    `sinks` are those whose target cannot take back what it wrote. `tables` are those whose target can, with its name.
    `rebuild` and `from_oldest` are what the user has chosen: to build everything again, and to do without rows that the
    log no longer has.
    """

    app: str
    fingerprints: Mapping[str, str]
    reads: Mapping[str, frozenset[str]]
    sinks: Mapping[str, DeclaredSink] = field(default_factory=dict)
    rebuild: bool = False
    tables: Mapping[str, str] = field(default_factory=dict)
    from_oldest: bool = False


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A topic that is there: its id, and by partition its first offset and its end."""

    id: str
    starts: Offsets
    ends: Offsets


@dataclass(frozen=True, slots=True)
class Found:
    """What is there: the last commit, a plan without a commit, the topics, and what targets have, by their names.

    `missing` are topics that the program reads and that are not there: the start makes them, as new topics.
    `forgotten`: the log has kept nothing for the last commit, so deletes that it has not read may be gone. `now` is in
    microseconds since 1970.
    """

    last: Commit | None
    pending: EpochPlan | None = None
    topics: Mapping[str, TopicFound] = field(default_factory=dict)
    targets: Mapping[str, TargetStatus] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    forgotten: bool = False
    now: int = 0

    @property
    def schemas(self) -> Mapping[str, tuple[str, ...]]:
        """How versions of the program have declared their topics."""
        return {} if self.last is None else self.last.schemas

    @property
    def seen(self) -> EpochPlan | None:
        """The pending plan, if sinks have written its epoch."""
        pending = self.pending
        if pending is None:
            return None
        written = any(not target.can_take_back and target.epoch >= pending.epoch for target in self.targets.values())
        return pending if written or self.is_in_tables(pending.epoch) else None

    def is_in_tables(self, epoch: int) -> bool:
        """Whether tables have an epoch. A target that has a later one is of another time, and tells nothing of it."""
        return any(target.can_take_back and target.epoch == epoch for target in self.targets.values())

    def is_current(self, target: str) -> bool:
        """Whether a target is where the app is: at the last commit, or at the epoch after it that was published."""
        epochs = {0 if self.last is None else self.last.epoch, *([self.seen.epoch] if self.seen else [])}
        return self.targets.get(target, TargetStatus()).epoch in epochs

    def destination(self, sink: DeclaredSink) -> Destination | None:
        """Where a sink writes, if that is there."""
        return (self.targets.get(sink.target, TargetStatus()).destinations or {}).get(sink.name)

    def is_replaced(self, topic: str, id_: str) -> bool:
        """Whether a topic that had this id was dropped, and perhaps created again."""
        found = self.topics.get(topic)
        return topic in self.missing if found is None else found.id != id_


@dataclass(frozen=True, slots=True)
class Resume:
    """The decision: which outputs are kept, which are built from the log, what is muted, finished, refused.

    `kept` and `backfill` have the versions of outputs. Of those to be built, `rebuilt` ones were there in another form
    and `new` ones were not; `dropped` ones are no longer declared. `continues`: an earlier start began the backfill.
    `known` are the outputs of the last commit that still count, and `written` its sinks that have everything. `origins`
    is where the app began to read its topics. `gaps` are the offsets that its outputs are built without; the `unread`
    and `unbuilt` ones among them are new, and refused unless the user has chosen to do without them. `refused` says why
    the program cannot be started.
    """

    first: bool
    kept: Versions
    backfill: Versions
    rebuilt: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    continues: bool = False
    muted: frozenset[str] = frozenset()
    action: Action = "none"
    known: Versions = field(default_factory=dict)
    written: Written = field(default_factory=dict)
    origins: Mapping[str, Offsets] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    unread: tuple[Gap, ...] = ()
    unbuilt: tuple[Gap, ...] = ()
    refused: PenstockError | None = None

    @property
    def new_gaps(self) -> tuple[Gap, ...]:
        return self.unread + self.unbuilt

    @property
    def versions(self) -> Versions:
        return {**self.kept, **self.backfill}


def decide(declared: Declared, found: Found) -> Resume:
    """What becomes of the program's outputs, and of what it finds.

    1. An output of the last commit counts, unless an epoch that sinks have written since leaves it out, or its target
       is not where the app is: it was lost, is an older copy, or the app went back.
    2. Those that say the same are kept; the others are built from the beginning of the log. A backfill that an earlier
       start began is continued if it is about the same outputs and topics.
    3. A sink that cannot take back what it wrote, and has written everything already, is muted while it is built.
    4. A plan without a commit is run, finished, planned again or passed over.
    5. What the log no longer has is a gap, if the user wants to do without it.
    6. Whatever would lose or double rows is refused.
    """
    origins = _origins(declared, found)
    if found.last is None:
        return _decide_first(declared, found, origins)
    last = found.last
    known, written = known_outputs(last, found.seen)  # 1
    if found.forgotten and declared.rebuild:  # no sink has written everything for certain
        written = {}
    known = {
        name: known_version for name, known_version in known.items() if _has_table(declared, found, name, known_version)
    }
    kept = {} if declared.rebuild else _unchanged_outputs(declared, known)
    built = [name for name in declared.fingerprints if name not in kept]
    complete = complete_sinks(declared, written)
    new = {name: version(declared.fingerprints[name], last.epoch) for name in built}
    continues = not declared.rebuild and can_continue_backfill(last.backfill, declared, built, complete)  # 2
    continues &= last.backfill is not None and all(
        _has_table(declared, found, name, begun) for name, begun in last.backfill.track.outputs.items()
    )
    backfill = dict(last.backfill.track.outputs) if continues and last.backfill else new
    action = decide_pending(found, kept, backfill or None, declared.sinks)  # 4
    if action == "skip" and continues and backfill_after_skip(found) is None:
        continues, backfill = False, new
    resume = Resume(
        first=False,
        kept=kept,
        backfill=backfill,
        rebuilt=tuple(name for name in built if name in known),
        new=tuple(name for name in built if name not in known),
        dropped=tuple(name for name in known if name not in declared.fingerprints),
        continues=continues,
        muted=frozenset(complete & set(built)),  # 3
        action=action,
        known=known,
        written=written,
        origins={**origins, **_known_origins(last, found)},
    )
    resume = _with_gaps(declared, found, resume)  # 5
    return replace(resume, refused=_refusal(declared, found, resume))  # 6


def _decide_first(declared: Declared, found: Found, origins: Mapping[str, Offsets]) -> Resume:
    """The decision for an app of which no epoch is committed yet: there is nothing that a backfill could wait for."""
    versions = {name: version(fingerprint, 0) for name, fingerprint in declared.fingerprints.items()}
    action = decide_pending(found, versions, None, declared.sinks)
    refused = _refuse_later_epochs(declared, found)
    if refused is None and action != "run":
        refused = _refuse_used_destinations(declared.sinks.values(), found)
    return Resume(True, versions, {}, new=tuple(versions), action=action, origins=origins, refused=refused)


def decide_pending(
    found: Found, live: Versions, backfill: Versions | None, sinks: Mapping[str, DeclaredSink]
) -> Action:
    """What becomes of a plan without a commit, for an app with these live outputs, and perhaps others being built."""
    pending, seen = found.pending, found.seen is not None
    if pending is None:
        return "none"
    if pending.track == "backfill":
        if backfill is not None and can_run(pending, backfill, "backfill", found, sinks):
            return "run"
    # During a backfill the live outputs stand still, except for an epoch that sinks have written.
    elif (seen or backfill is None) and can_run(pending, live, "live", found, sinks):
        return "run"
    if not seen:
        return "replan"
    if found.last is None:
        return "use up"
    return "skip" if pending.track == "backfill" else "finish"


def backfill_after_skip(found: Found) -> BackfillRecord | None:
    """What is left of the backfill of the last commit when the epoch after it is passed over.

    Nothing, if that epoch has written what the backfill writes: it would write the same rows again.
    """
    assert found.last is not None
    backfill, skipped = found.last.backfill, found.seen
    if backfill is None or skipped is None:
        return backfill
    shared = set(backfill.topics.values()) & set(skipped.topics.values())
    return None if shared or found.is_in_tables(skipped.epoch) else backfill


def can_run(
    plan: EpochPlan, outputs: Versions, track: TrackName, found: Found, sinks: Mapping[str, DeclaredSink]
) -> bool:
    """Whether a plan is about exactly these outputs, about the topics that are there now, and for this track."""
    same = plan.outputs == outputs and plan.track == track
    return same and _same_topics(plan.topics, outputs, sinks) and not replaced_inputs(plan, found)


def replaced_inputs(plan: EpochPlan, found: Found) -> set[str]:
    """The inputs of a plan that are other topics now, under the same names."""
    return {name for name, cut in plan.cut.sources.items() if found.is_replaced(name, cut.topic_id)}


def can_continue_backfill(
    backfill: BackfillRecord | None, declared: Declared, built: Collection[str], complete: Collection[str]
) -> bool:
    """Whether a backfill that was begun is about the same outputs and topics, and its muted sinks need no rows."""
    if backfill is None or not _same_topics(backfill.topics, built, declared.sinks):
        return False
    outputs = backfill.track.outputs
    same = set(outputs) == set(built) and set(backfill.muted) <= set(complete)
    return same and all(fingerprint_of(begun) == declared.fingerprints[name] for name, begun in outputs.items())


def known_outputs(last: Commit, seen: EpochPlan | None) -> tuple[Versions, Written]:
    """The outputs of a commit, and its complete sinks, as far as they have the epoch after it.

    `seen` is that epoch, if sinks have written it. A program without some of the outputs may have run it, and then
    those never will.
    """
    outputs = {**last.replaced.outputs, **last.live.outputs}
    if seen is None or seen.track == "backfill":
        return outputs, last.written
    known = {name: stored for name, stored in outputs.items() if seen.outputs.get(name) == stored}
    return known, {name: record for name, record in last.written.items() if name in seen.topics}


def complete_sinks(declared: Declared, written: Written) -> set[str]:
    """The sinks that have written everything the app has read, as they are declared now."""
    return {name for name, sink in declared.sinks.items() if written.get(name) == sink.record}


def version(fingerprint: str, epoch: int) -> str:
    return f"{fingerprint}.{epoch}"


def fingerprint_of(version_: str) -> str:
    return version_.partition(".")[0]


def _has_table(declared: Declared, found: Found, name: str, version_: str) -> bool:
    """Whether an output needs no table of a target, or the target has its table and is where the app is."""
    target = declared.tables.get(name)
    if target is None:
        return True
    status = found.targets.get(target, TargetStatus())
    return found.is_current(target) and version_ in (status.tables.get(name), status.hidden.get(name))


def _unchanged_outputs(declared: Declared, known: Versions) -> dict[str, str]:
    return {
        name: known[name]
        for name, fingerprint in declared.fingerprints.items()
        if name in known and fingerprint_of(known[name]) == fingerprint
    }


def _same_topics(topics: Mapping[str, str], outputs: Collection[str], sinks: Mapping[str, DeclaredSink]) -> bool:
    """Whether the sinks among these outputs still have the topics they had."""
    ids = {name: sink.record.topic for name, sink in sinks.items()}
    return all(ids.get(name) == id_ for name, id_ in topics.items() if name in outputs)


# -- where the app began to read --------------------------------------------------------------------------------------


def _origins(declared: Declared, found: Found) -> dict[str, Offsets]:
    read = frozenset[str]().union(*declared.reads.values())
    return {name: topic.starts for name, topic in found.topics.items() if name in read}


def _known_origins(last: Commit, found: Found) -> dict[str, Offsets]:
    """Where the app began to read each topic, as far as it is still the same topic."""
    read = _topics_read(last)
    ids = {name: topic.id for name, topic in found.topics.items()}
    return {topic: starts for topic, starts in last.origins.items() if ids.get(topic) in (None, read.get(topic))}


def _topics_read(last: Commit) -> dict[str, str]:
    """The ids of the topics that the app has read."""
    cuts = [*([last.backfill.track.cut] if last.backfill else []), last.live.cut]
    return {name: source.topic_id for cut in cuts for name, source in cut.sources.items()}


# -- what the log no longer has ---------------------------------------------------------------------------------------


def _with_gaps(declared: Declared, found: Found, resume: Resume) -> Resume:
    """The decision with the gaps of its outputs: those of the last commit, or of the plan that is run, and new ones."""
    assert found.last is not None
    plan_counts = found.pending is not None and resume.action in ("run", "finish")
    accepted = found.pending.gaps if found.pending is not None and plan_counts else found.last.gaps
    unread = unknown_gaps(_unread_gaps(declared, found, resume, accepted), accepted)
    unbuilt = () if resume.continues else unknown_gaps(_unbuilt_gaps(declared, found, resume), accepted)
    return replace(resume, gaps=add_gaps(accepted, unread + unbuilt), unread=unread, unbuilt=unbuilt)


def _unread_gaps(declared: Declared, found: Found, resume: Resume, accepted: tuple[Gap, ...]) -> tuple[Gap, ...]:
    """What the tracks that continue have not read, and the log no longer has.

    Outputs of the program before stand where the live ones are, and may come back. What they read is not known.
    """
    last = found.last
    assert last is not None
    before = {name: known_version for name, known_version in resume.known.items() if name not in resume.kept}

    def unread(cut: Cut, outputs: Versions, more: Versions) -> tuple[Gap, ...]:
        def reading(topic: str) -> Versions:
            return {**more, **{name: outputs[name] for name in outputs if topic in declared.reads.get(name, ())}}

        return find_unread_gaps(skip_gaps(cut, accepted), _starts_for(cut, found), reading, now=found.now)

    gaps = unread(last.live.cut, resume.kept, {} if declared.rebuild else before)
    if resume.continues and last.backfill is not None:
        gaps += unread(last.backfill.track.cut, resume.backfill, {})
    return gaps


def _starts_for(cut: Cut, found: Found) -> dict[str, Offsets]:
    """Where the topics of a cut begin now, as far as they are the same topics."""
    return {
        name: topic.starts
        for name, source in cut.sources.items()
        if (topic := found.topics.get(name)) is not None and topic.id == source.topic_id
    }


def _unbuilt_gaps(declared: Declared, found: Found, resume: Resume) -> tuple[Gap, ...]:
    """What outputs that are to be built would need from the log, back to where the app began, and do not find there."""
    gaps = []
    read = {topic for name in resume.backfill for topic in declared.reads[name]}
    for name in sorted(read & found.topics.keys()):
        topic = found.topics[name]
        outputs = {output: begun for output, begun in resume.backfill.items() if name in declared.reads[output]}
        for number, start in sorted(topic.starts.items()):
            began = resume.origins.get(name, {}).get(number, start)
            if began < start:
                gaps.append(Gap(name, topic.id, number, began, start, found.now, outputs))
    return tuple(gaps)


# -- what is refused --------------------------------------------------------------------------------------------------


def _refusal(declared: Declared, found: Found, resume: Resume) -> PenstockError | None:
    """Why this program cannot continue from what was found; None if it can."""
    assert found.last is not None
    refusals: list[PenstockError | None] = []
    if not declared.rebuild:
        refusals += [_refuse_forgotten(declared.app, found), _refuse_other_topics(declared.app, found)]
    begins = not resume.continues and not (resume.action == "run" and found.seen and found.seen.track == "backfill")
    refusals += [_refuse_gaps(declared, resume), _refuse_muted_gaps(declared, resume)]
    refusals.append(_refuse_dropped_destinations(declared, found, resume))
    if begins:
        built = [sink for name, sink in declared.sinks.items() if name in resume.backfill and name not in resume.muted]
        refusals.append(_refuse_used_destinations(built, found))
    return next((refusal for refusal in refusals if refusal is not None), None)


def _refuse_forgotten(app: str, found: Found) -> DeclarationError | None:
    if not found.forgotten:
        return None
    return DeclarationError(
        f"app '{app}': it was forgotten with `penstock holds release`: deletes that it has not read may be gone",
        hint="build all views again from the log: penstock run --rebuild; or restore a savepoint",
    )


def _refuse_other_topics(app: str, found: Found) -> DeclarationError | None:
    assert found.last is not None
    for name, id_ in _topics_read(found.last).items():
        if found.is_replaced(name, id_):
            again = "" if name in found.missing else " and created again"
            return DeclarationError(
                f"app '{app}': topic '{name}' is not the one it has read: it was dropped{again}",
                hint="build all views again from the new one: penstock run --rebuild",
            )
    return None


def _refuse_gaps(declared: Declared, resume: Resume) -> PenstockError | None:
    """The log must still have what is to be read, unless the user wants to do without it."""
    if declared.from_oldest or not resume.new_gaps:
        return None
    options = " --rebuild" if declared.rebuild else ""
    return gaps_error(declared.app, resume.unread, resume.unbuilt, options=options)


def _refuse_muted_gaps(declared: Declared, resume: Resume) -> DeclarationError | None:
    """A sink that is built without writing must come to what it has written, or it would replace the wrong rows."""
    for name in sorted(resume.muted):
        sink = declared.sinks[name]
        if gaps := [gap for gap in resume.unbuilt if sink.replaces_rows and name in gap.outputs]:
            return DeclarationError(
                f"{sink.place}: sink '{sink.name}': {sink.destination} has rows that were made from offsets which were "
                f"removed by retention since, so it cannot be continued: {gaps_text(gaps)}",
                hint=sink.empty_hint,
            )
    return None


def _refuse_dropped_destinations(declared: Declared, found: Found, resume: Resume) -> DeclarationError | None:
    for name in resume.kept:
        sink = declared.sinks.get(name)
        if sink is None:
            continue
        destination = found.destination(sink)
        if destination is None or destination.id != resume.written[name].topic:
            return DeclarationError(
                f"{sink.place}: sink '{sink.name}': {sink.destination}, which it has written, was dropped",
                hint="have it written again from the beginning: penstock run --rebuild",
            )
    return None


def _refuse_later_epochs(declared: Declared, found: Found) -> DeclarationError | None:
    """A new app counts from 1 again: a target that cannot take back would take its epochs for those it has."""
    planned = 0 if found.pending is None else found.pending.epoch
    for sink in declared.sinks.values():
        status = found.targets.get(sink.target, TargetStatus())
        if status.epoch > planned:
            return DeclarationError(
                f"{sink.place}: sink '{sink.name}': {sink.destination} has epoch {status.epoch} of an app "
                f"'{declared.app}' that was begun before this one",
                hint=sink.empty_hint,
            )
    return None


def _refuse_used_destinations(sinks: Collection[DeclaredSink], found: Found) -> DeclarationError | None:
    """A sink that cannot take back begins with an empty topic, so that the topic is the answer and nothing else."""
    for sink in sinks:
        destination = found.destination(sink)
        if destination is not None and not destination.is_empty:
            return DeclarationError(
                f"{sink.place}: sink '{sink.name}': it is new or has changed, and {sink.destination} has rows",
                hint=sink.empty_hint,
            )
    return None
