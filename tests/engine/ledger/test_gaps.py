"""Gaps, as plain data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from penstock.engine.ledger.gaps import (
    add_gaps,
    app_gaps,
    current_gaps,
    find_unread_gaps,
    gap_text,
    gaps_of_output,
    gaps_text,
    skip_gaps,
    unknown_gaps,
)
from penstock.engine.ledger.ledger import APP_NAME, Ledger, open_ledger
from penstock.engine.ledger.records import Commit, EpochPlan, Gap, TrackRecord
from penstock.engine.plan.cut import Cut, SourceCut
from penstock.storage.document import load_document, store_document
from penstock.storage.files import Disk


def gap(start: int, end: int, *, partition: int = 0, topic: str = "events", **outputs: str) -> Gap:
    return Gap(topic, f"{topic}-1", partition, start, end, 7, outputs or {"a": "one.1"})


def cut(**ends: int) -> Cut:
    starts = dict.fromkeys(map(int, (name[1:] for name in ends)), 0)
    source = SourceCut("events", "events-1", starts, {int(name[1:]): end for name, end in ends.items()}, None)
    return Cut(3, 7, {"events": source})


def test_what_lies_between_the_cut_and_the_first_offset_is_a_gap() -> None:
    found = find_unread_gaps(cut(p0=5, p1=9), {"events": {0: 8, 1: 9}}, lambda topic: {"a": "one.1"}, now=7)
    assert found == (gap(5, 8),)
    assert skip_gaps(cut(p0=5, p1=9), found).sources["events"].ends == {0: 8, 1: 9}


def test_a_cut_of_another_topic_of_the_same_name_is_not_moved() -> None:
    other = replace(gap(5, 8), topic_id="events-2")
    assert skip_gaps(cut(p0=5), [other]) == cut(p0=5)


def test_gaps_of_the_same_outputs_that_touch_become_one() -> None:
    assert add_gaps([gap(0, 5)], [gap(5, 8)]) == (gap(0, 8),)
    assert add_gaps([gap(0, 5)], [gap(6, 8)]) == (gap(0, 5), gap(6, 8))
    assert add_gaps([gap(0, 5)], [gap(3, 8, b="one.2")]) == (gap(0, 5), gap(3, 8, b="one.2"))
    assert add_gaps([gap(0, 5)], [gap(0, 5, partition=1)]) == (gap(0, 5), gap(0, 5, partition=1))


def test_a_gap_is_known_only_for_outputs_that_have_it() -> None:
    accepted = [gap(0, 8, a="one.1", b="one.1")]
    assert unknown_gaps([gap(2, 8)], accepted) == ()
    assert unknown_gaps([gap(2, 9)], accepted) == (gap(2, 9),)
    assert unknown_gaps([gap(2, 8, a="one.2")], accepted) == (gap(2, 8, a="one.2"),)


def test_a_gap_goes_with_the_last_output_that_has_it() -> None:
    gaps = [gap(0, 8, a="one.1", b="one.1")]
    assert current_gaps(gaps, {"a": "one.1"}, {"b": "two.5"}) == (gap(0, 8, a="one.1"),)
    assert current_gaps(gaps, {"a": "two.5"}) == ()
    assert gaps_of_output(gaps, "b", "one.1") == tuple(gaps)
    assert gaps_of_output(gaps, "b", "two.5") == ()


def test_gaps_are_named_by_their_offsets_and_very_many_are_counted() -> None:
    assert gap_text(gap(3, 1003)) == "topic 'events', partition 0: offsets 3 to 1,002 (1,000 offsets)"
    assert gap_text(gap(3, 4)) == "topic 'events', partition 0: offset 3"
    assert gaps_text([gap(0, 5, partition=number) for number in range(10)]).endswith(
        "; and 2 more, which `penstock plan` lists"
    )


def test_they_are_stored_with_plan_and_commit_and_found_by_the_folder(tmp_path: Path) -> None:
    assert app_gaps(tmp_path / "shop") == ()
    ledger = open_ledger(tmp_path / "shop", "shop", state_partitions=1, created=7)
    ledger.take_over(1)
    ledger.write_plan(EpochPlan(1, 1, "live", cut(p0=5), {}, {"a": "one.1"}, {}, gaps=(gap(0, 5),)))
    assert app_gaps(tmp_path / "shop") == ()
    ledger.commit(Commit(1, 1, 7, TrackRecord(cut(p0=5), outputs={"a": "one.1"}), gaps=(gap(0, 5),)))
    assert app_gaps(tmp_path / "shop") == (gap(0, 5),)


def test_a_folder_from_before_gaps_is_read_and_declared_to_be_new_when_the_app_starts(tmp_path: Path) -> None:
    directory = tmp_path / "shop"
    ledger = open_ledger(directory, "shop", state_partitions=1, created=7)
    ledger.take_over(1)
    ledger.write_plan(EpochPlan(1, 1, "live", cut(p0=5), {}, {}, {}))
    ledger.commit(Commit(1, 1, 7, TrackRecord(cut(p0=5))))
    files = Disk()
    for path in directory.glob("epochs/*.json"):
        content = json.loads(path.read_text())["content"]
        store_document(files, path, {name: value for name, value in content.items() if name != "gaps"})
    description = load_document(files, directory / APP_NAME, what="app")
    store_document(files, directory / APP_NAME, {**description, "ledger": 3})
    found = Ledger(directory).last_commit()
    assert found is not None
    assert found.gaps == ()
    open_ledger(directory, "shop", state_partitions=1, created=9)
    assert load_document(files, directory / APP_NAME, what="app") == {**description, "ledger": 4}
