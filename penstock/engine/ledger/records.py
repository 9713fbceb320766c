"""What the ledger stores of an epoch: its plan, its commit, and the names of the files it left.

Plain data and its JSON. The ledger decides who may store it and when.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.engine.state.run import RunFile
from penstock.errors import DeclarationError
from penstock.log.document import Content

STATE_DIRECTORY = "state"
STAGED_DIRECTORY = "staged"
# Who wrote a file, and for which epoch, stands at the beginning of its name, also while it is a draft.
_WRITTEN_BY = re.compile(r"(\d{12})-\d+-")
_RUN_PATH = re.compile(STATE_DIRECTORY + r"/(?!\.)[^/]+/\d+/(\d{12})-\d+-[0-9a-z]+\.arrow")

States = Mapping[str, Mapping[int, tuple[RunFile, ...]]]


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """What an epoch reads. `document` is the engine's: the cut, dead rows. `restores` names a savepoint instead."""

    epoch: int
    token: int
    document: Content = field(default_factory=dict)
    restores: str | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """What an epoch left: the runs of every state by partition, and the engine's `document` (the cut, counters).

    Whoever names a run here has synced it, and its folder, before. `committed_at` is in microseconds since 1970.
    `restored_from` names the savepoint, if the epoch was a restore.
    """

    epoch: int
    token: int
    states: States
    document: Content
    committed_at: int
    restored_from: str | None = None

    def runs(self) -> Iterator[RunFile]:
        for partitions in self.states.values():
            for runs in partitions.values():
                yield from runs

    def paths(self) -> frozenset[str]:
        return frozenset(run.path for run in self.runs())


# -- names ------------------------------------------------------------------------------------------------------------


def numbered(epoch: int) -> str:
    """An epoch as a part of names: they sort as the epochs do."""
    return f"{epoch:012d}"


def epoch_that_wrote(name: str) -> int | None:
    """The epoch in the name of a state file; None for a name that no task gives."""
    found = _WRITTEN_BY.match(name)
    return int(found[1]) if found else None


def check_run_paths(commit: Commit) -> None:
    """Refuse names from which garbage collection could not tell what may go."""
    for run in commit.runs():
        found = _RUN_PATH.fullmatch(run.path)
        if not found or int(found[1]) > commit.epoch:
            raise DeclarationError(
                f"epoch {commit.epoch}: it cannot name the run '{run.path}'",
                hint="a run of this or an earlier epoch is state/<state>/<partition>/<epoch>-<token>-<random>.arrow",
            )


# -- JSON -------------------------------------------------------------------------------------------------------------


def plan_content(plan: EpochPlan) -> Content:
    return _as_read_back(
        {"epoch": plan.epoch, "token": plan.token, "document": plan.document, "restores": plan.restores}
    )


def parse_plan(content: Content) -> EpochPlan:
    return EpochPlan(**content)


def commit_content(commit: Commit) -> Content:
    states = {
        state: {str(partition): [run.to_document() for run in runs] for partition, runs in partitions.items()}
        for state, partitions in commit.states.items()
    }
    return _as_read_back(
        {
            "epoch": commit.epoch,
            "token": commit.token,
            "states": states,
            "document": commit.document,
            "committed_at": commit.committed_at,
            "restored_from": commit.restored_from,
        }
    )


def parse_commit(content: Content) -> Commit:
    states = {
        state: {int(partition): tuple(map(RunFile.from_document, runs)) for partition, runs in partitions.items()}
        for state, partitions in content["states"].items()
    }
    return Commit(**{**content, "states": states})


def _as_read_back(content: Content) -> Content:
    """With text as keys and lists for tuples: the checksum is of what will be read, and that is what is believed."""
    read: Content = json.loads(json.dumps(content))
    return read
