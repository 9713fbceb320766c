"""The registers of groups: what approximate counts of distinct values stand on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.contract import HASH, SECOND_HASH
from penstock.engine.operators.hyperloglog import RANK, RANK_SUM, USED_REGISTERS, HyperLogLog
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

NUMBERS = ("register", START, END, COUNT, RANK, HASH, SECOND_HASH)
SCHEMA = pa.schema([("key", pa.string()), *((name, pa.int64()) for name in NUMBERS)])
Group = tuple[str | None, int]


def shown(events: Iterable[Event], windows: Windows | None, before: int = -(2**62)) -> dict[tuple[Group, int], int]:
    """The greatest rank of each register of a group: the register is the value, the rank comes from the time."""
    ranks: dict[tuple[Group, int], int] = {}
    for event in events:
        for start in windows.starts(event.time) if windows else [0]:
            if event.value is not None and (windows is None or start + windows.size + windows.keep > before):
                place = (event.key, start), event.value
                ranks[place] = max(ranks.get(place, 0), 1 + event.time % 7)
    return ranks


def run(epochs: Sequence[Epoch], windows: Windows | None, way: Way) -> tuple[Stepper, list[Row]]:
    given_: list[Row] = []
    operator, size = HyperLogLog("ranks", windows.order if windows else None), windows.size if windows else 0
    with stepping(operator, SCHEMA, ["key", START, "register"], way) as stepper:
        for epoch in epochs:
            rows = [
                {"key": key, "register": register, START: start, END: start + size, COUNT: 1, RANK: rank}
                for ((key, start), register), rank in shown(epoch.events, windows).items()
            ]
            keyed = [hashed(row, way, row["key"], row[START], row["register"]) for row in rows]
            given_ += stepper.step(keyed, epoch.watermark)
    return stepper, given_


@given(histories(), st.one_of(st.none(), windows), ways())
def test_what_goes_out_adds_up_to_the_sums_over_all_registers(
    epochs: tuple[Epoch, ...], windows: Windows | None, way: Way
) -> None:
    _, given_ = run(epochs, windows, way)
    said: defaultdict[Group, float] = defaultdict(float)
    used: Counter[Group] = Counter()
    for row in given_:
        said[row["key"], row[START]] += row[RANK_SUM]
        used[row["key"], row[START]] += row[USED_REGISTERS]
    ranks: dict[tuple[Group, int], int] = {}
    for epoch, before in befores(epochs):
        for place, rank in shown(epoch.events, windows, before).items():
            ranks[place] = max(ranks.get(place, 0), rank)
    groups = {group for group, _ in ranks}
    assert used == Counter(group for group, _ in ranks)
    assert said == {name: sum(2.0**-rank for (group, _), rank in ranks.items() if group == name) for name in groups}


@given(histories(), windows, ways())
def test_expired_registers_leave_the_state(epochs: tuple[Epoch, ...], windows: Windows, way: Way) -> None:
    more = [Epoch((), 10_000), Epoch((Event("a", 20_000, 1, 0),), 10_001)]
    stepper, _ = run([*epochs, *more], windows, way)
    assert stepper.rows == len(windows.starts(20_000))


def test_a_rank_that_does_not_rise_costs_nothing() -> None:
    epoch = Epoch((Event("a", 6, 1, 0),), 0)
    stepper, given_ = run([epoch, epoch, Epoch((Event("a", 3, 1, 0),), 0)], None, Way(growth=0))
    assert (stepper.rows, len(given_)) == (1, 1)
