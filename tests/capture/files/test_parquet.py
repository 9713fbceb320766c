"""Parquet files as a source."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Log
from penstock.capture.files.options import FileOptions
from penstock.capture.files.parquet import ParquetSource
from penstock.capture.files.records import Record
from penstock.contracts import Source, SourceTable
from penstock.errors import DeclarationError, RowError
from penstock.schema.arrow import parse_schema
from tests.capture.contract import ROWS, SourceContract

TABLE = SourceTable("t", parse_schema("id bigint"))


def write(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=7)  # type: ignore[arg-type]
    return path


class TestParquet(SourceContract):
    """Items end within row groups and across their ends."""

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.path = write(tmp_path / "in.parquet", id=list(range(1, ROWS + 1)))

    def open(self) -> Source:
        return ParquetSource(self.path, TABLE, FileOptions(batch_rows=5))


def ids(source: ParquetSource, after: int) -> list[int]:
    return [number for item in source.read({"records": after}) for number in item.rows.column("id").to_pylist()]  # type: ignore[union-attr]


@pytest.mark.parametrize("after", [0, 3, 7, 8, 20, 99])
def test_it_resumes_after_any_row(after: int, tmp_path: Path) -> None:
    source = ParquetSource(write(tmp_path / "p", id=list(range(20))), TABLE, FileOptions(batch_rows=3))
    assert ids(source, after) == list(range(20))[after:]
    assert source.skipped_rows == min(after, 20)


def test_bad_rows_are_found_and_the_others_kept(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        topic = log.create_topic("t", "id tinyint")
        path, bad = write(tmp_path / "p", id=[1, 2, 300, 4, 500]), list[Record]()
        table = SourceTable("t", topic.schema)
        kept = ParquetSource(path, table, FileOptions(fit=topic.fitted_rows, on_bad=bad.append))
        assert ids(kept, 0) == [1, 2, 4]
        assert [str(record.problem and record.problem.message) for record in bad] == [
            "topic 't': row 3, column 'id' takes tinyint; found 300 (int64)",
            "topic 't': row 5, column 'id' takes tinyint; found 500 (int64)",
        ]
        assert bad[0].text == '{"id": 300}\n'
        stopped = ParquetSource(path, table, FileOptions(fit=topic.fitted_rows)).read(None)
        assert len(next(stopped).rows) == 2
        with pytest.raises(RowError, match="row 3, column 'id'"):
            next(stopped)


def test_a_file_that_does_not_fit_is_refused_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "p", id=[1], at=[1_700_000_000])
    with pytest.raises(DeclarationError, match="a column that is not in the schema of topic 't'; found 'at'") as error:
        ParquetSource(path, TABLE)
    assert "--columns" in str(error.value.hint)
    assert ids(ParquetSource(path, TABLE, FileOptions(columns=("id",))), 0) == [1]
    timed = SourceTable("t", parse_schema("id bigint, at timestamp"))
    with pytest.raises(DeclarationError, match="column 'at' takes timestamp; found int64") as error:
        ParquetSource(path, timed)
    assert "--time-unit" in str(error.value.hint)
    (tmp_path / "text").write_text("id\n1\n")
    with pytest.raises(DeclarationError, match="not a Parquet file"):
        ParquetSource(tmp_path / "text", TABLE)


@pytest.mark.parametrize(
    ("numbers", "unit"), [([1_700_000_000.25], "s"), ([1_700_000_000_250], "ms"), ([1_700_000_000_250_000_999], "ns")]
)
def test_numbers_become_times_by_their_unit(numbers: list[float], unit: str, tmp_path: Path) -> None:
    path = write(tmp_path / "p", at=[*numbers, None])
    with Log(tmp_path / "log") as log:
        topic = log.create_topic("t", "at timestamp")
        options = FileOptions(time_unit=unit, fit=topic.fitted_rows)  # type: ignore[arg-type]
        (item,) = ParquetSource(path, SourceTable("t", topic.schema), options).read(None)
        moment = datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=UTC)
        assert item.rows.column("at").to_pylist() == [moment, None]  # type: ignore[union-attr]
