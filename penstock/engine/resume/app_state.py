"""A running app between two epochs: where its tracks are, and what of the program before is still there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.contracts import TargetStatus
from penstock.engine.ledger.gaps import add_gaps, current_gaps, find_unread_gaps, skip_gaps
from penstock.engine.ledger.ledger import Ledger
from penstock.engine.ledger.records import (
    BackfillRecord,
    Commit,
    EpochPlan,
    Gap,
    ReplacedOutputs,
    SinkRecord,
    TrackName,
    Versions,
)
from penstock.engine.plan.cut import Cut
from penstock.engine.publish.app_writer import AppWriter
from penstock.engine.publish.targets import Targets, statuses
from penstock.engine.resume.decide import DeclaredSink, Offsets, TopicFound, Written
from penstock.engine.resume.look import source_names
from penstock.engine.resume.track import Track
from penstock.flow.schemas import Schemas

NOTHING_REPLACED = ReplacedOutputs()


@dataclass(frozen=True, slots=True)
class AppState:
    """A running app between two epochs. `backfill` is the track of outputs that are being built, if there are such."""

    ledger: Ledger
    writer: AppWriter
    targets: Targets
    declared_sinks: Mapping[str, DeclaredSink]  # those that cannot take back what they wrote
    whole: Track  # what the app is when nothing is being built; its cut and states count only then
    live: Track
    backfill: Track | None
    replaced: ReplacedOutputs
    versions: Versions
    origins: Mapping[str, Offsets]
    epoch: int  # the last that is committed
    muted: frozenset[str] = frozenset()  # sinks that are built without writing: they have written everything before
    written: Written = field(default_factory=dict)  # sinks that have everything, beside those of the live track
    schemas: Schemas = field(default_factory=dict)  # how versions of the program have declared their topics
    gaps: tuple[Gap, ...] = ()

    @property
    def token(self) -> int:
        return self.writer.token

    def track(self, name: TrackName) -> Track:
        track = self.backfill if name == "backfill" else self.live
        assert track is not None
        return track

    def versions_of(self, track: Track) -> Versions:
        return {output.name: self.versions[output.name] for output in track.plan.outputs}

    def topics_of(self, track: Track) -> Mapping[str, str]:
        """The ids of the topics that the sinks of a track write, and of what else cannot be taken back."""
        ids = {name: record.topic for name, record in self._records(track).items()}
        return {name: id_ for name, id_ in ids.items() if id_ is not None}

    def sinks_to_publish(self, track: Track) -> dict[str, list[str]]:
        """By target, in the order in which they are published: the sinks of a track that write what it gives.

        A target of which other sinks of the app write is there too: it counts the epoch.
        """
        muted = self.muted if track is self.backfill else frozenset()
        return {
            name: [sink.name for sink in track.plan.sinks_to(name) if sink.name not in muted]
            for name in self.targets
            if self.whole.plan.sinks_to(name)
        }

    @property
    def published(self) -> int:
        """The last epoch of which targets have anything that counts as seen."""
        return max((status.epoch for status in self.targets_found().values()), default=0)

    def targets_found(self) -> dict[str, TargetStatus]:
        return statuses(self.targets)

    def _records(self, track: Track) -> dict[str, SinkRecord]:
        """Of the sinks of a track that cannot take back what they wrote."""
        declared = self.declared_sinks
        return {sink.name: declared[sink.name].record for sink in track.plan.all_sinks if sink.name in declared}

    def topics_found(self) -> dict[str, TopicFound]:
        """The topics that the app reads, as they are now."""
        inputs = {name: input_.topic for name, input_ in self.whole.inputs.items()}
        return {name: TopicFound(topic.id, topic.starts(), topic.ends()) for name, topic in inputs.items()}

    def cuts(self) -> list[Cut]:
        """How far its tracks have read."""
        return [self.live.cut, *([self.backfill.cut] if self.backfill else [])]

    def unread_gaps(self, now: int) -> tuple[Gap, ...]:
        """What its tracks have not read, and the log no longer has."""
        starts = {name: input_.topic.starts() for name, input_ in self.whole.inputs.items()}

        def unread(track: Track, more: Versions) -> tuple[Gap, ...]:
            def reading(topic: str) -> Versions:
                outputs = [output.name for output in track.plan.outputs if topic in source_names(output.node)]
                return {**more, **{name: self.versions[name] for name in outputs}}

            return find_unread_gaps(track.cut, starts, reading, now=now)

        building = () if self.backfill is None else unread(self.backfill, {})
        return unread(self.live, self.replaced.outputs) + building

    def without(self, gaps: tuple[Gap, ...]) -> AppState:
        """The app on the other side of these gaps."""
        if not gaps:
            return self
        live, backfill = replace(self.live, cut=skip_gaps(self.live.cut, gaps)), self.backfill
        if backfill is not None:
            backfill = replace(backfill, cut=skip_gaps(backfill.cut, gaps))
        whole = live if self.whole is self.live else self.whole
        return replace(self, live=live, whole=whole, backfill=backfill, gaps=add_gaps(self.gaps, gaps))

    def after(self, plan: EpochPlan, track: Track) -> AppState:
        """The app after an epoch of one of its tracks. A backfill that has arrived becomes part of the live track."""
        after = replace(self, epoch=plan.epoch)
        if self.backfill is None:
            return replace(after, live=track, whole=track, replaced=NOTHING_REPLACED, written={})
        if plan.track == "live":  # what was replaced has not moved with it, and is of no use any more
            muted = {name: self.written[name] for name in self.muted}
            return replace(after, live=track, replaced=NOTHING_REPLACED, written=muted)
        if not has_arrived(track.cut, self.live.cut):
            return replace(after, backfill=track)
        sources = {**self.live.cut.sources, **track.cut.sources}
        joined = replace(
            self.whole,
            cut=replace(track.cut, sources={name: sources[name] for name in self.whole.inputs}),
            times={**track.times, **self.live.times},
            states={**track.states, **self.live.states},
            views={**track.views, **self.live.views},
            accounts={**track.accounts, **self.live.accounts},
        )
        return replace(
            after, live=joined, whole=joined, backfill=None, replaced=NOTHING_REPLACED, muted=frozenset(), written={}
        )

    def to_commit(self, committed_at: int) -> Commit:
        backfill = None
        if self.backfill is not None:
            record = self.backfill.to_record(self.versions)
            backfill = BackfillRecord(record, self.topics_of(self.backfill), tuple(sorted(self.muted)))
        return Commit(
            self.epoch,
            self.token,
            committed_at,
            self.live.to_record(self.versions),
            backfill,
            self.replaced,
            {**self.written, **self._records(self.live)},
            self.origins,
            schemas=self.schemas,
            gaps=current_gaps(self.gaps, self.versions, self.replaced.outputs),
        )


def has_arrived(cut: Cut, live: Cut) -> bool:
    """Whether a backfill is where the live track is. A topic may have got its event time only now."""
    return all(
        source.ends == reached.ends and reached.time in (None, source.time)
        for name, source in cut.sources.items()
        if (reached := live.sources.get(name)) is not None
    )
