"""Plays that Hypothesis chooses: what is appended, when, by whom, how it is cut into epochs, and where the app crashes.

A play is a list of rounds. Afterwards a day passes or the input is said to have ended, so that every window has ended,
and the views are compared with what DuckDB says about all events of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import Phase, settings
from hypothesis import strategies as st

from penstock.app import App
from penstock.flow.settings import AppSettings
from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.schema.arrow import parse_schema
from penstock.testing import Crash, Rig

EVENTS = "id bigint, k string, v bigint, amount decimal(12,2), price double, happened timestamp"
ITEMS = "id bigint, k string, v bigint, amount decimal(12,2), price double"
VERSIONS = f"{ITEMS}, since timestamp"
SECOND = 1_000_000
# Before the first epoch there is no watermark: everything is in time.
NEVER = -(2**62)
KEYS = ("a", "b", "c", "", "ü", None)
# Sums of these are exact, so that the order of adding does not show.
PRICES = (0.25, 1.5, -2.75, 1024.125, 0.0, -0.0, float("nan"), None)


@dataclass(frozen=True)
class Event:
    """`delay`: how many seconds before it is appended it has happened."""

    k: str | None
    v: int | None
    amount: Decimal | None
    price: float | None
    delay: int
    producer: str | None


@dataclass(frozen=True)
class Change:
    """A row of the table that is put in the place of another with its id, or (without `item`) deleted."""

    id: int
    item: Mapping[str, Any] | None


@dataclass(frozen=True)
class Round:
    """`pause` in seconds comes after it, `epochs` is how many are run (None: until nothing is left)."""

    events: tuple[Event, ...]
    changes: tuple[Change, ...]
    pause: int
    epochs: int | None
    crash: Any


def examples(default: int) -> settings:
    """So many examples in the default run, and as many more in the long one as elsewhere.

    They are not made smaller when one fails: each attempt would take seconds.
    """
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    return settings(max_examples=max(1, default * settings.default.max_examples // 60), phases=phases)


@dataclass(frozen=True)
class Script:
    """A play that follows from a seed. The first that Hypothesis would try by itself is next to empty; this is not."""

    seed: int
    least: int
    most: int

    @property
    def finishes(self) -> bool:
        """Whether the input is said to have ended, instead of waiting for a day to pass."""
        return self.seed % 2 == 1

    def rounds(self) -> list[Round]:
        dice = Random(self.seed)
        return [_round(dice) for _ in range(dice.randint(self.least, self.most))]


def scripts(least: int = 2, most: int = 4) -> st.SearchStrategy[Script]:
    return st.builds(Script, seed=st.integers(0, 2**32), least=st.just(least), most=st.just(most))


def _round(dice: Random) -> Round:
    return Round(
        events=tuple(_event(dice) for _ in range(dice.choice([0, 5, 12, 25]))),
        changes=tuple(_change(dice) for _ in range(dice.choice([0, 4, 9]))),
        pause=dice.choice([0, 7, 40, 95, 700]),
        epochs=dice.choice([None, None, 1]),
        crash=dice.choice([None, "plan", "run", "publish", "commit"]),
    )


def _event(dice: Random) -> Event:
    return Event(**_values(dice), delay=_delay(dice), producer=dice.choice([None, "first", "second"]))


def _change(dice: Random) -> Change:
    return Change(dice.randint(0, 5), _values(dice) if dice.random() < 0.75 else None)


def _values(dice: Random) -> dict[str, Any]:
    return {
        "k": dice.choice(KEYS),
        "v": dice.choice([None, *range(-3, 7)]),
        "amount": dice.choice([None, *(Decimal(dice.randint(-500, 500)).scaleb(-2) for _ in range(5))]),
        "price": dice.choice(PRICES),
    }


def _delay(dice: Random) -> int:
    """Most events come at once, some late, a few with a clock that is an hour ahead."""
    kind = dice.random()
    if kind < 0.05:
        return -3600
    if kind < 0.15:
        return dice.choice([1800, 5400])
    return dice.randint(0, 30) if kind < 0.5 else dice.randint(-60, 300)


def declared(name: str = "oracle", *, max_rows: int = 1_000_000, versions: bool = False) -> tuple[App, Stream, Table]:
    """An app with a stream and a table to declare views on; with `versions`, rows say since when they hold."""
    app = App(name, settings=AppSettings(max_rows=max_rows))
    stream = app.topic("events", schema=EVENTS, key="id", time="happened", lateness="20 seconds", partitions=2)
    columns, time = (VERSIONS, "since") if versions else (ITEMS, None)
    return app, stream, app.table("items", schema=columns, key="id", time=time, partitions=2)


class Play:
    """Plays rounds on a rig and remembers which epoch has read a row, and with which watermark it began."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._next_id = 0
        self._read: list[tuple[dict[str, dict[int, int]], int]] = []

    def all(self, script: Script) -> None:
        for one in script.rounds():
            self.one(one)
        if not script.finishes:
            self.rig.advance("1 day")
        while self.step():
            pass
        if script.finishes:
            self.rig.finish()

    def one(self, part: Round) -> None:
        self.append(part.events)
        self.change(part.changes)
        self.rig.advance(f"{part.pause} seconds")
        if part.crash is not None:
            self.rig.crash_at(part.crash)
        run = 0
        while (part.epochs is None or run < part.epochs) and self.step():
            run += 1

    def append(self, some: tuple[Event, ...]) -> None:
        for event in some:
            row = {"id": self._next_id, "happened": self.rig.now - timedelta(seconds=event.delay)}
            row |= {name: getattr(event, name) for name in ("k", "v", "amount", "price")}
            self._next_id += 1
            if "events" in self.rig.log.topics():
                self.rig.append("events", [row], producer=event.producer)

    def change(self, some: tuple[Change, ...]) -> None:
        if "items" not in self.rig.log.topics():
            return
        for change in some:
            if change.item is None:
                self.rig.append("items", [{"id": change.id}], deleted=True)
            else:
                self.rig.append("items", [{"id": change.id, **change.item, **self._since(change.item)}])

    def _since(self, item: Mapping[str, Any]) -> dict[str, datetime]:
        """A row of the table holds since some time ago, or from some time on."""
        if "since" not in self.rig.topic("items").schema.names:
            return {}
        return {"since": self.rig.now - timedelta(seconds=60 * (item["v"] or 0))}

    def step(self) -> bool:
        """Run one epoch, or crash in it and begin again; whether there was anything to do."""
        watermark = self.rig.watermark("events")
        try:
            going = self.rig.step() is not None
        except Crash:
            self.rig.restart()
            going = True
        ends = {topic: self.rig.positions(topic) for topic in ("events", "items") if topic in self.rig.log.topics()}
        self._read.append((ends, NEVER if watermark is None else _micros(watermark)))
        return going

    def database(self) -> duckdb.DuckDBPyConnection:
        """All that is in the log: `events` that are not dead, all `arrived` ones, and the rows that `items` has now."""
        database = duckdb.connect()
        database.execute("SET TimeZone = 'UTC'")
        arrived, items = self._events(), self._items()  # noqa: F841 - DuckDB finds them by their names
        database.execute("CREATE TABLE arrived AS SELECT *, epoch_us(happened) AS us FROM arrived")
        database.execute("CREATE TABLE events AS SELECT * FROM arrived WHERE us <= stored + 600 * 1000000")
        database.execute("CREATE TABLE items_log AS SELECT * FROM items")
        database.execute(
            """
            CREATE VIEW items AS SELECT * EXCLUDE (partition, "offset", before, epoch, stored, gone) FROM items_log
            QUALIFY NOT gone AND row_number() OVER (PARTITION BY id ORDER BY "offset" DESC) = 1
            """
        )
        database.execute("CREATE MACRO floored(us, size, start) AS us - (((us - start) % size) + size) % size")
        return database

    def _events(self) -> pa.Table:
        return self._rows("events", EVENTS).drop_columns(["gone"])

    def _items(self) -> pa.Table:
        return self._rows("items", VERSIONS)

    def _rows(self, topic: str, ddl: str) -> pa.Table:
        """Every row of a topic, with where and when it was stored, and by which epoch it was read."""
        rows = []
        for batch in self.rig.topic(topic).batches() if topic in self.rig.log.topics() else []:
            gone = [False] * len(batch) if batch.deleted is None else batch.deleted.to_pylist()
            for row, offset, deleted in zip(batch.rows.to_pylist(), batch.offsets.tolist(), gone, strict=True):
                epoch, before = self._reading(topic, batch.partition, offset)
                place = {"partition": batch.partition, "offset": offset, "before": before, "epoch": epoch}
                rows.append({**row, **place, "stored": batch.append_time, "gone": deleted})
        numbers = [pa.field(name, pa.int64()) for name in ("partition", "offset", "before", "epoch", "stored")]
        fields = [*parse_schema(ddl), *numbers, pa.field("gone", pa.bool_())]
        return pa.Table.from_pylist(rows, schema=pa.schema(fields))

    def _reading(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        """The epoch that read a row, and the watermark it began with."""
        for epoch, (ends, watermark) in enumerate(self._read):
            if ends.get(topic, {}).get(partition, 0) > offset:
                return epoch, watermark
        return 0, NEVER


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * SECOND)
