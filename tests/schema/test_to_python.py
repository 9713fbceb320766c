"""Arrow values as Python values, including those that Python cannot hold."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.schema.to_python import far_time, python_row, python_values

FAR = 2**62
INSTANTS = pa.array([FAR, 0, None], pa.timestamp("us", "UTC"))
NUMBERS_BY_NAME = pa.map_(pa.string(), pa.int64())


def test_times_that_python_cannot_hold_become_text_at_any_depth() -> None:
    text = "148108-07-06T14:00:27.387904"
    far, epoch, null = python_values(INSTANTS)
    assert (far, str(epoch), null) == (f"{text}Z", "1970-01-01 00:00:00+00:00", None)
    assert python_values(INSTANTS.cast(pa.timestamp("us")))[0] == text
    assert python_values(pa.StructArray.from_arrays([INSTANTS], ["at"]))[0] == {"at": f"{text}Z"}
    assert python_values(pa.array([5_000_000], pa.int32()).cast(pa.date32())) == ["15659-07-15"]
    assert far_time(FAR, "us") == text


def test_a_map_with_a_key_twice_is_a_list_of_pairs_or_has_the_last_value() -> None:
    repeated = pa.array([[("a", 1), ("a", 2)], [("b", 3)]], NUMBERS_BY_NAME)
    assert python_values(repeated) == [[("a", 1), ("a", 2)], {"b": 3}]
    with pytest.warns(UserWarning, match="Encountered key 'a'"):
        assert python_values(repeated, maps="lossy") == [{"a": 2}, {"b": 3}]


def test_a_map_whose_keys_are_lists_is_a_list_of_pairs() -> None:
    by_list = pa.array([[([1], "a")]], pa.map_(pa.list_(pa.int64()), pa.string()))
    assert python_values(by_list) == [[([1], "a")]]


def test_one_row_has_the_values_of_its_columns() -> None:
    maps = pa.array([[("a", 1)], None, []], NUMBERS_BY_NAME)
    assert python_row(["at", "n"], [INSTANTS, maps], 0) == {"at": f"{far_time(FAR, 'us')}Z", "n": {"a": 1}}
    assert python_row(["at", "n"], [INSTANTS, maps], 2) == {"at": None, "n": {}}
