"""The records of an epoch: its plan, its commit and its changes, and how the files they name are called. Plain data.

`codec` converts them to JSON; the ledger decides who may store them, and when.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from penstock.engine.plan.cut import Cut
from penstock.engine.state.run import RunFile
from penstock.errors import DeclarationError

STATE_DIRECTORY = "state"
VIEWS_DIRECTORY = "views"
STAGED_DIRECTORY = "staged"
# The name of a file begins with the epoch and the token of the instance that wrote it, even while it is a draft.
_WRITER_PREFIX = re.compile(r"(\d{12})-\d+-")
_RUN_PATH = re.compile(rf"(?:{STATE_DIRECTORY}|{VIEWS_DIRECTORY})/(?!\.)[^/]+/\d+/(\d{{12}})-\d+-[0-9a-z]+\.arrow")

Runs = Mapping[int, tuple[RunFile, ...]]
"""By partition: the runs of a state or a view, oldest first."""
States = Mapping[str, Runs]
GroupWatermarks = Mapping[str, int]
"""By group of topics, the watermark of what reads these topics. It never goes back."""
Versions = Mapping[str, str]
"""By view or sink, its version: a fingerprint."""
Dead = Mapping[str, Mapping[int, Mapping[int, str]]]
"""By topic, partition and offset: why a row is dead."""
TrackName = Literal["live", "backfill"]
Growth = Literal["keyed", "counted", "appended"]


@dataclass(frozen=True, slots=True)
class Account:
    """What happened to events: `came` = `counted` + `late` + `dead` + `filtered`.

    `corrected` are final answers that were emitted again.
    """

    came: int = 0
    counted: int = 0
    late: int = 0
    dead: int = 0
    filtered: int = 0
    corrected: int = 0

    def __add__(self, other: Account) -> Account:
        return Account(*(getattr(self, field_.name) + getattr(other, field_.name) for field_ in fields(self)))


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """A sink that has written all that the app has read: its topic, the fingerprint of its answer, and its inputs."""

    topic: str | None
    says: str
    inputs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class StoredView:
    """A view as a commit names it.

    `columns` is DDL text. `growth` says how the rows of its runs add up:

    - *keyed*: `key` identifies a row, and the newest run that has a key has its row, or says that it is deleted
      (columns `_order`, `_id` and `_gone` in addition to those of the view).
    - *counted*: rows may repeat and be retracted; `_n` says how many were added or removed, to be summed over the runs
      (columns `_order`, `_id` and `_n`).
    - *appended*: all rows of all runs, in no order (no other columns).

    `watermark`, in microseconds, is the time up to which the view is complete; None if the view has no time.
    """

    version: str
    columns: str
    key: tuple[str, ...] | None
    growth: Growth
    runs: Runs = field(default_factory=dict)
    watermark: int | None = None


Views = Mapping[str, StoredView]


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """How far some outputs of an app are: everything up to `cut` is in the states, the views and the accounts."""

    cut: Cut
    times: GroupWatermarks = field(default_factory=dict)
    outputs: Versions = field(default_factory=dict)
    states: States = field(default_factory=dict)
    views: Views = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BackfillRecord:
    """The outputs that are being built from the beginning of the log, hidden until they have caught up.

    `topics` are the ids of the topics to which their sinks write, and `muted` the sinks that do not write meanwhile,
    because their topics have everything already.
    """

    track: TrackRecord
    topics: Mapping[str, str]
    muted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplacedOutputs:
    """Outputs of the previous program: readers see their views until the backfill is done.

    Their states are kept too, in case that program comes back.
    """

    outputs: Versions = field(default_factory=dict)
    states: States = field(default_factory=dict)
    views: Views = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of a partition that some outputs were built without, by choice: the log no longer had them.

    They go from `start` up to `end` (exclusive). `outputs` are those that miss them, with their versions. `accepted_at`
    is in microseconds since 1970.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    accepted_at: int
    outputs: Versions


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """What an epoch reads; on disk before the epoch runs. Exactly the `outputs` that it names run it.

    `topics` are the ids of the topics to which the sinks among them write. `gaps` are all gaps of the app, with those
    that were accepted for this epoch.
    """

    epoch: int
    token: int
    track: TrackName
    cut: Cut
    times: GroupWatermarks
    outputs: Versions
    topics: Mapping[str, str]
    dead: Dead = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """An epoch that goes back to a savepoint."""

    epoch: int
    token: int
    restores: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What an epoch has written. Storing it is the one moment at which the app moves on.

    The runs it names, and their folders, have been synced before. `written` are the sinks whose topics have everything
    that the app has read, `origins` the offsets at which the app began to read each topic. `committed_at` is in
    microseconds since 1970. `restored_from` names the savepoint, if the epoch was a restore. `schemas` are those that
    versions of the program have declared for each topic, oldest first. `gaps` are the offsets that its outputs were
    built without.
    """

    epoch: int
    token: int
    committed_at: int
    live: TrackRecord
    backfill: BackfillRecord | None = None
    replaced: ReplacedOutputs = ReplacedOutputs()
    written: Mapping[str, SinkRecord] = field(default_factory=dict)
    origins: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    restored_from: str | None = None
    schemas: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()

    @property
    def views(self) -> Views:
        """The views that readers see, all as of this epoch."""
        return {**self.replaced.views, **self.live.views}

    def runs(self) -> Iterator[RunFile]:
        """Every run that the commit names, of states and of views."""
        tracks: list[TrackRecord | ReplacedOutputs] = [self.live, self.replaced]
        tracks += [self.backfill.track] if self.backfill else []
        for track in tracks:
            for by_partition in (*track.states.values(), *(view.runs for view in track.views.values())):
                for runs in by_partition.values():
                    yield from runs

    def paths(self) -> frozenset[str]:
        return frozenset(run.path for run in self.runs())


@dataclass(frozen=True, slots=True)
class ViewChangeFiles:
    """Files with the changes of one view in one epoch: its columns, and `_weight`."""

    version: str
    columns: str
    key: tuple[str, ...] | None
    files: tuple[RunFile, ...] = ()


@dataclass(frozen=True, slots=True)
class EpochChanges:
    """What an epoch changed in the views that readers see; it counts once the epoch is committed.

    A view that is not named did not change. `reset` are views of which readers see a new version: their followers begin
    again with all rows.
    """

    epoch: int
    committed_at: int
    views: Mapping[str, ViewChangeFiles] = field(default_factory=dict)
    reset: tuple[str, ...] = ()

    def paths(self) -> frozenset[str]:
        return frozenset(file.path for view in self.views.values() for file in view.files)


# -- names ------------------------------------------------------------------------------------------------------------


def padded_epoch(epoch: int) -> str:
    """An epoch as part of a file name: names sort like epochs."""
    return f"{epoch:012d}"


def epoch_that_wrote(name: str) -> int | None:
    """The epoch in the name of a run; None for a file that no task has written."""
    match = _WRITER_PREFIX.match(name)
    return int(match[1]) if match else None


def check_run_paths(commit: Commit) -> None:
    """Refuse paths by which garbage collection could not decide what to remove."""
    for run in commit.runs():
        match = _RUN_PATH.fullmatch(run.path)
        if not match or int(match[1]) > commit.epoch:
            raise DeclarationError(
                f"epoch {commit.epoch}: it cannot name the run '{run.path}'",
                hint="a run is state/<state>/<partition>/<epoch>-<token>-<random>.arrow, or lies in views/<view>/ "
                "likewise, and its epoch is this one or an earlier one",
            )
