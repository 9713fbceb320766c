"""Rows that differ only in where they are null are different rows and different groups."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import pytest

from penstock.app import App
from penstock.errors import DeclarationError
from penstock.testing import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = (None, 1, 2)


def test_maps_and_lists_beside_the_key_are_kept_as_they_are(spark: SparkSession) -> None:
    app = App("lists")
    events = app.topic("events", schema="k string, p array<string>, q array<string>, m map<string, bigint>")
    app.view("counts", events.group_by("p", "q").agg(n="count(*)"))
    app.view("different", events.distinct("p", "q").select("p", "q"))
    app.view("maps", events.group_by("k").agg(maps="collect_list(m)"))
    app.view("firsts", events.distinct("k").select("k", "m"))
    with Rig(app, spark=spark) as rig:
        rig.append("events", [{"k": "a", "p": ["x"], "q": [], "m": [("b", 1), ("a", None)]}])
        rig.run()
        rig.append("events", [{"k": "a", "p": [], "q": ["x"], "m": [("c", 2)]}])
        rig.run()
        assert [row["n"] for row in rig.view("counts")] == [1, 1]
        assert len(rig.view("different")) == 2
        (collected,) = rig.view("maps")
        assert sorted(map(str, collected["maps"])) == ["{'b': 1, 'a': None}", "{'c': 2}"]
        assert [row["m"] for row in rig.view("firsts")] == [{"b": 1, "a": None}]


def test_an_order_by_lists_is_refused_before_anything_runs(spark: SparkSession) -> None:
    app = App("lists")
    app.view("first", app.topic("events", schema="id long, p array<long>").top(1, by="p"))
    with pytest.raises(DeclarationError, match="top: rows are not ordered by lists or maps; 'p' is one"):
        Rig(app, spark=spark)


def app_of() -> App:
    app = App("holes")
    events = app.topic("events", schema="id long, a long, b long, c long")
    triples = events.select("a", "b", "c")
    app.view("counts", triples.group_by("a", "b", "c").agg(n="count(*)", ids="count(distinct 1 + a)"))
    app.view("distinct_triples", triples.distinct())
    app.view("ranked", triples.top(1_000, by="coalesce(a, 0)"))
    app.view("collected", triples.group_by("a").agg(rows="collect_list(struct(b, c))"))
    return app


def test_groups_and_rows_with_nulls_are_told_apart(spark: SparkSession) -> None:
    triples = [*product(VALUES, repeat=3), *product(VALUES[:2], repeat=3)]
    with Rig(app_of(), spark=spark) as rig:
        for number, triple in enumerate(triples):
            rig.append("events", [{"id": number, **dict(zip("abc", triple, strict=True))}])
            if number % 9 == 0:
                rig.run()
        rig.run()
        counts = Counter({(row["a"], row["b"], row["c"]): row["n"] for row in rig.view("counts")})
        assert counts == Counter(triples)
        assert all(row["ids"] == (row["a"] is not None) for row in rig.view("counts"))
        assert Counter((row["a"], row["b"], row["c"]) for row in rig.view("distinct_triples")) == Counter(set(triples))
        assert Counter((row["a"], row["b"], row["c"]) for row in rig.view("ranked")) == Counter(triples)
        found = Counter((row["a"], one["b"], one["c"]) for row in rig.view("collected") for one in row["rows"])
        assert found == Counter(triples)
