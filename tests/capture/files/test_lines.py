"""The lines of an input."""

from __future__ import annotations

import io
import os

from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.files.lines import Lines


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
