"""The pump: each row once and in order, whatever crashes, is unavailable or repeated; batches, progress, stopping."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.capture.pump import Progress, PumpOptions, pump
from penstock.contracts import Captured, Position, SourceTable, StagesRows, TopicRows, TopicSettings, Writer
from penstock.errors import DeclarationError, FencedError, RowError, UnavailableError, UnknownOutcomeError
from penstock.log import Log
from penstock.testing import MemoryLog
from penstock.testing.capture import ConfirmedMemorySource, Event, MemorySource, Pause

NUMBERS = count()
DOWN = UnavailableError("the server is down")


def events(number: int, table: str = "orders") -> list[Event | Pause | Exception]:
    return [Event(table, {"id": index}) for index in range(number)]


def memory_log() -> MemoryLog:
    log = MemoryLog()
    for name in ("orders", "people", "shop.orders", "shop.people"):
        log.create_topic(name, "id long", settings=TopicSettings(key=("id",)))
    return log


def stored_ids(log: MemoryLog, topic: str = "orders") -> list[object]:
    return [number for number, _ in marked_ids(log, topic)]


def marked_ids(log: MemoryLog, topic: str) -> list[tuple[object, bool]]:
    """The ids of the rows of a topic, and whether each deletes its key."""
    found = []
    for batch in log.topic(topic).batches():
        marks = [False] * len(batch) if batch.deleted is None else batch.deleted.to_pylist()
        found += zip(batch.rows.column("id").to_pylist(), marks, strict=True)
    return found


@dataclass
class Clock:
    """A stop event that never waits: it records each pause, and is set once `stop_after` pauses were taken."""

    pauses: list[float] = field(default_factory=list)
    stop_after: int = 1_000

    def is_set(self) -> bool:
        return len(self.pauses) >= self.stop_after

    def wait(self, timeout: float) -> bool:
        self.pauses.append(timeout)
        return self.is_set()


@dataclass
class FaultyWriter:
    """A writer whose process dies or whose log is unavailable, following a script with one entry per write."""

    writer: Writer
    faults: Iterator[str]

    @property
    def token(self) -> int:
        return self.writer.token

    @property
    def position(self) -> Position | None:
        return self.writer.position

    def write(self, rows: Sequence[TopicRows], position: Position) -> bool:
        fault = next(self.faults, "")
        if fault == "unavailable":
            raise UnavailableError("the log is locked")
        if fault == "dies before":
            raise UnknownOutcomeError("killed")
        done = self.writer.write(rows, position)
        if fault == "dies after":
            raise UnknownOutcomeError("killed")
        return done

    def close(self) -> None:
        self.writer.close()


@dataclass
class FaultyStagingWriter(FaultyWriter):
    """The same for a writer that stages rows; the script has an entry for that, too."""

    staged: int = 0

    def stage(self, rows: Sequence[TopicRows]) -> None:
        fault = next(self.faults, "")
        if fault == "unavailable":
            raise UnavailableError("the disk is full")
        assert isinstance(self.writer, StagesRows)
        self.writer.stage(rows)
        self.staged += sum(len(part.rows) for part in rows)
        if fault.startswith("dies"):
            raise UnknownOutcomeError("killed")

    def discard(self) -> None:
        assert isinstance(self.writer, StagesRows)
        self.writer.discard()


# -- exactly once, in order -------------------------------------------------------------------------------------------

FAULTS = st.lists(st.sampled_from(["", "", "unavailable", "dies before", "dies after"]), max_size=12)
INPUT = st.lists(
    st.one_of(
        st.builds(Event, st.sampled_from(["orders", "people"]), st.just({}), more=st.booleans()),
        st.builds(Pause),
        st.builds(UnavailableError, st.just("down")),
        st.builds(UnknownOutcomeError, st.just("the source crashed")),
    ),
    max_size=25,
)


def numbered_events(drawn: Sequence[Event | Pause | Exception]) -> list[Event | Pause | Exception]:
    """The drawn events with a number in each row, and the last transaction closed."""
    found: list[Event | Pause | Exception] = []
    for number, event in enumerate(drawn):
        is_event = isinstance(event, Event)
        found.append(Event(event.table, {"id": number}, number % 3 == 2, event.more) if is_event else event)
    return [*found, Event("orders", {"id": len(found)})]


def pump_until_done(
    source: MemorySource, log: MemoryLog | Log, name: str, faults: Iterator[str], rows: int, most: int = 0
) -> None:
    """Pump as a supervisor would: start again after every crash, as a new process that fences the last.

    With `most`, the writer stages rows when so many are open.
    """
    options = PumpOptions(batch_rows=rows, most_rows=most or 1_000)
    while True:
        writer = (FaultyStagingWriter if most else FaultyWriter)(log.writer(name), faults)
        try:
            pump(source, writer, options=options, stop=Clock())
            return
        except (UnknownOutcomeError, UnavailableError):
            continue


@given(
    drawn=INPUT,
    faults=FAULTS,
    item_rows=st.integers(1, 4),
    batch=st.integers(1, 9),
    confirms=st.booleans(),
    most=st.integers(0, 4),
)
def test_whatever_fails_every_row_is_stored_once_and_in_order(
    drawn: list[Event | Pause | Exception], faults: list[str], item_rows: int, batch: int, confirms: bool, most: int
) -> None:
    log, script = memory_log(), numbered_events(drawn)

    def check_durable(position: Position) -> None:
        assert isinstance(position, int)
        stored = {number for topic in log.topics() for number in stored_ids(log, topic)}
        assert stored >= {event.row["id"] for event in script[:position] if isinstance(event, Event)}

    kind = ConfirmedMemorySource if confirms else MemorySource
    source = kind(script, item_rows=item_rows, on_durable=check_durable)
    pump_until_done(source, log, "capture", iter(faults), batch, most)
    for table in ("orders", "people"):
        expected = [(e.row["id"], e.deleted) for e in script if isinstance(e, Event) and e.table == table]
        assert marked_ids(log, table) == expected
    assert log.writer("capture").position == len(script)


@pytest.fixture(scope="module")
def real_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with Log(tmp_path_factory.mktemp("pump") / "log") as opened:
        for table in ("orders", "people"):
            opened.create_topic(table, "id long, run long", key=("id", "run"))
        yield opened


@settings(max_examples=25)
@given(drawn=INPUT, faults=FAULTS, item_rows=st.integers(1, 4), confirms=st.booleans(), most=st.integers(0, 4))
def test_the_same_into_the_embedded_log(
    real_log: Log, drawn: list[Event | Pause | Exception], faults: list[str], item_rows: int, confirms: bool, most: int
) -> None:
    run = next(NUMBERS)
    script = [
        Event(event.table, {**event.row, "run": run}, event.deleted, event.more) if isinstance(event, Event) else event
        for event in numbered_events(drawn)
    ]
    ends = {table: real_log.topic(table).ends() for table in ("orders", "people")}
    source = (ConfirmedMemorySource if confirms else MemorySource)(script, item_rows=item_rows)
    pump_until_done(source, real_log, f"run-{run}", iter(faults), 5, most)
    for table in ("orders", "people"):
        found = []
        for batch in real_log.topic(table).batches(ends[table]):
            marks = batch.deleted.to_pylist() if batch.deleted is not None else [False] * len(batch)
            found += list(zip(batch.rows.to_pylist(), marks, strict=True))
        assert found == [(e.row, e.deleted) for e in script if isinstance(e, Event) and e.table == table]


# -- batches ----------------------------------------------------------------------------------------------------------


def test_items_of_a_source_that_confirms_are_written_together_up_to_a_pause_or_a_full_batch() -> None:
    log, seen = memory_log(), list[Position]()
    source = ConfirmedMemorySource([*events(3), Pause(), *events(7)], on_durable=seen.append)
    done = pump(source, log.writer("w"), options=PumpOptions(batch_rows=5, most_seconds=60))
    assert seen == [4, 9, 11]
    assert done == Progress(position=11, rows=10, writes=3)


def test_rows_of_a_source_that_never_pauses_wait_for_others_only_so_long() -> None:
    class BusySource(ConfirmedMemorySource):
        """Gives rows until some of them are written."""

        def read(self, after: Position | None) -> Iterator[Captured]:
            for item in super().read(after):
                if confirmed:
                    return
                yield item

    confirmed: list[Position] = []
    source = BusySource(events(1_000_000), on_durable=confirmed.append)
    done = pump(source, memory_log().writer("w"), options=PumpOptions(batch_rows=10_000_000, most_seconds=0.001))
    assert len(confirmed) == 1
    assert 0 < done.rows < 1_000_000


def test_each_item_of_another_source_is_durable_before_the_next_is_asked_for() -> None:
    log, seen = memory_log(), list[tuple[Position, int]]()
    source = MemorySource(
        events(4), item_rows=2, on_durable=lambda position: seen.append((position, len(stored_ids(log))))
    )
    assert pump(source, log.writer("w"), options=PumpOptions(batch_rows=100)).writes == 2
    assert seen == [(2, 2), (4, 4)]


def test_a_transaction_over_two_tables_is_one_write() -> None:
    log = memory_log()
    source = MemorySource([Event("orders", {"id": 1}, more=True), Event("people", {"id": 2})])
    done = pump(source, log.writer("w"), topics={"orders": "shop.orders", "people": "shop.people"})
    assert (done.writes, stored_ids(log, "shop.orders"), stored_ids(log, "shop.people")) == (1, [1], [2])


def test_a_heartbeat_moves_the_position_and_one_that_does_not_is_not_written() -> None:
    log = memory_log()
    source = ConfirmedMemorySource([*events(1), Pause(), Pause()])
    assert pump(source, log.writer("w")).writes == 2
    assert pump(ConfirmedMemorySource([*events(1), Pause(), Pause()]), log.writer("w")).writes == 0


def test_progress_is_reported_after_every_write() -> None:
    reports: list[Progress] = []
    pump(MemorySource(events(3)), memory_log().writer("w"), report=reports.append)
    assert [(progress.position, progress.rows) for progress in reports] == [(1, 1), (2, 2), (3, 3)]


# -- failures ---------------------------------------------------------------------------------------------------------


def test_while_the_log_is_unavailable_pauses_double_and_the_same_write_is_tried_again() -> None:
    log, clock = memory_log(), Clock()
    writer = FaultyWriter(log.writer("w"), iter(["unavailable"] * 4))
    done = pump(MemorySource(events(1)), writer, options=PumpOptions(longest_pause=0.5), stop=clock)
    assert clock.pauses == [0.1, 0.2, 0.4, 0.5]
    assert (done.pauses, done.rows, stored_ids(log)) == (4, 1, [0])


def test_attempts_are_bounded_and_the_error_is_raised_as_it_is() -> None:
    clock = Clock()
    writer = FaultyWriter(memory_log().writer("w"), iter(["unavailable"] * 99))
    with pytest.raises(UnavailableError, match="the log is locked"):
        pump(MemorySource(events(1)), writer, options=PumpOptions(attempts=3), stop=clock)
    assert len(clock.pauses) == 2


def test_an_unavailable_source_is_read_again_from_what_was_written() -> None:
    log, clock = memory_log(), Clock()
    source = ConfirmedMemorySource([*events(2), DOWN, *events(2)])
    assert pump(source, log.writer("w"), stop=clock).rows == 4
    assert (stored_ids(log), clock.pauses) == ([0, 1, 0, 1], [0.1])


def test_the_pump_gives_up_on_a_source_that_only_opens_and_fails() -> None:
    script = [Pause(), *[UnavailableError("down") for _ in range(20)]]
    with pytest.raises(UnavailableError):
        pump(ConfirmedMemorySource(script), memory_log().writer("w"), options=PumpOptions(attempts=5), stop=Clock())


def test_what_came_before_an_error_of_the_source_is_stored() -> None:
    log = memory_log()
    with pytest.raises(RowError):
        pump(ConfirmedMemorySource([*events(3), RowError("line 4 is bad")]), log.writer("w"))
    assert stored_ids(log) == [0, 1, 2]


def test_a_pump_that_was_replaced_stops_with_an_error() -> None:
    log = memory_log()
    writer = log.writer("w")
    log.writer("w")
    with pytest.raises(FencedError):
        pump(MemorySource(events(1)), writer)


def test_a_source_that_gives_rows_without_moving_is_refused_and_loses_nothing() -> None:
    class StuckSource(MemorySource):
        def read(self, after: Position | None) -> Iterator[Captured]:
            yield Captured("orders", [{"id": 1}], position=1)
            yield Captured("orders", [{"id": 2}], position=1)

    log = memory_log()
    with pytest.raises(DeclarationError, match="table 'orders' gave rows without moving its position, which is 1"):
        pump(StuckSource(events(1)), log.writer("w"))
    assert stored_ids(log) == [1]


def test_a_table_without_a_topic_is_refused_before_anything_is_read() -> None:
    with pytest.raises(DeclarationError, match="its table 'orders' has no topic; there are topics for people"):
        pump(MemorySource(events(1)), memory_log().writer("w"), topics={"people": "people"})


def test_rows_of_a_table_that_was_not_named_are_refused() -> None:
    class MisnamedSource(MemorySource):
        def tables(self) -> Sequence[SourceTable]:
            return [SourceTable("people")]

    with pytest.raises(DeclarationError, match="it gave rows of 'orders', which is none of its tables"):
        pump(MisnamedSource(events(1)), memory_log().writer("w"))


# -- stopping ---------------------------------------------------------------------------------------------------------


def test_a_stopped_pump_writes_what_it_has_gathered_and_returns() -> None:
    log, stop = memory_log(), threading.Event()

    class StoppingSource(ConfirmedMemorySource):
        def read(self, after: Position | None) -> Iterator[Captured]:
            for item in super().read(after):
                if item.position == 3:
                    stop.set()
                yield item

    source = StoppingSource(events(9))
    assert pump(source, log.writer("w"), stop=stop).position == 3
    assert stored_ids(log) == [0, 1, 2]
    stop.clear()
    pump(ConfirmedMemorySource(events(9)), log.writer("w"), stop=stop)
    assert stored_ids(log) == list(range(9))


def test_a_pump_that_is_stopped_while_it_waits_returns_at_once() -> None:
    clock = Clock(stop_after=2)
    source = MemorySource([*events(1), *[UnavailableError("down") for _ in range(20)]])
    assert pump(source, memory_log().writer("w"), stop=clock).rows == 1
    assert len(clock.pauses) == 2


def test_the_iterator_of_the_source_is_closed() -> None:
    ended: list[str] = []

    class WatchedSource(MemorySource):
        def read(self, after: Position | None) -> Iterator[Captured]:
            try:
                yield from super().read(after)
            finally:
                ended.append("closed")

    writer = FaultyWriter(memory_log().writer("w"), iter(["unavailable"]))
    with pytest.raises(UnavailableError):
        pump(WatchedSource(events(2)), writer, options=PumpOptions(attempts=1))
    assert ended == ["closed"]


# -- transactions that are larger than memory -------------------------------------------------------------------------


def test_rows_without_a_position_are_staged_and_never_visible_before_it_comes() -> None:
    log, visible = memory_log(), list[int]()
    script = [Event("orders", {"id": number}, more=number < 9) for number in range(10)]

    class Source(MemorySource):
        def read(self, after: Position | None) -> Iterator[Captured]:
            for item in super().read(after):
                visible.append(len(stored_ids(log)))
                yield item

    writer = FaultyStagingWriter(log.writer("capture"), iter(()))
    done = pump(Source(script, item_rows=1), writer, options=PumpOptions(most_rows=4))
    assert (writer.staged, set(visible), stored_ids(log)) == (8, {0}, list(range(10)))
    assert (done.rows, done.writes) == (10, 1)


def test_a_transaction_that_never_ends_is_discarded_with_what_was_staged() -> None:
    log = memory_log()
    script: list[Event | Pause | Exception] = [
        Event("orders", {"id": 1}),
        *(Event("orders", {"id": number}, more=True) for number in range(2, 9)),
    ]
    writer = log.writer("capture")
    pump(MemorySource(script), writer, options=PumpOptions(most_rows=2))
    writer.write([], "moved")
    assert stored_ids(log) == [1]


class Batches:
    """A source of one transaction: batches of several tables, of which the last has a position."""

    def __init__(self, items: Sequence[Captured]) -> None:
        self.items = items

    def tables(self) -> Sequence[SourceTable]:
        return [SourceTable(name) for name in dict.fromkeys(item.table for item in self.items)]

    def read(self, after: Position | None) -> Iterator[Captured]:
        yield from self.items

    def close(self) -> None:
        pass


def test_small_batches_of_a_topic_are_written_as_one() -> None:
    log = memory_log()
    items = []
    for number in range(6):
        for table in ("orders", "people"):
            marks = [number % 2 == 0] if 2 <= number < 4 else None
            items.append(Captured(table, pa.record_batch({"id": [number]}), marks, None))
    items.append(Captured("", (), None, 1))
    pump(Batches(items), log.writer("capture"))
    for table in ("orders", "people"):
        assert [len(batch) for batch in log.topic(table).batches()] == [2, 2, 2]
        assert marked_ids(log, table) == [(0, False), (1, False), (2, True), (3, False), (4, False), (5, False)]


@pytest.mark.long
def test_a_transaction_of_two_million_rows_needs_little_memory(tmp_path: Path) -> None:
    """In a process of its own, whose peak is that of this transaction."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.capture.large_transaction", str(tmp_path / "log"), "2000000"],
        check=True,
        capture_output=True,
        text=True,
    )
    told = json.loads(found.stdout)
    assert told["growth_mib"] < 200, told
    assert told["rows"] == 2_000_000
    assert told["transactions"] == 1
    assert list((tmp_path / "log" / "staging").iterdir()) == []
