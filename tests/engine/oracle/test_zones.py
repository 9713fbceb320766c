"""Days of a time zone: as long as they are there, also when clocks change, at midnight too."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from penstock.app import App
from penstock.flow.event_time import event_time
from penstock.flow.windows import hopping, tumbling
from penstock.testing import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Where and when clocks change: at 2 or 3 o'clock, at midnight to 1, at midnight back to 23, at 1 back to midnight, and
# a day that never was.
CHANGES = [
    ("Europe/Berlin", date(2024, 3, 31)),
    ("Europe/Berlin", date(2024, 10, 27)),
    ("America/Sao_Paulo", date(2018, 11, 4)),
    ("America/Sao_Paulo", date(2018, 2, 18)),
    ("America/Havana", date(2023, 11, 5)),
    ("Pacific/Apia", date(2011, 12, 30)),
    ("Australia/Lord_Howe", date(2024, 4, 7)),
]
DAY = timedelta(days=1)


def midnight(zone: str, day: date) -> datetime:
    """The moment at which a day begins in a zone; where there is no midnight, the first moment after it."""
    naive = datetime.combine(day, datetime.min.time())
    begins = naive.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    skipped = begins.astimezone(ZoneInfo(zone)).replace(tzinfo=None) != naive
    # Python takes the offset from before the change for a time that is skipped; it is the time of the change itself.
    return _change_around(zone, begins) if skipped else begins


def _change_around(zone: str, moment: datetime) -> datetime:
    here = ZoneInfo(zone)
    low, high = moment - 2 * DAY, moment + 2 * DAY
    while high - low > timedelta(microseconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(here).utcoffset() == low.astimezone(here).utcoffset():
            low = middle
        else:
            high = middle
    return high


def local_day(zone: str, moment: datetime) -> date:
    return moment.astimezone(ZoneInfo(zone)).date()


def moments(zone: str, day: date) -> list[datetime]:
    """Moments around a change of clocks, some of them on the edges of days."""
    dice = Random(str((zone, day)))
    around = midnight(zone, day)
    edges = [midnight(zone, day + n * DAY) + timedelta(microseconds=m) for n in (-1, 0, 1, 2) for m in (-1, 0, 1)]
    return [around + timedelta(minutes=dice.randint(-3000, 4000)) for _ in range(40)] + edges


def windows_of(zone: str, days: int, every: int, moment: datetime) -> list[tuple[datetime, datetime]]:
    """All windows of whole days that a moment is in; they are counted from the beginning of 1970."""
    day = local_day(zone, moment)
    number = (day - date(1970, 1, 1)).days
    last = number - number % every
    starts = [last - back for back in range(0, days, every) if last - back + days > number]
    first = date(1970, 1, 1)
    return [(midnight(zone, first + start * DAY), midnight(zone, first + (start + days) * DAY)) for start in starts]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """The days of all zones, counted by one app."""
    app = App("zones")
    events = app.topic(
        "events", schema="zone string, happened timestamp", time=event_time("happened", max_ahead="100000 days")
    )
    for number, zone in enumerate(dict(CHANGES)):
        here = events.where(f"zone = '{zone}'")
        days = here.window(tumbling("1 day", zone=zone), emit="changes", keep="10000 days")
        app.view(f"days_{number}", days.group_by().agg(n="count(*)"))
        spans = here.window(hopping("3 days", "2 days", zone=zone), keep="10000 days")
        app.view(f"spans_{number}", spans.group_by().agg(n="count(*)"))
    with Rig(app, spark=spark, start=datetime(2025, 1, 1, tzinfo=UTC)) as rig:
        for zone, day in CHANGES:
            rig.append("events", [{"zone": zone, "happened": moment} for moment in moments(zone, day)])
        rig.advance("10 days")
        rig.run()
        return {view.name: rig.view(view.name) for view in app.plan.views}


@pytest.mark.parametrize("zone", dict(CHANGES))
def test_days_are_as_long_as_they_are_there(found: dict[str, list[dict[str, Any]]], zone: str) -> None:
    number = list(dict(CHANGES)).index(zone)
    happened = [moment for where, day in CHANGES if where == zone for moment in moments(zone, day)]
    for view, days, every in ((f"days_{number}", 1, 1), (f"spans_{number}", 3, 2)):
        wanted: dict[tuple[datetime, datetime], int] = {}
        for moment in happened:
            for window in windows_of(zone, days, every, moment):
                wanted[window] = wanted.get(window, 0) + 1
        rows = {(row["window_start"], row["window_end"]): row["n"] for row in found[view]}
        assert rows == wanted


def test_days_that_begin_in_the_hour_in_which_clocks_change_hold_their_events(spark: SparkSession) -> None:
    """In spring that hour is not there, in autumn it is there twice."""
    app = App("early")
    events = app.topic("events", schema="id long, at timestamp", time="at")
    days = events.window(tumbling("1 day", offset="150 minutes", zone="Europe/Berlin"), late="drop")
    app.view("days", days.group_by("id").agg(at="max(at)"))
    changes = [datetime(2024, 3, 31, 1, tzinfo=UTC), datetime(2024, 10, 27, 1, tzinfo=UTC)]
    minutes = [change + timedelta(minutes=7 * step) for change in changes for step in range(-20, 20)]
    with Rig(app, spark=spark, start=datetime(2024, 12, 1, tzinfo=UTC)) as rig:
        rig.append("events", [{"id": number, "at": at} for number, at in enumerate(minutes)])
        rig.finish()
        rows = rig.view("days")
        assert len(rows) == len(minutes)
        assert all(row["window_start"] <= row["at"] < row["window_end"] for row in rows)
        assert rig.account("days").late == 0
