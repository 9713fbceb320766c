"""The runs of views, epoch after epoch, against plain dictionaries; as tasks write them, without Spark."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.ledger.records import Runs
from penstock.engine.operators.contract import EVENTS, WEIGHT
from penstock.engine.run import views
from penstock.engine.run.reports import ReportedOutputs
from penstock.engine.run.tasks import Assignment
from penstock.engine.run.views import ViewSpec, view_writer
from penstock.engine.state.columns import COUNT, GONE, ID, ORDER
from penstock.engine.state.run import RunFile, open_batches

Row = Mapping[str, Any]
Change = tuple[Row, int]

KEYED = ViewSpec("v", pa.schema([("k", pa.float64()), ("t", pa.string()), ("n", pa.int64())]), ("k", "t"), "keyed")
TOTAL = ViewSpec("v", pa.schema([("n", pa.int64())]), (), "keyed")
COUNTED = ViewSpec(
    "v",
    pa.schema([("f", pa.float64()), ("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64()))]),
    None,
    "counted",
)
APPENDED = ViewSpec("v", pa.schema([("n", pa.int64())]), None, "appended")
FLOATS = [None, 0.0, -0.0, math.nan, 1.5, math.inf]


# -- running ----------------------------------------------------------------------------------------------------------


class Task:
    """The tasks of one view, in epochs that follow one another."""

    def __init__(self, view: ViewSpec, directory: Path, *, keep_changes: bool = False) -> None:
        self.view = view
        self.runs: Runs = {}
        self._epoch = Assignment(directory, 0, 1, "staged", 2, {}, {}, {}, keep_changes, {})

    @property
    def directory(self) -> Path:
        return self._epoch.directory

    def run(self, *tasks: Sequence[Change], partition: int = 0, events: bool = False) -> ReportedOutputs:
        """One epoch of tasks with these changes, all of which have the same partition."""
        self._epoch = replace(self._epoch, epoch=self._epoch.epoch + 1, views={"v": self.runs})
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(views, "assignment", lambda: self._epoch)
            patched.setattr(views, "state_partition", lambda partitions: partition)
            rows = [row for task in tasks for batch in self._reports(task, events) for row in batch.to_pylist()]
        reported = ReportedOutputs.from_rows(rows)
        self.runs = reported.runs_after("v", {"v": self.runs})
        return reported

    def _reports(self, changes: Sequence[Change], events: bool) -> Iterator[pa.RecordBatch]:
        weighted = self.view.growth != "appended"
        columns = [*self.view.schema, *([pa.field(WEIGHT, pa.int64())] if weighted else [])]
        columns += [pa.field(EVENTS, pa.int64())] if events else []
        rows = [{**row, **({WEIGHT: weight} if weighted else {}), EVENTS: 2} for row, weight in changes]
        batches = [pa.RecordBatch.from_pylist(part, schema=pa.schema(columns)) for part in (rows[:2], [], rows[2:])]
        return view_writer(self.view)(iter(batches))

    def rows(self) -> list[Row]:
        """What a reader sees, worked out row by row."""
        found: list[Row] = []
        for files in self.runs.values():
            found += self._folded(files)
        return found

    def _folded(self, files: Sequence[RunFile]) -> list[Row]:
        stored = [row for file in files for batch in open_batches(self.directory, file) for row in batch.to_pylist()]
        if self.view.growth == "appended":
            return stored
        rows: dict[tuple[int, int], Row] = {}
        counts: Counter[tuple[int, int]] = Counter()
        for row in stored:
            place = row[ORDER], row[ID]
            plain = {name: row[name] for name in self.view.schema.names}
            counts[place] = counts[place] + row[COUNT] if self.view.growth == "counted" else int(not row[GONE])
            rows[place] = plain
        return [row for place, row in rows.items() for _ in range(counts[place])]


@contextmanager
def task_of(view: ViewSpec, **options: bool) -> Iterator[Task]:
    with tempfile.TemporaryDirectory() as folder:
        yield Task(view, Path(folder), **options)


def plain(value: Any) -> Any:
    """A value by which equal ones are equal: -0.0 is 0.0, and all NaN are one."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return repr(value)


def comparable(rows: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(plain(row[name]) for name in sorted(row)) for row in rows)


def assert_sorted(task: Task) -> None:
    for files in task.runs.values():
        for file in files:
            (batch,) = open_batches(task.directory, file)
            places = [(row[ORDER] % 2**64, row[ID] % 2**64) for row in batch.select([ORDER, ID]).to_pylist()]
            assert places == sorted(set(places))


# -- keyed ------------------------------------------------------------------------------------------------------------

keys = st.tuples(st.sampled_from(FLOATS), st.sampled_from([None, "", "a"]))
key_epochs = st.lists(st.lists(st.tuples(keys, st.none() | st.integers(0, 3)), max_size=6), max_size=8)


@given(key_epochs, st.booleans())
def test_a_keyed_view_has_the_newest_row_of_each_key(
    epochs: list[list[tuple[tuple[Any, Any], int | None]]], added_first: bool
) -> None:
    """In each epoch some keys get another row, or lose theirs; -0.0 is the same key as 0.0, and null is a key."""
    model: dict[tuple[Any, Any], Row] = {}
    with task_of(KEYED) as task:
        for epoch in epochs:
            changes: list[Change] = []
            for (number, text), n in {(plain(k), t): ((k, t), n) for (k, t), n in epoch}.values():
                key = plain(number), text
                old, new = model.pop(key, None), {"k": number, "t": text, "n": n}
                both: list[Change] = [] if old is None else [(old, -1)]
                if n is not None:
                    both.append((new, 1))
                    model[key] = new
                changes += reversed(both) if added_first else both
            task.run(changes)
            assert comparable(task.rows()) == comparable(list(model.values()))
            assert_sorted(task)
        assert len(task.runs.get(0, ())) <= 4


@given(st.lists(st.integers(0, 2), max_size=6))
def test_a_view_without_key_columns_has_one_row(numbers: list[int]) -> None:
    old: list[Change] = []
    with task_of(TOTAL) as task:
        for number in numbers:
            task.run([*old, ({"n": number}, 1)])
            old = [({"n": number}, -1)]
            assert task.rows() == [{"n": number}]
        task.run(old)
        assert task.rows() == []
        task.run()


def test_a_run_of_a_keyed_view_says_which_keys_are_gone() -> None:
    rows = [{"k": 1.0, "t": "a", "n": 1}, {"k": 2.0, "t": "a", "n": 2}, {"k": 1.0, "t": "a", "n": 3}]
    schema = pa.schema([*KEYED.schema, pa.field(WEIGHT, pa.int64())])
    weighted = [{**row, WEIGHT: weight} for row, weight in zip(rows, (-1, -1, 1), strict=True)]
    run = KEYED.to_run(pa.RecordBatch.from_pylist(weighted, schema=schema)).batch
    assert run.schema.names == [*KEYED.schema.names, GONE, ORDER, ID]
    assert {(row["k"], row["n"], row[GONE]) for row in run.to_pylist()} == {(1.0, 3, False), (2.0, 2, True)}


# -- counted ----------------------------------------------------------------------------------------------------------

counted_rows = st.fixed_dictionaries(
    {
        "f": st.sampled_from(FLOATS),
        "l": st.none() | st.lists(st.none() | st.integers(0, 1), max_size=2),
        "m": st.none() | st.dictionaries(st.sampled_from("xy"), st.none() | st.integers(0, 1), max_size=2),
    }
)


def stored(row: Row) -> Row:
    """A row as Arrow gives it back: a map is a list of pairs."""
    return {**row, "m": None if row["m"] is None else list(row["m"].items())}


@given(st.lists(st.lists(st.tuples(counted_rows, st.integers(1, 3), st.booleans()), max_size=5), max_size=6))
def test_a_counted_view_has_each_row_as_often_as_it_came(epochs: list[list[tuple[Row, int, bool]]]) -> None:
    """Equal rows come several times in an epoch, and go, perhaps in the epoch in which they came."""
    model: Counter[tuple[Any, ...]] = Counter()
    with task_of(COUNTED) as task:
        for epoch in epochs:
            changes: list[Change] = []
            for row, times, goes in epoch:
                (key,) = comparable([stored(row)])
                weight = -min(times, model[key]) if goes else times
                model[key] += weight
                changes += [({**row, "m": stored(row)["m"]}, weight)] if weight else []
            task.run(changes)
            assert comparable(task.rows()) == +model
            assert_sorted(task)


# -- appended ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=3), max_size=12))
def test_an_appended_view_has_all_rows_of_all_tasks(epochs: list[list[list[int]]]) -> None:
    """Several tasks may have the same partition, and each of them merges what was there before."""
    expected: Counter[int] = Counter()
    with task_of(APPENDED) as task:
        for tasks in epochs:
            task.run(*[[({"n": number}, 1) for number in numbers] for numbers in tasks])
            expected.update(number for numbers in tasks for number in numbers)
            assert Counter(row["n"] for row in task.rows()) == expected


def test_files_of_an_appended_view_stay_few_and_large_ones_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with task_of(APPENDED) as task:
        for number in range(40):
            task.run([({"n": number}, 1)])
        assert len(task.runs[0]) <= 6
        monkeypatch.setattr(views, "MOST_APPENDED_BYTES", 1)
        before = task.runs[0]
        task.run([({"n": 40}, 1)])
        assert task.runs[0][: len(before)] == before
        assert sorted(row["n"] for row in task.rows()) == list(range(41))


# -- reports ----------------------------------------------------------------------------------------------------------


def file(name: str) -> RunFile:
    return RunFile(f"views/v/0/{name}.arrow", 1, 1, 1)


def reported(*reports: tuple[int, dict[str, Any]]) -> ReportedOutputs:
    return ReportedOutputs({"v": list(reports)})


def test_a_merged_file_that_two_tasks_report_counts_once() -> None:
    before = {"v": {0: (file("a"), file("b"), file("c"))}}
    merged = [{"files": [file("b").path, file("c").path], "into": file(name).to_document()} for name in ("d", "e")]
    first = (0, {"events": 1, "merged": merged[0], "added": file("f").to_document()})
    second = (0, {"events": 2, "merged": merged[1], "added": file("g").to_document()})
    found = reported(first, second)
    assert found.runs_after("v", before) == {0: (file("a"), file("d"), file("f"), file("g"))}
    assert found.changes("v") == (file("f"), file("g"))
    assert (found.events("v"), found.partitions("v")) == (3, {0})


def test_runs_of_partitions_that_nobody_has_changed_stay() -> None:
    before = {"v": {0: (file("a"),), 1: (file("b"),)}}
    assert reported((1, {"events": 0, "runs": []})).runs_after("v", before) == {0: (file("a"),), 1: ()}
    assert reported().runs_after("v", before) == before["v"]


def test_a_view_that_is_new_has_the_runs_that_were_reported() -> None:
    runs = reported((2, {"events": 1, "added": file("a").to_document()})).runs_after("v", {})
    assert runs == {2: (file("a"),)}


def test_changes_are_stored_where_somebody_may_follow_them() -> None:
    changes: list[Change] = [({"n": 1}, 1), ({"n": 2}, -1)]
    for view, count in ((TOTAL, 1), (replace(APPENDED, growth="counted"), 1)):
        for keep_changes in (True, False):
            with task_of(view, keep_changes=keep_changes) as task:
                found = task.run(changes).changes("v")
                assert len(found) == (count if keep_changes else 0)
                rows = [
                    row
                    for run_file in found
                    for batch in open_batches(task.directory, run_file)
                    for row in batch.to_pylist()
                ]
                assert rows == ([{"n": 1, WEIGHT: 1}, {"n": 2, WEIGHT: -1}] if keep_changes else [])


def test_events_are_those_that_came_however_rows_stand_for_them() -> None:
    for view, changes, events in (
        (COUNTED, [({"f": 1.0, "l": None, "m": None}, 3), ({"f": 2.0, "l": None, "m": None}, -1)], 3),
        (APPENDED, [({"n": 1}, 1), ({"n": 1}, 1)], 2),
    ):
        with task_of(view) as task:
            assert task.run(changes).events("v") == events
            assert task.run(changes, events=True).events("v") == 4
