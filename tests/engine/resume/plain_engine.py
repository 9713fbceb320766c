"""Apps that run without Spark: everything of the engine is the real thing, except that its epochs are plain Python.

Every output is a stream of `id`s, and its state is what it has read so far. So whatever an output has missed, doubled
or taken from elsewhere shows in its state, its view or its topic. A history of programs takes milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.build.app import BuiltPlan
from penstock.engine.build.graph import NodeState
from penstock.engine.epoch import Instance
from penstock.engine.ledger.records import padded_epoch
from penstock.engine.operators.contract import WEIGHT
from penstock.engine.plan.next_cut import Input
from penstock.engine.resume import start
from penstock.engine.resume.look import source_names
from penstock.engine.run.compiled import CompiledPlan, EpochInput, EpochResult
from penstock.engine.state.run import RunFile, open_batches, store_batches
from penstock.flow import plan as flow
from penstock.flow.fingerprint import fingerprint
from penstock.flow.settings import AppSettings
from penstock.log import Log

SCHEMA = pa.schema([("id", pa.int64())])
SETTINGS = AppSettings(state_partitions=1, max_rows=6)


def state_name(output: flow.Output) -> str:
    return f"{output.name}-{fingerprint(output.node)}"


class PlainEngine(CompiledPlan):
    """An engine whose epochs are plain Python."""

    def for_outputs(self, plan: flow.Plan, inputs: Mapping[str, Input]) -> CompiledPlan:
        return PlainEngine(self.session, plan, inputs, self.home)

    def build(self, *, small: bool = True) -> BuiltPlan:
        states = {
            state_name(one): NodeState(state_name(one), one.node, tuple(sorted(source_names(one.node))))
            for one in self.plan.outputs
        }
        return BuiltPlan(cast(Any, None), states, {one.name: SCHEMA for one in self.plan.outputs})

    def run(self, work: EpochInput) -> EpochResult:
        ran = EpochResult({}, {}, {}, {}, [], {}, {}, {})
        read = {name: self._ids(work, name) for name in self._sources}
        for name, ids in read.items():
            ran.source_counts[name] = {"in": len(ids), "dead": 0}
        for output in self.plan.outputs:
            ids = [one for name in sorted(source_names(output.node)) for one in read[name]]
            self._write(work, output, ids, ran)
        return ran

    def _ids(self, work: EpochInput, name: str) -> list[int]:
        cut, topic = work.cut.sources[name], self._inputs[name].topic
        assert topic.id == cut.topic_id, "another topic is read than was planned"
        ids: list[int] = topic.read().to_arrow().column("id").to_pylist()
        return ids[cut.starts[0] : cut.ends[0]]

    def _write(self, work: EpochInput, output: flow.Output, ids: list[int], ran: EpochResult) -> None:
        state = state_name(output)
        before = work.states.get(state, {}).get(0, ())
        ran.states[state] = {0: (*before, *self._stored(work, f"state/{state}/0", ids))}
        ran.events[output.name] = len(ids)
        if not isinstance(output, flow.View):
            ran.staged[output.name] = [self._staged(work, output.name, ids)]
            return
        shown = work.views.get(output.name, {}).get(0, ())
        added = self._stored(work, f"views/{output.name}/0", ids)
        ran.views[output.name] = {0: (*shown, *added)}
        if added:
            ran.changes[output.name] = added

    def _stored(self, work: EpochInput, folder: str, ids: list[int]) -> tuple[RunFile, ...]:
        prefix = f"{padded_epoch(work.epoch)}-{work.token}"
        return (store_batches(self._directory, folder, prefix, [_batch(ids)]),) if ids else ()

    def _staged(self, work: EpochInput, name: str, ids: list[int]) -> Path:
        path = self._directory / "staged" / padded_epoch(work.epoch) / f"{work.token}-plain" / f"{name}.arrow"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = _batch(ids).append_column(WEIGHT, pa.array([1] * len(ids), pa.int64()))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_batch(rows)
        return path


def _batch(ids: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.int64())], schema=SCHEMA)


def ids_in(directory: Path, files: tuple[RunFile, ...]) -> list[int]:
    """What the runs of a state or a view say."""
    return [one for file in files for batch in open_batches(directory, file) for one in batch.column("id").to_pylist()]


@contextmanager
def without_spark() -> Iterator[None]:
    """Let apps start without Spark, on a disk that nobody waits for: nothing here loses power."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(start, "CompiledPlan", PlainEngine)
        patched.setattr(start, "session_for", lambda spark, partitions: spark)
        for sync in ("fsync", "fdatasync"):
            patched.setattr(os, sync, lambda descriptor: None)
        yield


def plain_instance(app: ps.App, log: Log, **options: Any) -> Instance:
    return Instance(app.plan, log, SETTINGS, cast(SparkSession, None), clock=lambda: 7, **options)
