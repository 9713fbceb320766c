"""Records as JSON: what is stored is read back as it was, and what does not fit is told as that and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.ledger.codec import UnfitError, decode, encode
from penstock.engine.ledger.records import (
    Account,
    BackfillRecord,
    Commit,
    EpochChanges,
    EpochPlan,
    ReplacedOutputs,
    RestorePlan,
    SinkRecord,
    StoredView,
    TrackRecord,
    ViewChangeFiles,
)
from penstock.engine.ledger.savepoints import Savepoint
from penstock.engine.plan.cut import Cut, SourceCut
from penstock.engine.plan.watermark import Clock, SourceTime
from penstock.engine.state.run import RunFile
from tests.engine.simulated_app import commit_of, plan_of

RECORDS: list[type[Any]] = [
    *(Account, SinkRecord, StoredView, TrackRecord, BackfillRecord, ReplacedOutputs, EpochPlan, RestorePlan, Commit),
    *(ViewChangeFiles, EpochChanges, Savepoint, Cut, SourceCut, Clock, SourceTime, RunFile),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
any_record = st.sampled_from(RECORDS).flatmap(st.from_type)


def through_json(content: object) -> Any:
    return json.loads(json.dumps(content))


@given(any_record)
def test_every_record_is_read_back_as_it_was_stored(record: object) -> None:
    content = encode(record)
    assert through_json(content) == content
    assert decode(type(record), through_json(content)) == record


def test_a_commit_with_everything_in_it_is_read_back_as_it_was_stored() -> None:
    """A record that Hypothesis would hardly find, and that shows what the JSON looks like."""
    run = RunFile("views/sums/3/000000000007-2-0f.arrow", 5, 99, 7, expires=12)
    time = SourceTime(5, {0: Clock(7, 8, 9), 10: Clock()}, 6)
    sources = {
        "orders": SourceCut("orders", "0f", {0: 1, 1: 2, 10: 0}, {0: 3, 1: 2, 10: 7}, time),
        "customers": SourceCut("customers", "1e", {0: 0}, {0: 2**40}, None),
    }
    view = StoredView("said.3", "kind string, amount decimal(10,2)", ("kind",), "keyed", {3: (run,)}, 1_777)
    track = TrackRecord(
        Cut(7, 1_777_636_800_000_000, sources),
        {"customers orders": 5},
        {"sums": "said.3", "kinds": "told.0"},
        {"aggregate-1": {0: (), 3: (run, run)}},
        {"sums": view},
        {"sums": Account(5, 4, 1)},
    )
    sink = SinkRecord(None, "said", {"orders": "0f", "missing": None})
    commit = Commit(
        *(7, 2, 123, track),
        BackfillRecord(track, {"kinds": "aa"}, ("kinds",)),
        ReplacedOutputs({"old": "x.1"}, {}, {"old": view}, {"old": Account()}),
        {"kinds": sink},
        {"orders": {0: 5}},
        restored_from="friday",
    )
    content = through_json(encode(commit))
    assert content["live"]["states"]["aggregate-1"]["3"][0]["crc"] == 7
    assert content["live"]["views"]["sums"]["key"] == ["kind"]
    assert content["backfill"]["muted"] == ["kinds"]
    assert decode(Commit, content) == commit


@given(st.sampled_from(RECORDS), JSON)
def test_whatever_is_found_is_a_record_or_unfit(kind: type[Any], content: object) -> None:
    with suppress(UnfitError):
        decode(kind, content)


def places_in(content: object) -> list[tuple[Any, ...]]:
    """The way to every value of a document."""
    inside: list[tuple[Any, Any]] = []
    if isinstance(content, dict):
        inside = list(content.items())
    elif isinstance(content, list):
        inside = list(enumerate(content))
    return [(), *((name, *rest) for name, value in inside for rest in places_in(value))]


def with_value(content: Any, place: tuple[Any, ...], value: object) -> Any:
    if not place:
        return value
    changed = dict(content) if isinstance(content, dict) else list(content)
    changed[place[0]] = with_value(changed[place[0]], place[1:], value)
    return changed


@given(any_record, st.data(), JSON)
def test_a_document_with_one_wrong_value_is_a_record_or_unfit(
    record: object, data: st.DataObject, value: object
) -> None:
    content = through_json(encode(record))
    place = data.draw(st.sampled_from(places_in(content)))
    try:
        found = decode(type(record), with_value(content, place, value))
    except UnfitError:
        return
    assert through_json(encode(found)) is not None


@given(any_record, st.data())
def test_a_field_that_is_missing_has_its_default_or_is_unfit(record: Any, data: st.DataObject) -> None:
    content = through_json(encode(record))
    name = data.draw(st.sampled_from(sorted(content)))
    del content[name]
    try:
        found = decode(type(record), content)
    except UnfitError:
        return
    assert is_dataclass(found)
    other_names = [field.name for field in fields(record) if field.name != name]
    assert all(getattr(found, other_name) == getattr(record, other_name) for other_name in other_names)


def with_field(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda content: {**content, name: value}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_field("epoch", "1"), "found str where int belongs"),
        (with_field("epoch", True), "found bool where int belongs"),
        (with_field("epoch", 1.0), "found float where int belongs"),
        (with_field("track", "main"), "found 'main' where one of live, backfill belongs"),
        (with_field("outputs", ["totals"]), "found list where dict belongs"),
        (with_field("dead", {"numbers": {"x": {}}}), "found the key 'x' where a number belongs"),
        (with_field("dead", {"numbers": {"None": {}}}), "found the key 'None' where a number belongs"),
        (with_field("dead", {"numbers": {"9" * 5_000: {}}}), "where a number belongs"),
        (with_field("dead", {"numbers": {"01": {}}}), "found the key '01' where a number belongs"),
        (with_field("more", 1), "EpochPlan: found the fields cut, dead, epoch, gaps, more"),
        (lambda content: [content], "found list where dict belongs"),
        (lambda content: None, "found NoneType where dict belongs"),
    ],
)
def test_what_is_wrong_is_said(change: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(UnfitError) as unfit:
        decode(EpochPlan, change(through_json(encode(plan_of(1, 1)))))
    assert message in str(unfit.value)


def test_a_record_of_another_kind_is_unfit() -> None:
    for record, kind in ((plan_of(1, 1), Commit), (commit_of(plan_of(1, 1), 1, {}), EpochPlan)):
        with pytest.raises(UnfitError):
            decode(kind, through_json(encode(record)))


@dataclass(frozen=True)
class Nested:
    """All that the fields of records may be."""

    pairs: dict[int, tuple[str, ...]]
    perhaps: tuple[Literal["a", "b"], ...] | None
    deep: dict[str, dict[int, dict[int, int | None]]]


@given(st.from_type(Nested))
def test_other_records_of_the_same_types_would_do_as_well(record: Nested) -> None:
    assert decode(Nested, through_json(encode(record))) == record
