"""The note that an erasure leaves in the folder of an app, and what goes because of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.ledger.erasure import (
    ERASURES_NAME,
    find_copies,
    load_erasures,
    note_erasure,
    sink_topics_from,
    topics_read,
)
from penstock.engine.ledger.garbage import Garbage
from penstock.engine.ledger.ledger import Ledger, open_ledger
from penstock.engine.ledger.records import (
    Commit,
    EpochChanges,
    EpochPlan,
    ReplacedOutputs,
    SinkRecord,
    StoredView,
    TrackRecord,
    padded_epoch,
)
from penstock.engine.ledger.registration import Registration
from penstock.engine.ledger.savepoints import Savepoints
from penstock.engine.plan.cut import Cut, SourceCut
from penstock.engine.state.run import RunFile
from penstock.errors import DamagedError
from penstock.storage.files import Disk, write_durably
from penstock.testing import MemoryLog

PEOPLE = "people-1"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    opened = open_ledger(tmp_path / "shop", "shop", state_partitions=1, created=7)
    opened.take_over(1)
    return opened


def commit(ledger: Ledger, version: str, *, replaced: str | None = None) -> Path:
    """One more epoch, with a view 'names' of this version and one run; the path of the run."""
    epoch = ledger.last_epoch() + 1
    run = RunFile(f"views/names/0/{padded_epoch(epoch)}-1-aa.arrow", 1, 4, 0)
    path = ledger.directory / run.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows")
    view = StoredView(version, "name string", None, "appended", {0: (run,)})
    cut = Cut(epoch, 7, {"people": SourceCut("people", PEOPLE, {0: 0}, {0: epoch}, None)})
    live = TrackRecord(cut, outputs={"names": version, "copies": version}, views={"names": view})
    before = ReplacedOutputs(views={"old": StoredView(replaced, "name string", None, "appended")} if replaced else {})
    written = {"copies": SinkRecord("copies-1", "said", {"people": PEOPLE})}
    ledger.write_plan(EpochPlan(epoch, 1, "live", cut, {}, {}, {}))
    ledger.commit(Commit(epoch, 1, 7, live, replaced=before, written=written), EpochChanges(epoch, 7))
    return path


def test_an_app_has_a_copy_until_its_outputs_have_other_versions(ledger: Ledger) -> None:
    commit(ledger, "one.0")
    assert topics_read(ledger) == {PEOPLE}
    assert sink_topics_from(ledger, [PEOPLE]) == ("copies-1",)
    assert sink_topics_from(ledger, ["others-1"]) == ()
    assert find_copies(ledger, PEOPLE).views == ()
    note_erasure(ledger, "people", PEOPLE, ["copies-1"], now=9)
    found = find_copies(ledger, PEOPLE)
    assert (found.views, found.sinks, found.derived_topics) == (("names",), ("copies",), ("copies-1",))
    assert find_copies(ledger, "others-1").views == ()
    commit(ledger, "one.1", replaced="one.0")
    assert find_copies(ledger, PEOPLE).views == ()


def test_views_that_readers_still_see_during_a_rebuild_count(ledger: Ledger) -> None:
    commit(ledger, "one.0", replaced="two.0")
    note_erasure(ledger, "people", PEOPLE, [], now=9)
    commit(ledger, "one.1", replaced="two.0")
    assert find_copies(ledger, PEOPLE).views == ("old",)


def test_what_was_built_before_goes_as_soon_as_the_last_commit_has_nothing_of_it(ledger: Ledger) -> None:
    before = [commit(ledger, "one.0") for _ in range(3)]
    note_erasure(ledger, "people", PEOPLE, [], now=9)
    garbage = Garbage(ledger)
    garbage.collect(10)
    assert all(path.exists() for path in before)
    after = commit(ledger, "one.3")
    garbage.collect(10)
    assert not any(path.exists() for path in before)
    assert after.exists()
    assert ledger.epochs_with("commit") == ledger.epochs_with("plan") == ledger.epochs_with_changes() == [4]
    for _ in range(3):
        commit(ledger, "one.3")
        garbage.collect(10)
    assert ledger.epochs_with("commit") == ledger.epochs_with_changes() == [4, 5, 6, 7]


def test_a_savepoint_from_before_counts_until_it_is_dropped(ledger: Ledger) -> None:
    run = commit(ledger, "one.0")
    savepoints = Savepoints(ledger, Registration(MemoryLog(), "shop"))
    savepoints.create("friday", created=8)
    note_erasure(ledger, "people", PEOPLE, [], now=9)
    commit(ledger, "one.1")
    Garbage(ledger).sweep(10)
    assert run.exists()
    assert find_copies(ledger, PEOPLE).savepoints == ("friday",)
    savepoints.drop("friday")
    Garbage(ledger).sweep(10)
    assert not run.exists()
    assert find_copies(ledger, PEOPLE).savepoints == ()


def test_notes_add_up_by_topic(ledger: Ledger) -> None:
    commit(ledger, "one.0")
    note_erasure(ledger, "people", PEOPLE, ["copies-1"], now=9)
    commit(ledger, "one.1")
    note_erasure(ledger, "people", PEOPLE, ["more-1"], now=11)
    note_erasure(ledger, "orders", "orders-1", [], now=12)
    people, orders = load_erasures(ledger)
    assert (people.erased_at, people.outputs["names"]) == (11, ("one.0", "one.1"))
    assert people.derived_topics == ("copies-1", "more-1")
    assert (orders.topic, orders.outputs["names"]) == ("orders", ("one.1",))


def test_a_note_that_is_damaged_is_refused(ledger: Ledger) -> None:
    commit(ledger, "one.0")
    note_erasure(ledger, "people", PEOPLE, [], now=9)
    write_durably(Disk(), ledger.directory / ERASURES_NAME, b"{}")
    with pytest.raises(DamagedError, match=ERASURES_NAME):
        load_erasures(ledger)
