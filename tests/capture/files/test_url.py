"""Files by their URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.capture.files.url import check_url
from penstock.contracts import Source, SourceTable
from penstock.errors import DeclarationError
from penstock.schema.arrow import parse_schema
from penstock.sources import check_source, open_source
from tests.capture.contract import ROWS, SourceContract

TABLE = SourceTable("t", parse_schema("id bigint"))


class TestFileUrl(SourceContract):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.path = tmp_path / "in put.csv"
        self.path.write_text("id\n" + "".join(f"{number}\n" for number in range(1, ROWS + 1)))

    def open(self) -> Source:
        return open_source(self.path.as_uri(), [TABLE])


@pytest.mark.parametrize(
    "url", ["file:a.csv", "file:a.JSONL", "file:///a/b.ndjson", "file:a.txt?format=json", "file:a?format=csv"]
)
def test_a_path_and_a_format_are_enough(url: str) -> None:
    check_source(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file://host/a.csv", "does not name a file on this machine"),
        ("file:", "does not name a file on this machine"),
        ("file:a.txt", "the format of 'file:a.txt' is not known; found '.txt'"),
        ("file:a.csv?format=xml", "the format of 'file:a.csv?format=xml' is not known; found 'xml'"),
        ("file:a.csv?fromat=csv", "has an option that files do not have; found fromat"),
    ],
)
def test_other_urls_are_refused_with_the_reason(url: str, message: str) -> None:
    with pytest.raises(DeclarationError) as error:
        check_url(url)
    assert message in error.value.message


def test_a_file_that_does_not_exist_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="it cannot be read"):
        open_source(f"file:{tmp_path}/none.csv", [TABLE])
