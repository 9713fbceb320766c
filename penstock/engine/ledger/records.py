"""What the ledger stores of an epoch: its plan and its commit, and the names of the files they mean. Plain data.

Their JSON is the business of `codec`; who may store them and when is decided by the ledger.
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
# The name of a file begins with the epoch and the instance that wrote it, also while it is a draft.
_WRITTEN_BY = re.compile(r"(\d{12})-\d+-")
_RUN_PATH = re.compile(rf"(?:{STATE_DIRECTORY}|{VIEWS_DIRECTORY})/(?!\.)[^/]+/\d+/(\d{{12}})-\d+-[0-9a-z]+\.arrow")

Runs = Mapping[int, tuple[RunFile, ...]]
"""By partition: the runs of a state or a view, oldest first."""
States = Mapping[str, Runs]
Times = Mapping[str, int]
"""How far time has come for what reads some topics together. It never goes back."""
Versions = Mapping[str, str]
"""Of each view and sink, which form of it this is."""
Dead = Mapping[str, Mapping[int, Mapping[int, str]]]
"""By topic, partition and offset: why a row is left out."""
TrackName = Literal["live", "backfill"]
Growth = Literal["keyed", "counted", "appended"]


@dataclass(frozen=True, slots=True)
class Account:
    """What became of events: `came` = `counted` + `late` + `dead` + `filtered`.

    `corrected` are final answers that were given again.
    """

    came: int = 0
    counted: int = 0
    late: int = 0
    dead: int = 0
    filtered: int = 0
    corrected: int = 0

    def __add__(self, other: Account) -> Account:
        return Account(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """A sink that has written everything the app has read: its topic, the fingerprint of its answer, its inputs."""

    topic: str | None
    says: str
    inputs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class StoredView:
    """A view as a commit names it.

    `columns` is DDL text. `growth` says how the rows of its runs add up:

    - *keyed*: `key` identifies a row, and the newest run that knows a key has its row, or says that it is gone
      (columns `_order`, `_id` and `_gone` beside those of the view).
    - *counted*: rows may repeat and be taken back; `_n` says how many came or went, to be added up over the runs
      (columns `_order`, `_id` and `_n`).
    - *appended*: all rows of all runs, in no order (no other columns).

    `watermark`, in microseconds, is the time up to which everything is in the view; None where there is no time.
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
    """Where some outputs of an app are: everything up to `cut` is in the states, the views and the accounts."""

    cut: Cut
    times: Times = field(default_factory=dict)
    outputs: Versions = field(default_factory=dict)
    states: States = field(default_factory=dict)
    views: Views = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BackfillRecord:
    """The outputs that are being built from the beginning of the log, hidden until they are where the others are.

    `topics` are the ids of the topics that their sinks write, and `muted` the sinks that do not write meanwhile
    because their topics have everything already.
    """

    track: TrackRecord
    topics: Mapping[str, str]
    muted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplacedOutputs:
    """Outputs of the program before: readers see their views until the backfill is done.

    Their states are kept too, should that program come back.
    """

    outputs: Versions = field(default_factory=dict)
    states: States = field(default_factory=dict)
    views: Views = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """What an epoch reads, on disk before it runs; it is run by exactly the `outputs` it names.

    `topics` are the ids of the topics that the sinks among them write.
    """

    epoch: int
    token: int
    track: TrackName
    cut: Cut
    times: Times
    outputs: Versions
    topics: Mapping[str, str]
    dead: Dead = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """An epoch that goes back to a savepoint."""

    epoch: int
    token: int
    restores: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What an epoch left: the one moment at which the app moves.

    Whoever names a run here has synced it, and its folder, before. `written` are the sinks whose topics hold everything
    the app has read, `origins` the offsets at which the app began to read each topic. `committed_at` is in microseconds
    since 1970. `restored_from` names the savepoint, if the epoch was a restore.
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

    @property
    def views(self) -> Views:
        """The views that readers see, all as of this epoch."""
        return {**self.replaced.views, **self.live.views}

    def runs(self) -> Iterator[RunFile]:
        """Every run that it names, of states and of views."""
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

    A view that is not named did not change. `reset` are views that were shown anew, in place of an older form: their
    changes are not those of the epoch, and whoever follows them begins again with all rows.
    """

    epoch: int
    committed_at: int
    views: Mapping[str, ViewChangeFiles] = field(default_factory=dict)
    reset: tuple[str, ...] = ()

    def paths(self) -> frozenset[str]:
        return frozenset(file.path for view in self.views.values() for file in view.files)


# -- names ------------------------------------------------------------------------------------------------------------


def numbered(epoch: int) -> str:
    """An epoch as a part of names: they sort as the epochs do."""
    return f"{epoch:012d}"


def epoch_that_wrote(name: str) -> int | None:
    """The epoch in the name of a run; None for a name that no task gives."""
    found = _WRITTEN_BY.match(name)
    return int(found[1]) if found else None


def check_run_paths(commit: Commit) -> None:
    """Refuse names from which garbage collection could not tell what may go."""
    for run in commit.runs():
        found = _RUN_PATH.fullmatch(run.path)
        if not found or int(found[1]) > commit.epoch:
            raise DeclarationError(
                f"epoch {commit.epoch}: it cannot name the run '{run.path}'",
                hint="a run is state/<state>/<partition>/<epoch>-<token>-<random>.arrow, or lies in views/<view>/ "
                "likewise, and its epoch is this one or an earlier one",
            )
