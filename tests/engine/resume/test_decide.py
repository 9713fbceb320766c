"""The one decision of a start, by example. Whole histories of starts are in test_histories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts import Destination, TargetStatus
from penstock.engine.ledger.records import (
    BackfillRecord,
    Commit,
    EpochPlan,
    Gap,
    ReplacedOutputs,
    SinkRecord,
    TrackName,
    TrackRecord,
)
from penstock.engine.plan.cut import Cut, SourceCut
from penstock.engine.resume.decide import (
    Action,
    Declared,
    DeclaredSink,
    Found,
    TopicFound,
    can_continue_backfill,
    decide,
    decide_pending,
    fingerprint_of,
    version,
)

EVENTS = TopicFound("events-1", {0: 0}, {0: 10})
EMPTY = TopicFound("notes-1", {0: 0}, {0: 0})
USED = replace(EMPTY, ends={0: 3})
RECORD = SinkRecord("notes-1", "said", {"events": "events-1"})
SINK = DeclaredSink("notes", "shop.py:3", "topics", "topic 'notes'", "penstock topic drop notes", RECORD)


def cut(end: int = 5, *, topic_id: str = "events-1", epoch: int = 3) -> Cut:
    return Cut(epoch, 7, {"events": SourceCut("events", topic_id, {0: 0}, {0: end}, None)})


def declared(*, rebuild: bool = False, sinks: tuple[DeclaredSink, ...] = (), **fingerprints: str) -> Declared:
    """A program with these outputs, all of which read 'events'."""
    reads = dict.fromkeys(fingerprints, frozenset({"events"}))
    return Declared("shop", fingerprints, reads, {sink.name: sink for sink in sinks}, rebuild)


def committed(*, written: dict[str, SinkRecord] | None = None, **fingerprints: str) -> Commit:
    """The commit of epoch 3 of a program with these outputs."""
    live = TrackRecord(cut(), outputs={name: version(one, 1) for name, one in fingerprints.items()})
    return Commit(3, 1, 7, live, written=written or {}, origins={"events": {0: 0}})


def found(last: Commit | None, pending: EpochPlan | None = None, *, seen: bool = False, **topics: TopicFound) -> Found:
    """`seen`: sinks have written the pending epoch."""
    written = pending.epoch if seen and pending else last.epoch if last else 0
    destinations = {name: Destination(one.id, is_empty=not any(one.ends.values())) for name, one in topics.items()}
    targets = {"topics": TargetStatus(written, destinations=destinations)}
    return Found(last, pending, {"events": EVENTS, **topics}, targets)


def planned(track: TrackName, *, epoch: int = 4, topics: dict[str, str] | None = None, **versions: str) -> EpochPlan:
    return EpochPlan(epoch, 1, track, cut(8, epoch=epoch), {}, versions, topics or {})


# -- what is kept and what is built -----------------------------------------------------------------------------------

PRINTS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["one", "two"]), min_size=1)


@given(PRINTS, PRINTS, st.booleans())
def test_every_output_is_in_exactly_one_part(now: dict[str, str], before: dict[str, str], rebuild: bool) -> None:
    resume = decide(declared(rebuild=rebuild, **now), found(committed(**before)))
    assert sorted((*resume.kept, *resume.backfill)) == sorted(now)
    assert sorted((*resume.rebuilt, *resume.new)) == sorted(resume.backfill)
    assert set(resume.dropped) == before.keys() - now.keys()
    assert set(resume.rebuilt) <= before.keys()
    same = {name for name in now if now[name] == before.get(name)}
    assert set(resume.kept) == (set() if rebuild else same)
    assert {name: fingerprint_of(one) for name, one in resume.versions.items()} == now
    assert resume == decide(declared(rebuild=rebuild, **now), found(committed(**before)))


def test_at_the_first_start_everything_is_new_and_nothing_waits_for_a_backfill() -> None:
    resume = decide(declared(a="one", b="two"), found(None))
    assert (resume.first, resume.backfill, resume.new) == (True, {}, ("a", "b"))
    assert resume.kept == {"a": version("one", 0), "b": version("two", 0)}
    assert resume.origins == {"events": {0: 0}}


def test_the_same_output_built_a_second_time_is_another_version() -> None:
    resume = decide(declared(a="one", rebuild=True), found(committed(a="one")))
    assert resume.backfill == {"a": version("one", 3)} != committed(a="one").live.outputs


def test_outputs_of_a_program_that_comes_back_are_kept() -> None:
    last = replace(committed(b="two"), replaced=ReplacedOutputs(outputs={"a": version("one", 1)}))
    assert decide(declared(a="one", b="two"), found(last)).kept == {"a": version("one", 1), "b": version("two", 1)}


def test_what_an_epoch_that_sinks_have_written_leaves_out_is_not_kept() -> None:
    pending = planned("live", b=version("two", 1))
    resume = decide(declared(a="one", b="two"), found(committed(a="one", b="two"), pending, seen=True))
    assert (set(resume.kept), set(resume.backfill)) == ({"b"}, {"a"})
    resume = decide(declared(a="one", b="two"), found(committed(a="one", b="two"), pending))
    assert set(resume.kept) == {"a", "b"}


def test_a_backfill_goes_on_only_for_the_same_outputs_and_topics() -> None:
    track = TrackRecord(cut(2), outputs={"a": version("one", 2), "notes": version("said", 2)})
    begun = BackfillRecord(track, {"notes": "notes-1"}, ("notes",))
    program = declared(sinks=(SINK,), a="one", notes="said", c="one")
    assert can_continue_backfill(begun, program, ("a", "notes"), {"notes"})
    assert not can_continue_backfill(begun, program, ("a", "notes", "c"), {"notes"})
    assert not can_continue_backfill(begun, program, ("a",), {"notes"})
    assert not can_continue_backfill(begun, program, ("a", "notes"), set())
    assert not can_continue_backfill(None, program, ("a",), {"notes"})
    other = declared(sinks=(SINK,), a="one", notes="told", c="one")
    assert not can_continue_backfill(begun, other, ("a", "notes"), {"notes"})
    moved = declared(sinks=(replace(SINK, record=replace(RECORD, topic="notes-2")),), a="one", notes="said")
    assert not can_continue_backfill(begun, moved, ("a", "notes"), {"notes"})


def test_a_sink_that_has_written_everything_is_muted_while_it_is_built_again() -> None:
    last = committed(written={"notes": RECORD}, notes="said", a="one")
    assert decide(declared(sinks=(SINK,), rebuild=True, notes="said"), found(last, notes=USED)).muted == {"notes"}
    narrowed = decide(declared(sinks=(SINK,), notes="otherwise", a="one"), found(last, notes=USED))
    assert (set(narrowed.backfill), narrowed.muted, narrowed.refused) == ({"notes"}, {"notes"}, None)


# -- a plan without a commit ------------------------------------------------------------------------------------------

LIVE, HALF = {"a": version("one", 1)}, {"b": version("two", 3)}


@pytest.mark.parametrize(
    ("pending", "seen", "backfill", "action"),
    [
        (None, False, None, "none"),
        (planned("live", **LIVE), False, None, "run"),
        (planned("live", **LIVE), True, None, "run"),
        (planned("live", **LIVE), False, HALF, "replan"),  # live outputs stand still during a backfill
        (planned("live", **LIVE), True, HALF, "run"),
        (planned("live", **LIVE, c="x.1"), False, None, "replan"),
        (planned("live", **LIVE, c="x.1"), True, None, "finish"),
        (planned("live", **LIVE, c="x.1"), True, HALF, "finish"),
        (planned("backfill", **HALF), False, HALF, "run"),
        (planned("backfill", **HALF), True, HALF, "run"),
        (planned("backfill", b="two.2"), False, HALF, "replan"),
        (planned("backfill", b="two.2"), True, HALF, "skip"),
        (planned("backfill", **HALF), False, None, "replan"),
        (planned("backfill", **HALF), True, None, "skip"),
    ],
)
def test_what_becomes_of_a_plan_without_a_commit(
    pending: EpochPlan | None, seen: bool, backfill: dict[str, str] | None, action: Action
) -> None:
    what = found(committed(a="one"), pending, seen=seen)
    assert decide_pending(what, LIVE, backfill, {}) == action


@pytest.mark.parametrize(("seen", "action"), [(False, "replan"), (True, "use up")])
def test_before_the_first_commit_a_plan_of_other_outputs_gives_only_its_number(seen: bool, action: Action) -> None:
    what = found(None, planned("live", epoch=1, b="two.0"), seen=seen)
    assert decide_pending(what, {"a": "one.0"}, None, {}) == action


@pytest.mark.parametrize("gone", ["sink", "input", "missing input"])
def test_a_plan_about_a_topic_that_was_made_again_is_not_run(gone: str) -> None:
    plan = planned("live", topics={"notes": "notes-1"}, notes=version("said", 1))
    what = found(committed(notes="said"), plan)
    sink = SINK
    if gone == "sink":
        sink = replace(SINK, record=replace(RECORD, topic="notes-2"))
    elif gone == "input":
        what = replace(what, topics={"events": replace(EVENTS, id="events-2")})
    else:
        what = replace(what, topics={}, missing=frozenset({"events"}))
    assert decide_pending(what, plan.outputs, None, {"notes": sink}) == "replan"


def test_an_epoch_that_is_skipped_ends_a_backfill_only_if_it_has_written_its_topics() -> None:
    """Otherwise the same rows would be written twice, or what was begun could not be continued."""
    track = TrackRecord(cut(2), outputs={"notes": version("said", 2)})
    last = replace(committed(a="one"), backfill=BackfillRecord(track, {"notes": "notes-1"}))
    program = declared(sinks=(SINK,), a="one", notes="said")
    for topics, continues in (({"other": "other-1"}, True), ({"notes": "notes-1"}, False)):
        pending = planned("backfill", topics=topics, other="x.3")
        resume = decide(program, found(last, pending, seen=True, notes=USED))
        assert (resume.action, resume.continues) == ("skip", continues)
        assert (resume.refused is None) == continues


# -- what is refused --------------------------------------------------------------------------------------------------


def refusal(program: Declared, what: Found) -> tuple[str, str]:
    refused = decide(program, what).refused
    assert refused is not None
    return refused.message, str(refused.hint)


def test_an_input_that_was_dropped_is_refused_unless_everything_is_built_again() -> None:
    other = found(committed(a="one"), events=replace(EVENTS, id="events-2"))
    message, hint = refusal(declared(a="one"), other)
    assert message == "app 'shop': topic 'events' is not the one it has read: it was dropped and created again"
    assert "--rebuild" in hint
    missing = replace(other, topics={}, missing=frozenset({"events"}))
    message, _ = refusal(declared(a="one"), missing)
    assert message == "app 'shop': topic 'events' is not the one it has read: it was dropped"
    for what in (other, missing):
        assert decide(declared(a="one", rebuild=True), what).refused is None


def test_a_topic_that_the_program_does_not_read_any_more_may_be_gone() -> None:
    program = Declared("shop", {"b": "one"}, {"b": frozenset({"others"})})
    assert decide(program, replace(found(committed(a="one")), topics={}, missing=frozenset({"others"}))).refused is None


def test_what_the_log_no_longer_has_cannot_be_built_again() -> None:
    what = found(committed(a="one"), events=replace(EVENTS, starts={0: 4}))
    for program in (declared(a="two"), declared(a="one", rebuild=True), declared(a="one", b="one")):
        message, hint = refusal(program, what)
        assert "topic 'events', partition 0: offsets 0 to 3 (4 offsets)" in message
        assert "--from-oldest" in hint
    assert decide(declared(a="one"), what).refused is None
    began_late = replace(committed(a="one"), origins={"events": {0: 4}})
    assert decide(declared(a="two"), replace(what, last=began_late)).refused is None


def gap(start: int, end: int, **outputs: str) -> Gap:
    return Gap("events", "events-1", 0, start, end, 0, outputs)


def test_what_is_to_be_built_is_built_from_the_oldest_rows_if_the_user_wants_that() -> None:
    what = found(committed(a="one"), events=replace(EVENTS, starts={0: 4}))
    resume = decide(replace(declared(a="one", b="one"), from_oldest=True), what)
    assert (resume.refused, resume.unread) == (None, ())
    assert resume.gaps == resume.unbuilt == (gap(0, 4, b="one.3"),)
    assert decide(replace(declared(a="one"), from_oldest=True), what).gaps == ()


def test_rows_that_were_removed_before_they_were_read_are_refused_or_a_gap() -> None:
    what = found(committed(a="one"), events=replace(EVENTS, starts={0: 7}))
    message, hint = refusal(declared(a="one"), what)
    assert "rows that it has not read were removed by retention: topic 'events', partition 0: offsets 5 to 6" in message
    assert "penstock run FILE --from-oldest" in hint
    assert decide(replace(declared(a="one"), from_oldest=True), what).gaps == (gap(5, 7, a="one.1"),)
    both = decide(replace(declared(a="one", b="one"), from_oldest=True), what)
    assert (both.unread, both.unbuilt) == ((gap(5, 7, a="one.1"),), (gap(0, 7, b="one.3"),))


def test_a_gap_that_a_plan_was_made_with_needs_no_second_consent_if_the_plan_is_run() -> None:
    plan = replace(planned("live", a="one.1"), gaps=(gap(5, 7, a="one.1"),))
    what = replace(found(committed(a="one"), plan), topics={"events": replace(EVENTS, starts={0: 7})})
    resume = decide(declared(a="one"), what)
    assert (resume.action, resume.refused, resume.gaps) == ("run", None, plan.gaps)
    assert decide(declared(a="two"), what).refused is not None


def test_outputs_of_the_program_before_miss_what_the_live_ones_have_not_read() -> None:
    what = found(committed(a="one", b="one"), events=replace(EVENTS, starts={0: 7}))
    resume = decide(replace(declared(a="one", b="two"), from_oldest=True), what)
    assert resume.unread == (gap(5, 7, a="one.1", b="one.1"),)


def test_a_sink_that_replaces_rows_is_not_built_without_the_rows_it_was_made_of() -> None:
    last = committed(a="one", notes="one", written={"notes": RECORD})
    what = found(last, events=replace(EVENTS, starts={0: 4}), notes=USED)
    for replaces_rows in (False, True):
        sink = replace(SINK, replaces_rows=replaces_rows)
        program = replace(declared(a="one", notes="two", sinks=(sink,)), from_oldest=True)
        resume = decide(program, what)
        assert resume.muted == {"notes"}
        assert (resume.refused is not None) is replaces_rows


def test_a_topic_of_a_sink_that_was_dropped_is_refused_unless_everything_is_built_again() -> None:
    last = committed(written={"notes": RECORD}, notes="said")
    sink = replace(SINK, record=replace(RECORD, topic=None))
    message, hint = refusal(declared(sinks=(sink,), notes="said"), found(last))
    assert message == "shop.py:3: sink 'notes': topic 'notes', which it has written, was dropped"
    assert "--rebuild" in hint
    again = decide(declared(sinks=(sink,), notes="said", rebuild=True), found(last))
    assert (again.refused, again.muted) == (None, frozenset())


@pytest.mark.parametrize("last", [None, committed(a="one"), committed(notes="before", written={"notes": RECORD})])
def test_a_sink_that_is_new_or_has_changed_needs_an_empty_topic(last: Commit | None) -> None:
    sink = replace(SINK, record=replace(RECORD, says="otherwise"))
    message, hint = refusal(declared(sinks=(sink,), notes="otherwise"), found(last, notes=USED))
    assert message == "shop.py:3: sink 'notes': it is new or has changed, and topic 'notes' has rows"
    assert "penstock topic drop notes" in hint
    for topics in ({"notes": EMPTY}, {}):
        assert decide(declared(sinks=(sink,), notes="otherwise"), found(last, **topics)).refused is None


def test_a_backfill_that_goes_on_may_have_written_its_topics() -> None:
    track = TrackRecord(cut(2), outputs={"notes": version("said", 2)})
    last = replace(committed(a="one"), backfill=BackfillRecord(track, {"notes": "notes-1"}))
    resume = decide(declared(sinks=(SINK,), a="one", notes="said"), found(last, notes=USED))
    assert (resume.continues, resume.backfill, resume.refused) == (True, {"notes": version("said", 2)}, None)
    assert refusal(declared(sinks=(SINK,), a="one", notes="said", b="two"), found(last, notes=USED))


def test_so_may_the_first_epoch_of_one_that_was_not_committed() -> None:
    pending = planned("backfill", topics={"notes": "notes-1"}, notes=version("said", 3))
    program = declared(sinks=(SINK,), a="one", notes="said")
    resume = decide(program, found(committed(a="one"), pending, seen=True, notes=USED))
    assert (resume.action, resume.refused) == ("run", None)
