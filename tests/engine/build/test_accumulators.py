"""Sums of rows that are replaced and taken back, at the ends of what a number holds."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from penstock.app import App
from penstock.testing import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST, MOST = -(2**63), 2**63 - 1


def asked() -> App:
    app = App("sums")
    rows = app.table("numbers", schema="id long, long_number long, number int", key="id")
    app.view(
        "sums",
        rows.group_by().agg(
            long_sum="sum(long_number)",
            long_average="avg(long_number)",
            some="sum(long_number) filter (where id > 1)",
            sum="sum(number)",
            average="avg(number)",
        ),
    )
    return app


@pytest.mark.parametrize(
    "epochs",
    [
        [{1: 5 * 10**18, 2: 7}, {1: -5 * 10**18}, {1: 1, 2: 2}],
        [{1: LEAST, 2: 0}, {1: MOST}, {1: LEAST}, {1: None}],
        [{1: 2**32, 2: -(2**32), 3: -1}, {1: None}, {2: 2**32 - 1, 3: 1}],
    ],
)
def test_sums_hold_while_they_fit_however_far_they_jump(
    spark: SparkSession, epochs: list[dict[int, int | None]]
) -> None:
    now: dict[int, int | None] = {}
    with Rig(asked(), spark=spark) as rig:
        for changes in epochs:
            now |= changes
            rows = [{"id": key, "long_number": value, "number": _narrow(value)} for key, value in changes.items()]
            rig.append("numbers", rows)
            rig.run()
            values = [value for value in now.values() if value is not None]
            narrow = [_narrow(value) for value in now.values()]
            (found,) = rig.view("sums")
            assert found == {
                "long_sum": sum(values),
                "long_average": float(Fraction(sum(values), len(values))),
                "some": sum(value for key, value in now.items() if key > 1 and value is not None),
                "sum": sum(narrow),
                "average": sum(narrow) / len(narrow),
            }


def _narrow(value: int | None) -> int:
    """Of the same sign, as far as an int goes, and never null."""
    return 0 if value is None else max(-(2**31), min(2**31 - 1, value))
