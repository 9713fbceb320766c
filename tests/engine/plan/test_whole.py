"""Cuts without half a transaction, over logs: limits, bounds, what is read for it, and what no limit lets through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.contracts import Log as AnyLog
from penstock.contracts import TopicRows, TopicSettings
from penstock.engine.plan.cut import Cut
from penstock.engine.plan.inputs import open_inputs
from penstock.engine.plan.next_cut import first_cut, next_cut, rows_in
from penstock.engine.plan.whole import keep_whole
from penstock.flow.settings import AppSettings
from penstock.log import Log, Topic
from penstock.testing import MemoryLog

NOW = 10**15
TOPICS = ("left", "right")


@dataclass
class Clock:
    seconds: float = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Transfers:
    """Two topics of which each transaction adds as much to one as it takes from the other; and rows that are alone."""

    log: AnyLog
    number: int = 0
    sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writer = self.log.writer("transfers")
        for name in TOPICS:
            self.log.create_topic(name, "id long, amount long", settings=TopicSettings(2, ("id",), durability="os"))

    def write(self, rows: int) -> None:
        ids = range(self.number, self.number + rows)
        self.number += rows
        parts = [
            TopicRows(name, [{"id": number, "amount": sign} for number in ids])
            for name, sign in zip(TOPICS, (1, -1), strict=True)
        ]
        self.writer.write(parts, self.number)
        self.sizes.append(2 * rows)

    def append(self, name: str, rows: int) -> None:
        self.log.topic(name).append([{"id": -number, "amount": 0} for number in range(rows)])

    def total(self, cut: Cut) -> int:
        """The sum of all amounts before a cut."""
        return sum(
            sum(batch.rows.column("amount").to_pylist())
            for name in TOPICS
            for batch in self.log.topic(name).batches("start", until=cut.sources[name].ends)
        )


def app_of_two_topics() -> ps.App:
    app = ps.App("bank")
    for name in TOPICS:
        app.view(f"v_{name}", app.topic(name, schema="id long, amount long", key="id").select(id="id"))
    return app


WRITES = st.lists(
    st.one_of(st.integers(1, 12), st.tuples(st.sampled_from(TOPICS), st.integers(1, 12))), min_size=1, max_size=12
)


@given(WRITES, st.integers(1, 40), st.sampled_from([MemoryLog, Log]))
def test_no_cut_has_half_a_transaction_and_everything_is_read(
    tmp_path_factory: pytest.TempPathFactory, writes: list[int | tuple[str, int]], max_rows: int, kind: type
) -> None:
    log = kind(tmp_path_factory.mktemp("log")) if kind is Log else kind()
    transfers = Transfers(log)
    for write in writes:
        if isinstance(write, int):
            transfers.write(write)
        else:
            transfers.append(*write)
    inputs = open_inputs(log, app_of_two_topics().plan)
    cut = first_cut(inputs, 0)
    largest = max(transfers.sizes, default=0)
    while any(cut.sources[name].ends != log.topic(name).ends() for name in TOPICS):
        cut, _ = next_cut(log, inputs, cut, AppSettings(max_rows=max_rows), now=NOW)
        assert 1 <= rows_in(cut) <= max_rows + largest
        assert transfers.total(cut) == 0
    log.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> Iterator[Log]:
    with Log(tmp_path / "log", clock=clock) as opened:
        yield opened


def test_a_limit_stops_before_the_transaction_that_it_would_cut(log: Log) -> None:
    transfers = Transfers(log)
    for _ in range(3):
        transfers.write(10)
    inputs = open_inputs(log, app_of_two_topics().plan)
    cut = first_cut(inputs, 0)
    read = []
    while sum(read) < 60:
        cut, _ = next_cut(log, inputs, cut, AppSettings(max_rows=50), now=NOW)
        read.append(rows_in(cut))
    assert read in ([40, 20], [20, 40])


def test_a_transaction_that_fits_no_limit_is_read_whole(log: Log) -> None:
    transfers = Transfers(log)
    for _ in range(3):
        transfers.write(100)
    inputs = open_inputs(log, app_of_two_topics().plan)
    cut = first_cut(inputs, 0)
    for _ in range(3):
        cut, _ = next_cut(log, inputs, cut, AppSettings(max_rows=7), now=NOW)
        assert rows_in(cut) == 200


def test_a_backfill_within_a_cut_ends_at_that_cut(log: Log) -> None:
    transfers = Transfers(log)
    transfers.write(10)
    transfers.write(10)
    inputs = open_inputs(log, app_of_two_topics().plan)
    start = first_cut(inputs, 0)
    live, _ = next_cut(log, inputs, start, AppSettings(), now=NOW)
    transfers.write(10)
    cut, steps = start, 0
    while cut.sources["left"].ends != live.sources["left"].ends:
        cut, _ = next_cut(log, inputs, cut, AppSettings(max_rows=5), now=NOW, until=live.sources)
        assert transfers.total(cut) == 0
        steps += 1
    assert (steps, cut.sources["right"].ends) == (2, live.sources["right"].ends)


def test_a_backfill_with_a_further_topic_reads_no_half_of_what_is_behind_its_bound(log: Log) -> None:
    transfers = Transfers(log)
    transfers.write(10)
    inputs = open_inputs(log, app_of_two_topics().plan)
    start = first_cut(inputs, 0)
    live, _ = next_cut(log, inputs, start, AppSettings(), now=NOW)
    transfers.write(10)
    bound = {"left": live.sources["left"]}
    cut, _ = next_cut(log, inputs, start, AppSettings(), now=NOW, until=bound)
    assert cut.sources["left"].ends == live.sources["left"].ends
    assert transfers.total(cut) == 0


# -- tables that are read before events -------------------------------------------------------------------------------


def bank_with_table() -> ps.App:
    app = ps.App("shop")
    left = app.topic("left", schema="id long, amount long", key="id")
    right = app.table("right", schema="id long, amount long", key="id").select(id="id", balance="amount")
    app.view("named", left.join(right, on="id", as_of="now"))
    return app


def test_events_and_rows_of_a_table_in_one_transaction_are_read_together(log: Log) -> None:
    transfers = Transfers(log)
    transfers.write(10)
    transfers.write(10)
    inputs = open_inputs(log, bank_with_table().plan)
    assert inputs["left"].waits_for == {"right"}
    cut = first_cut(inputs, 0)
    for _ in range(2):
        cut, _ = next_cut(log, inputs, cut, AppSettings(max_rows=10), now=NOW)
        assert (rows_in(cut), transfers.total(cut)) == (20, 0)


def test_a_table_is_still_read_before_events_that_share_no_transaction_with_it(log: Log) -> None:
    transfers = Transfers(log)
    transfers.writer.write([TopicRows("left", [{"id": 1, "amount": 0}])], "events")
    for number in range(4):
        transfers.writer.write([TopicRows("right", [{"id": n, "amount": 0} for n in range(5)])], number)
    inputs = open_inputs(log, bank_with_table().plan)
    first, _ = next_cut(log, inputs, first_cut(inputs, 0), AppSettings(max_rows=12), now=NOW)
    assert first.sources["left"].ends == {0: 0, 1: 0}
    assert 5 <= sum(first.sources["right"].ends.values()) < 20


def test_events_wait_for_a_table_that_a_transaction_with_another_topic_holds_back(log: Log) -> None:
    app = bank_with_table()
    app.view("others", app.topic("other", schema="id long", key="id").select(id="id"))
    transfers = Transfers(log)
    log.create_topic("other", "id long", settings=TopicSettings(key=("id",)))
    transfers.writer.write([TopicRows("left", [{"id": 1, "amount": 0}])], "events")
    many = [{"id": number} for number in range(100)]
    transfers.writer.write([TopicRows("other", many)], "others")
    transfers.writer.write([TopicRows("other", many), TopicRows("right", [{"id": 1, "amount": 0}])], "both")
    inputs = open_inputs(log, app.plan)
    cut = first_cut(inputs, 0)
    while sum(cut.sources["right"].ends.values()) == 0:
        assert sum(cut.sources["left"].ends.values()) == 0
        cut, _ = next_cut(log, inputs, cut, AppSettings(max_rows=60), now=NOW)
    assert sum(cut.sources["other"].ends.values()) == 200


# -- what it costs ----------------------------------------------------------------------------------------------------


def test_headers_are_read_only_where_a_limit_truncates_and_no_further_than_transactions_may_reach(
    log: Log, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfers = Transfers(log)
    for _ in range(30):
        transfers.write(10)
        clock.seconds += 100
    read: list[int] = []

    def summaries(topic: Topic, partition: int, start: int, until: int) -> Iterator[object]:
        for found in original(topic, partition, start, until):
            for record in found:
                read.append(int(record["rows"]))
                yield found[found["base_offset"] == record["base_offset"]]

    original = Topic.summaries
    monkeypatch.setattr(Topic, "summaries", summaries)
    inputs = open_inputs(log, app_of_two_topics().plan)
    start = first_cut(inputs, 0)
    next_cut(log, inputs, start, AppSettings(max_rows=1_000), now=NOW)
    assert read == []
    cut, _ = next_cut(log, inputs, start, AppSettings(max_rows=50), now=NOW)
    assert 0 < rows_in(cut) <= 50
    assert sum(read) < 200


def test_rows_that_topics_do_not_summarise_are_alone() -> None:
    class Plain:
        name = "plain"

    starts = {"plain": (Plain(), {0: 0})}
    ends = {"plain": {0: 5}}
    assert keep_whole(starts, ends, {"plain": {0: 9}}, ends) == ends  # type: ignore[arg-type]


def test_a_compacted_past_has_no_transactions_and_an_erasure_keeps_them(log: Log) -> None:
    numbers = {}
    for kind in ("compacted", "erased"):
        topic = log.create_topic(kind, "id long, n long", key="id")
        writer = log.writer(kind)
        for n in range(3):
            writer.write([TopicRows(kind, [{"id": n, "n": n}, {"id": 9, "n": n}])], n)
        topic.compact() if kind == "compacted" else topic.erase({"id": 1})
        writer.write([TopicRows(kind, [{"id": 5, "n": 5}])], 5)
        numbers[kind] = [int(number) for found in topic.summaries(0, 0, 100) for number in found["transaction"]]
    assert len(numbers["compacted"]) == 2
    assert numbers["compacted"][0] == 0
    assert len(set(numbers["erased"])) == 4
    assert 0 not in numbers["erased"]
