"""Panes that are put into windows where the state is, against windows that come ready-made."""

from __future__ import annotations

from math import gcd

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.accumulate import Accumulate
from penstock.engine.operators.contract import HASH, REVISION, SECOND_HASH
from penstock.engine.operators.hop import PANE, Hop
from penstock.engine.operators.windows import END, START
from penstock.engine.state.columns import COUNT
from tests.engine.operators.stepping import Epoch, Event, Row, Stepper, Way, Windows, hashed, histories, stepping, ways
from tests.engine.operators.test_accumulate import GROWING, RULES, parts, run, schema

hops = st.builds(
    Windows, size=st.sampled_from([7, 10, 20]), every=st.sampled_from([3, 5, 10]), keep=st.sampled_from([0, 7, 40])
)


def panes(events: tuple[Event, ...], windows: Windows, way: Way, rules: dict[str, str]) -> list[Row]:
    """What Spark hands over: one row for each group and pane."""
    length = gcd(windows.size, windows.every)
    rows = []
    for row in parts(events, Windows(length, length, 0), way, rules):
        bare = {name: value for name, value in row.items() if name not in (START, END, HASH, SECOND_HASH)}
        rows.append(hashed({**bare, PANE: row[START]}, way, row["key"], 0))
    return rows


def run_hop(epochs: tuple[Epoch, ...], windows: Windows, way: Way, *, final: bool, rules: dict[str, str]) -> Stepper:
    operator = Hop(Accumulate("one", rules, windows.order, final=final), windows.size, windows.every, 0)
    given_ = pa.schema([*schema(None, rules), pa.field(PANE, pa.int64())])
    with stepping(operator, given_, ["key", START, END, COUNT, *rules, REVISION], way) as stepper:
        for epoch in epochs:
            stepper.add_up(stepper.step(panes(epoch.events, windows, way, rules), epoch.watermark))
    return stepper


@given(histories(), hops, ways(), st.booleans())
def test_panes_give_what_their_windows_give(epochs: tuple[Epoch, ...], windows: Windows, way: Way, final: bool) -> None:
    found = run_hop(epochs, windows, way, final=final, rules=GROWING)
    wanted = run(epochs, windows, way, final=final, rules=GROWING)
    assert found.answers == wanted.answers
    assert found.counts == wanted.counts


@given(histories(retracts=True), hops, ways(), st.booleans())
def test_windows_follow_panes_that_lose_events(
    epochs: tuple[Epoch, ...], windows: Windows, way: Way, final: bool
) -> None:
    found = run_hop(epochs, windows, way, final=final, rules=RULES)
    assert found.answers == run(epochs, windows, way, final=final, rules=RULES).answers
