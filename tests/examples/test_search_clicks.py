"""Searches with their clicks and without; what the views should show is worked out in plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.app import load_app
from penstock.testing import Crash, Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "search_clicks.py"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Site:
    """What visitors do, done in the log, and remembered to say what the views should show."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.searches: dict[int, dict[str, Any]] = {}
        self.clicks: list[dict[str, Any]] = []

    def search(self, number: int, minute: float, term: str = "tea") -> None:
        searched_at = NOON + timedelta(minutes=minute)
        self.searches[number] = {"search_id": number, "term": term, "searched_at": searched_at}
        self.rig.append("searches", [self.searches[number]])

    def click(self, number: int, minute: float, url: str = "/") -> None:
        self.clicks.append({"search_id": number, "url": url, "clicked_at": NOON + timedelta(minutes=minute)})
        self.rig.append("clicks", [self.clicks[-1]])

    def wait_until(self, minute: float) -> None:
        self.rig.advance(f"{(NOON + timedelta(minutes=minute) - self.rig.now).total_seconds():f} seconds")

    def visit_at(self, minute: float) -> None:
        """Somebody else searches and clicks, which moves both watermarks to a minute (the lateness) before that."""
        number = 1000 + int(minute)
        self.wait_until(minute)
        self.search(number, minute, "other")
        self.click(number, minute)
        self.rig.run()

    # -- what is shown ------------------------------------------------------------------------------------------------

    def outcomes(self, number: int) -> list[str | None]:
        """The clicks that are shown for a search: none yet, or one null for "not clicked", or what was clicked."""
        rows = self.rig.query("SELECT url FROM outcomes WHERE search_id = ? ORDER BY url", [number])
        return [row["url"] for row in rows]

    def not_clicked(self) -> list[int]:
        return [row["search_id"] for row in self.rig.view("not_clicked")]

    def of_hour(self, term: str) -> list[dict[str, Any]]:
        """What is shown for the hour from 12 to 13; nothing before it is final."""
        return [row for row in self.rig.view("click_through") if (row["term"], row["window_start"]) == (term, NOON)]

    # -- what should be, when every search has had its hour -----------------------------------------------------------

    def check(self) -> None:
        expected = [row for search in self.searches.values() for row in self.expected(search)]
        assert _sorted(self.rig.view("outcomes")) == _sorted(expected)
        lone = [search for search in self.searches.values() if not self.clicks_of(search)]
        assert _sorted(self.rig.view("not_clicked")) == _sorted(lone)
        shown = {(row["term"], row["window_start"]): row for row in self.rig.view("click_through")}
        assert shown.keys() == {_group(search) for search in self.searches.values()}
        for group, row in shown.items():
            searches = [one for one in self.searches.values() if _group(one) == group]
            clicked = [one for one in searches if self.clicks_of(one)]
            assert (row["searches"], row["clicked"]) == (len(searches), len(clicked))
            assert row["rate"] == pytest.approx(len(clicked) / len(searches))

    def expected(self, search: dict[str, Any]) -> list[dict[str, Any]]:
        nothing = {"url": None, "clicked_at": None}
        return [{**search, **click} for click in self.clicks_of(search) or [nothing]]

    def clicks_of(self, search: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            click
            for click in self.clicks
            if click["search_id"] == search["search_id"]
            and timedelta(0) <= click["clicked_at"] - search["searched_at"] <= HOUR
        ]


def _group(search: dict[str, Any]) -> tuple[str, datetime]:
    return search["term"], search["searched_at"].replace(minute=0, second=0, microsecond=0)


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: [str(row[name]) for name in sorted(row)])


@pytest.fixture
def site(spark: SparkSession) -> Iterator[Site]:
    with Rig(load_app(EXAMPLE), start=NOON, spark=spark) as rig:
        yield Site(rig)


def test_a_search_is_there_with_its_click_at_once(site: Site) -> None:
    site.search(1, 0)
    site.search(2, 1)
    site.rig.run()
    assert (site.outcomes(1), site.outcomes(2)) == ([], [])
    site.click(1, 2, "/green-tea")
    site.rig.run()
    assert (site.outcomes(1), site.outcomes(2)) == (["/green-tea"], [])
    site.click(1, 3, "/black-tea")
    site.rig.run()
    assert site.outcomes(1) == ["/black-tea", "/green-tea"]


def test_a_search_without_a_click_is_given_once_when_its_hour_is_over(site: Site) -> None:
    site.search(1, 0)
    site.search(2, 0)
    site.click(1, 5)
    site.visit_at(60)
    assert (site.outcomes(2), site.not_clicked()) == ([], [])
    site.visit_at(61)  # the watermark is at 60: a click at that moment could still come
    assert (site.outcomes(2), site.not_clicked()) == ([], [])
    site.visit_at(61.1)
    assert (site.outcomes(2), site.not_clicked()) == ([None], [2])
    site.visit_at(90)
    assert (site.outcomes(2), site.not_clicked()) == ([None], [2])
    assert site.outcomes(1) == ["/"]


def test_silence_gives_it_too_by_the_clock_alone(site: Site) -> None:
    site.search(1, 0)
    site.click(2, 0)
    site.rig.run()
    site.rig.advance("59 minutes")
    site.rig.run()
    assert site.outcomes(1) == []
    site.rig.advance("5 minutes")
    site.rig.run()
    assert (site.outcomes(1), site.not_clicked()) == ([None], [1])
    site.rig.advance("5 hours")
    site.rig.run()
    assert (site.outcomes(1), site.not_clicked()) == ([None], [1])
    site.check()


def test_it_is_given_also_where_nobody_ever_clicked(site: Site) -> None:
    site.search(1, 0)
    site.rig.run()
    site.rig.advance("3 hours")
    site.rig.run()
    assert site.not_clicked() == [1]
    site.check()


def test_a_late_click_takes_not_clicked_back(site: Site) -> None:
    site.search(1, 0)
    site.search(2, 0)
    site.click(2, 1)
    site.visit_at(90)
    assert (site.outcomes(1), site.not_clicked()) == ([None], [1])
    site.click(1, 40, "/late")
    site.rig.run()
    assert (site.outcomes(1), site.not_clicked()) == (["/late"], [])
    site.rig.advance("5 hours")
    site.rig.run()
    site.check()


def test_an_hour_is_final_when_its_searches_had_theirs_and_a_late_click_corrects_it(site: Site) -> None:
    site.wait_until(55)
    site.search(1, 55)
    site.search(2, 55)
    site.click(2, 56)
    site.visit_at(118)
    assert site.not_clicked() == [1]
    assert site.of_hour("tea") == []
    site.visit_at(130)
    (final,) = site.of_hour("tea")
    assert (final["searches"], final["clicked"], final["rate"], final["revision"]) == (2, 1, 0.5, 0)
    site.click(1, 100)
    site.rig.run()
    assert (site.outcomes(1), site.not_clicked()) == (["/"], [])
    (corrected,) = site.of_hour("tea")
    assert (corrected["searches"], corrected["clicked"], corrected["rate"], corrected["revision"]) == (2, 2, 1.0, 1)


def test_a_click_that_comes_after_what_is_kept_is_set_aside(site: Site) -> None:
    site.search(1, 0)
    site.visit_at(180)
    site.click(1, 40)
    site.rig.run()
    assert (site.outcomes(1), site.not_clicked()) == ([None], [1])
    (late,) = site.rig.rows("clicks.late")
    assert (late["search_id"], late["clicked_at"]) == (1, NOON + timedelta(minutes=40))


def test_a_click_outside_of_the_hour_does_not_count(site: Site) -> None:
    for number in range(1, 5):
        site.search(number, 10)
    site.click(1, 9)  # before the search
    site.click(2, 10)  # in the same moment
    site.visit_at(70)
    site.click(3, 70)  # the last moment
    site.click(4, 70.001)  # too late
    site.visit_at(75)
    assert [site.outcomes(number) for number in range(1, 5)] == [[None], ["/"], ["/"], [None]]
    site.visit_at(300)
    site.rig.advance("3 hours")
    site.rig.run()
    site.check()


def test_a_crash_gives_nothing_twice(site: Site) -> None:
    site.search(1, 0)
    site.search(2, 0)
    site.click(1, 1)
    site.rig.run()
    site.rig.advance("3 hours")
    site.rig.crash_at("publish")
    with pytest.raises(Crash):
        site.rig.run()
    site.rig.restart()
    site.rig.run()
    assert (site.outcomes(1), site.outcomes(2), site.not_clicked()) == (["/"], [None], [2])
    site.check()


def test_four_hours_add_up(site: Site) -> None:
    things: list[tuple[float, int, str | None]] = []
    for number in range(60):
        things.append((number * 4, number, "tea" if number % 3 else "ink"))
        things += [(number * 4 + 1 + 31 * click, number, None) for click in range(number % 4)]
    for minute, number, term in sorted(things, key=lambda thing: thing[0]):
        site.wait_until(minute)
        if term is None:
            site.click(number, minute, f"/{minute}")
        else:
            site.search(number, minute, term)
        if number % 10 == 0:
            site.rig.run()
    site.rig.advance("5 hours")
    site.rig.run()
    site.check()
    assert {len(site.clicks_of(one)) for one in site.searches.values()} == {0, 1, 2}
