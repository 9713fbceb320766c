"""What the tests of running apps share: a small app, events for it, and what its views must show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

import penstock as ps
from penstock.engine.epoch import Instance
from penstock.flow.settings import AppSettings
from penstock.log import Log, TopicSettings
from penstock.testing import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.flow.stream import Stream

SCHEMA = "id long, kind string, amount long, note string, at timestamp"
NOON = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
TWO = AppSettings(state_partitions=2)

TOTALS = "select kind, count(*) as events, sum(amount) as amount from events group by kind"
MINUTES = """
    select kind, time_bucket(interval '1 minute', "at") as window_start, sum(amount) as amount, count(*) as events
    from events group by 1, 2
"""


def events_of(app: ps.App, name: str = "events", **options: Any) -> Stream:
    return app.topic(name, schema=SCHEMA, **{"key": "id", "time": "at", "partitions": 2, **options})


def shop(settings: AppSettings = TWO, **options: Any) -> ps.App:
    """Totals of each kind for ever, and of each minute."""
    app = ps.App("shop", settings=settings)
    events = events_of(app, **options)
    app.view("totals", events.group_by("kind").agg(events="count(*)", amount="sum(amount)"))
    minutes = events.window(ps.tumbling("1 minute")).group_by("kind").agg(amount="sum(amount)", events="count(*)")
    app.view("minutes", minutes)
    return app


def at(seconds: float) -> datetime:
    """So long after noon, which is when rigs start."""
    return NOON + timedelta(seconds=seconds)


def event(id_: int, seconds: float, kind: str = "a", amount: int = 1, note: str = "") -> dict[str, Any]:
    return {"id": id_, "kind": kind, "amount": amount, "note": note, "at": at(seconds)}


def some_events(start: int, count: int, seconds: float = 0.0) -> list[dict[str, Any]]:
    """Events of three kinds, a second apart."""
    numbers = range(start, start + count)
    return [event(one, seconds + one - start, kind="abc"[one % 3], amount=one) for one in numbers]


def forgetful_topic(folder: Path) -> None:
    """The topic of the app, in a new log, keeping no more than a few appends."""
    settings = TopicSettings(partitions=2, key=("id",), time="at", segment_bytes=1_000, retention_bytes=2_000)
    with Log(folder) as log:
        log.create_topic("events", SCHEMA, settings=settings)


# -- what must come out -----------------------------------------------------------------------------------------------


def asked(log: Log, sql: str, *topics: str) -> list[dict[str, Any]]:
    """What DuckDB answers over all rows of some topics."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in topics or ("events",):
            connection.register(name, log.topic(name).read())
        found = connection.sql(sql).to_arrow_table().to_pylist()
    return [{name: _plain(value) for name, value in row.items()} for row in found]


def _plain(value: object) -> object:
    """Sums of whole numbers are decimals in DuckDB."""
    return int(value) if type(value).__name__ == "Decimal" else value


def shown(rows: Sequence[Mapping[str, Any]], *without: str) -> list[tuple[tuple[str, Any], ...]]:
    """Rows in one order, to be compared; without the columns that only a view has."""
    left_out = {"revision", "window_end", *without}
    return sorted((tuple(sorted((k, v) for k, v in row.items() if k not in left_out)) for row in rows), key=repr)


def assert_right(rig: Rig) -> None:
    """The views of `shop` are what DuckDB makes of all rows of the log."""
    assert shown(rig.view("totals")) == shown(asked(rig.log, TOTALS))
    assert shown(rig.view("minutes")) == shown(asked(rig.log, MINUTES))


# -- instances --------------------------------------------------------------------------------------------------------


@contextmanager
def another_instance(rig: Rig, spark: SparkSession, app: ps.App | None = None, **options: Any) -> Iterator[Instance]:
    """An instance beside the one of the rig, which it replaces."""
    program = app or rig.app

    def clock() -> int:
        return int(rig.now.timestamp() * 1_000_000)

    with Instance(program.plan, rig.log, program.settings, spark, clock=clock, **options) as instance:
        yield instance


def run_out(step: Callable[[], Any]) -> list[Any]:
    """Steps until nothing is left to do."""
    done = []
    while (progress := step()) is not None:
        done.append(progress)
    return done
