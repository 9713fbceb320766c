"""A whole app as one DataFrame: nested unions become one, and every event is still counted once."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import TYPE_CHECKING

import penstock as ps
from penstock.testing import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id long, kind string"


def test_nested_unions_have_all_rows_of_all_their_parts(spark: SparkSession) -> None:
    app = ps.App("shop", settings=ps.AppSettings(state_partitions=2))
    first, second, third, fourth = (app.topic(f"t{number}", schema=SCHEMA, key="id") for number in range(4))
    inner = first.union(second.where("id > 1"))
    firsts = fourth.distinct("id")
    united = reduce(lambda rows, more: rows.union(more), [inner, third, firsts])
    app.view("all_rows", united)
    app.view("inner_rows", inner)
    app.view("counts", united.group_by("kind").agg(n="count(*)"))
    with Rig(app, spark=spark) as rig:
        for number in range(4):
            rig.append(f"t{number}", [{"id": id_, "kind": f"k{number}"} for id_ in (1, 2, 2)])
        rig.run()
        expected = Counter({"k0": 3, "k1": 2, "k2": 3, "k3": 2})
        assert Counter(row["kind"] for row in rig.view("all_rows")) == expected
        assert Counter(row["kind"] for row in rig.view("inner_rows")) == {"k0": 3, "k1": 2}
        assert {row["kind"]: row["n"] for row in rig.view("counts")} == expected
        account = rig.account("all_rows")
        assert account.came == 12
        assert account.came == account.counted + account.late + account.dead + account.filtered
