"""The lines of an input."""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.files.lines import Lines, LongLineError


def test_lines_are_numbered_and_the_last_needs_no_end() -> None:
    lines = Lines(io.BytesIO(b"one\ntwo\r\nthree"))
    assert [(text, lines.number) for text in lines] == [("one\n", 1), ("two\r\n", 2), ("three", 3)]


@given(st.lists(st.text(st.characters(exclude_characters="\n\ufeff", exclude_categories=["Cs"])), max_size=20))
def test_nothing_of_an_input_is_lost(texts: list[str]) -> None:
    whole = "\n".join(texts)
    assert "".join(Lines(io.BytesIO(whole.encode()))) == whole


def test_a_byte_order_mark_is_not_part_of_the_first_line() -> None:
    assert list(Lines(io.BytesIO(b"\xef\xbb\xbfid\n1\n"))) == ["id\n", "1\n"]


def test_bytes_that_are_not_utf_8_come_back_as_they_were() -> None:
    (text,) = Lines(io.BytesIO(b"\xff\n"))
    assert text.encode(errors="surrogateescape") == b"\xff\n"


def test_progress_counts_every_byte() -> None:
    counts: list[int] = []
    list(Lines(io.BytesIO(b"one\ntwo\n"), progress=counts.append))
    assert sum(counts) == 8


def test_an_input_is_idle_when_its_next_line_has_not_come() -> None:
    read, write = os.pipe()
    with open(read, "rb") as stream, open(write, "wb", buffering=0) as writer:
        lines = Lines(stream)
        writer.write(b"one\ntwo\nthr")
        assert next(lines) == "one\n"
        assert not lines.is_idle()
        assert next(lines) == "two\n"
        assert lines.is_idle()
        writer.write(b"ee\n")
        assert not lines.is_idle()
        assert next(lines) == "three\n"


def test_an_input_that_has_ended_is_not_idle() -> None:
    lines = Lines(io.BytesIO(b"one\n"))
    list(lines)
    assert not lines.is_idle()


def test_a_line_that_is_too_long_is_reported_and_the_next_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.capture.files.lines.MOST_LINE_BYTES", 3_000)
    lines = Lines(SmallReads(b"one\n" + b"x" * 5_000 + b"\nthree\n"))
    assert next(lines) == "one\n"
    with pytest.raises(LongLineError, match="is longer than 64 MiB") as error:
        next(lines)
    assert error.value.text == "x" * 1024 + "...\n"
    assert (next(lines), lines.number) == ("three\n", 3)


def test_a_long_line_in_small_pieces_is_joined_once() -> None:
    """Joining it again with every piece would copy 2 GB here."""
    copied = SmallReads(b"x" * 4_000_000 + b"\n", size=4_000)
    lines = Lines(copied)
    assert len(next(lines)) == 4_000_001
    assert copied.reads == 1_001


class SmallReads(io.BytesIO):
    """Gives a few bytes at a time, as a pipe does."""

    def __init__(self, data: bytes, *, size: int = 100) -> None:
        super().__init__(data)
        self.size = size
        self.reads = 0

    def read1(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        return super().read1(self.size)
