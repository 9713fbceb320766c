"""The conformance suite of targets: what every target promises, and what targets with a power promise in addition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.contracts import CannotTakeBack, Changes, KeepsTables, LimitsEpochs, Target
from penstock.errors import DeclarationError, FencedError, TooMuchError
from tests.targets.changes import additions, changes, removals, target_table
from tests.targets.worlds import SEEN, TOTALS, World, arrow_bytes, worlds


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    created: World = request.param(tmp_path)
    return created


def parametrize_over(chosen: Callable[[type[World]], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("world", worlds(chosen), indirect=True, ids=lambda world: world.__name__)


every_target = parametrize_over(lambda world: True)
counting_targets = parametrize_over(lambda world: world.counts_epochs)
keyed_targets = parametrize_over(lambda world: world.has_keys)
keeping_tables = parametrize_over(lambda world: issubclass(world.kind, KeepsTables))
not_taking_back = parametrize_over(lambda world: issubclass(world.kind, CannotTakeBack))
limiting_epochs = parametrize_over(lambda world: issubclass(world.kind, LimitsEpochs))


# -- every target -----------------------------------------------------------------------------------------------------


@every_target
def test_a_new_target_has_no_epoch(world: World) -> None:
    target, last = world.take_over(1)
    assert (last, world.stored_ids()) == (0, [])
    target.close()


@every_target
def test_an_epoch_is_applied_to_all_sinks_at_once(world: World) -> None:
    with closing(world.instance()) as target:
        assert target.apply(1, {"seen": world.additions(1, 2), "more": world.additions(3, name="more")}) is True
        assert (world.stored_ids(), world.stored_ids("more")) == ([1, 2], [3])


@every_target
def test_an_epoch_may_have_no_changes(world: World) -> None:
    with closing(world.instance()) as target:
        target.apply(1, {})
        target.apply(2, {"seen": []})
        target.apply(3, {"seen": world.additions(1)})
        assert world.stored_ids() == [1]


@every_target
def test_a_repeated_epoch_changes_nothing(world: World) -> None:
    with closing(world.instance()) as target:
        for applied in (True, False):
            assert target.apply(1, {"seen": world.additions(1, 2)}) is applied
            assert world.stored_ids() == [1, 2]


@every_target
def test_the_next_instance_finds_what_was_applied_and_may_repeat_it(world: World) -> None:
    with closing(world.instance(1)) as target:
        target.apply(1, {"seen": world.additions(1)})
    with closing(world.instance(2)) as target:
        assert target.apply(1, {"seen": world.additions(1)}) is False
        assert target.apply(2, {"seen": world.additions(2)}) is True
        assert world.stored_ids() == [1, 2]


@every_target
def test_a_replaced_instance_is_refused_at_its_next_epoch(world: World) -> None:
    with closing(world.instance(3)) as old:
        old.apply(1, {"seen": world.additions(1)})
        with closing(world.instance(4)) as new:
            with pytest.raises(FencedError, match="replaced by"):
                old.apply(2, {"seen": world.additions(2)})
            assert new.apply(2, {"seen": world.additions(3)}) is True
            assert world.stored_ids() == [1, 3]


@every_target
def test_an_older_instance_cannot_take_over(world: World) -> None:
    with closing(world.instance(2)) as newest:
        for token in world.older_tokens:
            with closing(world.open(token)) as older, pytest.raises(FencedError):
                older.take_over("shop", token)
        assert newest.apply(1, {"seen": world.additions(1)}) is True


@every_target
def test_nothing_is_applied_when_the_changes_cannot_be_read_to_their_end(world: World) -> None:
    def broken() -> Iterator[Changes]:
        yield from world.additions(7, name="more")
        raise KeyError("a file has gone")

    with closing(world.instance()) as target:
        with pytest.raises(KeyError):
            target.apply(1, {"seen": world.additions(1), "more": broken()})
        assert (world.stored_ids(), world.stored_ids("more")) == ([], [])
        assert target.apply(1, {"seen": world.additions(1)}) is True
        assert world.stored_ids() == [1]


@every_target
def test_closing_twice_is_allowed_and_what_was_applied_stays(world: World) -> None:
    target = world.instance()
    target.apply(1, {"seen": world.additions(1)})
    target.close()
    target.close()
    assert world.stored_ids() == [1]


# -- targets that count epochs: all but side topics -------------------------------------------------------------------


@counting_targets
def test_an_epoch_that_was_applied_is_not_read(world: World) -> None:
    with closing(world.instance()) as target:
        target.apply(1, {"seen": world.additions(1)})
        assert target.apply(2, {}) is True
        unread = iter(world.additions(2))
        assert target.apply(1, {"seen": unread}) is False
        assert len(list(unread)) == 1
        assert world.stored_ids() == [1]


@counting_targets
def test_a_replaced_instance_is_refused_even_if_it_repeats_an_epoch_or_has_no_changes(world: World) -> None:
    with closing(world.instance(3)) as old:
        old.apply(1, {"seen": world.additions(1)})
        with closing(world.instance(4)):
            with pytest.raises(FencedError):
                old.apply(1, {"seen": world.additions(1)})
            with pytest.raises(FencedError):
                old.apply(2, {})


@counting_targets
def test_epochs_may_be_left_out_and_never_come_back(world: World) -> None:
    with closing(world.instance()) as target:
        target.apply(1, {})
        assert target.apply(3, {"seen": world.additions(1)}) is True
        assert target.apply(2, {"seen": world.additions(2)}) is False
        assert world.stored_ids() == [1]


@counting_targets
def test_the_next_instance_learns_the_last_epoch(world: World) -> None:
    with closing(world.instance(1)) as target:
        target.apply(1, {"seen": world.additions(1)})
        target.apply(4, {})
    target, last = world.take_over(2)
    with closing(target):
        assert last == 4


@counting_targets
def test_an_unknown_sink_is_refused(world: World) -> None:
    with closing(world.instance()) as target:
        with pytest.raises(DeclarationError, match="'sen'"):
            target.apply(1, {"sen": world.additions(1)})
        assert target.apply(1, {"seen": world.additions(1)}) is True


@keyed_targets
def test_a_row_takes_the_place_of_the_row_of_its_key_whatever_the_order(world: World) -> None:
    old, new = {"country": "DE", "total": 1}, {"country": "DE", "total": 2}
    removed = {"country": "FR", "total": 7}
    with closing(world.instance()) as target:
        target.apply(1, {"totals": additions(TOTALS, old, removed)})
        target.apply(2, {"totals": [*additions(TOTALS, new), *removals(TOTALS, old, removed)]})
        assert world.rows("totals") == [("DE", 2)]


# -- targets that keep tables -----------------------------------------------------------------------------------------


def tables_of(target: Target) -> KeepsTables:
    assert isinstance(target, KeepsTables)
    return target


@keeping_tables
def test_a_target_that_is_realigned_takes_the_epoch_after_that(world: World) -> None:
    with closing(world.instance()) as target:
        target.apply(7, {"seen": world.additions(1)})
        tables_of(target).realign(2)
        assert tables_of(target).status().epoch == 2
        assert target.apply(3, {"seen": world.additions(2)}) is True
        assert world.stored_ids() == [1, 2]


@keeping_tables
def test_a_table_that_is_built_hidden_is_shown_by_an_epoch(world: World) -> None:
    changed = target_table("totals", "country string, most bigint", ("country",), "2")
    with closing(world.instance()) as target:
        tables = tables_of(target)
        target.apply(1, {"totals": additions(TOTALS, {"country": "DE", "total": 1})})
        tables.declare([changed], hidden=True)
        target.apply(2, {"totals": additions(changed, {"country": "FR", "most": 9})})
        assert world.rows("totals") == [("DE", 1)]
        assert (tables.status().tables["totals"], tables.status().hidden) == ("", {"totals": "2"})
        target.apply(3, {}, show=["totals"])
        assert world.rows("totals") == [("FR", 9)]
        assert (tables.status().tables["totals"], tables.status().hidden) == ("2", {})


@keeping_tables
def test_null_is_a_key_like_others(world: World) -> None:
    with closing(world.instance()) as target:
        target.apply(1, {"totals": additions(TOTALS, {"country": None, "total": 1})})
        target.apply(2, {"totals": additions(TOTALS, {"country": None, "total": 2})})
        assert world.rows("totals") == [(None, 2)]
        target.apply(3, {"totals": removals(TOTALS, {"country": None, "total": 2})})
        assert world.rows("totals") == []


@keeping_tables
def test_a_bag_has_as_many_equal_rows_as_their_weights_add_up_to(world: World) -> None:
    row = {"id": None, "name": "a"}
    with closing(world.instance()) as target:
        target.apply(1, {"seen": [changes(SEEN, [(3, row), (1, {"id": 2, "name": None})])]})
        assert world.rows("seen") == [(2, None), (None, "a"), (None, "a"), (None, "a")]
        target.apply(2, {"seen": [changes(SEEN, [(-4, row), (0, row)]), changes(SEEN, [(2, row)])]})
        assert world.rows("seen") == [(2, None), (None, "a")]


@keeping_tables
def test_declaring_the_same_again_changes_nothing_and_another_form_is_refused(world: World) -> None:
    with closing(world.instance()) as target:
        tables = tables_of(target)
        target.apply(1, {"seen": world.additions(1)})
        tables.declare([SEEN])
        for changed in (target_table("seen", "id bigint"), target_table("seen", "id bigint, name string", ("id",))):
            with pytest.raises(DeclarationError, match="view 'seen': it already exists with"):
                tables.declare([target_table("new", "a int"), changed])
        assert world.stored_ids() == [1]
        with pytest.raises(DeclarationError, match="view 'new'"):
            target.apply(2, {"new": []})


@keeping_tables
def test_a_dropped_table_is_gone_and_unknown_names_are_ignored(world: World) -> None:
    with closing(world.instance()) as target:
        tables_of(target).drop(["seen", "never"])
        assert set(tables_of(target).status().tables) == {"more", "totals"}


# -- targets that cannot take back ------------------------------------------------------------------------------------


@not_taking_back
def test_a_destination_is_empty_until_something_is_written_there(world: World) -> None:
    with closing(world.instance(1)) as target:
        assert isinstance(target, CannotTakeBack)
        before = target.destinations()
        assert (before["seen"].is_empty, before["more"].is_empty) == (True, True)
        target.apply(1, {"seen": [], "more": world.additions(1)})
        after = target.destinations()
        assert (after["seen"].is_empty, after["more"].is_empty, target.last_epoch()) == (True, False, 1)
    with closing(world.instance(2)) as target:
        assert isinstance(target, CannotTakeBack)
        assert target.destinations() == after
        assert {name: destination.id for name, destination in after.items()} == {
            name: destination.id for name, destination in before.items()
        }
        assert after["seen"].id != after["more"].id


# -- targets that limit epochs ----------------------------------------------------------------------------------------


@limiting_epochs
def test_an_epoch_that_is_too_large_changes_nothing_and_may_come_again_smaller(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = world.additions(1)
    world.limit_epochs(monkeypatch, 2 * arrow_bytes(small))
    with closing(world.instance()) as target:
        assert isinstance(target, LimitsEpochs)
        large = world.additions(*range(100))
        assert arrow_bytes(small) <= target.most_bytes() < arrow_bytes(large)
        with pytest.raises(TooMuchError):
            target.apply(1, {"seen": small, "more": large})
        assert (world.stored_ids(), world.stored_ids("more")) == ([], [])
        assert target.apply(1, {"seen": small}) is True
        assert world.stored_ids() == [1]
