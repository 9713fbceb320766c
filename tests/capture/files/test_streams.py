"""Compressed files, and streams that are read twice."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.capture.files.lines import Lines
from penstock.capture.files.source import FileSource
from penstock.capture.files.streams import RewindableStream, open_file
from penstock.contracts import Source, SourceTable
from penstock.errors import DeclarationError, RowError
from penstock.schema.arrow import parse_schema
from tests.capture.contract import ROWS, SourceContract

LINES = "".join(f'{{"id": {number}}}\n' for number in range(1, ROWS + 1)).encode()


class TestCompressed(SourceContract):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.path = tmp_path / "lines"
        self.path.write_bytes(gzip.compress(LINES[:40]) + gzip.compress(LINES[40:]))

    def open(self) -> Source:
        return FileSource(open_file(self.path), SourceTable("t", parse_schema("id bigint")))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, bytes])
def test_compressed_files_are_recognised_by_their_content(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(compress(LINES))
    with closing(open_file(tmp_path / "lines")) as stream:
        assert "".join(Lines(stream)).encode() == LINES


@pytest.mark.parametrize(
    ("damage", "message"),
    [(lambda data: data[:-10], "is incomplete"), (lambda data: data[:-8] + b"\x00" * 8, "is damaged")],
)
def test_a_damaged_file_gives_what_comes_before_and_then_an_error(
    damage: Callable[[bytes], bytes], message: str, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_bytes(damage(gzip.compress(os.urandom(100_000).hex().encode() + b"\n")))
    with closing(open_file(tmp_path / "lines")) as stream, pytest.raises(RowError, match=message):
        list(Lines(stream))


def test_what_cannot_be_decompressed_is_refused_with_the_way_to_do_it(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"\x28\xb5\x2f\xfd...")
    with pytest.raises(DeclarationError, match="compressed with Zstandard") as error:
        open_file(tmp_path / "lines")
    assert "zstd -dc" in str(error.value.hint)


def test_a_stream_that_is_rewound_gives_everything_again_and_then_the_rest() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb", buffering=0) as sender:
        stream = RewindableStream(pipe)
        sender.write(b"one\ntw")
        assert stream.read1(100) == b"one\ntw"
        stream.rewind()
        with pytest.raises(io.UnsupportedOperation):
            stream.fileno()
        lines = Lines(stream)
        assert (next(lines), lines.is_idle()) == ("one\n", True)
        sender.write(b"o\n")
        sender.close()
        assert list(lines) == ["two\n"]
