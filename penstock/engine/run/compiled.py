"""Step 2 of an epoch: running its Spark work, and gathering what the tasks report."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.engine.build.app import Built, build
from penstock.engine.build.graph import Graph, StateOf
from penstock.engine.build.probes import (
    PLACE,
    find_failing,
    find_late,
    has_place,
    needs_everything,
    reached,
)
from penstock.engine.datasource.read import plan_splits
from penstock.engine.datasource.topic import Place
from penstock.engine.ledger.records import STAGED_DIRECTORY, Dead, Runs, States, Times, numbered
from penstock.engine.plan.cut import Cut
from penstock.engine.plan.next_cut import Input, rows_in
from penstock.engine.run.failures import FAILURES, is_about_a_row
from penstock.engine.run.reports import ReportedOutputs
from penstock.engine.run.tasks import PROPERTY
from penstock.engine.spark import evaluated_in_place
from penstock.engine.state.run import RunFile
from penstock.errors import PenstockError
from penstock.flow import plan as flow
from penstock.log.files import disk_errors

# In epochs with fewer rows a Python task costs more than its rows do, so nothing is worked out twice.
SMALL_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class EpochInput:
    """What an epoch is to do: read the rows of a cut, without dead ones, on top of these states and views.

    `before` and `after` tell what time it is then, for what reads some topics together. `keep_changes`: somebody may
    follow the changes of the views.
    """

    epoch: int
    token: int
    cut: Cut
    states: States
    views: States
    before: Times
    after: Times
    dead: Dead = field(default_factory=dict)
    keep_changes: bool = False

    def time_before(self, state: StateOf) -> int:
        return state.time_at(self.before)

    def time_after(self, state: StateOf) -> int:
        return state.time_at(self.after)


@dataclass(frozen=True, slots=True)
class EpochResult:
    """What an epoch's tasks have left: the runs of states and views, files for sinks and of dead rows, and counts.

    `changes` are files with the changes of views, for those that have changed.
    """

    states: dict[str, dict[int, tuple[RunFile, ...]]]
    views: dict[str, dict[int, tuple[RunFile, ...]]]
    changes: dict[str, tuple[RunFile, ...]]
    staged: dict[str, list[Path]]
    dead: list[Path]
    events: dict[str, int]
    state_counts: dict[str, dict[str, int]]
    source_counts: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Home:
    """Where an app lives: its log, its own folder in it, and in how many partitions its state is kept."""

    log: Path
    directory: Path
    partitions: int


class CompiledPlan:
    """A plan, built for Spark, that can be run for one epoch after the other. A plan without outputs does nothing."""

    def __init__(self, spark: SparkSession, plan: flow.Plan, inputs: Mapping[str, Input], home: Home) -> None:
        self.session = spark
        self.plan = plan
        self.home = home
        self._inputs = inputs
        self._directory = home.directory
        self._partitions = home.partitions
        self._sources = sorted({one.name for one in flow.nodes(plan) if isinstance(one, flow.Topic | flow.Changelog)})
        self._built: dict[bool, Built] = {}

    def for_part(self, plan: flow.Plan, inputs: Mapping[str, Input]) -> CompiledPlan:
        """An engine for some of the views."""
        return CompiledPlan(self.session, plan, inputs, self.home)

    def reopen(self, inputs: Mapping[str, Input]) -> CompiledPlan:
        """The same plan for another instance of the app, with what is built already."""
        reopened = CompiledPlan(self.session, self.plan, inputs, self.home)
        reopened._built = self._built
        return reopened

    def built(self, *, small: bool = True) -> Built:
        """The plan for small epochs or for large ones; made when it is first needed."""
        if small not in self._built:
            self._built[small] = build(self.session, self.plan, partitions=self._partitions, small=small)
        return self._built[small]

    def states(self) -> Mapping[str, StateOf]:
        return self.built().states if self.plan.outputs else {}

    def run(self, work: EpochInput) -> EpochResult:
        """Run an epoch. Nothing but new files comes of it; it can be run again."""
        if not self.plan.outputs:
            return EpochResult({}, {}, {}, {}, [], {}, {}, {})
        built = self.built(small=rows_in(work.cut) < SMALL_ROWS)
        staging, reports = self._collected(built.epoch, work)
        return self._gathered(built, work, reports.to_pylist(), staging)

    def failing(self, work: EpochInput) -> list[dict[str, Any]]:
        """The rows of an epoch on which an expression fails: `_topic`, `_partition`, `_offset`, `_step`."""
        graph = self._probing(work)
        frame = find_failing(graph, self.plan)
        with evaluated_in_place(self.session):
            return [] if frame is None else self._found(frame, work)

    def failing_output(self, work: EpochInput) -> flow.Output | None:
        """A view or sink that fails also when it is run without the others."""
        for one in self.plan.outputs:
            try:
                self.for_part(flow.Plan(self.plan.app, (one,)), self._inputs).run(work)
            except FAILURES as error:
                if not is_about_a_row(error):
                    raise
                return one
        return None

    def late(self, work: EpochInput, state: StateOf) -> list[dict[str, Any]]:
        """The rows of an epoch that came too late for a state: `_topic`, `_partition`, `_offset`."""
        graph = self._probing(work)
        frame = find_late(graph, state, work.time_before(state))
        if frame is None:
            return []
        if not has_place(frame):
            return list(self._searched(frame.groupBy().count(), work))
        return self._found(frame.select(*PLACE), work)

    def _searched(self, count: DataFrame, work: EpochInput) -> Iterator[dict[str, Any]]:
        """The places of rows of which only the number can be told: by halving the range.

        The second half of a span has what the first half has not.
        """

        def counted(topic: str, span: tuple[int, int, int]) -> int:
            _, found = self._collected(count, work, only=(topic, span))
            return int(found.column(0)[0].as_py())

        for topic in self._sources:
            cut = work.cut.sources[topic]
            whole = [(number, cut.starts[number], cut.ends[number]) for number in cut.starts]
            spans = [(span, counted(topic, span)) for span in whole if span[1] < span[2]]
            while spans:
                (number, start, end), rows = spans.pop()
                if rows > 0 and end - start == 1:
                    yield {"_topic": topic, "_partition": number, "_offset": start}
                elif rows > 0:
                    middle = (start + end) // 2
                    first = counted(topic, (number, start, middle))
                    spans += [((number, start, middle), first), ((number, middle, end), rows - first)]

    def failing_in_functions(self, work: EpochInput) -> tuple[list[dict[str, Any]], BaseException | None]:
        """The rows of an epoch on which a user's function fails alone: `_topic`, `_partition`, `_offset`, `_error`.

        And why the search has ended early, if it has: functions that cannot be guarded fail as they always do.
        """
        found: list[dict[str, Any]] = []
        try:
            for frame in reached(self._probing(work), self.plan, guard=True):
                staging = self._staging(work)
                try:
                    self._collected(frame, work, staging=staging)
                finally:
                    found += [one["failing"] for one in self._reports(staging) if "failing" in one]
        except FAILURES as error:
            return found, error
        return found, None

    def probes(self, work: EpochInput) -> list[DataFrame]:
        """What evaluates all that may fail on a row, in vain: for `fails`."""
        return reached(self._probing(work), self.plan)

    def fails(
        self, work: EpochInput, probes: Sequence[DataFrame], topic: str, span: tuple[int, int, int]
    ) -> BaseException | None:
        """How a run without state fails over these rows alone (partition, start, end); None if it does not."""
        try:
            for probe in probes:
                self._collected(probe, work, only=(topic, span))
        except FAILURES as error:
            return error
        return None

    def _probing(self, work: EpochInput) -> Graph:
        return Graph(
            self.session,
            self._partitions,
            needs_everything(self.plan),
            shared=frozenset(),
            upserted=frozenset(),
        )

    def _found(self, frame: DataFrame, work: EpochInput) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._collected(frame, work)[1].to_pylist()
        return rows

    def _staging(self, work: EpochInput) -> str:
        """A new folder for what the tasks of one attempt leave."""
        return f"{STAGED_DIRECTORY}/{numbered(work.epoch)}/{work.token}-{secrets.token_hex(4)}"

    def _reports(self, staging: str) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((self._directory / staging).glob("*.report.json"))]

    def _collected(
        self,
        frame: DataFrame,
        work: EpochInput,
        *,
        only: tuple[str, tuple[int, int, int]] | None = None,
        staging: str | None = None,
    ) -> tuple[str, pa.Table]:
        """The rows of a frame for this epoch, and the folder where its tasks have left their files."""
        staging = staging or self._staging(work)
        assignment = self._directory / staging / "assignment.json"
        with disk_errors(f"app '{self.plan.app}'"):
            assignment.parent.mkdir(parents=True)
            assignment.write_text(json.dumps(self._assignment(work, staging, only)))
        context = self.session.sparkContext
        context.setLocalProperty(PROPERTY, str(assignment))
        try:
            # The plan is taken again from its analysed form: running it a second time as it is would find the exchanges
            # of the first.
            return staging, frame.select("*").toArrow()
        finally:
            context.setLocalProperty(PROPERTY, None)  # type: ignore[arg-type]

    def _assignment(
        self, work: EpochInput, staging: str, only: tuple[str, tuple[int, int, int]] | None
    ) -> dict[str, Any]:
        times = {name: (work.time_before(state), work.time_after(state)) for name, state in self.states().items()}
        return {
            "directory": str(self._directory),
            "epoch": work.epoch,
            "token": work.token,
            "staging": staging,
            "partitions": self._partitions,
            "times": times,
            "states": {name: _document(work.states.get(name, {})) for name in self.states()},
            "views": {view.name: _document(work.views.get(view.name, {})) for view in self.plan.views},
            "keep_changes": work.keep_changes,
            "sources": {name: self._source(work, name, only) for name in self._sources},
        }

    def _source(self, work: EpochInput, name: str, only: tuple[str, tuple[int, int, int]] | None) -> dict[str, Any]:
        one, cut = self._inputs[name], work.cut.sources[name]
        if only is not None:
            ranges = [only[1]] if only[0] == name else []
        else:
            splits = plan_splits(one.topic, cut.starts, cut.ends)
            ranges = [(split.partition, split.start, split.end) for split in splits]
        place = Place(str(self.home.log), one.topic.name, cut.topic_id, len(one.topic.description.schemas))
        return {
            "place": {"log": place.log, "topic": place.topic, "topic_id": place.topic_id, "schemas": place.schemas},
            "tasks": [ranges[number :: self._partitions] for number in range(self._partitions)],
            "dead": work.dead.get(name, {}),
        }

    def _gathered(
        self, built: Built, work: EpochInput, outputs: Sequence[Mapping[str, Any]], staging: str
    ) -> EpochResult:
        reports = self._reports(staging)
        # A task that ran twice, or a source that is read by two branches, has reported twice: the same.
        states = {(one["state"], one["partition"]): one for one in reports if "state" in one}
        sources = {(one["source"], one["task"]): one for one in reports if "source" in one}
        written = ReportedOutputs.of(outputs)
        self._check_complete(built, states, sources, written)
        files: dict[str, dict[int, tuple[RunFile, ...]]] = {name: {} for name in built.states}
        for (name, partition), one in states.items():
            files[name][partition] = tuple(map(RunFile.from_document, one["runs"]))
        return EpochResult(
            states=files,
            views={view.name: written.runs_after(view.name, work.views) for view in self.plan.views},
            changes={view.name: found for view in self.plan.views if (found := written.changes(view.name))},
            staged={
                output.name: [self._directory / path for path in written.paths(output.name)]
                for output in self.plan.outputs
                if not isinstance(output, flow.View)
            },
            dead=[self._directory / one["dead"] for one in sources.values() if "dead" in one],
            events={name: written.events(name) for name in built.outputs},
            state_counts=_summed((one["state"], one["counts"]) for one in states.values()),
            source_counts=_summed((one["source"], one["counts"]) for one in sources.values()),
        )

    def _check_complete(
        self,
        built: Built,
        states: Mapping[tuple[str, int], Any],
        sources: Mapping[tuple[str, int], Any],
        written: ReportedOutputs,
    ) -> None:
        """What a task did not report would be missing from states and views without anybody noticing."""
        missing = [
            f"state {name}, partition {number}"
            for name in built.states
            for number in range(self._partitions)
            if (name, number) not in states
        ]
        missing += [
            f"topic '{name}', task {number}"
            for name in self._sources
            for number in range(self._partitions)
            if (name, number) not in sources
        ]
        missing += [
            f"view '{view.name}', partition {number}"
            for view in self.plan.views
            for number in range(self._partitions)
            if number not in written.partitions(view.name)
        ]
        if missing:
            raise PenstockError(f"app '{self.plan.app}': tasks have not reported: {', '.join(missing[:4])}")


def _document(runs: Runs) -> dict[str, list[dict[str, object]]]:
    return {str(partition): [file.to_document() for file in files] for partition, files in runs.items()}


def _summed(counts: Any) -> dict[str, dict[str, int]]:
    total: dict[str, dict[str, int]] = {}
    for name, one in counts:
        into = total.setdefault(name, {})
        for what, number in one.items():
            into[what] = into.get(what, 0) + number
    return total


def staged_batches(paths: Sequence[Path]) -> list[pa.RecordBatch]:
    """The rows of staged files, mapped."""
    batches: list[pa.RecordBatch] = []
    for path in paths:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        batches += [reader.get_batch(number) for number in range(reader.num_record_batches)]
    return batches
