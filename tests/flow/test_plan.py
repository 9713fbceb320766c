"""The plan as plain data."""

from __future__ import annotations

from penstock.app import App
from penstock.flow.explain import explain
from penstock.flow.fingerprint import fingerprint
from penstock.flow.plan import Union, inputs, nodes


def test_unions_of_unions_with_themselves_are_walked_once() -> None:
    app = App("shop")
    rows = app.topic("orders", schema="a bigint")
    for _ in range(60):
        rows = rows.union(rows)
    app.view("many", rows)
    found = list(nodes(app.plan))
    assert [type(node) for node in found[1:]] == [Union] * 60
    assert all(input_ in found[:number] for number, node in enumerate(found) for input_ in inputs(node))
    assert explain(app.plan).count("union of 2") == 60


def test_equal_nodes_are_one_wherever_they_were_declared() -> None:
    app = App("shop")
    orders = app.topic("orders", schema="a bigint")
    first = orders.where("a > 1")
    second = orders.where("a > 1")
    assert (first.node, fingerprint(first.node)) == (second.node, fingerprint(second.node))
    assert first.node.location != second.node.location
    assert orders.where("a > 2").node != first.node
    app.view("united", first.union(second))
    assert len(list(nodes(app.plan))) == 3


def test_a_join_reads_both_sides_also_if_they_are_one() -> None:
    app = App("shop")
    orders = app.topic("orders", schema="a bigint, b bigint")
    app.view("doubles", orders.join(orders, on={"a": "b"}, how="semi", within="forever"))
    source, join = nodes(app.plan)
    assert inputs(join) == (source, source)
    assert "<- 1, 1" in explain(app.plan)
