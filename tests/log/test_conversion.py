from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from penstock.errors import RowError
from penstock.log.conversion import SharedConversion

SCHEMA = pa.schema({"n": pa.int64(), "text": pa.string()})


def convert_at_once(calls: list[list[dict[str, object]]]) -> list[object]:
    """What every call returns or raises, while all of them wait for one that is under way."""
    conversion, results = SharedConversion(), [None] * len(calls)

    def call(number: int) -> None:
        try:
            results[number] = conversion.batch(calls[number], SCHEMA, where="topic 't'").to_pylist()
        except RowError as error:
            results[number] = error.message

    together = conversion._shared
    together._serving = True
    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    while len(together._waiting) < len(calls):
        pass
    together._next_turn()
    for thread in threads:
        thread.join()
    return results


def test_every_call_gets_its_own_rows() -> None:
    calls = [[{"n": n, "text": str(n)}] * (n % 3 + 1) for n in range(20)]
    assert convert_at_once(calls) == calls


def test_only_the_call_with_the_bad_row_is_refused() -> None:
    calls: list[list[dict[str, object]]] = [[{"n": 1}], [{"n": "two"}], [{"n": 3, "text": "three"}]]
    results = convert_at_once(calls)
    assert results[0] == [{"n": 1, "text": None}]
    assert "row 0" in str(results[1])
    assert results[2] == calls[2]


def test_a_call_alone_is_converted_at_once() -> None:
    batch = SharedConversion().batch([{"n": 1}], SCHEMA, where="topic 't'")
    assert batch.to_pylist() == [{"n": 1, "text": None}]
    with pytest.raises(RowError):
        SharedConversion().batch([{"n": "one"}], SCHEMA, where="topic 't'")
