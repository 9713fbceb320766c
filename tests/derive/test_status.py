"""What is told about views."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.derive.status import views
from penstock.derive.store import ViewStore
from penstock.errors import DeclarationError
from tests.derive.changes import added, view

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
TOTALS = view("totals", "country string not null, total decimal(10,2)", ("country",))
SEEN = view("seen", "id bigint")


def test_views_are_told_with_their_rows_and_how_fresh_they_are(path: Path) -> None:
    facts = {"totals": {"watermark": "2026-01-31T11:59:50Z", "events": 7, "lag": 3}, "seen": {"watermark": None}}
    with ViewStore(path, clock=lambda: NOON) as store:
        store.take_over("shop", 1)
        store.declare([TOTALS, SEEN])
        rows = added(TOTALS, {"country": "DE"}, {"country": "FR"})
        store.apply(1, 1, {"totals": rows}, facts={"views": facts})
        seen, totals = views(path)
    assert (totals.name, totals.rows, totals.epoch, totals.applied_at) == ("totals", 2, 1, NOON)
    assert (totals.columns, totals.key) == ({"country": "string", "total": "decimal(10,2)"}, ("country",))
    assert (totals.watermark, totals.events, totals.building) == (
        datetime(2026, 1, 31, 11, 59, 50, tzinfo=UTC),
        7,
        False,
    )
    assert totals.facts["lag"] == 3
    assert (seen.rows, seen.key, seen.watermark, seen.events) == (0, None, None, None)


def test_before_the_first_epoch_nothing_is_known_but_the_views(path: Path) -> None:
    with ViewStore(path) as store:
        assert views(path) == []
        store.take_over("shop", 1)
        store.declare([SEEN])
        (seen,) = views(path)
    assert (seen.epoch, seen.applied_at, seen.watermark) == (0, None, None)


def test_a_watermark_that_python_cannot_hold_stays_text(path: Path) -> None:
    with ViewStore(path) as store:
        store.take_over("shop", 1)
        store.declare([SEEN])
        store.apply(1, 1, {}, facts={"views": {"seen": {"watermark": "148108-07-06T14:00:27Z"}}})
        (seen,) = views(path)
    assert (seen.watermark, seen.facts["watermark"]) == (None, "148108-07-06T14:00:27Z")


def test_without_a_file_there_are_no_views(path: Path) -> None:
    with pytest.raises(DeclarationError, match="there are no views here"):
        views(path)
