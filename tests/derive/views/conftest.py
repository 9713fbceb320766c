"""Fixtures for tests of views: an app with a view of each growth, written without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.derive.views.written_app import WrittenApp, WrittenView


@pytest.fixture
def app(tmp_path: Path) -> WrittenApp:
    """An app with empty views and no commit."""
    written = WrittenApp(tmp_path / "apps" / "shop")
    written.declare(WrittenView("totals", "country string, n bigint, amount decimal(38,2)", ("country",), "keyed"))
    written.declare(WrittenView("bag", "x int, tag string", None, "counted"))
    written.declare(WrittenView("seen", "id bigint, at timestamp"))
    return written


@pytest.fixture
def shop(app: WrittenApp) -> WrittenApp:
    """The same app after two epochs."""
    app.upsert("totals", [{"country": "DE", "n": 1}, {"country": "FR", "n": 2}, {"country": None, "n": 3}])
    app.count("bag", [{"x": 1, "tag": "a"}, {"x": 2, "tag": None}], [3, 1])
    app.append("seen", [{"id": 1}, {"id": 1}])
    app.commit()
    app.upsert(
        "totals",
        [{"country": "DE", "n": 10}],
        [{"country": "FR"}],
        before=[{"country": "DE", "n": 1}, {"country": "FR", "n": 2}],
    )
    app.count("bag", [{"x": 1, "tag": "a"}], [-1])
    app.commit()
    return app
