"""Looking up one row by its key."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.derive.views import ViewReader, get
from penstock.engine.state.columns import ID, ORDER
from penstock.engine.state.run import Run
from penstock.errors import DeclarationError
from tests.derive.views.written_app import GONE, WrittenApp, WrittenView


def test_a_key_is_a_value_a_tuple_or_a_mapping(app: WrittenApp) -> None:
    app.declare(WrittenView("pairs", "a int, b string, n int", ("b", "a"), "keyed"))
    app.upsert("pairs", [{"a": 1, "b": "x", "n": 7}])
    app.upsert("totals", [{"country": "DE", "n": 1}])
    app.commit()
    row = {"a": 1, "b": "x", "n": 7}
    assert get(app.directory, "pairs", ("x", 1)) == row
    assert get(app.directory, "PAIRS", {"a": 1, "b": "x"}) == row
    assert get(app.directory, "pairs", ("y", 1)) is None
    for key in ("DE", ("DE",), {"country": "DE"}):
        assert get(app.directory, "totals", key) == {"country": "DE", "n": 1, "amount": None}


def test_the_newest_row_of_a_key_counts_and_a_deleted_one_is_none(shop: WrittenApp) -> None:
    reader = ViewReader(shop.directory)
    assert reader.get("totals", "DE") == {"country": "DE", "n": 10, "amount": None}
    assert reader.get("totals", "FR") is None
    assert reader.get("totals", (None,)) == {"country": None, "n": 3, "amount": None}
    shop.merge("totals", 99)
    shop.upsert("totals", [{"country": "FR", "n": 4}], [{"country": "DE"}])
    shop.commit()
    assert reader.get("totals", "DE") is None
    assert reader.get("totals", "FR") == {"country": "FR", "n": 4, "amount": None}


@pytest.mark.parametrize(
    ("type_", "stored", "asked"),
    [
        ("boolean", True, True),
        ("tinyint", -5, -5),
        ("bigint", 2**62, 2**62),
        ("double", -0.0, 0.0),
        ("double", math.nan, math.nan),
        ("float", 0.1, 0.1),
        ("decimal(38,4)", Decimal("1.5000"), Decimal("1.5")),
        ("decimal(10,2)", Decimal("3.00"), 3),
        ("string", "Zoë", "Zoë"),
        ("string", "x" * 5_000, "x" * 5_000),
        ("binary", b"\x00", b"\x00"),
        ("date", date(1, 1, 1), date(1, 1, 1)),
        (
            "timestamp",
            datetime(2026, 1, 1, 12, tzinfo=UTC),
            datetime(2026, 1, 1, 17, tzinfo=timezone(timedelta(hours=5))),
        ),
        ("timestamp", datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 12)),  # noqa: DTZ001
        ("timestamp_ntz", datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12)),  # noqa: DTZ001
        ("array<int>", [1, None], [1, None]),
        ("struct<a:int,b:string>", {"a": 1, "b": None}, {"a": 1, "b": None}),
    ],
)
def test_a_key_of_every_type_is_found(app: WrittenApp, type_: str, stored: object, asked: object) -> None:
    app.declare(WrittenView("v", f"k {type_}, n int", ("k",), "keyed"))
    app.upsert("v", [{"k": stored, "n": 1}, {"k": None, "n": 2}])
    app.commit()
    found = get(app.directory, "v", (asked,))
    assert found is not None
    assert found["n"] == 1
    assert get(app.directory, "v", {"k": None}) == {"k": None, "n": 2}


def test_a_view_with_an_empty_key_has_one_row(app: WrittenApp) -> None:
    app.declare(WrittenView("total", "n bigint", (), "keyed"))
    app.upsert("total", [{"n": 1}])
    app.commit()
    app.upsert("total", [{"n": 2}])
    app.commit()
    assert get(app.directory, "total", ()) == {"n": 2}
    assert ViewReader(app.directory).query("select * from total").rows() == [{"n": 2}]


def test_what_does_not_fit_the_key_is_refused(shop: WrittenApp) -> None:
    for key, found in (
        (("DE", 1), "found 2 values"),
        ({"contry": "DE"}, "found contry"),
        (5, "found 5"),
        ((), "found 0"),
    ):
        with pytest.raises(DeclarationError, match=r"view 'totals': its key is \(country string\)") as caught:
            get(shop.directory, "totals", key)
        assert found in caught.value.message
    with pytest.raises(DeclarationError, match="view 'bag': it has no key"):
        get(shop.directory, "bag", 1)
    with pytest.raises(DeclarationError, match="there is no view 'totls'"):
        get(shop.directory, "totls", "DE")


def test_another_key_with_the_same_hashes_is_not_taken_for_it(app: WrittenApp) -> None:
    view = app.declare(WrittenView("v", "k string, n int", ("k",), "keyed", partitions=1))
    from penstock.engine.state.hashing import hash_key

    order, id_ = hash_key(["mine"], [pa.string()])
    hashes = {ORDER: pa.array(np.array([order])), ID: pa.array(np.array([id_]))}
    row = {"k": pa.array(["another"]), "n": pa.array([1], pa.int32()), GONE: pa.array([False])}
    app.add_run(view, 0, Run(pa.record_batch({**row, **hashes})))
    app.commit()
    assert get(app.directory, "v", "mine") is None


def test_times_dates_and_decimals_in_a_key_may_be_text(app: WrittenApp) -> None:
    app.declare(
        WrittenView(
            "hours",
            "station int, at timestamp, day date, price decimal(8,2), n int",
            ("station", "at", "day", "price"),
            "keyed",
        )
    )
    at, day, price = datetime(2026, 1, 31, 12, tzinfo=UTC), date(2026, 1, 31), Decimal("1.50")
    app.upsert("hours", [{"station": 1, "at": at, "day": day, "price": price, "n": 7}])
    app.commit()
    for time in ("2026-01-31T12:00:00Z", "2026-01-31 12:00", "2026-01-31T13:00:00+01:00", at):
        found = get(app.directory, "hours", (1, time, "2026-01-31", "1.5"))
        assert found is not None
        assert found["n"] == 7
    with pytest.raises(DeclarationError, match=r"its key is .station int, at timestamp.*; found 'noon'") as refused:
        get(app.directory, "hours", (1, "noon", day, price))
    assert refused.value.hint == "give a time such as '2024-12-31T23:59:59Z'"
