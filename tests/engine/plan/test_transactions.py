"""Moving a cut to where no transaction is on both sides: against a search through all cuts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.plan.transactions import Groups, Part, blocked_transaction, lower, next_in_line, take_whole

PARTS: list[Part] = [("orders", 0), ("orders", 1), ("people", 0)]


@dataclass(frozen=True)
class Stored:
    """A group of rows in a partition: offsets from `base` up to `end` (exclusive)."""

    transaction: int
    base: int
    end: int


@dataclass(frozen=True)
class World:
    """Every partition's groups, where each begins to be read, and where it ends."""

    stored: dict[Part, list[Stored]]
    starts: dict[Part, int]

    def groups(self) -> dict[Part, Groups]:
        return {part: self.groups_of(part) for part in PARTS}

    def groups_of(self, part: Part) -> Groups:
        found = self.stored[part]
        return Groups(
            self.starts[part],
            np.array([group.base for group in found], dtype=np.int64),
            np.array([group.end - 1 for group in found], dtype=np.int64),
            np.array([group.transaction for group in found], dtype=np.int64),
            np.array([group.transaction for group in found], dtype=np.int64),
        )

    def end(self, part: Part) -> int:
        return self.stored[part][-1].end if self.stored[part] else 0

    def is_whole(self, cut: dict[Part, int]) -> bool:
        before, behind = set[int](), set[int]()
        for part, groups in self.stored.items():
            for group in groups:
                first = max(group.base, self.starts[part])
                if group.transaction and first < group.end:
                    if first < cut[part]:
                        before.add(group.transaction)
                    if group.end > cut[part]:
                        behind.add(group.transaction)
        return not before & behind

    def cuts(self, least: dict[Part, int], most: dict[Part, int]) -> list[dict[Part, int]]:
        ranges = [range(least[part], most[part] + 1) for part in PARTS]
        found = [dict(zip(PARTS, ends, strict=True)) for ends in product(*ranges)]
        return [cut for cut in found if self.is_whole(cut)]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Writes in their order: each is a transaction over some partitions, or rows alone in one."""
    stored: dict[Part, list[Stored]] = {part: [] for part in PARTS}
    for number in range(1, draw(st.integers(0, 6)) + 1):
        parts = draw(st.lists(st.sampled_from(PARTS), min_size=1, max_size=3, unique=True))
        transaction = number if draw(st.integers(0, 3)) else 0
        for part in parts if transaction else parts[:1]:
            for rows in draw(st.lists(st.integers(1, 2), min_size=1, max_size=2)):
                gap = draw(st.sampled_from([0, 0, 0, 1]))  # rows that were removed
                base = (stored[part][-1].end if stored[part] else 0) + gap
                stored[part].append(Stored(transaction, base, base + rows))
    world = World(stored, {})
    starts = {part: draw(st.integers(0, max(0, world.end(part) // 3))) for part in PARTS}
    return World(stored, starts)


def drawn_cut(world: World, data: st.DataObject) -> dict[Part, int]:
    return {
        part: data.draw(st.integers(world.starts[part], max(world.end(part), world.starts[part]))) for part in PARTS
    }


@given(worlds(), st.data())
def test_a_lowered_cut_is_the_furthest_whole_one(world: World, data: st.DataObject) -> None:
    cut = drawn_cut(world, data)
    found = lower(world.groups(), cut)
    whole = world.cuts(world.starts, cut)
    assert found in whole
    assert all(other[part] <= found[part] for other in whole for part in PARTS)


@given(worlds(), st.data())
def test_a_raised_cut_is_the_nearest_whole_one_with_the_transaction(world: World, data: st.DataObject) -> None:
    cut = lower(world.groups(), drawn_cut(world, data))
    read = {part: [group for group in groups if group.end > cut[part]] for part, groups in world.stored.items()}
    numbers = sorted({group.transaction for groups in read.values() for group in groups} - {0})
    if not numbers:
        return
    number = data.draw(st.sampled_from(numbers))
    found = take_whole(world.groups(), cut, number)
    ends = {part: max(world.end(part), cut[part]) for part in PARTS}
    whole = [
        other
        for other in world.cuts(cut, ends)
        if all(
            group.end <= other[part] for part in PARTS for group in world.stored[part] if group.transaction == number
        )
    ]
    assert found in whole
    assert all(other[part] >= found[part] for other in whole for part in PARTS)


@given(worlds(), st.data())
def test_something_is_read_whatever_is_wanted(world: World, data: st.DataObject) -> None:
    groups, wanted = world.groups(), drawn_cut(world, data)
    lowered = lower(groups, wanted)
    blocked = blocked_transaction(groups, wanted, lowered)
    if blocked:
        raised = take_whole(groups, lowered, blocked)
        others = {part for part in PARTS if not any(group.transaction == blocked for group in world.stored[part])}
        assert all(raised[part] == lowered[part] for part in others)
        assert any(raised[part] > lowered[part] for part in PARTS)
    elif lowered == world.starts != wanted:
        transaction, alone = next_in_line(groups, lowered, wanted)
        assert (transaction == 0) is (alone is not None)
        if alone is not None:
            (group, *_) = [group for group in world.stored[alone] if group.end > lowered[alone]]
            assert group.transaction == 0


def test_a_transaction_that_fits_no_limit_is_let_through_though_another_partition_moves() -> None:
    stored = {
        ("orders", 0): [Stored(7, 0, 10)],
        ("orders", 1): [Stored(0, 0, 100)],
        ("people", 0): [Stored(7, 0, 10)],
    }
    world = World(stored, dict.fromkeys(PARTS, 0))
    wanted = {("orders", 0): 5, ("orders", 1): 5, ("people", 0): 5}
    lowered = lower(world.groups(), wanted)
    assert lowered == {("orders", 0): 0, ("orders", 1): 5, ("people", 0): 0}
    assert blocked_transaction(world.groups(), wanted, lowered) == 7
    assert take_whole(world.groups(), lowered, 7) == {("orders", 0): 10, ("orders", 1): 5, ("people", 0): 10}


def test_rows_that_stand_before_a_part_of_a_transaction_come_first() -> None:
    stored = {
        ("orders", 0): [Stored(7, 0, 10)],
        ("orders", 1): [Stored(0, 0, 3), Stored(7, 3, 4)],
        ("people", 0): list[Stored](),
    }
    world = World(stored, dict.fromkeys(PARTS, 0))
    wanted = {("orders", 0): 1, ("orders", 1): 0, ("people", 0): 0}
    lowered = lower(world.groups(), wanted)
    assert lowered == world.starts
    assert blocked_transaction(world.groups(), wanted, lowered) == 0
    assert next_in_line(world.groups(), lowered, wanted) == (0, ("orders", 1))
