"""Which values a group has: what counts of distinct values stand on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.contract import HASH, SECOND_HASH, WEIGHT
from penstock.engine.operators.count_distinct import DELTA, CountDistinct
from penstock.engine.operators.windows import END, START
from penstock.engine.state.columns import COUNT
from tests.engine.operators.stepping import (
    Epoch,
    Event,
    Row,
    Stepper,
    Way,
    Windows,
    befores,
    hashed,
    histories,
    stepping,
    ways,
    windows,
)

SCHEMA = pa.schema(
    [("key", pa.string()), *((name, pa.int64()) for name in ("value", START, END, COUNT, HASH, SECOND_HASH))]
)


def values(events: Iterable[Event], windows: Windows | None, way: Way) -> list[Row]:
    """What Spark hands over: each value of a group once, with how often it was added."""
    found: Counter[tuple[str | None, int, int]] = Counter()
    for event in events:
        for start in windows.starts(event.time) if windows else [0]:
            if event.value is not None:
                found[event.key, start, event.value] += event.weight
    size = windows.size if windows else 0
    return [
        hashed({"key": key, "value": value, START: start, END: start + size, COUNT: count}, way, key, start, value)
        for (key, start, value), count in found.items()
    ]


def run(epochs: Sequence[Epoch], windows: Windows | None, way: Way) -> Stepper:
    with stepping(
        CountDistinct("values", windows.order if windows else None), SCHEMA, ["key", START, "value"], way
    ) as stepper:
        for epoch in epochs:
            given_ = stepper.step(values(epoch.events, windows, way), epoch.watermark)
            stepper.add_up([{**row, WEIGHT: row[DELTA]} for row in given_])
    return stepper


@given(histories(retracts=True), st.one_of(st.none(), windows), ways())
def test_each_value_that_a_group_has_is_there_once(
    epochs: tuple[Epoch, ...], windows: Windows | None, way: Way
) -> None:
    stepper = run(epochs, windows, way)
    held: Counter[tuple[str | None, int, int | None]] = Counter()
    for epoch, before in befores(epochs):
        for event in epoch.events:
            for start in windows.starts(event.time) if windows else [0]:
                if event.value is not None and (windows is None or start + windows.size + windows.keep > before):
                    held[event.key, start, event.value] += event.weight
    assert stepper.answers == Counter(dict.fromkeys(+held, 1))


@given(histories(retracts=True), windows, ways())
def test_expired_values_leave_the_state(epochs: tuple[Epoch, ...], windows: Windows, way: Way) -> None:
    more = [Epoch((), 10_000), Epoch((Event("a", 20_000, 1, 0),), 10_001)]
    assert run([*epochs, *more], windows, way).rows == len(windows.starts(20_000))
