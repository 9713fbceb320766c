"""Step 2 of an epoch: running the plan in Spark, and gathering what the tasks report."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.engine.build.app import BuiltPlan, build
from penstock.engine.build.graph import Graph, NodeState
from penstock.engine.build.probes import (
    EXPRESSION,
    ROW_ORIGIN,
    STEP,
    find_failing,
    find_late,
    guard_expressions,
    has_origin,
    needs_everything,
    probe_frames,
)
from penstock.engine.datasource.read import plan_splits
from penstock.engine.datasource.topic import topic_ref
from penstock.engine.ledger.records import STAGED_DIRECTORY, Dead, GroupWatermarks, Runs, States, padded_epoch
from penstock.engine.plan.cut import Cut
from penstock.engine.plan.next_cut import Input, rows_in
from penstock.engine.run.failures import FAILURES, is_about_a_row, reason
from penstock.engine.run.halving import Span, find_counted
from penstock.engine.run.reports import ReportedOutputs
from penstock.engine.run.tasks import ASSIGNMENT_PROPERTY
from penstock.engine.spark import evaluate_in_place
from penstock.engine.state.run import RunFile
from penstock.errors import PenstockError
from penstock.flow import plan as flow
from penstock.storage.files import disk_errors

# In epochs with fewer rows a Python task costs more than its rows, so nothing is evaluated twice.
SMALL_ROWS = 200_000
# Why an expression fails on a row takes a job to find out, so it is found for this many rows of an epoch.
MOST_EXPLAINED = 10

PartitionRange = tuple[int, int, int]
"""A partition, and its offsets from start up to end."""
TopicRange = tuple[str, PartitionRange]


@dataclass(frozen=True, slots=True)
class EpochInput:
    """What an epoch processes: the rows of a cut without dead ones, on top of these states and views.

    `before` and `after` are the watermarks of topic groups before the epoch and after it. With `keep_changes`, the
    changes of views are stored for those who follow them.
    """

    epoch: int
    token: int
    cut: Cut
    states: States
    views: States
    before: GroupWatermarks
    after: GroupWatermarks
    dead: Dead = field(default_factory=dict)
    keep_changes: bool = False

    def watermark_before(self, state: NodeState) -> int:
        return state.watermark_at(self.before)

    def watermark_after(self, state: NodeState) -> int:
        return state.watermark_at(self.after)


@dataclass(frozen=True, slots=True)
class EpochResult:
    """What the tasks of an epoch have written: runs of states and views, files for sinks and of dead rows; and counts.

    `changes` are the files with the changes of views, for the views that have changed.
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
    """Where an app is stored: its log, its own folder in it, and the number of its state partitions."""

    log: str  # its URL
    directory: Path
    partitions: int


class CompiledPlan:
    """A plan that is built for Spark once and run for epoch after epoch. A plan without outputs does nothing."""

    def __init__(self, spark: SparkSession, plan: flow.Plan, inputs: Mapping[str, Input], home: Home) -> None:
        self.session = spark
        self.plan = plan
        self.home = home
        self._inputs = inputs
        self._directory = home.directory
        self._partitions = home.partitions
        sources = {node.name for node in flow.nodes(plan) if isinstance(node, flow.Topic | flow.Changelog)}
        self._sources = sorted(sources)
        self._built_plans: dict[bool, BuiltPlan] = {}

    def for_outputs(self, plan: flow.Plan, inputs: Mapping[str, Input]) -> CompiledPlan:
        """A compiled plan for some of the outputs."""
        return CompiledPlan(self.session, plan, inputs, self.home)

    def reopen(self, inputs: Mapping[str, Input]) -> CompiledPlan:
        """The same plan for another instance of the app. What is built already is kept."""
        compiled_plan = CompiledPlan(self.session, self.plan, inputs, self.home)
        compiled_plan._built_plans = self._built_plans
        return compiled_plan

    def build(self, *, small: bool = True) -> BuiltPlan:
        """Build the plan for small epochs or for large ones, when it is first needed."""
        if small not in self._built_plans:
            self._built_plans[small] = build(self.session, self.plan, partitions=self._partitions, small=small)
        return self._built_plans[small]

    def states(self) -> Mapping[str, NodeState]:
        return self.build().states if self.plan.outputs else {}

    def run(self, epoch_input: EpochInput) -> EpochResult:
        """Run an epoch. It only writes new files, and can be repeated."""
        if not self.plan.outputs:
            return EpochResult({}, {}, {}, {}, [], {}, {}, {})
        built_plan = self.build(small=rows_in(epoch_input.cut) < SMALL_ROWS)
        staging, reports = self._run_frame(built_plan.epoch, epoch_input)
        return self._gather_result(built_plan, epoch_input, reports.to_pylist(), staging)

    def find_failing_rows(self, epoch_input: EpochInput) -> list[dict[str, Any]]:
        """The rows of an epoch on which an expression fails: `_topic`, `_partition`, `_offset`, `_error`."""
        guards = guard_expressions(self._probing_graph(), self.plan)
        frame = find_failing(self.session, guards)
        with evaluate_in_place(self.session):
            rows = [] if frame is None else self._collect_rows(frame, epoch_input)
            for count, row in enumerate(rows):
                guard, number = guards[row[STEP]], row[EXPRESSION]
                row["_error"] = guard.describe_failure(number)
                if count < MOST_EXPLAINED:
                    row["_error"] += self._failure_of(guard.evaluation(number), row, epoch_input)
        return rows

    def _failure_of(self, evaluation: DataFrame, row: Mapping[str, Any], epoch_input: EpochInput) -> str:
        """Why an expression fails on a row, as it ends a sentence; nothing if that cannot be found now."""
        span = (row["_partition"], row["_offset"], row["_offset"] + 1)
        error = self.failure_over(epoch_input, [evaluation], row["_topic"], span)
        return f": {reason(error)}" if error is not None and is_about_a_row(error) else ""

    def find_failing_output(self, epoch_input: EpochInput) -> flow.Output | None:
        """A view or sink that fails even when it is run without the others; None if none does."""
        for output in self.plan.outputs:
            try:
                self.for_outputs(flow.Plan(self.plan.app, (output,)), self._inputs).run(epoch_input)
            except FAILURES as error:
                if not is_about_a_row(error):
                    raise
                return output
        return None

    def find_late_rows(self, epoch_input: EpochInput, state: NodeState) -> list[dict[str, Any]]:
        """The rows of an epoch that were too late for a state: `_topic`, `_partition`, `_offset`."""
        graph = self._probing_graph()
        frame = find_late(graph, state, epoch_input.watermark_before(state))
        if frame is None:
            return []
        if not has_origin(frame):
            return list(self._find_by_counting(frame.groupBy().count(), epoch_input))
        return self._collect_rows(frame.select(*ROW_ORIGIN), epoch_input)

    def _find_by_counting(self, count: DataFrame, epoch_input: EpochInput) -> Iterator[dict[str, Any]]:
        """Find rows that have no origin, by counting them in smaller and smaller ranges."""

        def count_in(topic: str, partition: int, span: Span) -> int:
            _, table = self._run_frame(count, epoch_input, only=(topic, (partition, *span)))
            return int(table.column(0)[0].as_py())

        for topic in self._sources:
            cut = epoch_input.cut.sources[topic]
            spans = {number: (start, cut.ends[number]) for number, start in cut.starts.items()}
            totals = {number: count_in(topic, number, span) for number, span in spans.items() if span[0] < span[1]}
            for number, total in reversed(totals.items()):
                for offset in find_counted(spans[number], partial(count_in, topic, number), total):
                    yield {"_topic": topic, "_partition": number, "_offset": offset}

    def find_failing_in_functions(self, epoch_input: EpochInput) -> tuple[list[dict[str, Any]], BaseException | None]:
        """The rows of an epoch on which a user's function fails alone: `_topic`, `_partition`, `_offset`, `_error`.

        And the error with which the search ended early, if it did: functions that cannot be guarded fail as usual.
        """
        rows: list[dict[str, Any]] = []
        try:
            for frame in probe_frames(self._probing_graph(), self.plan, guard=True):
                staging = self._new_staging_folder(epoch_input)
                try:
                    self._run_frame(frame, epoch_input, staging=staging)
                finally:
                    rows += [report["failing"] for report in self._read_reports(staging) if "failing" in report]
        except FAILURES as error:
            return rows, error
        return rows, None

    def probes(self, epoch_input: EpochInput) -> list[DataFrame]:
        """DataFrames that evaluate all that may fail on a row, and discard it: for `failure_over`."""
        return probe_frames(self._probing_graph(), self.plan)

    def failure_over(
        self, epoch_input: EpochInput, probes: Sequence[DataFrame], topic: str, span: PartitionRange
    ) -> BaseException | None:
        """The error with which the probes fail over these rows alone; None if they do not."""
        try:
            for probe in probes:
                self._run_frame(probe, epoch_input, only=(topic, span))
        except FAILURES as error:
            return error
        return None

    def _probing_graph(self) -> Graph:
        return Graph(
            self.session,
            self._partitions,
            needs_everything(self.plan),
            shared_nodes=frozenset(),
            upserted_nodes=frozenset(),
        )

    def _collect_rows(self, frame: DataFrame, epoch_input: EpochInput) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._run_frame(frame, epoch_input)[1].to_pylist()
        return rows

    def _new_staging_folder(self, epoch_input: EpochInput) -> str:
        """A new name for the folder to which the tasks of one attempt write."""
        return f"{STAGED_DIRECTORY}/{padded_epoch(epoch_input.epoch)}/{epoch_input.token}-{secrets.token_hex(4)}"

    def _read_reports(self, staging: str) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((self._directory / staging).glob("*.report.json"))]

    def _run_frame(
        self,
        frame: DataFrame,
        epoch_input: EpochInput,
        *,
        only: TopicRange | None = None,
        staging: str | None = None,
    ) -> tuple[str, pa.Table]:
        """Run a DataFrame for this epoch: the folder to which its tasks have written, and its rows.

        With `only`, the tasks read only this range.
        """
        staging = staging or self._new_staging_folder(epoch_input)
        assignment = self._directory / staging / "assignment.json"
        with disk_errors(f"app '{self.plan.app}'"):
            assignment.parent.mkdir(parents=True)
            assignment.write_text(json.dumps(self._assignment(epoch_input, staging, only)))
        context = self.session.sparkContext
        context.setLocalProperty(ASSIGNMENT_PROPERTY, str(assignment))
        try:
            # `select` starts again from the analysed plan. Run a second time, the DataFrame itself would reuse the
            # exchanges of the first run.
            return staging, frame.select("*").toArrow()
        finally:
            context.setLocalProperty(ASSIGNMENT_PROPERTY, None)  # type: ignore[arg-type]

    def _assignment(self, epoch_input: EpochInput, staging: str, only: TopicRange | None) -> dict[str, Any]:
        times = {
            name: (epoch_input.watermark_before(state), epoch_input.watermark_after(state))
            for name, state in self.states().items()
        }
        return {
            "directory": str(self._directory),
            "epoch": epoch_input.epoch,
            "token": epoch_input.token,
            "staging": staging,
            "partitions": self._partitions,
            "times": times,
            "states": {name: _run_documents(epoch_input.states.get(name, {})) for name in self.states()},
            "views": {view.name: _run_documents(epoch_input.views.get(view.name, {})) for view in self.plan.views},
            "keep_changes": epoch_input.keep_changes,
            "sources": {name: self._source(epoch_input, name, only) for name in self._sources},
        }

    def _source(self, epoch_input: EpochInput, name: str, only: TopicRange | None) -> dict[str, Any]:
        input_, cut = self._inputs[name], epoch_input.cut.sources[name]
        if only is not None:
            ranges = [only[1]] if only[0] == name else []
        else:
            splits = plan_splits(input_.topic, cut.starts, cut.ends)
            ranges = [(split.partition, split.start, split.end) for split in splits]
        return {
            "topic": asdict(topic_ref(self.home.log, input_.topic)),
            "tasks": [ranges[number :: self._partitions] for number in range(self._partitions)],
            "dead": epoch_input.dead.get(name, {}),
        }

    def _gather_result(
        self, built_plan: BuiltPlan, epoch_input: EpochInput, outputs: Sequence[Mapping[str, Any]], staging: str
    ) -> EpochResult:
        reports = self._read_reports(staging)
        # A task that ran twice, or a source that two branches read, has reported the same twice.
        states = {(report["state"], report["partition"]): report for report in reports if "state" in report}
        sources = {(report["source"], report["task"]): report for report in reports if "source" in report}
        reported_outputs = ReportedOutputs.from_rows(outputs)
        self._check_complete(built_plan, states, sources, reported_outputs)
        files: dict[str, dict[int, tuple[RunFile, ...]]] = {name: {} for name in built_plan.states}
        for (name, partition), report in states.items():
            files[name][partition] = tuple(map(RunFile.from_document, report["runs"]))
        return EpochResult(
            states=files,
            views={view.name: reported_outputs.runs_after(view.name, epoch_input.views) for view in self.plan.views},
            changes={
                view.name: changes for view in self.plan.views if (changes := reported_outputs.changes(view.name))
            },
            staged={
                output.name: [self._directory / path for path in reported_outputs.paths(output.name)]
                for output in self.plan.outputs
                if not isinstance(output, flow.View)
            },
            dead=[self._directory / report["dead"] for report in sources.values() if "dead" in report],
            events={name: reported_outputs.events(name) for name in built_plan.outputs},
            state_counts=_sum_counts((report["state"], report["counts"]) for report in states.values()),
            source_counts=_sum_counts((report["source"], report["counts"]) for report in sources.values()),
        )

    def _check_complete(
        self,
        built_plan: BuiltPlan,
        states: Mapping[tuple[str, int], Any],
        sources: Mapping[tuple[str, int], Any],
        reported_outputs: ReportedOutputs,
    ) -> None:
        """Check that all tasks have reported: otherwise states and views would silently miss something."""
        missing = [
            f"state {name}, partition {number}"
            for name in built_plan.states
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
            if number not in reported_outputs.partitions(view.name)
        ]
        if missing:
            raise PenstockError(f"app '{self.plan.app}': tasks have not reported: {', '.join(missing[:4])}")


def _run_documents(runs: Runs) -> dict[str, list[dict[str, object]]]:
    return {str(partition): [file.to_document() for file in files] for partition, files in runs.items()}


def _sum_counts(counts: Iterable[tuple[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    totals: dict[str, Counter[str]] = {}
    for name, counts_of_task in counts:
        totals.setdefault(name, Counter()).update(counts_of_task)
    return {name: dict(total) for name, total in totals.items()}


def staged_batches(paths: Sequence[Path]) -> list[pa.RecordBatch]:
    """The rows of staged files, mapped."""
    batches: list[pa.RecordBatch] = []
    for path in paths:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        batches += [reader.get_batch(number) for number in range(reader.num_record_batches)]
    return batches
