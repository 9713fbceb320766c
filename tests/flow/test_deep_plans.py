"""Plans that are deep or wide: what is asked of them takes time in step with their size."""

from __future__ import annotations

from functools import reduce

import penstock as ps
from penstock.engine.build.needs import downstream_clocks, needs_of, shared_nodes
from penstock.engine.publish.accounts import has_met_state, meters
from penstock.flow import plan as flow
from penstock.flow.explain import explain
from penstock.flow.fingerprint import fingerprint
from penstock.flow.lateness import clock_topics, clock_topics_of
from penstock.flow.pushdown import push_down

SCHEMA = "id long, kind string, at timestamp"


def union_of(count: int, *, nested: bool) -> ps.App:
    app = ps.App("shop")
    streams = [app.topic(f"t{number}", schema=SCHEMA, key="id", time="at") for number in range(count)]
    united = reduce(lambda rows, more: rows.union(more), streams) if nested else streams[0].union(*streams[1:])
    app.view("counts", united.window(ps.tumbling("1 minute")).group_by("kind").agg(n="count(*)"))
    return app


def test_a_union_of_unions_may_be_deeper_than_the_stack_of_python() -> None:
    plan = push_down(union_of(1_500, nested=True).plan)
    assert len(list(flow.nodes(plan))) == 1_500 + 1_499 + 1
    assert len(fingerprint(plan.views[0].node)) == 16
    assert "t1499" in explain(plan)
    assert len(needs_of(plan).columns) == 3_000
    assert shared_nodes(plan, small=True) == frozenset()
    assert len(downstream_clocks(plan)) == 2_998
    united = plan.views[0].node.input
    assert has_met_state(united) is False
    assert len(meters(united, {})) == 1_500


def test_nested_unions_have_different_hashes_so_that_sets_of_them_are_fast() -> None:
    nodes = list(flow.nodes(union_of(300, nested=True).plan))
    assert len({hash(node) for node in nodes}) == len(nodes)


def test_equal_unions_have_equal_hashes() -> None:
    first, second = (union_of(5, nested=True).plan.views[0].node for _ in range(2))
    assert first == second
    assert list(map(hash, flow.upstream(first))) == list(map(hash, flow.upstream(second)))


def test_clocks_of_all_nodes_are_those_of_each() -> None:
    for nested in (True, False):
        nodes = list(flow.nodes(union_of(12, nested=nested).plan))
        assert clock_topics_of(nodes) == {node: clock_topics(node) for node in nodes}
