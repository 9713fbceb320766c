"""Runs in files: what is stored is what is opened, and damage is found and named."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.state.columns import ID, ORDER
from penstock.engine.state.run import Run, RunFile, open_run, open_runs, reachable, sorted_run, store_run
from penstock.errors import DamagedError

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", None, "ä"]),
    "bytes": (pa.binary(), [b"", None, b"x"]),
    "decimal": (pa.decimal128(38, 2), [Decimal("1.50"), None, Decimal("9" * 36)]),
    "time": (pa.timestamp("us", "UTC"), [0, None, 1]),
    "list": (pa.list_(pa.string()), [["a", None], None, []]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))]), [{"a": 1, "b": [2]}, None, {"a": None}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, []]),
    "nothing": (pa.null(), [None, None, None]),
}


def run() -> Run:
    keys = {ORDER: pa.array([3, -1, 3]), ID: pa.array([9, 1, 2])}
    columns = {name: pa.array(values, type_) for name, (type_, values) in COLUMNS.items()}
    return sorted_run(pa.RecordBatch.from_pydict({**keys, **columns}))


@pytest.fixture
def file(tmp_path: Path) -> RunFile:
    return store_run(tmp_path, "state/sums/0", "000000000007-1", run())


def test_a_run_is_sorted_by_order_and_id_as_numbers_without_a_sign() -> None:
    assert run().order.tolist() == [3, 3, 2**64 - 1]
    assert run().id.tolist() == [2, 9, 1]


def test_what_was_stored_is_opened_with_columns_of_every_type(tmp_path: Path, file: RunFile) -> None:
    assert open_run(tmp_path, file).batch.equals(run().batch)
    assert file.path.startswith("state/sums/0/000000000007-1-")
    assert file.rows == 3


def test_a_run_is_mapped_and_not_read(tmp_path: Path, file: RunFile) -> None:
    used = pa.total_allocated_bytes()
    opened = open_run(tmp_path, file)
    assert opened.batch.num_rows == 3
    assert pa.total_allocated_bytes() == used


def test_runs_stay_open_as_long_as_they_are_asked_for(tmp_path: Path, file: RunFile) -> None:
    (first,) = open_runs(tmp_path, "state/sums/0", [file])
    second_file = store_run(tmp_path, "state/sums/0", "000000000008-1", run())
    (again, newer) = open_runs(tmp_path, "state/sums/0", [file, second_file])
    assert again is first
    assert open_runs(tmp_path, "state/sums/0", [second_file]) == (newer,)
    (anew,) = open_runs(tmp_path, "state/sums/0", [file])
    assert anew is not first
    assert open_runs(tmp_path, "state/sums/1", []) == ()


def test_a_repeated_task_leaves_another_file(tmp_path: Path, file: RunFile) -> None:
    again = store_run(tmp_path, "state/sums/0", "000000000007-1", run())
    assert again.path != file.path
    assert again.crc == file.crc
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_missing_file_is_named(tmp_path: Path, file: RunFile) -> None:
    (tmp_path / file.path).unlink()
    with pytest.raises(DamagedError, match="the file is missing") as caught:
        open_run(tmp_path, file)
    assert file.path in caught.value.message
    assert caught.value.hint is not None


@pytest.mark.parametrize("kept", [0, 1, 100, -1])
def test_a_file_that_was_cut_short_is_named(tmp_path: Path, file: RunFile, kept: int) -> None:
    path = tmp_path / file.path
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DamagedError, match=r"bytes instead of \d+") as caught:
        open_run(tmp_path, file)
    assert file.path in caught.value.message


@given(place=st.integers(0, 2**30), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_found_and_the_file_named(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    directory = tmp_path_factory.mktemp("flipped")
    file = store_run(directory, "state/sums/0", "1", run())
    path = directory / file.path
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(DamagedError, match="its checksum is wrong") as caught:
        open_run(directory, file)
    assert file.path in caught.value.message


def test_another_undamaged_run_in_its_place_is_found(tmp_path: Path, file: RunFile) -> None:
    second_file = store_run(tmp_path, "state/sums/0", "other", Run(run().batch.slice(0, 1)))
    (tmp_path / second_file.path).replace(tmp_path / file.path)
    with pytest.raises(DamagedError, match=file.path):
        open_run(tmp_path, file)


@given(st.integers(0, 2**40), st.one_of(st.none(), st.integers(-(2**63), 2**63)))
def test_what_a_commit_remembers_of_a_run_is_what_it_was(number: int, expires: int | None) -> None:
    file = RunFile("state/sums/0/1.arrow", number, number + 1, number + 2, expires)
    assert RunFile.from_document(file.to_document()) == file


def test_files_of_which_no_row_can_be_reached_are_left_out() -> None:
    files = [RunFile(str(expires), 1, 1, 1, expires) for expires in (None, 9, 10, 11)]
    assert [file.expires for file in reachable(files, 10)] == [None, 11]
