from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.nexmark.texts import joined, letters, padding, picked, sentences, sizes, words


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(1)


def test_letters_have_exactly_the_lengths_asked_for(random: np.random.Generator) -> None:
    texts = letters(np.array([3, 0, 1, 200]), random)
    texts.validate(full=True)
    assert [len(text) for text in texts.to_pylist()] == [3, 0, 1, 200]
    assert set("".join(texts.to_pylist())) <= set("abcdefghijklmnopqrstuvwxyz")


def test_all_letters_come_up(random: np.random.Generator) -> None:
    assert set(letters(np.array([5_000]), random)[0].as_py()) == set("abcdefghijklmnopqrstuvwxyz")


def test_words_have_three_letters_or_more_and_no_spaces(random: np.random.Generator) -> None:
    found = words(2_000, 7, random).to_pylist()
    assert {len(word) for word in found} == {3, 4, 5, 6}
    assert all(word.isalpha() for word in found)


def test_sentences_have_spaces_within_and_never_at_the_ends(random: np.random.Generator) -> None:
    found = sentences(2_000, 100, random).to_pylist()
    assert all(text == text.strip() and 3 <= len(text) < 100 for text in found)
    characters = "".join(found)
    assert 1 / 16 < characters.count(" ") / len(characters) < 1 / 12


def test_padding_brings_rows_to_the_size_on_the_average_and_none_below_what_they_have(
    random: np.random.Generator,
) -> None:
    before = random.integers(20, 120, 20_000)
    added = sizes(padding(before, 100, random))
    missing = np.maximum(100 - before, 0)
    assert (np.abs(added - missing) <= np.rint(missing / 5)).all()
    assert abs((added - missing).mean()) < 0.2


def test_picked_values_are_equally_likely(random: np.random.Generator) -> None:
    counted = pc.value_counts(picked(pa.array(["a", "b", "c", "d"]), 40_000, random)).to_pylist()
    assert len(counted) == 4
    assert all(9_500 < one["counts"] < 10_500 for one in counted)


def test_joined_parts_stand_one_after_the_other() -> None:
    assert joined(pa.array(["a", "b"]), "-", pa.array(["c", "d"])).to_pylist() == ["a-c", "b-d"]
