"""A program beside the one that ran before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.resume.versions import (
    Difference,
    Ids,
    check_reach,
    check_topics,
    difference,
    fingerprints,
    goes_on,
    known_origins,
    part_of,
    source_names,
    version,
)
from penstock.errors import DeclarationError

PRINTS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["one", "two"]))


@given(PRINTS, PRINTS, st.booleans())
def test_every_view_is_in_exactly_one_part(declared: dict[str, str], stored: dict[str, str], rebuild: bool) -> None:
    versions = {name: version(one, 3) for name, one in stored.items()}
    found = difference(declared, versions, rebuild=rebuild)
    assert sorted((*found.kept, *found.built, *found.dropped)) == sorted({*declared, *stored})
    same = {name for name in declared if declared[name] == stored.get(name)}
    assert set(found.kept) == (set() if rebuild else same)


def test_the_same_view_built_a_second_time_is_another_version() -> None:
    assert version("one", 3) != version("one", 4)
    assert difference({"a": "one"}, {"a": version("one", 3)}) == Difference(("a",), (), (), ())


def test_what_was_begun_goes_on_only_for_the_same_views() -> None:
    half = {"outputs": {"a": version("one", 3), "b": version("two", 3)}, "topics": {"b": "id"}, "silent": ["b"]}
    topics = Ids({}, {"b": "id"})
    declared = {"a": "one", "b": "two", "c": "one"}
    assert goes_on(half, declared, ("a", "b"), topics, {"b"})
    assert not goes_on(half, declared, ("a", "b", "c"), topics, {"b"})
    assert not goes_on(half, declared | {"b": "three"}, ("a", "b"), topics, {"b"})
    assert not goes_on(half, declared, ("a", "b"), Ids({}, {"b": "another"}), {"b"})
    assert not goes_on(half, declared, ("a", "b"), topics, set())
    assert not goes_on(None, declared, ("a",), topics, {"b"})


def test_a_program_says_what_it_reads() -> None:
    app = ps.App("shop")
    events = app.topic("events", schema="id long")
    app.view("a", events.select(id="id"))
    app.view("b", events.union(app.topic("more", schema="id long")))
    assert source_names(app.plan) == {"events", "more"}
    assert source_names(part_of(app.plan, ("a",))) == {"events"}
    assert fingerprints(app.plan).keys() == {"a", "b"}


def test_rows_that_the_app_has_begun_with_must_still_be_there() -> None:
    check_reach("shop", {"events": {"0": 5}}, {"events": {0: 5}, "new": {0: 100}})
    with pytest.raises(DeclarationError, match="partition 0 begins at offset 6, and the app had begun at 5"):
        check_reach("shop", {"events": {"0": 5}}, {"events": {0: 6}})


def test_a_topic_is_the_same_only_by_its_id() -> None:
    document: dict[str, Any] = {
        "cut": {"sources": {"events": {"topic_id": "one"}}},
        "building": {"cut": {"sources": {"more": {"topic_id": "two"}}}},
        "origins": {"events": {"0": 5}, "more": {"0": 0}},
    }
    check_topics("shop", document, {"events": "one", "another": "three"})
    with pytest.raises(DeclarationError, match="topic 'more' is not the one it has read"):
        check_topics("shop", document, {"events": "one", "more": "other"})
    assert known_origins(document, {"events": "one", "more": "other"}) == {"events": {"0": 5}}
